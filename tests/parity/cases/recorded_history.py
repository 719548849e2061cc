"""Symbols of recorded arrays, gradients of recorded integers, equal nodes that a graph computes once."""

import json

from parity.spec import family, outcome, settled

case, program = family(__name__)


def variable(mx, *shape):
    x = mx.nd.arange(1, 1 + mx.nd.ones(shape).size).reshape(shape) / 4
    x.attach_grad()
    return x


def described(mx, array, *values):
    """What get_symbol makes of an array: its arguments, operators and outputs, and what it computes of `values`."""
    symbol = mx.autograd.get_symbol(array)
    names = symbol.list_arguments()
    ops = [node["op"] for node in json.loads(symbol.tojson())["nodes"]]
    executor = symbol.bind(mx.cpu(), dict(zip(names, values)))
    return [" ".join(names), " ".join(ops), *executor.forward()]


@program
def symbol_of_arithmetic(mx):
    x = variable(mx, 2, 3)
    with mx.autograd.record():
        y = mx.nd.exp(x * 2) + 1
    return described(mx, y, x)


@program
def symbol_of_a_layer_with_a_constant(mx):
    x, weight, bias = variable(mx, 2, 3), variable(mx, 4, 3), mx.nd.ones(4)
    with mx.autograd.record():
        y = mx.nd.FullyConnected(x, weight, bias, num_hidden=4).relu()
    return described(mx, y, x, weight, bias)


@program
def symbol_of_an_array_used_twice(mx):
    x = variable(mx, 2, 3)
    with mx.autograd.record():
        y = x * x + x
    return described(mx, y, x)


@program
def symbol_of_one_of_several_outputs(mx):
    x = variable(mx, 2, 3)
    with mx.autograd.record():
        first, second = mx.nd.split(x, 2, axis=0)
        y = first * second
    return described(mx, second, x) + described(mx, y, x)


@program
def symbol_of_a_variable(mx):
    x = variable(mx, 2)
    return " ".join(mx.autograd.get_symbol(x).list_arguments())


@program
def symbol_of_what_was_not_recorded(mx):
    x = variable(mx, 2)
    return [
        outcome(lambda: mx.autograd.get_symbol(mx.nd.ones(2)).name),
        outcome(lambda: mx.autograd.get_symbol(x * 2).name),
    ]


def gradient_of(mx, compute):
    """The gradient of a variable through `compute`, from the sum of what it returns."""
    x = variable(mx, 2, 3)
    with mx.autograd.record():
        y = compute(x)
    y.backward()
    return x.grad


@program
def gradients_of_views_of_booleans(mx):
    return [
        gradient_of(mx, lambda x: (x > 0)[0]),
        gradient_of(mx, lambda x: (x > 0).reshape((3, 2))),
        gradient_of(mx, lambda x: x.argmax(axis=1)[0:1]),
    ]


@program
def gradients_through_integers(mx):
    return [
        gradient_of(mx, lambda x: x.astype("int32")[0].astype("float32") * 3),
        gradient_of(mx, lambda x: x.astype("int32").reshape((6,)).astype("float32")),
        gradient_of(mx, lambda x: (x.astype("int32") * 2).astype("float32")),
        gradient_of(mx, lambda x: x.astype("int32").copy().astype("float32") * 2),
    ]


def bound_gradient(mx, symbol, heads=None):
    executor = symbol.simple_bind(mx.cpu(), data=(2, 2))
    executor.arg_dict["data"][:] = mx.nd.array([[1, 2], [3, 4]])
    for name, array in executor.arg_dict.items():
        if name != "data":
            array[:] = 0.5
    executor.forward(is_train=True)
    executor.backward(heads)
    return executor.grad_dict["data"]


@program
def equal_losses_in_a_graph(mx):
    data, label = mx.sym.var("data"), mx.sym.var("label")

    def loss():
        return mx.sym.LinearRegressionOutput(data, label)

    twice = mx.sym.Group([loss(), loss()])
    inside = loss() + loss()
    other = mx.sym.Group([mx.sym.MakeLoss(data * 2, grad_scale=2), mx.sym.MakeLoss(data * 2, grad_scale=3)])
    return [
        bound_gradient(mx, loss()),
        bound_gradient(mx, twice),
        bound_gradient(mx, inside, [mx.nd.ones((2, 2))]),
        bound_gradient(mx, other),
        bound_gradient(mx, mx.sym.MakeLoss(data * 2) + mx.sym.MakeLoss(data * 2), [mx.nd.ones((2, 2))]),
    ]


@program
def random_nodes_are_not_merged(mx):
    data = mx.sym.var("data")
    executor = mx.sym.Group([mx.sym.Dropout(data, p=0.5), mx.sym.Dropout(data, p=0.5)]).simple_bind(
        mx.cpu(), data=(40, 40)
    )
    executor.arg_dict["data"][:] = 1
    first, second = executor.forward(is_train=True)
    return str(bool((first == second).asnumpy().all()))


@program
def losses_behind_blockgrad_in_a_hybridized_block(mx):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.BlockGrad(F.MakeLoss(x * x))

    gradients = []
    for hybridized in (False, True):
        net = Net()
        if hybridized:
            net.hybridize()
        x = variable(mx, 1, 3)
        with mx.autograd.record():
            y = net(x)
        y.backward()
        gradients.append(x.grad)
    return gradients


@program
def a_hybridized_block_that_returns_an_array_twice(mx):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = x * 2
            return [y, y]

    net = Net()
    net.hybridize()
    first, second = net(mx.nd.ones(3))
    first[:] = 7
    return [first, second]


@program
def errors_in_a_custom_op(mx):
    class Fails(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            raise ValueError("fails on purpose")

    @mx.operator.register("recorded_history_fails")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Fails()

    x = variable(mx, 2)
    found = [outcome(lambda: settled(lambda: [mx.nd.Custom(x, op_type="recorded_history_fails")]))]
    with mx.autograd.record():
        y = x * 2  # what follows works as before
    y.backward()
    return [*found, str(mx.autograd.is_recording()), x.grad]
