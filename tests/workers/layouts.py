"""Trains small models under every layout that this number of workers allows, and saves losses and files.

layouts.py FOLDER matrix [EVERY [PATTERN]] | optimizers | memory | bad

Each worker writes FOLDER/<workers>-<rank>.npz with its results of every case, and worker 0 FOLDER/<case>.params. A
single process runs the same program on the whole models.
"""

import os
import re
import sys
import zlib
from functools import partial

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
    """Set random weights from numpy: different ones on each worker, so that all must use worker 0's."""
    random = np.random.default_rng(seed)
    if isinstance(net, torch.nn.Module):
        for leaf in net.parameters():
            leaf.data.copy_(torch.from_numpy(random.standard_normal(leaf.shape) * 0.2))
        return net
    net.initialize()
    for param in net.collect_params().values():
        values = random.standard_normal(param.shape).astype("float32") * 0.2
        param.set_data(nd.array(values + ("gamma" in param.name or "running_var" in param.name)))
    return net


def mlp():
    """The prefix gives the Parameters, which a Trainer sorts by name, the same names each time."""
    net = gluon.nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(gluon.nn.Dense(16, activation="relu", in_units=10), gluon.nn.Dense(9, in_units=16))
        net.add(gluon.nn.Dense(12, activation="tanh", in_units=9), gluon.nn.Dense(CLASSES, in_units=12))
    return net


class Residual(gluon.HybridBlock):
    """Two convolutions, added to the input."""

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
    """InstanceNorm works per sample, so that a batch in parts gives the same result as a whole batch."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, strides=2, in_channels=1), Residual(4, norm), Residual(4, norm))
    net.add(gluon.nn.GlobalAvgPool2D(), gluon.nn.Dense(CLASSES, in_units=4))
    return net


def resnet_synchronised():
    """BatchNorm over the batch of all workers also matches a single process."""
    return resnet(gluon.contrib.nn.SyncBatchNorm)


def gpt2():
    """31 tokens, which no number of workers divides."""
    return GPT2(vocab_size=31, units=16, layers=2, heads=4, max_length=TIME, dropout=0.0)


def torch_mlp():
    first = [torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 9)]
    return torch.nn.Sequential(*first, torch.nn.Linear(9, 12), torch.nn.Tanh(), torch.nn.Linear(12, CLASSES))


def batches(shape, classes, target=(), tokens=False):
    random = np.random.default_rng(1)
    x = random.standard_normal((STEPS, BATCH, *shape)).astype("float32")
    if tokens:
        x = random.integers(0, classes, (STEPS, BATCH, *shape)).astype("float32")
    return x, random.integers(0, classes, (STEPS, BATCH, *target)).astype("float32")


MODELS = {
    "mlp": (mlp, batches((10,), CLASSES)),
    "torch": (torch_mlp, batches((10,), CLASSES)),
    "resnet": (resnet, batches((1, 7, 7), CLASSES)),
    "synchronised": (resnet_synchronised, batches((1, 7, 7), CLASSES)),
    "gpt2": (gpt2, batches((TIME,), 31, (TIME,), tokens=True)),
}

# ---- how they are trained ----

# The gradient of a key's bias is 0 except for rounding. AdamW with its usual epsilon divides it by its own magnitude,
# and steps as far as for any other gradient. A larger epsilon keeps the effect of rounding small.
OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
    "adamw": ("adamw", {"learning_rate": 0.01, "epsilon": 1e-3, "wd": 0.01}),
}
TORCH_OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.01}),
}
CLIP = 0.5  # of the gradient of the mean; exceeded in most of the steps
# (optimizer, micro-batches, whether it clips)
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
        ("data=2,shard=2,pipeline=2", "full"),
        ("data=4,tensor=2", "optimizer"),
    ],
}


def suits(model, layout, shard):
    """Convolutions are not divided over a tensor group; statistics of a batch differ from those of its parts."""
    if model == "synchronised":
        return layout.tensor == 1 and layout.pipeline == 1
    if model == "torch":
        return shard in (None, "full") and layout.size < 8
    return model != "resnet" or layout.tensor == 1


def ways(model, workers, shard):
    """Return all ways for one model on two workers; for others, where each step is slower, the most different ones."""
    if model == "synchronised":
        return ["adamw-clip"]
    if workers == 8 and shard is not None:
        return ["adamw-accumulate-clip"]
    return WAYS if model == "mlp" and workers == 2 or workers == 1 else ["sgd", "adamw-accumulate-clip"]


def cases(workers):
    """Return (name, model, layout, shard, way) of all cases."""
    for model in MODELS:
        for text, shard in LAYOUTS[workers]:
            if suits(model, Layout.parse(text), shard):
                for way in ways(model, workers, shard):
                    yield f"{model} {text} {shard} {way}", model, Layout.parse(text), shard, way


# ---- training ----


def share(array, layout):
    """Return this worker's samples of every batch."""
    return nd.array(np.split(array, layout.batch_size, axis=1)[layout.batch_rank])


def train(net, data, layout, shard, way):
    """Return the loss of each step. Its mean over workers is the loss of a single process."""
    optimizer, microbatches, clips = WAYS[way]
    x, y = (share(array, layout) for array in data)
    if isinstance(net, torch.nn.Module):
        return train_torch(net, x._data, y._data.long(), layout, shard, way)
    name, settings = OPTIMIZERS[optimizer]
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), name, settings)
    if layout.pipeline == 1 and (microbatches == 1 or SIZE == 1):
        mx.parallel.apply(net, layout, shard=shard)
        return [plain_step(net, loss, trainer, x[i], y[i], clips) for i in range(STEPS)]
    step = mx.parallel.train_step(net, loss, trainer, layout, shard=shard, **parts(way, layout))
    return [step(x[i], y[i]).asscalar() for i in range(STEPS)]


def parts(way, layout):
    """The arguments of train_step; 1F1B takes at least as many microbatches as there are stages."""
    _, microbatches, clips = WAYS[way]
    clip = CLIP if clips else None
    if microbatches == 1:
        return {"microbatches": 1, "schedule": "gpipe", "clip": clip}
    return {"microbatches": max(microbatches, layout.pipeline), "clip": clip}


def train_torch(net, x, y, layout, shard, way):
    """Like `train`, for a torch module with torch's optimizers."""
    kind, settings = TORCH_OPTIMIZERS[WAYS[way][0]]
    loss = torch.nn.functional.cross_entropy
    if layout.pipeline > 1 or (WAYS[way][1] > 1 and SIZE > 1):
        make = partial(kind, **settings)
        step = mx.parallel.train_step(net, loss, make, layout, shard=shard, **parts(way, layout))
        return [step(x[i], y[i]).item() for i in range(STEPS)]
    mx.parallel.apply(net, layout, shard=shard)
    optimizer = mx.parallel.optimizer(net, kind, **settings)
    losses = []
    for i in range(STEPS):
        optimizer.zero_grad()
        value = loss(net(x[i]), y[i])
        value.backward()
        if WAYS[way][2] and SIZE > 1:
            mx.parallel.clip_global_norm(net.parameters(), CLIP)
        elif WAYS[way][2]:
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        losses.append(value.item())
    return losses


def plain_step(net, loss, trainer, x, y, clips=False):
    """A step as in a script for one process."""
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


def matrix(folder, every="1", pattern=""):
    losses, written = {}, {}
    for name, model, layout, shard, way in cases(SIZE):
        if zlib.crc32(name.encode()) % int(every) or not re.search(pattern, name):
            continue
        make, data = MODELS[model]
        net = filled(make(), seed=mx.dist.rank())
        losses[name] = np.array(train(net, data, layout, shard, way))
        written.setdefault(model, []).append((f"{folder}/{name}.params", layout, shard))
        save(net, written[model][-1][0])
    if SIZE > 1:
        load_each_others(written)
    np.savez(f"{folder}/{SIZE}-{mx.dist.rank()}.npz", **losses)


def save(net, path):
    if isinstance(net, torch.nn.Module):
        state = mx.parallel.state_dict(net)
        if mx.dist.rank() == 0:
            nd.save(path, {name: nd.array(value.numpy()) for name, value in state.items()})
        mx.dist.barrier()
    else:
        net.save_parameters(path)


def load(net, path):
    if isinstance(net, torch.nn.Module):
        mx.parallel.load_state_dict(net, {name: value._data for name, value in nd.load(path).items()})
    else:
        net.load_parameters(path)


def load_each_others(written):
    """Every layout loads the file of the one before it, and writes it again."""
    for model, files in written.items():
        for (_, layout, shard), (source, _, _) in zip(files, [files[-1], *files], strict=False):
            if layout.pipeline == 1:
                net = filled(MODELS[model][0](), seed=5)
                mx.parallel.apply(net, layout, shard=shard)
                load(net, source)
                save(net, f"{source}.again")
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
    mx.random.seed(3)  # for the noise of SGLD
    net = filled(mlp(), seed=mx.dist.rank())
    if path is not None:
        net.load_parameters(f"{path}.params")
    mx.parallel.apply(net, Layout(data=SIZE), shard=kind)
    params = net.collect_params(".*weight" if name == "groupadagrad" else None)  # it supports only matrices
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


# ---- memory of a worker ----


def memory(folder):
    """Bytes of parameters, gradients and states, by the storages of the tensors, and of a row of each parameter."""
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
            found[f"{model} rows"] = sum(leaf[0].numel() * 4 for leaf in net.torch().parameters()) if SIZE == 1 else 0
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
    """Bytes of the distinct storages of tensors; of a DTensor, the local part."""
    here = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in here}.values())


# ---- invalid arguments ----


class Homeless(gluon.HybridBlock):
    """Lists its stages, but omits one of its layers."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first, self.second = gluon.nn.Dense(4, in_units=4), gluon.nn.Dense(4, in_units=4)
            self.extra = gluon.nn.Dense(4, in_units=4)

    def stages(self):
        return [("first", self.first), ("second", self.second)]

    def hybrid_forward(self, F, x):
        return self.second(self.extra(self.first(x)))


def small(*widths, **how):
    net = gluon.nn.HybridSequential()
    for width in widths:
        net.add(gluon.nn.Dense(width, in_units=8, **how))
    net.initialize()
    return net


def message(call, *args, **kwargs):
    """The message of the error that the call raises."""
    try:
        call(*args, **kwargs)
    except (mx.MXNetError, ValueError, TypeError) as error:
        return str(error)
    return "it was not refused"


def bad(folder):
    apply, net, loss = mx.parallel.apply, small(8, 8), gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    before = net[0].weight.data().asnumpy()

    def step_of(model, layout, **how):
        return mx.parallel.train_step(model, loss, trainer, layout, **how)

    said = {
        "degrees": message(apply, net, Layout(data=3)),
        "degrees of a step": message(step_of, net, Layout(data=2, tensor=2)),
        "heads": message(apply, filled(GPT2(31, 12, 2, 3, TIME), 0), Layout(tensor=2)),
        "width": message(apply, small(7), Layout(tensor=2), plan={"0": "column"}),
        "pattern": message(apply, filled(gpt2(), 0), Layout(tensor=2), plan={"block.*.attention": "column"}),
        "nothing to divide": message(apply, small(8), Layout(tensor=2)),
        "stages": message(step_of, small(8), Layout(pipeline=2), microbatches=2),
        "homeless": message(step_of, Homeless(), Layout(pipeline=2), microbatches=2),
        "micro-batches": message(step_of(net, Layout(data=2), microbatches=3), nd.ones((8, 8)), nd.ones((8, 8))),
        "pipeline": message(apply, net, Layout(pipeline=2)),
        "shard": message(apply, net, Layout(data=2), shard="half"),
        "no model": message(apply, [net], Layout(data=2)),
    }
    assert (net[0].weight.data().asnumpy() == before).all()
    apply(net, Layout(shard=2))
    plain_step(net, loss, trainer, nd.ones((8, 8)), nd.ones((8, 8)))
    said["twice"] = message(apply, net, Layout(data=2))
    said["kvstore"] = message(gluon.Trainer, net.collect_params(), "sgd", kvstore="dist_sync")
    said["sparse"] = message(train_sparse)
    trainer.save_states(f"{folder}/other.states")
    other = apply(small(8, 4), Layout(data=2), shard="optimizer")
    said["states"] = message(gluon.Trainer(other.collect_params(), "adam").load_states, f"{folder}/other.states")
    np.savez(f"{folder}/{SIZE}-{mx.dist.rank()}.npz", **said)


def train_sparse():
    net = gluon.nn.Embedding(8, 4, sparse_grad=True)
    net.initialize()
    trainer = gluon.Trainer(mx.parallel.apply(net, Layout(data=2)).collect_params(), "sgd")
    plain_step(net, gluon.loss.L2Loss(), trainer, nd.ones((8,)), nd.ones((8, 4)))


if __name__ == "__main__":
    folder, what, *more = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    {"matrix": matrix, "optimizers": optimizers, "memory": memory, "bad": bad}[what](folder, *more)
