"""Nets that neomx exports, for real MXNet to load: `.venv/bin/python tests/parity/exports.py` writes recorded/exported.

`check_exports.py` runs the files in real MXNet and keeps what it computes. This module itself needs numpy alone.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
EXPORTED = HERE / "recorded" / "exported"
# By net, what it takes: shapes of numbers, or of tokens below 7.
INPUTS = {"lenet": [(2, 1, 12, 12)], "lstm": ["4x3"], "mixed": [(2, 3, 6, 6), "2x4"], "loop": [(3, 2, 3)]}

# Whose gradients are compared: those of MXNet's BatchNorm when predicting and of its PReLU are not the true ones.
WITH_GRADIENTS = ("lstm", "loop")


def inputs(name):
    """The numpy arrays that a net is run on."""
    rng = np.random.RandomState(5)
    return [
        rng.uniform(-1, 1, size=shape)
        if isinstance(shape, tuple)
        else rng.randint(0, 7, tuple(map(int, shape.split("x"))))
        for shape in INPUTS[name]
    ]


def input_names(name):
    """What the exported graph calls them."""
    return ["data"] if len(INPUTS[name]) == 1 else ["data%d" % i for i in range(len(INPUTS[name]))]


def computed(mx, net, name):
    """{what: array}: the outputs of a net, and the gradients of its parameters."""
    with mx.autograd.record(train_mode=False):
        outputs = net(*[mx.nd.array(value) for value in inputs(name)])
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        loss = sum((output * output).sum() for output in outputs)
    results = {"out%d" % i: output.asnumpy() for i, output in enumerate(outputs)}
    if name in WITH_GRADIENTS:
        loss.backward(train_mode=False)
        results.update({"grad " + key: param.grad().asnumpy() for key, param in net.collect_params().items()})
    return results


def imported(mx, name):
    """The net in the files, as a SymbolBlock."""
    path = str(EXPORTED / name)
    return mx.gluon.SymbolBlock.imports(path + "-symbol.json", input_names(name), path + "-0000.params")


def lenet(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="lenet_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2, 2))
        net.add(nn.Conv2D(3, 3, padding=1, strides=2), nn.LeakyReLU(0.1), nn.AvgPool2D(2, 2), nn.Flatten())
        net.add(nn.Dense(6, activation="tanh"), nn.Dropout(0.5), nn.Dense(3))
    return net


def lstm(mx):
    nn, rnn = mx.gluon.nn, mx.gluon.rnn
    net = nn.HybridSequential(prefix="lm_")
    with net.name_scope():
        net.add(nn.Embedding(7, 4), rnn.LSTM(3, 2, bidirectional=True), nn.Dropout(0.2), nn.Dense(5, flatten=False))
    return net


def mixed(mx):
    nn = mx.gluon.nn

    class Mixed(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="mixed_")
            with self.name_scope():
                self.up, self.slope = nn.Conv2DTranspose(4, 3, strides=2, padding=1, output_padding=1), nn.PReLU()
                self.words, self.norm, self.out = nn.Embedding(7, 6), nn.LayerNorm(), nn.Dense(2)
                self.groups, self.act = nn.GroupNorm(2), nn.GELU()
                self.scale = self.params.get("scale", shape=(1, 6))

        def hybrid_forward(self, F, x, tokens, scale):
            pixels = self.groups(self.slope(self.up(x))).slice_axis(axis=2, begin=1, end=7)
            left, right = F.split(pixels, num_outputs=2, axis=1)
            words = F.broadcast_mul(self.norm(self.words(tokens)).sum(axis=1), scale)
            joined = F.concat(F.Flatten(F.slice_axis(left, axis=1, begin=0, end=1)), words, dim=1)
            joined = F.concat(joined, F.slice(right, begin=(None, 0, 1), end=(None, 1, 3)).reshape((0, -1)), dim=1)
            return self.out(self.act(joined)), F.softmax(words / 2 - 1), F.transpose(joined).clip(-1, 1)

    return Mixed()


def loop(mx):
    class Loop(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="loop_")
            with self.name_scope():
                self.cell = mx.gluon.rnn.GRUCell(4, input_size=3)
                self.start = self.params.get("start", shape=(1, 4))

        def hybrid_forward(self, F, x, start):
            first = F.sum(F.slice_axis(x, axis=0, begin=0, end=1), axis=(0, 2)).expand_dims(1)
            state = F.broadcast_add(F.zeros_like(first), start)
            outputs, states = F.contrib.foreach(self.cell, x, [state])
            return outputs, states[0]

    return Loop()


NETS = {"lenet": lenet, "lstm": lstm, "mixed": mixed, "loop": loop}


def made(mx, name):
    """A net with parameters from numpy's generator, hybridized and run once."""
    net, rng = NETS[name](mx), np.random.RandomState(6)
    net.initialize()
    net.hybridize()
    arrays = [mx.nd.array(value) for value in inputs(name)]
    net(*arrays)
    for key, param in sorted(net.collect_params().items()):
        low, high = (0.5, 1.5) if key.endswith("running_var") else (-0.5, 0.5)
        param.set_data(mx.nd.array(rng.uniform(low, high, size=param.shape)))
    net(*arrays)
    return net


def main():
    import neomx as mx

    EXPORTED.mkdir(exist_ok=True)
    for name in NETS:
        with mx.name.NameManager():
            made(mx, name).export(str(EXPORTED / name))
        print("exported", name)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    main()
