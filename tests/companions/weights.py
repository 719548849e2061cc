"""Weights that depend on the names of parameters only, and numbers that stand for a whole network."""

import zlib

import numpy as np


def random(name, shape, low=-1.0, high=1.0):
    """Numbers that depend on a name only."""
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(low, high, shape).astype("float32")


def _value(name, shape):
    kind = name.rsplit(".", 1)[-1]
    if kind in ("gamma", "running_var"):
        return random(name, shape, 0.8, 1.2)
    if kind in ("beta", "bias", "running_mean") or len(shape) < 2:
        return random(name, shape, -0.1, 0.1)
    return random(name, shape) * (3.0 / np.prod(shape[1:])) ** 0.5


def fill(net, *inputs):
    """Initialise a network; after a forward that settles shapes, give its parameters values by their names."""
    import mxnet as mx

    net.initialize(mx.init.Zero())
    if inputs:
        net(*inputs)
    for name, parameter in sorted(net._collect_params_with_prefix().items()):
        if parameter.grad_req != "null" or name.rsplit(".", 1)[-1].startswith("running"):
            parameter.set_data(mx.nd.array(_value(name, parameter.shape)))
    return net


def fingerprint(net, what):
    """The length and the sum of each parameter's data or gradient, in the order of names, a row each."""
    rows = []
    for _, parameter in sorted(net._collect_params_with_prefix().items()):
        if parameter.grad_req != "null":
            values = getattr(parameter, what)().asnumpy().astype("float64")
            rows.append([np.sqrt((values**2).sum()), values.sum()])
    return np.array(rows)
