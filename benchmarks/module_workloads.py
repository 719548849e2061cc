"""Symbolic training programs as MXNet's users write them, for both engines."""

import logging
import warnings

import numpy as np

# Fitting a module again logs that it is already bound.
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
BATCH, BATCHES = 64, 20


def lenet(mx):
    """Return a LeNet with tanh, as in MXNet's examples."""
    net = mx.sym.var("data")
    for number, filters in enumerate((20, 50), 1):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=filters, name=f"conv{number}")
        net = mx.sym.Pooling(mx.sym.tanh(net), pool_type="max", kernel=(2, 2), stride=(2, 2))
    net = mx.sym.tanh(mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=500, name="fc1"))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10, name="fc2"), name="softmax")


def mlp(mx):
    """Return a network with two hidden layers."""
    net = mx.sym.Flatten(mx.sym.var("data"))
    for units in (128, 64):
        net = mx.sym.relu(mx.sym.FullyConnected(net, num_hidden=units))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10), name="softmax")


SGD = {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-4}


def pictures():
    """Return images and classes for an epoch."""
    count = BATCH * BATCHES
    return np.random.uniform(0, 1, (count, 1, 28, 28)).astype("float32"), np.random.randint(0, 10, count)


def by_executor(make):
    """Train an epoch with an executor: forward, backward and an update of each parameter."""

    def setup(mx):
        net = make(mx)
        reqs = {n: "null" if n in ("data", "softmax_label") else "write" for n in net.list_arguments()}
        bound = net.simple_bind(mx.cpu(), grad_req=reqs, data=(BATCH, 1, 28, 28), softmax_label=(BATCH,))
        for array in bound.arg_arrays:
            array[:] = np.random.uniform(-0.05, 0.05, array.shape)
        images, labels = pictures()
        batches = [
            (mx.nd.array(images[at : at + BATCH]), mx.nd.array(labels[at : at + BATCH]))
            for at in range(0, len(images), BATCH)
        ]
        update = mx.optimizer.get_updater(mx.optimizer.SGD(rescale_grad=1 / BATCH, **SGD))
        trained = [
            (i, g, w) for i, (g, w) in enumerate(zip(bound.grad_arrays, bound.arg_arrays, strict=True)) if g is not None
        ]

        def epoch():
            for data, label in batches:
                bound.forward(is_train=True, data=data, softmax_label=label)
                bound.backward()
                for i, grad, weight in trained:
                    update(i, grad, weight)

        return epoch

    return setup


def by_module(make):
    """Train an epoch with `Module.fit`, including its metric."""

    def setup(mx):
        images, labels = pictures()
        data = mx.io.NDArrayIter(images, labels, BATCH, shuffle=True)
        module = mx.mod.Module(make(mx), context=mx.cpu())

        def epoch():
            module.fit(data, optimizer_params=SGD, initializer=mx.init.Xavier(), num_epoch=1)

        return epoch

    return setup


WORKLOADS = {
    "LeNet by Module.fit": by_module(lenet),
    "MLP by Module.fit": by_module(mlp),
    "LeNet by an executor": by_executor(lenet),
    "MLP by an executor": by_executor(mlp),
}
