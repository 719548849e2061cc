"""mx.rnn: the graphs of every cell, their outputs and gradients, packed weights, and batches of sentences."""

import json
import random
import zlib

import numpy as np

from ..spec import family, outcome

case, program = family(__name__)


def graph(symbol):
    """A symbol's file as lines: op, name, inputs and attributes of each node, then the heads."""
    file = json.loads(symbol.tojson())
    lines = []
    for node in file["nodes"]:
        attrs = sorted(node.get("attrs", {}).items())
        lines.append("%s %s %s %s" % (node["op"], node["name"], [i[:2] for i in node["inputs"]], attrs))
    return "\n".join([*lines, str([h[:2] for h in file["heads"]])])


def flat(items):
    """A list of symbols from an unroll's outputs or states, which may be nested."""
    if not isinstance(items, (list, tuple)):
        return [items]
    return [symbol for item in items for symbol in flat(item)]


def once(mx, symbols):
    """All of them, but the last output, which is a state too, once: its two gradients would not be added."""
    names = [symbol.list_outputs()[0] for symbol in symbols]
    return mx.sym.Group([symbol for i, symbol in enumerate(symbols) if names[i] not in names[:i]])


def numbers(name, shape):
    """Values that depend on the name alone."""
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, shape).astype("float32")


def computed(mx, symbol, train=True, **shapes):
    """What a graph gives for weights made of their names, and the gradients of all its arguments."""
    bound = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes)
    for name, array in bound.arg_dict.items():
        array[:] = numbers(name, array.shape)
    outputs = [o.asnumpy() for o in bound.forward(is_train=train)]
    results = {"out%d" % i: o for i, o in enumerate(outputs)}
    if train:
        bound.backward([mx.nd.array(numbers("head%d" % i, o.shape)) for i, o in enumerate(outputs)])
        results.update(("grad_" + name, grad.asnumpy()) for name, grad in sorted(bound.grad_dict.items()))
    return results


def unrolled(mx, cell, shape=(2, 3, 4), train=True, inputs=None, **kwargs):
    """All about an unrolled cell."""
    with mx.name.NameManager():
        outputs, states = cell.unroll(3, mx.sym.Variable("data") if inputs is None else inputs, **kwargs)
        net = once(mx, flat(outputs) + flat(states))
    shapes = {"data": shape} if inputs is None else {i.name: shape for i in inputs}
    words = {
        "graph": graph(net),
        "arguments": net.list_arguments(),
        "outputs": net.list_outputs(),
        "merged": not isinstance(outputs, list),
        "states": cell.state_info,
        "state_shape": cell.state_shape,
    }
    return {**words, **computed(mx, net, train, **shapes)}


def steps(mx):
    return [mx.sym.Variable("t%d" % i) for i in range(3)]


@program
def rnn_cell(mx):
    return unrolled(mx, mx.rnn.RNNCell(5))


@program
def rnn_cell_relu_time_major(mx):
    return unrolled(mx, mx.rnn.RNNCell(5, activation="relu", prefix="r_"), (3, 2, 4), layout="TNC", merge_outputs=True)


@program
def lstm_cell(mx):
    return unrolled(mx, mx.rnn.LSTMCell(5, forget_bias=2.0), merge_outputs=True)


@program
def lstm_cell_of_steps(mx):
    return unrolled(mx, mx.rnn.LSTMCell(5), (2, 4), inputs=steps(mx))


@program
def gru_cell(mx):
    return unrolled(mx, mx.rnn.GRUCell(5), merge_outputs=False)


@program
def gru_cell_of_steps_merged(mx):
    return unrolled(mx, mx.rnn.GRUCell(5), (2, 4), inputs=steps(mx), layout="TNC", merge_outputs=True)


@program
def sequential(mx):
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(4, prefix="a_"))
    stack.add(mx.rnn.DropoutCell(0.0))
    stack.add(mx.rnn.ResidualCell(mx.rnn.GRUCell(4, prefix="b_")))
    stack.add(mx.rnn.ZoneoutCell(mx.rnn.RNNCell(3, prefix="c_")))
    return unrolled(mx, stack, merge_outputs=True)


@program
def sequential_stepped(mx):
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(4, prefix="a_"))
    stack.add(mx.rnn.ResidualCell(mx.rnn.GRUCell(4, prefix="b_")))
    with mx.name.NameManager():
        states, data, outputs = stack.begin_state(), mx.sym.Variable("data"), []
        for _ in range(2):
            output, states = stack(data, states)
            outputs.append(output)
        net = once(mx, outputs + states)
    return {"graph": graph(net), **computed(mx, net, data=(2, 4))}


@program
def dropout_and_zoneout_when_not_training(mx):
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.ZoneoutCell(mx.rnn.LSTMCell(4, prefix="a_"), zoneout_outputs=0.3, zoneout_states=0.2))
    stack.add(mx.rnn.DropoutCell(0.4))
    stack.add(mx.rnn.ResidualCell(mx.rnn.ZoneoutCell(mx.rnn.GRUCell(4, prefix="b_"), 0.2, 0.1)))
    return unrolled(mx, stack, train=False)


@program
def dropout_of_one_symbol(mx):
    return unrolled(mx, mx.rnn.DropoutCell(0.5), train=False)


@program
def residual(mx):
    return unrolled(mx, mx.rnn.ResidualCell(mx.rnn.RNNCell(4)), merge_outputs=True)


@program
def residual_of_bidirectional(mx):
    both = mx.rnn.BidirectionalCell(mx.rnn.RNNCell(2, prefix="l_"), mx.rnn.RNNCell(2, prefix="r_"))
    return unrolled(mx, mx.rnn.ResidualCell(both))


@program
def bidirectional(mx):
    return unrolled(mx, mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(3, prefix="l_"), mx.rnn.RNNCell(2, prefix="r_")))


@program
def bidirectional_merged(mx):
    both = mx.rnn.BidirectionalCell(
        mx.rnn.GRUCell(3, prefix="l_"), mx.rnn.GRUCell(3, prefix="r_"), output_prefix="two_"
    )
    return unrolled(mx, both, (3, 2, 4), layout="TNC", merge_outputs=True)


@program
def bidirectional_with_a_fused_side(mx):
    both = mx.rnn.BidirectionalCell(mx.rnn.FusedRNNCell(3, prefix="l_"), mx.rnn.RNNCell(2, prefix="r_"))
    return unrolled(mx, both)


@program
def fused_lstm(mx):
    cell = mx.rnn.FusedRNNCell(3, num_layers=2, bidirectional=True, get_next_state=True, forget_bias=0.5)
    return unrolled(mx, cell)


@program
def fused_gru_time_major(mx):
    return unrolled(mx, mx.rnn.FusedRNNCell(3, mode="gru", prefix="g_"), (3, 2, 4), layout="TNC", merge_outputs=True)


@program
def fused_rnn_of_steps(mx):
    cell = mx.rnn.FusedRNNCell(3, num_layers=2, mode="rnn_relu", get_next_state=True)
    return unrolled(mx, cell, (2, 4), inputs=steps(mx), merge_outputs=False)


@program
def fused_tanh_in_a_sequence(mx):
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.FusedRNNCell(3, mode="rnn_tanh", prefix="a_"))
    stack.add(mx.rnn.FusedRNNCell(3, mode="lstm", prefix="b_", get_next_state=True))
    stack.add(mx.rnn.BidirectionalCell(mx.rnn.RNNCell(2, prefix="c_"), mx.rnn.RNNCell(2, prefix="d_")))
    return unrolled(mx, stack, (3, 2, 4), layout="TNC")


@program
def convolutional_rnn(mx):
    cell = mx.rnn.ConvRNNCell((1, 2, 5, 5), 3, i2h_stride=(2, 2), activation="relu", prefix="c_")
    return unrolled(mx, cell, (2, 3, 2, 5, 5), layout="NTCHW")


@program
def convolutional_lstm(mx):
    cell = mx.rnn.ConvLSTMCell(
        (1, 2, 5, 5), 3, i2h_pad=(0, 0), h2h_dilate=(2, 2), i2h_weight_initializer=mx.init.Xavier()
    )
    return unrolled(mx, cell, (2, 3, 2, 5, 5), layout="NTCHW", merge_outputs=True)


@program
def convolutional_gru(mx):
    cell = mx.rnn.ConvGRUCell((1, 2, 4, 4), 3, h2h_kernel=(1, 1), i2h_dilate=(2, 2))
    return unrolled(mx, cell, (2, 3, 2, 4, 4), layout="NTCHW")


@program
def shared_weights(mx):
    first = mx.rnn.LSTMCell(4, prefix="shared_")
    second = mx.rnn.LSTMCell(4, prefix="other_", params=first.params)
    stack = mx.rnn.SequentialRNNCell()
    stack.add(first)
    stack.add(second)
    return unrolled(mx, stack)


@program
def modified_cells_count_on(mx):
    cell, results = mx.rnn.ResidualCell(mx.rnn.ZoneoutCell(mx.rnn.RNNCell(4))), []
    for _ in range(2):
        with mx.name.NameManager():
            results.append(graph(mx.sym.Group(cell.unroll(2, mx.sym.Variable("data"))[0])))
    return results


@program
def states_to_begin_with(mx):
    cell = mx.rnn.LSTMCell(3)
    before = cell.begin_state(func=mx.sym.Variable)
    ones = cell.begin_state(func=mx.sym.ones, dtype="float16")
    cell.reset()
    again = cell.begin_state(func=mx.sym.Variable)
    outputs, states = cell.unroll(3, mx.sym.Variable("data"), begin_state=again)
    net = once(mx, outputs + states)
    shapes = {"data": (2, 3, 4), "lstm_begin_state_0": (2, 3), "lstm_begin_state_1": (2, 3)}
    words = {"before": [s.name for s in before], "ones": graph(mx.sym.Group(ones)), "all": net.list_arguments()}
    return {**words, "again": graph(mx.sym.Group(again)), **computed(mx, net, **shapes)}


def described(args):
    """Names and shapes in their order, and the values."""
    results = {"order": [(name, array.shape) for name, array in args.items()]}
    results.update(args)
    return results


@program
def weights_of_a_cell_unpacked(mx):
    shapes = {"i2h_weight": (12, 2), "h2h_weight": (12, 3), "i2h_bias": (12,), "h2h_bias": (12,)}
    args = {"lstm_" + name: mx.nd.array(numbers(name, shape)) for name, shape in shapes.items()}
    args["other"] = mx.nd.ones((2,))
    unpacked = mx.rnn.LSTMCell(3).unpack_weights(args)
    packed = mx.rnn.LSTMCell(3).pack_weights(unpacked)
    return {"packed": [(name, array.shape) for name, array in packed.items()], **described(unpacked)}


@program
def weights_of_a_fused_cell(mx):
    results = {}
    for mode, bidirectional, size in (("lstm", True, 624), ("gru", False, 162), ("rnn_tanh", True, 156)):
        cell = mx.rnn.FusedRNNCell(3, 2, mode, bidirectional, dropout=0.2, prefix="f_")
        packed = {"f_parameters": mx.nd.array(numbers(mode, (size,))), "other": mx.nd.ones((2,))}
        unpacked = cell.unpack_weights(packed)
        single = cell.unfuse()
        results[mode] = [(name, array.shape) for name, array in unpacked.items()]
        results[mode + "_single"] = [(name, array.shape) for name, array in single.pack_weights(unpacked).items()]
        results[mode + "_again"] = cell.pack_weights(single.unpack_weights(single.pack_weights(unpacked)))[
            "f_parameters"
        ]
        with mx.name.NameManager():
            results[mode + "_net"] = graph(mx.sym.Group(flat(single.unroll(2, mx.sym.Variable("data"))[0])))
        results.update((mode + "_" + name, array) for name, array in list(unpacked.items())[::5])
    return results


@program
def packed_weights_of_composites(mx):
    both = mx.rnn.BidirectionalCell(mx.rnn.GRUCell(2, prefix="l_"), mx.rnn.RNNCell(2, prefix="r_"))
    stack = mx.rnn.SequentialRNNCell()
    stack.add(both)
    stack.add(mx.rnn.ZoneoutCell(mx.rnn.ConvLSTMCell((1, 2, 3, 3), 2)))
    net = mx.sym.Group(flat(both.unroll(1, mx.sym.Variable("data"))[0]))
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(1, 1, 3))[0]))
    shapes.update({"ConvLSTM_%s_weight" % name: (8, 2, 3, 3) for name in ("i2h", "h2h")})
    shapes.update({"ConvLSTM_%s_bias" % name: (8,) for name in ("i2h", "h2h")})
    args = {name: mx.nd.array(numbers(name, shape)) for name, shape in shapes.items()}
    unpacked = stack.unpack_weights(args)
    packed = stack.pack_weights(unpacked)
    same = all((packed[name] == array).asnumpy().all() for name, array in args.items())
    return {"same": same, "packed": list(packed), "unpacked": list(unpacked)}


@program
def initialised_weights(mx):
    """What the cells' initializers make of their parameters."""
    init, results = mx.init.Constant(0.25), {}
    for cell in (mx.rnn.LSTMCell(2, forget_bias=3.0), mx.rnn.FusedRNNCell(2, prefix="f_", forget_bias=2.0)):
        net = mx.sym.Group(flat(cell.unroll(2, mx.sym.Variable("data"), layout="TNC")[0]))
        attrs, (shapes, _, _) = net.attr_dict(), net.infer_shape(data=(2, 1, 3))
        for name, shape in list(zip(net.list_arguments(), shapes))[1:]:
            array = mx.nd.zeros(shape)
            init(mx.init.InitDesc(name, attrs.get(name, {}), global_init=init), array)
            results[name] = array
    return results


@program
def errors_of_cells(mx):
    rnn, data = mx.rnn, mx.sym.Variable("data")
    two = rnn.BidirectionalCell(rnn.RNNCell(2, prefix="l_"), rnn.RNNCell(2, prefix="r_"))
    cell, zoned = rnn.RNNCell(2), rnn.ZoneoutCell(rnn.RNNCell(2))
    own = rnn.SequentialRNNCell(params=rnn.RNNParams("p_"))
    return [
        outcome(lambda: two(data, [])),
        outcome(lambda: rnn.FusedRNNCell(2)(data, [])),
        outcome(lambda: zoned.base_cell.begin_state()),
        outcome(lambda: rnn.ZoneoutCell(two)),
        outcome(lambda: rnn.ZoneoutCell(rnn.FusedRNNCell(2))),
        outcome(lambda: rnn.DropoutCell("a")),
        outcome(lambda: cell.unroll(2, [data])),
        outcome(lambda: cell.unroll(2, None)),
        outcome(lambda: cell.unroll(0, data)),
        outcome(lambda: cell.unroll(2, mx.sym.Group([data, data]))),
        outcome(lambda: cell.unroll(2, mx.nd.zeros((1, 2, 3)))),
        outcome(lambda: own.add(rnn.RNNCell(2, prefix="a_"))),
        outcome(lambda: rnn.ConvRNNCell((1, 2, 5, 5), 3, h2h_kernel=(2, 2))),
        outcome(lambda: rnn.LSTMCell(2).unpack_weights({})),
        outcome(lambda: rnn.FusedRNNCell(2).pack_weights({})),
        outcome(lambda: rnn.FusedRNNCell(2).unpack_weights({"lstm_parameters": mx.nd.zeros((57,))})),
        outcome(lambda: rnn.RNNCell(2, activation="none")(data, rnn.RNNCell(2).begin_state())),
        outcome(lambda: rnn.encode_sentences([["b"]], vocab={"a": 0})),
        outcome(lambda: rnn.BucketSentenceIter([], 2)),
    ]


@program
def encoded_sentences(mx):
    words = [["a", "b", "a"], ["b", "c", "\n"], ["d"]]
    encode = mx.rnn.encode_sentences
    return [
        encode(words),
        encode(words, start_label=1, invalid_label=0),
        encode(words, start_label=0, invalid_label=1),
        encode(words, invalid_key="d", invalid_label=9, start_label=8),
        encode(words, vocab={"a": 0, "b": 5, "c": 2, "\n": 3, "d": 4}),
        encode(words, vocab={"a": 0, "b": 5}, unknown_token="<unk>"),
        encode(words, unknown_token="<unk>"),
    ]


def sentences(count, longest):
    rng = np.random.RandomState(count)
    return [rng.randint(1, 50, size=rng.randint(1, longest + 1)).tolist() for _ in range(count)]


def epochs(batches, count):
    """Everything that an iterator gives in some epochs."""
    results = {"data": batches.provide_data, "label": batches.provide_label, "key": batches.default_bucket_key}
    results["buckets"], results["layout"] = batches.buckets, batches.provide_data[0].layout
    for epoch in range(count):
        for i, batch in enumerate(batches):
            name = "%d_%d_" % (epoch, i)
            results[name + "is"] = (batch.bucket_key, batch.pad, batch.provide_data, batch.provide_label)
            results[name + "data"], results[name + "label"] = batch.data[0], batch.label[0]
        batches.reset()
    return results


@program
def bucket_sentence_iter(mx):
    random.seed(5)
    np.random.seed(5)
    return epochs(mx.rnn.BucketSentenceIter(sentences(40, 9), 4, buckets=[10, 3, 6], invalid_label=0), 2)


@program
def bucket_sentence_iter_finds_buckets(mx):
    random.seed(6)
    np.random.seed(6)
    iterator = mx.rnn.BucketSentenceIter(
        sentences(30, 5), 3, data_name="words", label_name="next", dtype="int32", layout="TN"
    )
    return epochs(iterator, 2)


@program
def bucket_sentence_iter_leaves_out_empty_buckets(mx):
    return epochs(mx.rnn.BucketSentenceIter([[1, 2], [3], [4, 5], [6, 7, 8]], 2, buckets=[9, 2, 5, 3]), 1)
