"""mx.autodiff.Loss: its own gradient in Gluon, in a Symbol and in a Module, with equal numbers."""

import pickle

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd, sym

PRED = np.array([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.5]], "float32")
LABEL = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], "float32")
EXPECTED = 10 * np.sign(PRED - LABEL)  # not the derivative of the loss, so that no other gradient passes


class Steep(mx.autodiff.Loss):
    """The mean square, with a steeper gradient than its derivative."""

    def forward(self, pred, label):
        return ((pred - label) ** 2).mean(axis=1)

    def backward(self, dpred, pred, label):
        dpred[:] = 10 * (pred - label).sign()


class Returning(Steep):
    """The same gradient, returned."""

    def backward(self, dpred, pred, label):
        assert dpred.shape == pred.shape and (dpred.asnumpy() == 0).all()
        return 10 * (pred - label).sign()


def gradient(loss, scale=lambda value: value, array=nd.array):
    pred, label = array(PRED), array(LABEL)
    pred.attach_grad()
    with autograd.record():
        value = scale(loss(pred, label))
    value.backward()
    return value.asnumpy(), pred.grad.asnumpy()


@pytest.mark.parametrize("kind", [Steep, Returning])
def test_loss_and_gradient_of_arrays(kind):
    value, grad = gradient(kind())
    np.testing.assert_allclose(value, ((PRED - LABEL) ** 2).mean(1), rtol=1e-6)  # rounding of float32
    np.testing.assert_array_equal(grad, EXPECTED)


def test_gradient_is_scaled_with_the_loss():
    loss = Steep()
    np.testing.assert_allclose(gradient(loss, lambda value: value.mean())[1], EXPECTED / 3, rtol=1e-6)
    weights = nd.array([1, 0, 2])
    np.testing.assert_array_equal(gradient(loss, lambda value: value * weights)[1], EXPECTED * [[1], [0], [2]])


def test_loss_of_np_arrays():
    value, grad = gradient(Steep(), array=mx.np.array)
    assert value.shape == (3,)
    np.testing.assert_array_equal(grad, EXPECTED)


@pytest.mark.parametrize(
    ("forward", "shape"),
    [(lambda p, y: (p - y).abs(), (3, 2)), (lambda p, y: (p - y).abs().sum(), (1,)), (lambda p, y: p[:, 0] * 0, (3,))],
)
def test_loss_may_have_one_value_per_element_sample_or_batch(forward, shape):
    class Any(Steep):
        def forward(self, pred, label):
            return forward(pred, label)

    value, grad = gradient(Any())
    assert value.shape == shape
    np.testing.assert_array_equal(grad, EXPECTED)
    symbol = Any()(sym.var("data"), sym.var("label"))
    assert symbol.infer_shape(data=(3, 2), label=(3, 2))[1] == [shape]


def test_loss_as_the_head_of_a_symbol():
    head = Steep()(sym.var("data"), name="steep")
    assert head.list_arguments() == ["data", "steep_label"] and head.list_outputs() == ["steep_output"]
    bound = head.simple_bind(mx.cpu(), data=(3, 2), steep_label=(3, 2))
    bound.forward(is_train=True, data=nd.array(PRED), steep_label=nd.array(LABEL))
    bound.backward()
    value, grad = gradient(Steep())
    np.testing.assert_array_equal(bound.outputs[0].asnumpy(), value)
    np.testing.assert_array_equal(bound.grad_dict["data"].asnumpy(), grad)


def trained_by_gluon(hybridize):
    class Whole(gluon.HybridBlock):
        """A layer and the loss, which is traced with it if hybridized."""

        def __init__(self):
            super().__init__(prefix="")
            self.layer = gluon.nn.Dense(2, in_units=2, prefix="fc_", weight_initializer="one")
            self.loss = Steep()

        def hybrid_forward(self, F, x, y):
            return self.loss(self.layer(x), y)

    net = Whole()
    net.initialize()
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(3):
        with autograd.record():
            loss = net(nd.array(PRED), nd.array(LABEL))
        loss.backward()
        trainer.step(len(PRED))
    return net.layer.weight.data().asnumpy()


def trained_by_module():
    net = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(Steep()(net, name="steep"), label_names=["steep_label"])
    batches = mx.io.NDArrayIter(PRED, LABEL, 3, label_name="steep_label")
    initial = {"fc_weight": nd.ones((2, 2)), "fc_bias": nd.zeros(2)}
    module.fit(batches, num_epoch=3, eval_metric="loss", arg_params=initial, optimizer_params={"learning_rate": 0.1})
    return module.get_params()[0]["fc_weight"].asnumpy()


def trained_by_feedforward():
    net = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    initial = {"fc_weight": nd.ones((2, 2)), "fc_bias": nd.zeros(2)}
    with pytest.warns(DeprecationWarning):
        model = mx.model.FeedForward(net, num_epoch=3, arg_params=initial, learning_rate=0.1, loss=Steep())
    model.fit(PRED, LABEL)
    return model.arg_params["fc_weight"].asnumpy()


def test_training_gives_equal_weights_everywhere():
    weights, bias = np.ones((2, 2), "float32"), np.zeros(2, "float32")
    for _ in range(3):
        slope = 10 * np.sign(PRED @ weights.T + bias - LABEL)
        weights, bias = weights - 0.1 / 3 * slope.T @ PRED, bias - 0.1 / 3 * slope.sum(0)
    for found in (trained_by_gluon(False), trained_by_gluon(True), trained_by_module(), trained_by_feedforward()):
        np.testing.assert_allclose(found, weights, rtol=0, atol=1e-5)  # rounding of float32 in three steps


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({}, r"Wrong must define forward\(pred, label\)"),
        ({"forward": lambda self, p, y: (p - y).sum(axis=1)}, r"must define backward\(dpred, pred, label\)"),
        ({"forward": lambda self, p, y: 1.0}, "forward must return an array, returned float"),
        ({"forward": lambda self, p, y: p.T, "backward": lambda self, d, p, y: d}, "the first dimensions of pred"),
        ({"forward": lambda self, p, y: p, "backward": lambda self, d, p, y: d[:1]}, r"returned \(1, 2\)"),
        ({"forward": lambda self, p, y: p, "backward": lambda self, d, p, y: 3}, "returned int"),
        ({"forward": lambda self, p, y: p / 0 if y is None else y[:, 7]}, "index"),
    ],
)
def test_mistakes_in_a_loss_are_named(methods, words):
    wrong = type("Wrong", (mx.autodiff.Loss,), methods)()
    with pytest.raises(Exception, match=words):
        gradient(wrong)


def test_arguments_must_be_arrays_or_symbols():
    for arguments, words in (((PRED, LABEL), "pred must be an array"), ((nd.ones((1, 1)),), "label must be an array")):
        with pytest.raises(TypeError, match=words):
            Steep()(*arguments)


def test_copied_loss_computes_the_same():
    loss = Steep()
    before = gradient(loss)[1]
    np.testing.assert_array_equal(gradient(pickle.loads(pickle.dumps(loss)))[1], before)


def test_label_of_equal_size_takes_the_shape_of_the_prediction():
    class Absolute(mx.autodiff.Loss):
        def forward(self, pred, label):
            return nd.abs(pred - label).mean(axis=1)

        def backward(self, dpred, pred, label):
            return nd.sign(pred - label)

    pred, label = nd.ones((4, 1)), nd.arange(4)
    pred.attach_grad()
    with autograd.record():
        loss = Absolute()(pred, label)
    loss.backward()
    assert loss.asnumpy().tolist() == [1, 0, 1, 2]  # as gluon.loss.L1Loss
    assert pred.grad.asnumpy().ravel().tolist() == [1, 0, -1, -1]
