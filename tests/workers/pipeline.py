"""Trains small models under layouts with pipelines, and saves losses and weights.

pipeline.py OUT WORKERS runs the cases for that number of workers, and writes OUT-RANK.npz and a .params file for each.
With 1 worker it uses the same batches and microbatches in a single process.
"""

import sys

import numpy as np
import torch

import neomx as mx
from neomx import gluon, nd
from neomx.gluon import nn
from neomx.gluon.model_zoo.transformer import GPT2
from neomx.parallel import Layout, state_dict, train_step

STEPS, SAMPLES, MICRO = 10, 16, 4
SGD = ("sgd", {"learning_rate": 0.1, "momentum": 0.9})
ADAMW = ("adamw", {"learning_rate": 0.01, "epsilon": 1e-3})  # large epsilon: does not amplify rounding near 0


def mlp():
    net = nn.HybridSequential()
    for _ in range(8):
        net.add(nn.Dense(16, activation="tanh", in_units=16))
    net.add(nn.Dense(5))  # its shape is known after the first batch
    return net


class Residual(gluon.HybridBlock):
    """x + two convolutions with BatchNorm."""

    def __init__(self, channels):
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            for _ in range(2):
                self.body.add(nn.Conv2D(channels, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))

    def hybrid_forward(self, F, x):
        return x + self.body(x)


class ResNet(gluon.HybridBlock):
    """Like those of the model zoo: features, and output."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.features = nn.HybridSequential()
            self.features.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm())
            layer = nn.HybridSequential()
            layer.add(*(Residual(8) for _ in range(4)))
            self.features.add(layer, nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(5)

    def hybrid_forward(self, F, x):
        return self.output(self.features(x))


def gpt2():
    return GPT2(vocab_size=32, units=16, layers=6, heads=2, max_length=8, dropout=0.0)


class Whole(torch.nn.Module):
    """A Sequential that is not cut into stages, because tensor groups divide it."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)


class Plain(torch.nn.Module):
    """A torch module that lists its stages; the first and the last share a weight."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        layers = ([torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16)] for _ in "1234")
        self.body = torch.nn.ModuleList(torch.nn.Sequential(*each) for each in layers)
        self.last.weight = self.first.weight

    def forward(self, x):
        x = self.first(x)
        for each in self.body:
            x = each(x)
        return self.last(x)

    def stages(self):
        body = [(f"body.{number}", Whole(each)) for number, each in enumerate(self.body)]
        return [("first", self.first), *body, ("last", self.last)]


def bare():
    """Ends with a piece without weights."""
    net = nn.HybridSequential()
    net.add(nn.Dense(16, in_units=16), nn.Dense(5, in_units=16), nn.Activation("tanh"))
    return net


def bare_torch():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), torch.nn.Tanh())


def rows(*shape):
    return np.random.default_rng(0).standard_normal((STEPS, SAMPLES, *shape)).astype("float32")


def labels(classes, *shape):
    return np.random.default_rng(1).integers(0, classes, (STEPS, SAMPLES, *shape)).astype("float32")


MODELS = {
    "mlp": (mlp, rows(16), labels(5)),
    "resnet": (ResNet, rows(3, 6, 6), labels(5)),
    "gpt2": (gpt2, labels(32, 8), labels(32, 8)),
    "torch": (Plain, rows(16), rows(16)),
    "bare": (bare, rows(16), labels(5)),
    "bare torch": (bare_torch, rows(16), rows(16)),
}
# (model, optimizer, more arguments of train_step); the layout follows from the number of workers
CASES = {
    "mlp 1f1b": ("mlp", SGD, {"schedule": "1f1b"}),
    "mlp gpipe": ("mlp", ADAMW, {"schedule": "gpipe", "cut": "parameters"}),
    "mlp interleaved": ("mlp", SGD, {"schedule": "interleaved"}),
    "mlp zero-bubble": ("mlp", ADAMW, {"schedule": "zero-bubble"}),
    "mlp zbv": ("mlp", SGD, {"schedule": "zbv"}),
    "resnet 1f1b": ("resnet", SGD, {"schedule": "1f1b"}),
    "resnet zero-bubble": ("resnet", SGD, {"schedule": "zero-bubble"}),
    "gpt2 1f1b": ("gpt2", ADAMW, {"schedule": "1f1b", "checkpoint": True}),
    "gpt2 interleaved": ("gpt2", SGD, {"schedule": "interleaved", "cut": "parameters"}),
    "gpt2 zbv": ("gpt2", SGD, {"schedule": "zbv"}),
    "torch 1f1b": ("torch", None, {"schedule": "1f1b"}),
    "torch zero-bubble": ("torch", None, {"schedule": "zero-bubble"}),
    "bare": ("bare", SGD, {"cut": ["2"]}),
    "bare torch": ("bare torch", None, {"cut": ["2"], "clip": 0.1}),
}
HYBRIDS = {
    "mlp data": ("mlp", SGD, {"schedule": "1f1b", "clip": 0.1}, Layout(data=2, pipeline=2)),
    "mlp shard": ("mlp", ADAMW, {"schedule": "1f1b", "shard": "full"}, Layout(shard=2, pipeline=2)),
    "gpt2 data": ("gpt2", ADAMW, {"schedule": "zbv", "clip": 0.5}, Layout(data=2, pipeline=2)),
    "gpt2 shard": ("gpt2", SGD, {"schedule": "1f1b", "shard": "full"}, Layout(shard=2, pipeline=2)),
    "gpt2 tensor": ("gpt2", SGD, {"schedule": "1f1b"}, Layout(tensor=2, pipeline=2)),
    "torch data": ("torch", None, {"schedule": "1f1b", "clip": 0.1}, Layout(data=2, pipeline=2)),
    "torch shard": ("torch", None, {"schedule": "1f1b", "shard": "full"}, Layout(shard=2, pipeline=2)),
    "torch tensor": ("torch", None, {"schedule": "zbv"}, Layout(tensor=2, pipeline=2)),
    "bare data": ("bare", SGD, {"cut": ["2"], "clip": 0.1}, Layout(data=2, pipeline=2)),
    "bare shard": ("bare", SGD, {"cut": ["2"], "shard": "full"}, Layout(shard=2, pipeline=2)),
    "bare torch data": ("bare torch", None, {"cut": ["2"], "clip": 0.1}, Layout(data=2, pipeline=2)),
    "bare torch shard": ("bare torch", None, {"cut": ["2"], "shard": "full"}, Layout(shard=2, pipeline=2)),
    "gpt2 no pipeline": ("gpt2", ADAMW, {"checkpoint": "blocks.*"}, Layout(data=4)),
    "torch no pipeline": ("torch", None, {"clip": 0.1}, Layout(data=2, shard=2)),
}


def cases(workers):
    """Return (name, case, layout) for a number of workers."""
    for name, case in CASES.items():
        if workers < 4 or name in ("resnet zero-bubble", "gpt2 interleaved"):
            yield name, case, Layout(pipeline=workers)
    for name, (*case, layout) in HYBRIDS.items() if workers in (1, 4) else ():
        yield name, case, layout if workers > 1 else Layout()


def train(case, layout, smaller=False, microbatches=MICRO):
    """Return the losses and the model."""
    name, optimizer, options = case
    make, x, y = MODELS[name]
    mx.random.seed(3)
    net = make()
    if name.endswith("torch"):
        trainer = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)  # noqa: E731
        loss, arrays = torch.nn.MSELoss(), (torch.from_numpy(x), torch.from_numpy(y))
    else:
        net.initialize(mx.init.Xavier())
        trainer = gluon.Trainer(net.collect_params(), *optimizer)
        loss, arrays = gluon.loss.SoftmaxCrossEntropyLoss(), (nd.array(x), nd.array(y))
    if layout.size == 1:
        options = {key: options[key] for key in ("clip", "checkpoint") if key in options}
    step = train_step(net, loss, trainer, layout, microbatches, **options)
    share = SAMPLES // layout.batch_size
    mine = slice(layout.batch_rank * share, (layout.batch_rank + 1) * share)
    losses = [float(step(a[mine], b[mine])) for a, b in zip(*arrays, strict=True)]
    if smaller:  # batches of another size
        losses += [float(step(arrays[0][i][: SAMPLES // 2], arrays[1][i][: SAMPLES // 2])) for i in range(2)]
    return losses, net, step


def main(out, workers, *chosen):
    torch.set_num_threads(1)
    found = {}
    for name, case, layout in cases(int(workers)):
        if chosen and name not in chosen:
            continue
        losses, net, step = train(case, layout, name in CASES)
        found[name] = np.array(losses)
        if case[0].endswith("torch"):
            found[f"{name} state"] = torch.cat([each.flatten() for each in state_dict(net).values()]).numpy()
        else:
            net.save_parameters(f"{out}-{name}.params")
        found[f"{name} bubble"] = np.array([step.bubble_expected, step.bubble_measured])
        found[f"{name} report"] = np.array(str(step))
    np.savez(f"{out}-{mx.dist.rank()}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
