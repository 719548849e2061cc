"""mx.sym and executors: names, graphs, JSON, inference, gradients."""

import warnings

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def values(symbol, **shapes):
    """Random arrays for all arguments and states, from numpy's generator."""
    rng = np.random.RandomState(7)
    arguments, _, states = symbol.infer_shape(**shapes)
    names = symbol.list_arguments(), symbol.list_auxiliary_states()
    return (
        {n: rng.uniform(-1, 1, size=s).astype("float32") for n, s in zip(names[0], arguments)},
        {n: rng.uniform(0.5, 1.5, size=s).astype("float32") for n, s in zip(names[1], states)},
    )


def trained(mx, symbol, grad_req="write", labels=None, steps=1, **shapes):
    """Outputs, gradients and states after forward and backward."""
    arguments, states = values(symbol, **shapes)
    arguments.update(labels or {})
    executor = symbol.simple_bind(mx.cpu(), grad_req=grad_req, **shapes)
    executor.copy_params_from(
        {n: mx.nd.array(v) for n, v in arguments.items()}, {n: mx.nd.array(v) for n, v in states.items()}
    )
    for _ in range(steps):
        executor.forward(is_train=True)
        executor.backward()
    results = {"out%d" % i: o for i, o in enumerate(executor.outputs)}
    results.update({"grad " + n: g for n, g in executor.grad_dict.items() if g is not None})
    results.update({"state " + n: a for n, a in executor.aux_dict.items()})
    return results


def mlp(mx):
    net = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(net, name="fc1", num_hidden=8)
    net = mx.sym.Activation(net, name="relu1", act_type="relu")
    net = mx.sym.FullyConnected(data=net, name="fc2", num_hidden=3)
    return mx.sym.SoftmaxOutput(net, name="softmax")


def convnet(mx):
    s = mx.sym
    net = s.Convolution(s.var("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name="conv")
    net = s.BatchNorm(net, fix_gamma=False, momentum=0.8, name="bn")
    net = s.LeakyReLU(net, act_type="leaky", slope=0.1, name="act")
    net = s.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    left, right = s.split(net, num_outputs=2)
    net = s.concat(left * 2, 1 - right, dim=1)
    return s.LinearRegressionOutput(s.FullyConnected(s.Flatten(net), num_hidden=2, name="fc"), name="lro")


@program
def an_mlp_trains(mx):
    return trained(mx, mlp(mx), data=(5, 4), labels={"softmax_label": np.array([0, 1, 2, 1, 0], "float32")})


@program
def a_convnet_trains(mx):
    with mx.name.NameManager():
        return trained(mx, convnet(mx), steps=2, data=(2, 3, 6, 6))


@program
def gradients_add_up(mx):
    return trained(mx, mlp(mx), grad_req="add", steps=3, data=(5, 4), labels={"softmax_label": np.zeros(5, "float32")})


@program
def gradients_of_some(mx):
    reqs = {"fc1_weight": "add", "fc2_weight": "write", "fc2_bias": "write", "data": "null"}
    return trained(mx, mlp(mx), grad_req=reqs, steps=2, data=(5, 4), labels={"softmax_label": np.ones(5, "float32")})


@program
def graphs_in_json(mx):
    with mx.name.NameManager():
        net = convnet(mx)
        group = mx.sym.Group([net, net.get_internals()["bn_output"]])
        return [net.tojson(), group.tojson(), mx.sym.load_json(group.tojson()).tojson()]


@program
def names_and_lists(mx):
    with mx.name.NameManager():
        net = convnet(mx)
    internals = net.get_internals()
    return [
        net.name,
        repr(net),
        net.list_arguments(),
        net.list_auxiliary_states(),
        net.list_inputs(),
        net.list_outputs(),
        internals.list_outputs(),
        internals["bn_output"].list_outputs(),
        internals[3].name,
        internals[2:5].list_outputs(),
        [each.name for each in internals],
        len(internals),
        net.get_children().list_outputs(),
        mx.sym.var("x").get_children(),
        mx.sym.Group([net, internals]).name,
        repr(mx.sym.Group([net, net])),
    ]


@program
def automatic_names(mx):
    s = mx.sym
    with mx.name.NameManager():
        x, y = s.var("x"), s.var("y")
        plain = [x + y, x - y, x * y, x / y, x % y, x**y, x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x]
        plain += [x % 2, 5 % x, x**2, 2**x, -x, abs(x), x == y, x == 1, x != y, x != 1, x > y, x > 1, x >= y, x < y]
        plain += [
            x <= 3,
            x.sum(),
            x.reshape((1, 2)),
            x.astype("float16"),
            s.Flatten(x),
            s.flatten(x),
            x.exp(),
        ]
        plain += [s.maximum(x, y), s.maximum(x, 1), s.minimum(2, x), s.pow(x, 2), s.pow(2, x), s.hypot(x, y)]
        plain += [s.linalg.gemm2(x, y), s.contrib.div_sqrt_dim(x), s.image.to_tensor(x), s.random.normal(shape=(1,))]
        plain += [s.zeros((2,)), s.ones((2,)), s.full((2,), 3), s.arange(3), s.eye(2), s.linspace(0, 1, 3)]
        plain += [
            s.concat(x, y),
            s.stack(x, y),
            s.add_n(x, y),
            s.split(x, num_outputs=2),
            x.split_v2(2),
            s.BlockGrad(x),
        ]
        plain += [s.sparse.dot(x, y), s.op.relu(x), s._internal._mul(x, y), s.random.uniform_like(x)]
    with mx.name.Prefix("pre_"):
        plain += [x + 1, s.FullyConnected(x, num_hidden=2), s.FullyConnected(x, num_hidden=2, name="mine")]
    return [each.list_outputs() for each in plain] + [each.tojson() for each in plain]


@program
def symbols_out_of_nothing(mx):
    s = mx.sym
    symbols = [
        s.zeros((2, 3)),
        s.ones((2,), dtype="int32"),
        s.full((2, 2), 7),
        s.arange(1, 5, 0.5, 2),
        s.arange(4),
        s.linspace(0, 1, 5, endpoint=False),
        s.eye(3, 4, 1),
    ]
    return [symbol.eval(ctx=mx.cpu())[0] for symbol in symbols]


@program
def variables_carry_attributes(mx):
    s = mx.sym
    plain = s.var(
        "p", shape=(2, 3), lr_mult=2, wd_mult=0.5, dtype="float16", init="zeros", stype="row_sparse", __my__="a"
    )
    with mx.AttrScope(ctx_group="dev1", __note__="n"):
        scoped = s.FullyConnected(s.var("q", attr={"lr_mult": "3"}), num_hidden=2, name="fc")
    net = s.FullyConnected(plain, num_hidden=4, name="f", attr={"wd_mult": "7"}, lr_mult=3)
    net._set_attr(force_mirroring="True", num_hidden="5")
    return [
        plain.tojson(),
        sorted(plain.list_attr().items()),
        plain.attr("lr_mult"),
        plain.attr("__lr_mult__"),
        plain.attr("none"),
        scoped.tojson(),
        sorted((k, sorted(v.items())) for k, v in scoped.attr_dict().items()),
        net.tojson(),
        sorted(net.list_attr().items()),
        plain.infer_shape(),
        plain.infer_type()[1][0].__name__,
        outcome(lambda: s.var(3)),
        outcome(lambda: s.var("x", mine=3)),
        outcome(lambda: s.var("x", attr={"a": 3})),
        outcome(lambda: net._set_attr(a=3)),
        outcome(lambda: net._set_attr(a="3")),
        outcome(lambda: plain.list_attr(recursive=True)),
    ]


@program
def composition(mx):
    s = mx.sym
    inner = s.FullyConnected(s.var("data"), num_hidden=3, name="f")
    outer = s.Activation(s.var("x"), act_type="tanh", name="a")
    whole = outer(x=inner, name="renamed")
    return [
        whole.tojson(),
        outer.list_arguments(),
        s.FullyConnected(num_hidden=2, name="alone").list_arguments(),
        outcome(lambda: outer(inner)),
        outcome(lambda: outer(y=inner)),
        outcome(lambda: outer(x=3)),
        outcome(lambda: outer(x=s.Group([inner, inner]))),
        whole.__copy__().tojson() == whole.tojson(),
    ]


@program
def shapes_and_dtypes(mx):
    s = mx.sym
    net, a, b = mlp(mx), s.var("a"), s.var("b")
    lstm = s.RNN(s.var("x"), state_size=4, num_layers=2, mode="lstm", state_outputs=True, name="r")
    known = s.var("k", shape=(2, 3), dtype="float16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            net.infer_shape(data=(4, 5)),
            net.infer_shape(),
            net.infer_shape_partial(),
            net.infer_shape_partial(data=(0, 5)),
            net.infer_shape(fc2_weight=(3, 7)),
            (a + b).infer_shape(a=(2, 3)),
            (a + b).infer_shape_partial(a=(2, 0), b=(0, 3)),
            (a + s.relu(b)).infer_shape(a=(2, 3)),
            s.broadcast_add(a, b).infer_shape_partial(a=(2, 3)),
            s.Reshape(a, shape=(0, -1)).infer_shape_partial(a=(2, 0, 3)),
            lstm.infer_shape(x=(5, 2, 3)),
            (known + a).infer_shape(),
            str(net.infer_type(data="float16")),
            str(net.infer_type()),
            str(net.infer_type_partial()),
            str(s.BatchNorm(a).infer_type(a="float16")),
            str(s.Embedding(a, input_dim=5, output_dim=2).infer_type(a="int32")),
            outcome(lambda: net.infer_shape(nothing=(3, 7))),
            outcome(lambda: net.infer_shape(data=(4, 5), fc1_weight=(8, 6))),
            outcome(lambda: (a + b).infer_shape(a=(2, 3), b=(1, 3))),
            outcome(lambda: net.infer_shape((4, 5), data=(4, 5))),
            outcome(lambda: net.infer_shape(data="a")),
            outcome(lambda: (a + b).infer_type(a="float16", b="float32")),
        ]


@program
def what_is_refused(mx):
    s = mx.sym
    x = s.var("x")
    pair = s.split(x, num_outputs=2)
    calls = [
        lambda: s.FullyConnected(x, num_hidden=3, unknown=1),
        lambda: s.FullyConnected(x),
        lambda: s.FullyConnected(x, num_hidden="many"),
        lambda: s.FullyConnected(x, x, x, num_hidden=3, no_bias=True),
        lambda: s.relu(np.ones(3)),
        lambda: s.relu(pair),
        lambda: s.concat(pair),
        lambda: x + None,
        lambda: bool(x),
        lambda: hash(x),
        lambda: x.asnumpy(),
        lambda: x.backward(),
        lambda: x[1],
        lambda: x[-1],
        lambda: x["y"],
        lambda: s.Group([x, x])["x"],
        lambda: x[1.5],
        lambda: s.Group([]),
        lambda: s.Group([1]),
        lambda: s.histogram(x, 5),
        lambda: s.split_v2(x, "a"),
        lambda: s.random.uniform(x, 2),
        lambda: s.random.normal("a", 2),
        lambda: s.load_json("{}"),
        lambda: s.load("/nowhere/at/all.json"),
        lambda: x.gradient(["x"]),
    ]
    return [str(outcome(call)) for call in calls]


@program
def what_executors_refuse(mx):
    s = mx.sym
    net, fc = mlp(mx), s.FullyConnected(s.var("data"), num_hidden=2, name="fc")
    ones = {"data": mx.nd.ones((4, 5)), "fc_weight": mx.nd.ones((2, 5)), "fc_bias": mx.nd.ones(2)}
    grads = {"fc_weight": mx.nd.zeros((2, 5))}
    bound = fc.bind(mx.cpu(), ones, grads)
    bound.forward(is_train=True)
    two = s.var("a") + s.var("a")
    calls = [
        lambda: net.simple_bind(mx.cpu()),
        lambda: fc.bind(mx.cpu(), {"data": ones["data"]}),
        lambda: fc.bind(mx.cpu(), [ones["data"]]),
        lambda: fc.bind(mx.cpu(), dict(ones, fc_weight=mx.nd.ones((2, 6)))),
        lambda: fc.bind(mx.cpu(), ones, grads, "sometimes"),
        lambda: s.BatchNorm(s.var("data"), name="fc").bind(mx.cpu(), [mx.nd.ones((2, 3))] + [mx.nd.ones(3)] * 2),
        lambda: bound.forward(other=mx.nd.ones(1)),
        lambda: bound.forward(data=1),
        lambda: bound.forward(data=mx.nd.ones((3, 5))),
        lambda: bound.backward(),
        lambda: bound.backward(mx.nd.ones((3, 2))),
        lambda: bound.backward("a"),
        lambda: bound.copy_params_from({"other": mx.nd.ones(1)}),
        lambda: bound.copy_params_from({}, {"other": mx.nd.ones(1)}),
        lambda: bound.reshape(data=(4, 6)),
        lambda: bound.reshape(data=(8, 5)),
        lambda: two.bind(mx.cpu(), {"a": mx.nd.ones(1)}),
        lambda: fc.eval(data=ones["data"]),
    ]
    return [str(outcome(call)) for call in calls]


@program
def executors_step_by_step(mx):
    s = mx.sym
    first_input = s.var("a")
    with mx.name.NameManager():  # so that names do not depend on what ran before
        net = s.broadcast_mul(first_input, s.var("b")) + s.exp(first_input)
    a, b = mx.nd.array(np.linspace(-1, 1, 6).reshape(2, 3)), mx.nd.array([[1.0, 2, 3], [4, 5, 6]])
    grads = [mx.nd.ones((2, 3)), mx.nd.ones((2, 3))]
    bound = net.bind(mx.cpu(), [a, b], grads, ["add", "write"])
    first = [o.copy() for o in bound.forward(is_train=True)]
    bound.backward([mx.nd.ones((2, 3)) * 2])
    held = bound.outputs[0]  # stays the same array
    a[:] = 1
    bound.forward(b=np.ones((2, 3), "float32"))
    bound.backward(mx.nd.ones((2, 3)))
    held = held.copy()
    smaller = bound.reshape(a=(1, 3), b=(1, 3))
    smaller.forward(a=mx.nd.ones((1, 3)) * 3, b=mx.nd.ones((1, 3)))
    seen = []
    bound.set_monitor_callback(lambda name, value: seen.append(name if isinstance(name, str) else name.decode()))
    bound.forward()
    found = [first[0], held, *grads, bound.arg_dict["b"], sorted(bound.output_dict), sorted(bound.grad_dict)]
    return found + [smaller.outputs[0], [x.shape for x in smaller.grad_arrays], seen, net.eval(a=a, b=b)[0]]


@program
def begin_states_take_the_batch(mx):
    """Legacy recurrent networks start from zeros of an unknown batch."""
    s = mx.sym
    state = s.zeros((0, 3))
    hidden = s.FullyConnected(s.var("x"), num_hidden=3, name="i2h") + s.FullyConnected(state, num_hidden=3, name="h2h")
    net = s.MakeLoss(s.tanh(hidden) * state + hidden)
    return dict(trained(mx, net, x=(4, 2)), shapes=str(net.infer_shape(x=(4, 2))))


@program
def files_of_older_versions(mx):
    s = mx.sym
    of_08 = """{"nodes": [
      {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
      {"op": "null", "param": {}, "name": "c_weight", "inputs": [], "backward_source_id": -1, "attr": {"lr_mult": "3"}},
      {"op": "null", "param": {}, "name": "c_bias", "inputs": [], "backward_source_id": -1},
      {"op": "Convolution", "param": {"kernel": "(3,3)", "num_filter": "4", "no_bias": "False"}, "name": "c",
       "inputs": [[0, 0], [1, 0], [2, 0]], "backward_source_id": -1, "attr": {"weight_wd_mult": "2", "ctx_group": "g"}},
      {"op": "null", "param": {}, "name": "b_gamma", "inputs": [], "backward_source_id": -1},
      {"op": "null", "param": {}, "name": "b_beta", "inputs": [], "backward_source_id": -1},
      {"op": "BatchNorm", "param": {"eps": "0.001", "fix_gamma": "True"}, "name": "b",
       "inputs": [[3, 0], [4, 0], [5, 0]], "backward_source_id": -1}],
      "arg_nodes": [0, 1, 2, 4, 5], "heads": [[6, 0]]}"""
    of_10 = """{"nodes": [
      {"op": "null", "name": "data", "inputs": []},
      {"op": "argmax", "attr": {"axis": "1"}, "name": "m", "inputs": [[0, 0, 0]]}],
      "arg_nodes": [0], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 1000]}}"""
    old = s.load_json(of_08)
    return [
        old.list_arguments(),
        old.list_auxiliary_states(),
        sorted((k, sorted(v.items())) for k, v in old.attr_dict().items()),
        old.infer_shape(data=(2, 3, 5, 5)),
        s.load_json(of_10).tojson(),
    ]


@program
def custom_ops(mx):
    class Scale(mx.operator.CustomOp):
        def __init__(self, factor):
            self.factor = factor

        def forward(self, is_train, req, in_data, out_data, aux):
            aux[0][:] += 1
            self.assign(out_data[0], req[0], in_data[0] * self.factor + in_data[1].reshape((-1, 1)))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], in_data[0] * self.factor)
            self.assign(in_grad[1], req[1], 0)

    @mx.operator.register("recorded_scale")
    class ScaleProp(mx.operator.CustomOpProp):
        def __init__(self, factor="2"):
            super().__init__(need_top_grad=False)
            self.factor = float(factor)

        def list_arguments(self):
            return ["data", "shift"]

        def list_outputs(self):
            return ["scaled"]

        def list_auxiliary_states(self):
            return ["calls"]

        def infer_shape(self, in_shape):
            return [in_shape[0], [in_shape[0][0]]], [in_shape[0]], [[1]]

        def create_operator(self, ctx, shapes, dtypes):
            return Scale(self.factor)

    net = mx.sym.Custom(data=mx.sym.var("x"), op_type="recorded_scale", factor=3, name="c")
    loaded = mx.sym.load_json(net.tojson())
    results = trained(mx, loaded, x=(2, 3))
    results.update(json=net.tojson(), shapes=net.infer_shape(x=(2, 3)), outputs=net.list_outputs())
    results.update(arguments=net.list_arguments(), states=net.list_auxiliary_states())
    results["unknown"] = outcome(lambda: mx.sym.Custom(mx.sym.var("x"), op_type="not there"))
    return results


@program
def losses_inside_start_gradients(mx):
    """A loss passes its own gradient back, even where what follows it passes none."""
    s, x = mx.sym, mx.sym.var("x")

    def loss(scale=1):
        return s.LinearRegressionOutput(x, s.zeros_like(s.BlockGrad(x)), grad_scale=scale)

    results = []
    for net in (
        s.BlockGrad(loss()),
        loss() > 0,
        s.argmax(loss(), axis=1),
        s.one_hot(loss(), depth=5),
        s.Embedding(loss(), s.var("w"), input_dim=1, output_dim=3),
        s.BlockGrad(s.MakeLoss(x * x)),
        s.take(x, loss(), axis=1),
        s.topk(loss(), k=1),
        s.Group([s.BlockGrad(loss(2)), s.sin(loss(3)), loss(4)]),  # MXNet takes equal nodes for one
    ):
        arrays = {name: mx.nd.array([[1.0, 2.0, 3.0]]) for name in net.list_arguments()}
        grads = {name: mx.nd.ones((1, 3)) for name in arrays}
        executor = net.bind(mx.cpu(), arrays, grads)
        outputs = executor.forward(is_train=True)
        executor.backward([mx.nd.ones(o.shape) for o in outputs])
        results += [*outputs, *grads.values()]
    return results


@program
def random_slopes_and_where_they_were(mx):
    net = mx.sym.LeakyReLU(mx.sym.var("data"), act_type="rrelu", name="act")
    executor = net.bind(mx.cpu(), {"data": mx.nd.array([[-1, 2]])})
    return [
        net.list_outputs(),
        net.infer_shape(data=(1, 2)),
        executor.forward()[0],
        mx.sym.relu(net[0]).list_arguments(),
    ]
