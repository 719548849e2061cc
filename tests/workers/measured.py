"""Measures what layouts on two workers use and exchange, next to the estimates; for test_estimate.py.

measured.py OUT
"""

import json
import sys
from collections import Counter

import torch
from torch.distributed.tensor import DTensor

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.comm.group import Group, Staging
from neomx.gluon.model_zoo import transformer, vision
from neomx.parallel.phantom import Saved

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def mlp():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(96, activation="relu", in_units=50), gluon.nn.Dense(64, in_units=96))
    net.add(gluon.nn.Dense(10, in_units=64))
    return net


def resnet():
    return vision.get_resnet(1, 18, thumbnail=True, classes=10)


def gpt2():
    return transformer.gpt2_tiny(dropout=0.0)


def deeper_gpt2():
    return transformer.gpt2_tiny(dropout=0.0, layers=4)


NETS = {
    "mlp": (mlp, (16, 50), "float32", (16,)),
    "resnet": (resnet, (2, 3, 16, 16), "float32", (2,)),
    "gpt2": (gpt2, (4, 32), "int32", (4, 32)),
    "deeper gpt2": (deeper_gpt2, (4, 32), "int32", (4, 32)),
}
CASES = [
    *(("mlp", "data=2", shard) for shard in (None, "full", "grads", "optimizer")),
    *(("gpt2", layout, shard) for layout, shard in (("data=2", "full"), ("data=2", "optimizer"), ("tensor=2", None))),
    ("mlp", "shard=2", None),
    ("mlp", "tensor=2", None),
    ("resnet", "data=2", "full"),
]
STEPS = [
    *(
        ("deeper gpt2", "pipeline=2", {"microbatches": 4, "schedule": schedule})
        for schedule in ("gpipe", "1f1b", "interleaved", "zbv")
    ),
    ("resnet", "pipeline=2", {"microbatches": 2, "schedule": "1f1b"}),
    ("gpt2", "data=2", {"microbatches": 2}),
    ("mlp", "data=2", {"microbatches": 2, "shard": "full"}),
]


class Counted:
    """Counts the bytes in collectives, by kind."""

    def __init__(self):
        self.bytes = dict.fromkeys(("all-reduce", "all-gather", "reduce-scatter", "point to point"), 0)
        self._wrap(Group, "all_reduce_", "all-reduce", lambda args: args[0])
        self._wrap(Group, "all_gather", "all-gather", lambda args: args[0], 2)
        self._wrap(Group, "all_gather_into", "all-gather", lambda args: args[0])
        self._wrap(Group, "reduce_scatter_into", "reduce-scatter", lambda args: args[1])
        self._wrap(Group, "start_send", "point to point", lambda args: args[0])
        self._wrap(Staging, "reduce", "all-reduce", None)

    def _wrap(self, kind, name, what, tensor_of, times=1):
        whole = getattr(kind, name)

        def counting(this, *args, **kwargs):
            tensor = this.local if tensor_of is None else tensor_of(args)
            if getattr(this, "_members", this).size > 1:
                self.bytes[what] += tensor.nbytes * times
            return whole(this, *args, **kwargs)

        setattr(kind, name, counting)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def nbytes(state):
    if isinstance(state, (list, tuple)):
        return sum(map(nbytes, state))
    return 0 if state is None else state._data.nbytes


class LocalSaved(Saved):
    """Like Saved, for each worker's parts."""

    def __init__(self, there):
        super().__init__([local(each) for each in there])

    def keep(self, tensor):
        super().keep(local(tensor.detach()))
        return tensor


class Live(torch.autograd.graph.saved_tensors_hooks):
    """The maximum that autograd keeps for backward, without parameters and inputs."""

    def __init__(self, there):
        super().__init__(self._hold, lambda held: held.tensor)
        self._there = {each.untyped_storage()._cdata for each in there}
        self._users = Counter()
        self.now = self.most = 0

    def _hold(self, tensor):
        return _Held(self, tensor)

    def change(self, tensor, by):
        storage = local(tensor.detach()).untyped_storage()
        if storage._cdata not in self._there:
            before = self._users[storage._cdata]
            self._users[storage._cdata] += by
            if not before or not before + by:
                self.now += by * storage.nbytes()
                self.most = max(self.most, self.now)


class _Held:
    def __init__(self, live, tensor):
        self.live, self.tensor = live, tensor
        live.change(tensor, 1)

    def __del__(self):
        self.live.change(self.tensor, -1)


def in_steps(make, shape, dtype, labels, layout, how, counted):
    """Train with train_step, in a pipeline or with microbatches."""
    net = make()
    net.initialize()
    x, y = nd.zeros(shape, dtype=dtype), nd.zeros(labels)
    net(x)
    trainer = gluon.Trainer(net.collect_params(), "adamw", {"learning_rate": 1e-3})
    step = mx.parallel.train_step(
        net, LOSS, trainer, layout, **how, **({"cut": "parameters"} if layout.pipeline > 1 else {})
    )
    step(x, y)  # the first step includes agreements between workers
    counted.bytes = dict.fromkeys(counted.bytes, 0)
    here = [p.data()._data for p in net.collect_params().values() if p.placement.is_here]
    live = Live([*(local(leaf.detach()) for leaf in here), x._data])
    with live:
        step(x, y)
    return {
        "parameters": sum(local(leaf.detach()).nbytes for leaf in here),
        "gradients": sum(local(leaf.grad).nbytes for leaf in here if leaf.grad is not None),
        "optimizer_state": sum(map(nbytes, trainer._updaters[0].states.values())),
        "activations": None if "shard" in how else live.most,
        "sent": dict(counted.bytes),
    }


def real(make, shape, dtype, labels, layout, shard, counted):
    net = make()
    net.initialize()
    x, y = nd.zeros(shape, dtype=dtype), nd.zeros(labels)
    net(x)
    mx.parallel.apply(net, layout, shard=shard)
    trainer = gluon.Trainer(net.collect_params(), "adamw", {"learning_rate": 1e-3})
    params = list({id(p): p for p in net.collect_params().values()}.values())
    for _ in range(2):  # the first step includes agreements between workers
        counted.bytes = dict.fromkeys(counted.bytes, 0)
        there = [p.data()._data for p in params]
        with LocalSaved([*there, x._data]) as saved, autograd.record():
            output = net(x)
            saved.keep(output._data)
            loss = LOSS(output, y)
            saved.keep(loss._data)
        loss.backward()
        trainer.step(shape[0])
    leaves = [p.data()._data for p in params]
    return {
        "parameters": sum(local(each.detach()).nbytes for each in leaves),
        "gradients": sum(local(each.grad).nbytes for each in leaves if each.grad is not None),
        "optimizer_state": sum(map(nbytes, trainer._updaters[0].states.values())),
        "activations": saved.nbytes if shard not in ("full", "grads") and layout.shard == 1 else None,
        "sent": dict(counted.bytes),
    }


def title(name, text, how):
    return f"{name} {text} {how}"


def main(out):
    torch.set_num_threads(1)
    counted = Counted()
    found = []
    cases = [(*case, {"shard": case[2]}, real) for case in CASES] + [(*case, case[2], in_steps) for case in STEPS]
    for name, text, how, options, run in cases:
        make, shape, dtype, labels = NETS[name]
        layout = mx.parallel.Layout.parse(text)
        batch = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        guess = mx.parallel.estimate(make(), layout, batch, loss=LOSS, target=labels, **options)
        columns = ("parameters", "gradients", "optimizer_state", "activations", "sent")
        estimated = {column: getattr(guess.workers[layout.coordinates()["pipeline"]], column) for column in columns}
        measured = run(make, shape, dtype, labels, layout, how, counted)
        found.append({"case": title(name, text, how), "estimated": estimated, "measured": measured})
    with open(f"{out}-{mx.dist.rank()}.json", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
