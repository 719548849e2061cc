"""The ops that `make bench` times, written once for both engines: small ops, and forward+backward of heavy ones."""

import numpy as np

SMALL_CALLS = 100  # calls of a small op per step


def array(mx, *shape):
    return mx.nd.array(np.random.uniform(-1, 1, shape))


def small(call, make=lambda mx: array(mx, 2, 2)):
    def setup(mx):
        x, y = make(mx), make(mx)

        def step():
            for _ in range(SMALL_CALLS):
                call(mx, x, y)

        return step

    return setup


def small_np(call):
    """As `small`, for arrays of mx.np."""
    return small(lambda mx, x, y: call(mx.np, x, y), lambda mx: array(mx, 2, 2).as_np_ndarray())


def small_recorded(mx):
    x = array(mx, 2, 2)
    x.attach_grad()

    def step():
        for _ in range(SMALL_CALLS):
            with mx.autograd.record():
                y = x * 2 + x
            y.backward()

    return step


def trained(make, *shapes, **attrs):
    """Return a step that runs `make(mx, *arrays)` forward and backward."""

    def setup(mx):
        arrays = [array(mx, *s) if isinstance(s, tuple) else s(mx) for s in shapes]
        for x in arrays:
            x.attach_grad()

        def step():
            with mx.autograd.record():
                y = make(mx, *arrays, **attrs)
            y.backward()

        return step

    return setup


def batch_norm(mx):
    x, gamma, beta = array(mx, 32, 64, 28, 28), array(mx, 64), array(mx, 64)
    mean, var = mx.nd.zeros(64), mx.nd.ones(64)
    for a in (x, gamma, beta):
        a.attach_grad()

    def step():
        with mx.autograd.record():
            y = mx.nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
        y.backward()

    return step


def embedding(mx):
    rows, weight = mx.nd.array(np.random.randint(0, 10000, (64, 35))), array(mx, 10000, 256)
    weight.attach_grad()

    def step():
        with mx.autograd.record():
            y = mx.nd.Embedding(rows, weight, input_dim=10000, output_dim=256)
        y.backward()

    return step


def lstm(mx):
    steps, batch, width, layers = 35, 32, 200, 2
    data = array(mx, steps, batch, width)
    size = layers * (8 * width * width + 8 * width)
    parameters = array(mx, size) * 0.1
    states = [mx.nd.zeros((layers, batch, width)) for _ in range(2)]
    for a in (data, parameters):
        a.attach_grad()

    def step():
        with mx.autograd.record():
            y = mx.nd.RNN(data, parameters, *states, state_size=width, num_layers=layers, mode="lstm")
        y.backward()

    return step


SMALL = {
    "a + b": small(lambda mx, x, y: x + y),
    "a * 2": small(lambda mx, x, y: x * 2),
    "exp": small(lambda mx, x, y: mx.nd.exp(x)),
    "sum(axis=1)": small(lambda mx, x, y: mx.nd.sum(x, axis=1)),
    "dot": small(lambda mx, x, y: mx.nd.dot(x, y)),
    "reshape": small(lambda mx, x, y: x.reshape((4,))),
    "concat": small(lambda mx, x, y: mx.nd.concat(x, y, dim=0)),
    "a += b": small(lambda mx, x, y: x.__iadd__(y)),
    "zeros": small(lambda mx, x, y: mx.nd.zeros((2, 2))),
    "record x*2+x, backward": small_recorded,
    "np a + b": small_np(lambda np, x, y: x + y),
    "np a * 2.0": small_np(lambda np, x, y: x * 2.0),
    "np sin": small_np(lambda np, x, y: np.sin(x)),
    "np add": small_np(lambda np, x, y: np.add(x, y)),
}

HEAVY = {
    "FullyConnected 64x1024 -> 1024": trained(
        lambda mx, x, w, b: mx.nd.FullyConnected(x, w, b, num_hidden=1024), (64, 1024), (1024, 1024), (1024,)
    ),
    "Convolution 3x3 32x64x28x28": trained(
        lambda mx, x, w, b: mx.nd.Convolution(x, w, b, kernel=(3, 3), pad=(1, 1), num_filter=64),
        (32, 64, 28, 28),
        (64, 64, 3, 3),
        (64,),
    ),
    "Pooling max 2x2 32x64x28x28": trained(
        lambda mx, x: mx.nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), (32, 64, 28, 28)
    ),
    "BatchNorm 32x64x28x28": batch_norm,
    "softmax 256x1000": trained(lambda mx, x: mx.nd.softmax(x), (256, 1000)),
    "dot 512x512": trained(lambda mx, x, y: mx.nd.dot(x, y), (512, 512), (512, 512)),
    "batch_dot 32x128x128": trained(lambda mx, x, y: mx.nd.batch_dot(x, y), (32, 128, 128), (32, 128, 128)),
    "Embedding 10000x256, 64x35 rows": embedding,
    "LSTM 2 layers, 35x32x200": lstm,
    "elementwise chain, 1M": trained(
        lambda mx, x, y: mx.nd.tanh(x * y + x) * 2 - mx.nd.exp(-x), (1000, 1000), (1000, 1000)
    ),
}


def update(name, states, **attrs):
    """Return a step that calls an optimizer's op in place on a weight of 4M elements."""

    def setup(mx):
        weight, grad = array(mx, 2000, 2000), array(mx, 2000, 2000)
        kept = [mx.nd.zeros((2000, 2000)) for _ in range(states)]
        return lambda: getattr(mx.nd, name)(weight, grad, *kept, out=weight, lr=0.01, wd=1e-4, **attrs)

    return setup


UPDATES = {
    "sgd_update": update("sgd_update", 0),
    "sgd_mom_update": update("sgd_mom_update", 1, momentum=0.9),
    "adam_update": update("adam_update", 2),
    "rmsprop_update": update("rmsprop_update", 1),
}

WORKLOADS = {**SMALL, **HEAVY, **UPDATES}
