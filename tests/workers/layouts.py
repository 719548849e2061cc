"""Train small models under every layout that this many workers allow, and write down losses and files.

layouts.py FOLDER matrix [PATTERN] | optimizers | memory

Each worker writes FOLDER/<workers>-<rank>.npz with what it found in every case, and worker 0 FOLDER/<case>.params.
One process runs the same program: its cases are the models, whole.
"""

import os
import re
import sys

import numpy as np
import torch

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon.model_zoo.transformer import GPT2
from neomx.parallel import Layout

torch.set_num_threads(1)
STEPS, BATCH, CLASSES, TIME = 10, 16, 6, 6
SIZE = mx.dist.size()

# ---- models, with the data and the loss of each ----


def filled(net, seed):
    """A Block with weights from numpy's random numbers: others on each worker, so that all must take worker 0's."""
    net.initialize()
    random = np.random.default_rng(seed)
    for param in net.collect_params().values():
        values = random.standard_normal(param.shape).astype("float32") * 0.2
        param.set_data(nd.array(values + ("gamma" in param.name or "running_var" in param.name)))
    return net


def mlp():
    """The prefix gives its Parameters, which a Trainer sorts by name, the same names each time."""
    net = gluon.nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(gluon.nn.Dense(16, activation="relu", in_units=10), gluon.nn.Dense(9, in_units=16))
        net.add(gluon.nn.Dense(12, activation="tanh", in_units=9), gluon.nn.Dense(CLASSES, in_units=12))
    return net


class Residual(gluon.HybridBlock):
    """Two convolutions, added to what came in."""

    def __init__(self, channels, norm):
        super().__init__()
        with self.name_scope():
            self.body = gluon.nn.HybridSequential()
            for _ in range(2):
                self.body.add(gluon.nn.Conv2D(channels, 3, padding=1, in_channels=channels, use_bias=False))
                self.body.add(norm(in_channels=channels), gluon.nn.Activation("relu"))

    def hybrid_forward(self, F, x):
        return x + self.body(x)


def resnet(norm=gluon.nn.InstanceNorm):
    """InstanceNorm knows one sample at a time, so that a batch in parts gives what it gives as a whole."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, strides=2, in_channels=1), Residual(4, norm), Residual(4, norm))
    net.add(gluon.nn.GlobalAvgPool2D(), gluon.nn.Dense(CLASSES, in_units=4))
    return net


def resnet_synchronised():
    """BatchNorm over the batch of all workers is one process's, too."""
    return resnet(gluon.contrib.nn.SyncBatchNorm)


def gpt2():
    """31 tokens: no number of workers divides them."""
    return GPT2(vocab_size=31, units=16, layers=2, heads=4, max_length=TIME, dropout=0.0)


def batches(shape, classes, target=(), tokens=False):
    random = np.random.default_rng(1)
    x = random.standard_normal((STEPS, BATCH, *shape)).astype("float32")
    if tokens:
        x = random.integers(0, classes, (STEPS, BATCH, *shape)).astype("float32")
    return x, random.integers(0, classes, (STEPS, BATCH, *target)).astype("float32")


MODELS = {
    "mlp": (mlp, batches((10,), CLASSES)),
    "resnet": (resnet, batches((1, 7, 7), CLASSES)),
    "synchronised": (resnet_synchronised, batches((1, 7, 7), CLASSES)),
    "gpt2": (gpt2, batches((TIME,), 31, (TIME,), tokens=True)),
}

# ---- how they are trained ----

# The gradient of a key's bias is 0 but for rounding. AdamW with its usual epsilon divides it by its own size, and steps
# as far as for any other: a larger epsilon keeps rounding small.
OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
    "adamw": ("adamw", {"learning_rate": 0.01, "epsilon": 1e-3, "wd": 0.01}),
}
CLIP = 0.5  # of the gradient of the mean; it is larger in most of the steps
# (optimizer, micro-batches, whether it clips); on many workers the first two, to save time
WAYS = {
    "sgd": ("sgd", 1, False),
    "adamw-accumulate-clip": ("adamw", 2, True),
    "sgd-accumulate": ("sgd", 2, False),
    "adamw-clip": ("adamw", 1, True),
}

# ---- layouts: (degrees, what is sharded) by the number of workers ----

LAYOUTS = {
    1: [("data=1", None)],
    2: [
        ("data=2", None),
        ("data=2", "optimizer"),
        ("data=2", "grads"),
        ("data=2", "full"),
        ("shard=2", "full"),
        ("tensor=2", None),
        ("pipeline=2", None),
    ],
    4: [
        ("data=4", None),
        ("data=4", "optimizer"),
        ("shard=4", "grads"),
        ("shard=4", "full"),
        ("tensor=4", None),
        ("pipeline=4", None),
        ("data=2,shard=2", "full"),
        ("data=2,tensor=2", None),
        ("data=2,tensor=2", "optimizer"),
        ("shard=2,tensor=2", "full"),
        ("data=2,pipeline=2", None),
        ("data=2,pipeline=2", "optimizer"),
        ("shard=2,pipeline=2", "full"),
        ("tensor=2,pipeline=2", None),
    ],
    8: [
        ("data=2,tensor=2,pipeline=2", None),
        ("shard=2,tensor=2,pipeline=2", "full"),
        ("data=2,shard=2,tensor=2", "full"),
        ("data=4,tensor=2", "optimizer"),
    ],
}


def suits(model, layout, way):
    """Convolutions are not divided over a tensor group; statistics of a batch are not those of its parts."""
    if model == "synchronised":
        return layout.tensor == 1 and layout.pipeline == 1 and WAYS[way][1] == 1
    return model != "resnet" or layout.tensor == 1


def cases(workers):
    """(name, model, layout, shard, way) of all."""
    for model in MODELS:
        for text, shard in LAYOUTS[workers]:
            for way in WAYS if workers < 4 else list(WAYS)[:2]:
                if suits(model, Layout.parse(text), way):
                    yield f"{model} {text} {shard} {way}", model, Layout.parse(text), shard, way


# ---- training ----


def share(array, layout):
    """This worker's samples of every batch."""
    return nd.array(np.split(array, layout.batch_size, axis=1)[layout.batch_rank])


def train(net, data, layout, shard, way):
    """The losses of each step, over this worker's samples or over all: their mean over workers is one process's."""
    optimizer, microbatches, clips = WAYS[way]
    name, settings = OPTIMIZERS[optimizer]
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    x, y = (share(array, layout) for array in data)
    trainer = gluon.Trainer(net.collect_params(), name, settings)
    if layout.pipeline == 1 and (microbatches == 1 or SIZE == 1):
        mx.parallel.apply(net, layout, shard=shard)
        return [plain_step(net, loss, trainer, x[i], y[i], clips) for i in range(STEPS)]
    how = {"shard": shard, "clip": CLIP if clips else None, "schedule": "gpipe"}
    if microbatches > 1:  # 1F1B takes at least as many as there are stages
        how["schedule"], microbatches = "1f1b", max(microbatches, layout.pipeline)
    step = mx.parallel.train_step(net, loss, trainer, layout, microbatches, **how)
    return [step(x[i], y[i]).asscalar() for i in range(STEPS)]


def plain_step(net, loss, trainer, x, y, clips=False):
    """What a script for one process does."""
    with autograd.record():
        value = loss(net(x), y)
    value.backward()
    if not clips:
        trainer.step(len(x))
    elif SIZE == 1:
        gradients = [param.grad() for param in net.collect_params().values() if param.grad_req != "null"]
        gluon.utils.clip_global_norm(gradients, CLIP * BATCH)
        trainer.step(len(x))
    else:
        trainer.allreduce_grads()
        mx.parallel.clip_global_norm(net.collect_params(), CLIP * BATCH)
        trainer.update(len(x))
    return value.mean().asscalar()


def matrix(folder, pattern=""):
    losses, written = {}, {}
    for name, model, layout, shard, way in cases(SIZE):
        if not re.search(pattern, name):
            continue
        make, data = MODELS[model]
        net = filled(make(), seed=mx.dist.rank())
        losses[name] = np.array(train(net, data, layout, shard, way))
        written.setdefault(model, []).append((f"{folder}/{name}.params", layout, shard))
        net.save_parameters(written[model][-1][0])
    if SIZE > 1:
        load_each_others(written)
    np.savez(f"{folder}/{SIZE}-{mx.dist.rank()}.npz", **losses)


def load_each_others(written):
    """Every layout loads the file of the one before it, and writes it again."""
    for model, files in written.items():
        for (_, layout, shard), (source, _, _) in zip(files, [files[-1], *files], strict=False):
            if layout.pipeline == 1:
                net = filled(MODELS[model][0](), seed=5)
                mx.parallel.apply(net, layout, shard=shard)
                net.load_parameters(source)
                net.save_parameters(f"{source}.again")
                again = nd.load(f"{source}.again")
                for key, value in nd.load(source).items():
                    assert (value.asnumpy() == again[key].asnumpy()).all(), (source, str(layout), shard, key)


# ---- all optimizers, the first steps with one way of sharding, the last with the other ----

EARLY, LATE = 3, 2
MOMENTUM = dict.fromkeys(("ccsgd", "dcasgd", "lars", "nag", "sgd", "signum"), {"momentum": 0.9})
SETTINGS = MOMENTUM | {
    "lbsgd": {"momentum": 0.9, "warmup_strategy": "lars"},
    "rmsprop": {"learning_rate": 0.005, "centered": True},
    "sgld": {"learning_rate": 1e-3},
    "test": {"rescale_grad": 0.01},
}


def optimizers(folder):
    losses = {}
    kinds = ["full", "optimizer"] if SIZE > 1 else [None]
    for name in sorted(mx.optimizer.Optimizer.opt_registry):
        for kind in kinds:
            losses[f"{name} {kind}"] = begin(folder, name, kind)
        mx.dist.barrier()
        for kind, other in zip(kinds, reversed(kinds), strict=True):
            losses[f"{name} {kind} goes on"] = go_on(folder, name, kind, other)
    np.savez(f"{folder}/{SIZE}-{mx.dist.rank()}.npz", **losses)


def learner(name, kind, path=None):
    mx.random.seed(3)  # of SGLD's noise
    net = filled(mlp(), seed=mx.dist.rank())
    if path is not None:
        net.load_parameters(f"{path}.params")
    mx.parallel.apply(net, Layout(data=SIZE), shard=kind)
    params = net.collect_params(".*weight" if name == "groupadagrad" else None)  # which takes matrices alone
    trainer = gluon.Trainer(params, name, {"learning_rate": 0.05, **SETTINGS.get(name, {})})
    if path is not None:
        trainer.load_states(f"{path}.states")
    return net, trainer


def steps(net, trainer, which):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    x, y = (share(array, Layout(data=SIZE)) for array in MODELS["mlp"][1])
    return np.array([plain_step(net, loss, trainer, x[i], y[i]) for i in which])


def begin(folder, name, kind):
    net, trainer = learner(name, kind)
    losses = steps(net, trainer, range(EARLY))
    net.save_parameters(f"{folder}/{name} {kind}.params")
    trainer.save_states(f"{folder}/{name} {kind}.states")
    return losses


def go_on(folder, name, kind, other):
    net, trainer = learner(name, kind, f"{folder}/{name} {other}")
    return steps(net, trainer, range(EARLY, EARLY + LATE))


# ---- what a worker holds ----


def memory(folder):
    """Bytes of parameters, gradients and states, by the storages of the tensors: (one array each)."""
    found = {}
    for model in ("mlp", "resnet", "gpt2"):
        for kind in (None, "optimizer", "full"):
            make, data = MODELS[model]
            net = filled(make(), seed=0)
            layout = Layout(data=SIZE) if kind != "full" else Layout(shard=SIZE)
            mx.parallel.apply(net, layout, shard=kind)
            trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adamw"])
            x, y = (share(array, layout) for array in data)
            plain_step(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer, x[0], y[0])
            found[f"{model} {kind}"] = np.array(held(net, trainer))
    np.savez(f"{folder}/{SIZE}-{mx.dist.rank()}.npz", **found)


def held(net, trainer):
    leaves = list(net.torch().parameters())
    states = [each._data for state in trainer._updaters[0].states.values() for each in arrays_in(state)]
    return storage(leaves), storage([leaf.grad for leaf in leaves if leaf.requires_grad]), storage(states)


def arrays_in(state):
    if isinstance(state, (list, tuple)):
        return [array for each in state for array in arrays_in(each)]
    return [state] if isinstance(state, nd.NDArray) else []


def storage(tensors):
    """Bytes of the different storages behind tensors; of a DTensor what is here."""
    here = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in here}.values())


if __name__ == "__main__":
    folder, what, *more = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    {"matrix": matrix, "optimizers": optimizers, "memory": memory}[what](folder, *more)
