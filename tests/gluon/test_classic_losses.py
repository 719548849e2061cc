"""Custom losses as MXNet programs define them: SVMs, softmax in numpy, multiple tasks."""

import numpy as np
import pytest

import neomx as mx

MNIST = mx.test_utils.get_mnist(sample=True)


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(3)
    np.random.seed(3)


def digits(label_name="softmax_label", batch=50):
    train = {"data": MNIST["train_data"][:3000]}, {label_name: MNIST["train_label"][:3000]}
    test = {"data": MNIST["test_data"][:500]}, {label_name: MNIST["test_label"][:500]}
    return mx.io.NDArrayIter(*train, batch, shuffle=True), mx.io.NDArrayIter(*test, batch)


def hidden(units=64):
    net = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.var("data")), num_hidden=units, name="fc1")
    return mx.sym.Activation(net, act_type="relu", name="relu1")


def accuracy(net, label_name="softmax_label", rate=0.1):
    train, test = digits(label_name)
    module = mx.mod.Module(net, label_names=[label_name])
    options = {"learning_rate": rate, "momentum": 0.9, "wd": 1e-5}
    module.fit(train, num_epoch=3, optimizer_params=options, initializer=mx.init.Xavier())
    return module.score(test, "acc")[0][1]


@pytest.mark.parametrize("use_linear", [True, False])
def test_svm_output(use_linear):
    scores = mx.sym.FullyConnected(hidden(), num_hidden=10, name="fc2")
    net = mx.sym.SVMOutput(scores, name="svm", margin=1.0, regularization_coefficient=1.0, use_linear=use_linear)
    assert accuracy(net, "svm_label", rate=0.02) > 0.85


class Softmax(mx.operator.CustomOp):
    """Softmax in numpy, whose gradient is that of the cross-entropy."""

    def forward(self, is_train, req, in_data, out_data, aux):
        scores = in_data[0].asnumpy()
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        self.assign(out_data[0], req[0], mx.nd.array(scores / scores.sum(axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        labels, found = in_data[1].asnumpy().astype(int), out_data[0].asnumpy()
        found[np.arange(len(labels)), labels] -= 1
        self.assign(in_grad[0], req[0], mx.nd.array(found))


@mx.operator.register("classic_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def list_outputs(self):
        return ["output"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Softmax()


class NumpySoftmax(mx.operator.NumpyOp):
    """The same with the older NumpyOp interface."""

    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def list_outputs(self):
        return ["output"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]]

    def forward(self, in_data, out_data):
        found = np.exp(in_data[0] - in_data[0].max(axis=1, keepdims=True))
        out_data[0][:] = found / found.sum(axis=1, keepdims=True)

    def backward(self, out_grad, in_data, out_data, in_grad):
        labels = in_data[1].astype(int)
        in_grad[0][:] = out_data[0]
        in_grad[0][np.arange(len(labels)), labels] -= 1


@pytest.mark.filterwarnings("ignore:NumpyOp has been deprecated")
def test_numpy_softmax_trains_like_builtin():
    def network(kind):
        scores = mx.sym.FullyConnected(hidden(), num_hidden=10, name="fc2")
        if kind == "custom":
            return mx.sym.Custom(scores, name="softmax", op_type="classic_softmax")
        return (
            NumpySoftmax()(scores, name="softmax") if kind == "numpy" else mx.sym.SoftmaxOutput(scores, name="softmax")
        )

    rng = np.random.RandomState(0)
    shapes = {"fc1_weight": (64, 784), "fc1_bias": (64,), "fc2_weight": (10, 64), "fc2_bias": (10,)}
    first = {name: mx.nd.array(rng.normal(0, 0.05, shape)) for name, shape in shapes.items()}

    def weights(kind):
        train = mx.io.NDArrayIter(MNIST["train_data"][:500], MNIST["train_label"][:500], 50)
        module = mx.mod.Module(network(kind))
        module.fit(train, num_epoch=1, optimizer_params={"learning_rate": 0.1}, arg_params=first)
        return {name: array.asnumpy() for name, array in module.get_params()[0].items()}

    expected = weights("built in")
    for kind in ("custom", "numpy"):
        for name, value in weights(kind).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=f"{kind}: {name}")


def test_custom_op_trains():
    net = mx.sym.Custom(
        mx.sym.FullyConnected(hidden(), num_hidden=10, name="fc2"), name="softmax", op_type="classic_softmax"
    )
    assert accuracy(net) > 0.85


class TwoLabels(mx.io.DataIter):
    """Yields two labels for each digit: its class, and whether it is odd."""

    def __init__(self, inner):
        super().__init__(inner.batch_size)
        self.inner = inner

    @property
    def provide_data(self):
        return self.inner.provide_data

    @property
    def provide_label(self):
        shape = self.inner.provide_label[0][1]
        return [("digit_label", shape), ("odd_label", shape)]

    def reset(self):
        self.inner.reset()

    def next(self):
        batch = self.inner.next()
        return mx.io.DataBatch(data=batch.data, label=[batch.label[0], batch.label[0] % 2], pad=batch.pad)


class AccuracyOfEach(mx.metric.EvalMetric):
    """The accuracy of each output."""

    def __init__(self, count):
        self.count = count
        super().__init__("each")

    def reset(self):
        self.right, self.seen = np.zeros(self.count), np.zeros(self.count)

    def update(self, labels, preds):
        for i in range(self.count):
            found = preds[i].asnumpy().argmax(axis=1)
            self.right[i] += (found == labels[i].asnumpy()).sum()
            self.seen[i] += found.size

    def get(self):
        return [f"task{i}" for i in range(self.count)], list(self.right / np.maximum(self.seen, 1))


def test_two_tasks_share_one_body():
    body = hidden()
    digit = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=10, name="digit_scores"), name="digit")
    odd = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=2, name="odd_scores"), name="odd", grad_scale=0.5)
    train, test = (TwoLabels(each) for each in digits())
    module = mx.mod.Module(mx.sym.Group([digit, odd]), label_names=["digit_label", "odd_label"])
    options = {"learning_rate": 0.1, "momentum": 0.9}
    metric = AccuracyOfEach(2)
    module.fit(train, test, metric, num_epoch=3, optimizer_params=options, initializer=mx.init.Xavier())
    found = dict(module.score(test, metric))
    assert found["task0"] > 0.85
    assert found["task1"] > 0.92
    assert [tuple(shape) for _, shape in module.output_shapes] == [(50, 10), (50, 2)]
