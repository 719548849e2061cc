"""Shapes that are inferred from parts of them: forwards, backwards, and from one input to another."""

import warnings

from parity.spec import family, outcome

case, program = family(__name__)


def told(*symbols_and_shapes):
    """What is inferred partially, and the outputs where it is complete, for symbols each followed by its shapes."""

    def one(symbol, shapes):
        partial = outcome(lambda: symbol.infer_shape_partial(**shapes))
        return partial, outcome(lambda: symbol.infer_shape(**shapes)[1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [one(*each) for each in zip(symbols_and_shapes[::2], symbols_and_shapes[1::2])]


def variables(mx, names="abcg"):
    return [mx.sym.var(name) for name in names]


@program
def shapes_of_elementwise_ops_flow_both_ways(mx):
    s = mx.sym
    a, b, c, g = variables(mx)
    return told(
        a + b, {"a": (2, 0), "b": (0, 3)},
        s.relu(a) + b, {"b": (2, 3)},
        s.add_n(a, b, c), {"a": (2, 0), "c": (0, 3)},
        s.flip(s.BlockGrad(a), axis=0) + g, {"a": (0, 3), "g": (2, 0)},
        s.cumsum(a, axis=0) + g, {"g": (2, 3)},
        s.Cast(a, dtype="float16") + g, {"a": (0, 0), "g": (2, 3)},
        s.broadcast_add(a, b), {"a": (2, 0, 4), "b": (1, 3, 0)},
        s.broadcast_mul(a, b), {"a": (0, 3), "b": (0, 0)},
        a + b, {},
    )  # fmt: skip


@program
def shapes_of_joined_and_split_arrays(mx):
    s = mx.sym
    a, b, c, g = variables(mx)
    split = s.SliceChannel(a, num_outputs=2, axis=1)
    return told(
        s.Concat(a, b, dim=1), {"a": (2, 0), "b": (0, 3)},
        s.Concat(a, b, dim=1) + g, {"a": (2, 0), "b": (0, 3), "g": (0, 5)},
        s.Concat(a, b, c, dim=0), {"a": (2, 3), "b": (1, 0), "c": (4, 0)},
        s.Concat(a, b, dim=-1), {"a": (2, 3, 4), "b": (0, 0, 1)},
        split[0] + g, {"a": (0, 4), "g": (3, 0)},
        split[1] + g, {"a": (0, 4, 0), "g": (2, 0, 3)},
        s.SliceChannel(a, num_outputs=4, axis=1, squeeze_axis=True)[2] + g, {"a": (0, 4, 0), "g": (2, 3)},
        s.split_v2(a, 2, axis=1)[0] + g, {"a": (0, 4, 0), "g": (2, 0, 3)},
        s.split_v2(a, (1, 3), axis=1)[0] + g, {"a": (2, 4, 0), "g": (2, 1, 3)},
        s.stack(a, b, axis=1), {"a": (2, 3), "b": (2, 3)},
    )  # fmt: skip


@program
def shapes_of_layers_from_their_results(mx):
    s = mx.sym
    a, _, _, g = variables(mx)
    conv = s.Convolution(a, kernel=(3, 3), pad=(1, 0), num_filter=4, name="conv")
    dilated = s.Convolution(a, kernel=(3, 3), dilate=(2, 2), num_filter=4, num_group=2, name="conv")
    strided = s.Convolution(a, kernel=(3, 3), stride=(2, 2), num_filter=4, name="conv")
    return told(
        conv + g, {"a": (0, 3, 0, 0), "g": (2, 4, 6, 7)},
        conv, {"a": (2, 0, 8, 0)},
        dilated + g, {"a": (0, 4, 0, 7), "g": (2, 0, 4, 0)},
        strided + g, {"a": (2, 3, 0, 0), "g": (2, 4, 3, 3)},
        s.Convolution(a, kernel=(3,), num_filter=4, name="conv") + g, {"a": (2, 3, 0), "g": (2, 4, 4)},
        s.Deconvolution(a, kernel=(3, 3), num_filter=4, name="de") + g, {"a": (0, 3, 6, 7), "g": (2, 4, 0, 0)},
        s.Deconvolution(a, kernel=(3, 3), stride=(2, 2), num_filter=4, name="de"), {"a": (2, 3, 0, 7)},
        s.FullyConnected(a, num_hidden=4, name="fc") + g, {"a": (0, 3), "g": (2, 0)},
        s.FullyConnected(a, num_hidden=4, flatten=False, name="fc"), {"a": (0, 3, 5)},
        s.Pooling(a, global_pool=True, kernel=(1, 1)), {"a": (2, 3, 0, 7)},
        s.BatchNorm(a, name="bn") + g, {"a": (2, 3, 0), "g": (0, 0, 4)},
        s.Embedding(a, input_dim=5, output_dim=3, name="em"), {"a": (2, 0)},
    )  # fmt: skip


@program
def shapes_of_reshaped_arrays(mx):
    s = mx.sym
    a, b, _, g = variables(mx)
    reshape = s.Reshape
    return told(
        reshape(a, shape=(0, -1)) + g, {"a": (2, 3, 0), "g": (0, 12)},
        reshape(a, shape=(-1, 4)), {"a": (0, 8)},
        reshape(a, shape=(-1,)) + g, {"a": (0, 3), "g": (6,)},
        reshape(a, shape=(6, 4)) + g, {"a": (2, 0, 4), "g": (0, 4)},
        reshape(a, shape=(0, 12)), {"a": (0, 0, 4)},
        reshape(a, shape=(0, 12)) + g, {"a": (2, 0, 4)},
        reshape(a, shape=(-2,)) + g, {"a": (2, 0, 4), "g": (2, 3, 4)},
        reshape(a, shape=(0, -3)) + g, {"a": (0, 3, 4), "g": (2, 12)},
        reshape(a, shape=(-3, 0)), {"a": (2, 3, 0)},
        reshape(a, shape=(-4, 2, -1, 0)) + g, {"a": (0, 3), "g": (2, 2, 3)},
        reshape(a, shape=(-4, 2, 2, -2)), {"a": (4, 0)},
        reshape(a, shape=(-1, 0), reverse=True) + g, {"a": (2, 0, 4), "g": (6, 4)},
        s.transpose(a) + g, {"a": (2, 0, 4), "g": (4, 3, 0)},
        s.transpose(a, axes=(1, 2, 0)) + g, {"a": (0, 3, 0), "g": (0, 4, 2)},
        s.expand_dims(a, axis=1) + g, {"g": (2, 1, 3)},
        s.expand_dims(a, axis=-1) + g, {"a": (2, 0), "g": (0, 3, 0)},
        s.swapaxes(a, 0, 2), {"a": (2, 0, 4)},
    )  # fmt: skip


@program
def shapes_of_ops_that_look_into_arrays(mx):
    s = mx.sym
    a, b, c, g = variables(mx)
    return told(
        s.dot(a, b), {"a": (2, 0)},
        s.batch_dot(a, b), {"b": (2, 4, 0)},
        s.pick(a, b, axis=1), {"a": (2, 3)},
        s.pick(a, b, axis=1, keepdims=True), {"a": (2, 0), "b": (0, 1)},
        s.pick(a, b, axis=1, keepdims=True) + g, {"a": (0, 0), "b": (2, 1)},
        s.where(a, b, c), {"a": (2, 3), "b": (0, 3), "c": (2, 0)},
        s.slice(a, begin=(0, 1), end=(2, 3)), {"a": (2, 4)},
        s.slice(a, begin=(None, 1), end=(None, None)), {"a": (0, 4)},
        s.slice_axis(a, axis=1, begin=1, end=3), {"a": (0, 4)},
        s.slice(a, begin=(0, -2), end=(2, None), step=(1, 2)), {"a": (0, 4)},
        s.slice_like(a, b, axes=(1,)), {"a": (3, 4), "b": (2, 0)},
        s.linalg.gemm(a, b, c), {"a": (2, 3), "b": (3, 4), "c": (0, 4)},
        s.linalg.gemm(a, b, c), {"a": (0, 3), "b": (3, 4)},
    )  # fmt: skip


@program
def shapes_that_are_declared(mx):
    s = mx.sym
    g = s.var("g")
    return told(
        s.var("q", shape=(2, 3)) + g, {"q": (4, 5)},
        s.var("q", shape=(2, 0)) + g, {"q": (4, 5)},
        s.var("q", shape=(2, 0)) + g, {"q": (0, 5)},
        s.var("q", shape=(2, 0)) + g, {"q": ()},
        s.var("q", shape=(2, -1)) + g, {"g": (0, 3)},
        s.var("q") + g, {"q": (2, -1)},
        s.zeros((0, 3)) + g, {"g": (2, 0)},
        s.zeros((0, 3)), {},
    )  # fmt: skip


@program
def shapes_with_np_shape(mx):
    s = mx.sym
    a, b, _, g = variables(mx)
    with mx.util.np_shape(True):
        return told(
            a + b, {},
            a + b, {"a": (2, -1), "b": (-1, 3)},
            a + b, {"a": (2, 0)},
            a + b, {"a": ()},
            s.var("q", shape=(2, 0)) + b, {},
            s.var("q", shape=()) + b, {},
            s.zeros((2, -1)) + a, {"a": (-1, 0)},
            s.zeros((2, -1)), {},
            s.Concat(a, b, dim=1) + g, {"a": (2, -1), "b": (-1, 0)},
            s.SliceChannel(a, num_outputs=2, axis=1)[0] + g, {"a": (-1, 4), "g": (0, -1)},
            s.Convolution(a, kernel=(3, 3), num_filter=4, name="c") + g, {"a": (-1, 3, -1, 7), "g": (2, -1, 4, -1)},
            s.Reshape(a, shape=(-3, 0)) + g, {"a": (2, -1, 4), "g": (6, -1)},
            s.transpose(a) + g, {"a": (2, -1), "g": (0, -1)},
            s.expand_dims(a, axis=0) + g, {"g": (1, 0)},
            s.dot(a, b), {"a": (2, -1)},
            s.stack(a, b, axis=0), {"a": (0, 3), "b": (0, 3)},
        )  # fmt: skip


@program
def files_say_whether_np_shape_was_on(mx):
    s = mx.sym
    net = s.elemwise_add(s.var("a", shape=(2, 0)), s.var("b"), name="sum")
    with mx.util.np_shape(True):
        inside = net.tojson()
        kept = s.load_json(inside).tojson()
    outside = s.load_json(inside)
    return [inside, kept, net.tojson(), outside.tojson(), outside.infer_shape_partial(), mx.util.is_np_shape()]


@program
def arrays_of_a_graph_with_np_shape(mx):
    s = mx.sym
    net = s.var("a") * 2 + s.var("b")
    with mx.util.np_shape(True):
        scalar = net.simple_bind(mx.cpu(), a=(), b=())
        empty = net.simple_bind(mx.cpu(), a=(2, 0), b=(2, 0))
        results = [str(scalar.forward()[0].shape), str(empty.forward()[0].shape)]
    refused = outcome(lambda: net.simple_bind(mx.cpu(), a=(2, 0), b=(2, 0)))
    return results + [refused, str(net.simple_bind(mx.cpu(), a=(2, 1)).forward()[0].shape)]


@program
def attributes_and_children(mx):
    s = mx.sym
    v = s.var("v", attr={"mood": "x", "lr_mult": "2"}, shape=(2, 3), __foo__="1")
    fc = s.FullyConnected(v, num_hidden=3, name="fc", attr={"__q__": "1", "ctx_group": "g"})
    group = s.Group([fc, v])
    norm = s.BatchNorm(fc, name="bn")
    split = s.SliceChannel(norm, num_outputs=3, name="sp")
    rnn = s.RNN(
        s.var("a"), s.var("b"), s.var("c"), mode="gru", state_size=2, num_layers=1, state_outputs=True, name="r"
    )

    def ordered(attrs):
        return sorted((key, ordered(value) if isinstance(value, dict) else value) for key, value in attrs.items())

    return [
        ordered(v.list_attr()),
        ordered(fc.list_attr()),
        ordered(fc.attr_dict()),
        ordered(group.list_attr()),
        ordered(group.attr_dict()),
        ordered(split[1].list_attr()),
        [fc.attr(key) for key in ("num_hidden", "no_bias", "ctx_group", "__ctx_group__", "q", "nothing")],
        [group.attr("num_hidden"), v.attr("mood"), v.attr("lr_mult"), v.attr("shape")],
        fc.get_children().list_outputs(),
        group.get_children().list_outputs(),
        str(s.Group([v, s.var("w")]).get_children()),
        str(fc.get_children().get_children()),
        split[1].get_children().list_outputs(),
        split[1].get_internals().list_outputs(),
        s.Group([split[2], split[0]]).get_internals().list_outputs(),
        rnn.get_internals().list_outputs(),
        s.LeakyReLU(v, act_type="rrelu", name="lr").get_internals().list_outputs(),
        s.topk(v, k=1, ret_typ="both", name="tk").get_internals().list_outputs(),
        s.Group([v, v]).get_internals().list_outputs(),
        outcome(lambda: fc.get_internals()["nope"]),
        outcome(lambda: fc.list_attr(recursive=True)),
        outcome(lambda: group._set_attr(mood="1")),
    ]
