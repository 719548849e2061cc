"""What is run with GluonCV, the same under MXNet and neomx. Each gives arrays by name."""

import mxnet as mx
from gluoncv import model_zoo
from mxnet import autograd, gluon, nd
from weights import fill, fingerprint, random


def _classify(name, size, hybrid, dtype="float64"):
    data = nd.array(random("pictures", (4, 3, size, size)))
    label = nd.array([1, 7, 0, 3])
    net = fill(model_zoo.get_model(name, pretrained=False, classes=10), data)
    net.cast(dtype)
    data = data.astype(dtype)
    if hybrid:
        net.hybridize()
    found = {"eval": net(data)}
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-4})
    for step in range(2):
        with autograd.record():
            loss = loss_function(net(data), label)
        loss.backward()
        found["loss%d" % step] = loss
        if step == 0:
            found["gradients"] = fingerprint(net, "grad")
        trainer.step(len(label))
    found["weights"] = fingerprint(net, "data")
    found["trained"] = net(data)
    return found


def cifar_resnet20():
    """A small residual network, as it is. Its gradients are ill-conditioned: in single precision MXNet is 1% off."""
    return _classify("cifar_resnet20_v1", 32, hybrid=False)


def resnet18():
    """The residual network of everyday use, hybridized."""
    return _classify("resnet18_v1", 64, hybrid=True, dtype="float32")


def mobilenet():
    """Depthwise convolutions."""
    return _classify("mobilenetv2_0.25", 64, hybrid=True)


PROGRAMS = [cifar_resnet20, resnet18, mobilenet]
