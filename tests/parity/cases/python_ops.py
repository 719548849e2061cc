"""mx.operator's former kinds of ops in Python, NumpyOp and NDArrayOp, and what the module tells about ops."""

import warnings

import numpy as np

from ..spec import family

case, program = family(__name__)


def made(kind, *args):
    """An op of a deprecated kind, without the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(*args)


def numpy_softmax(mx):
    class NumpySoftmax(mx.operator.NumpyOp):
        def __init__(self):
            super().__init__(False)

        def list_arguments(self):
            return ["data", "label"]

        def list_outputs(self):
            return ["output"]

        def infer_shape(self, in_shape):
            return [in_shape[0], (in_shape[0][0],)], [in_shape[0]]

        def forward(self, in_data, out_data):
            x, y = in_data[0], out_data[0]
            y[:] = np.exp(x - x.max(axis=1).reshape((x.shape[0], 1)))
            y /= y.sum(axis=1).reshape((x.shape[0], 1))

        def backward(self, out_grad, in_data, out_data, in_grad):
            assert out_grad == []
            label = in_data[1].reshape(-1).astype(int)
            dx = in_grad[0]
            dx[:] = out_data[0]
            dx[np.arange(label.shape[0]), label] -= 1.0

    return made(NumpySoftmax)


def square(mx):
    class Square(mx.operator.NDArrayOp):
        def forward(self, in_data, out_data):
            out_data[0][:] = in_data[0] * in_data[0]

        def backward(self, out_grad, in_data, out_data, in_grad):
            in_grad[0][:] = 2 * in_data[0] * out_grad[0]

    return made(Square)


def sum_and_product(mx):
    class SumAndProduct(mx.operator.NumpyOp):
        def list_arguments(self):
            return ["left", "right"]

        def list_outputs(self):
            return ["sum", "product"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0], in_shape[0]]

        def forward(self, in_data, out_data):
            out_data[0][:] = in_data[0] + in_data[1]
            out_data[1][:] = in_data[0] * in_data[1]

        def backward(self, out_grad, in_data, out_data, in_grad):
            in_grad[0][:] = out_grad[0] + out_grad[1] * in_data[1]
            in_grad[1][:] = out_grad[0] + out_grad[1] * in_data[0]

    return made(SumAndProduct)


def run(mx, net, values, heads=None, **kwargs):
    """Outputs and gradients for such arguments."""
    bound = net.simple_bind(mx.cpu(), **{name: np.shape(value) for name, value in values.items()}, **kwargs)
    for name, value in values.items():
        bound.arg_dict[name][:] = value
    results = {"out%d" % i: o for i, o in enumerate(bound.forward(is_train=True))}
    bound.backward(None if heads is None else [mx.nd.array(head) for head in heads])
    results.update(("grad_" + name, grad) for name, grad in bound.grad_dict.items() if grad is not None)
    return {"arguments": net.list_arguments(), "outputs": net.list_outputs(), **results}


LOGITS, LABELS = np.arange(12).reshape(3, 4) / 7.0, np.array([1.0, 0.0, 3.0])


@program
def softmax_by_numpy(mx):
    net = numpy_softmax(mx)(mx.sym.Variable("data"), name="softmax")
    return run(mx, net, {"data": LOGITS, "softmax_label": LABELS})


@program
def softmax_by_numpy_after_a_layer(mx):
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    net = numpy_softmax(mx).get_symbol(data=hidden, label=mx.sym.Variable("truth"), name="softmax")
    values = {"data": LOGITS, "fc_weight": LOGITS.T[:, :1] * np.ones((4, 4)), "fc_bias": LOGITS[1], "truth": LABELS}
    return run(mx, net, values, grad_req={"data": "null", "truth": "null", "fc_weight": "write", "fc_bias": "write"})


@program
def square_by_arrays(mx):
    net = square(mx)(mx.sym.Variable("data"), name="square")
    return run(mx, mx.sym.sin(net * net), {"data": LOGITS}, [LOGITS * 3])


@program
def two_outputs_by_numpy(mx):
    net = sum_and_product(mx)(mx.sym.Variable("a"), mx.sym.Variable("b"), name="both")
    return run(mx, net, {"a": LOGITS, "b": LOGITS + 1}, [LOGITS - 1, LOGITS * 2])


@program
def names_and_defaults(mx):
    with mx.name.NameManager():
        data, plain = mx.sym.Variable("data"), made(mx.operator.PythonOp)
        nets = [numpy_softmax(mx)(data), numpy_softmax(mx)(data), square(mx)(data)]
    results = [(net.name, net.list_arguments(), net.list_outputs()) for net in nets]
    results += [plain.list_arguments(), plain.list_outputs(), plain.need_top_grad(), plain.infer_shape([[2, 3]])]
    results.append(made(mx.operator.NDArrayOp).declare_backward_dependency([0], [1], [2]))
    results.append(made(mx.operator.NDArrayOp, False).declare_backward_dependency([0], [1], [2]))
    return results


@program
def an_op_that_overrides_nothing(mx):
    net = made(mx.operator.NumpyOp)(mx.sym.Variable("data"), name="same")
    return run(mx, net, {"data": LOGITS}, [LOGITS])


@program
def arguments_of_ops(mx):
    tell = mx.operator.get_operator_arguments
    results = []
    for name in ("Activation", "dot", "softmax", "SoftmaxOutput"):
        found = tell(name)
        results.append((found.narg, found.names))
    everything = mx.operator.get_all_registered_operators()
    return [*results, [name in everything for name in ("Convolution", "broadcast_add", "RNN", "nonsense")]]


@program
def a_custom_op_lives_as_long_as_its_graph(mx):
    made = []

    class Counting(mx.operator.CustomOp):
        def __init__(self):
            self.runs = 0
            made.append(self)

        def forward(self, is_train, req, in_data, out_data, aux):
            self.runs += 1
            self.assign(out_data[0], req[0], in_data[0] + self.runs)
            self.assign(out_data[1], req[1], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * self.runs)

    @mx.operator.register("parity_counting")
    class CountingProp(mx.operator.CustomOpProp):
        def list_outputs(self):
            return ["counted", "doubled"]

        def create_operator(self, ctx, in_shapes, in_dtypes):
            return Counting()

    net = mx.sym.Custom(mx.sym.Variable("data"), op_type="parity_counting", name="count")
    results = []
    for _ in range(2):
        bound = net.simple_bind(mx.cpu(), data=(2,))
        bound.arg_dict["data"][:] = 1
        for _ in range(3):
            results += [output.copy() for output in bound.forward(is_train=True)]
            bound.backward([mx.nd.ones((2,)), mx.nd.ones((2,))])
            results.append(bound.grad_dict["data"].copy())
    counted = len(made)
    again = [mx.nd.Custom(mx.nd.ones((2,)), op_type="parity_counting")[0] for _ in range(2)]
    return [*results, counted, *again]
