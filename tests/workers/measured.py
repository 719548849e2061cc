"""What layouts on two workers really take and exchange, beside what was estimated before; for tests/test_estimate.py.

measured.py OUT
"""

import json
import sys

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


NETS = {
    "mlp": (mlp, (16, 50), "float32", (16,)),
    "resnet": (resnet, (2, 3, 16, 16), "float32", (2,)),
    "gpt2": (gpt2, (4, 32), "int32", (4, 32)),
}
CASES = [(net, "data=2", shard) for net in NETS for shard in (None, "full", "grads", "optimizer")]
CASES = [c for c in CASES if c[0] != "resnet" or c[2] not in ("full", "grads")]  # TODO
CASES += [("mlp", "shard=2", None), ("mlp", "tensor=2", None), ("gpt2", "tensor=2", None)]


class Counted:
    """The bytes that collectives work on, by kind."""

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
            if getattr(this, "_group", this).size > 1:
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
    """As Saved, of each worker's parts."""

    def __init__(self, there):
        super().__init__([local(each) for each in there])

    def keep(self, tensor):
        super().keep(local(tensor.detach()))
        return tensor


def real(make, shape, dtype, labels, layout, shard, counted):
    net = make()
    net.initialize()
    x, y = nd.zeros(shape, dtype=dtype), nd.zeros(labels)
    net(x)
    mx.parallel.apply(net, layout, shard=shard)
    trainer = gluon.Trainer(net.collect_params(), "adamw", {"learning_rate": 1e-3})
    params = list({id(p): p for p in net.collect_params().values()}.values())
    for _ in range(2):  # the first also agrees on things
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
        "sent": counted.bytes,
    }


def main(out):
    torch.set_num_threads(1)
    counted = Counted()
    found = []
    for name, text, shard in CASES:
        make, shape, dtype, labels = NETS[name]
        layout = mx.parallel.Layout.parse(text)
        batch = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        guess = mx.parallel.estimate(make(), layout, batch, shard=shard, loss=LOSS, target=labels)
        columns = ("parameters", "gradients", "optimizer_state", "activations", "sent")
        estimated = {column: getattr(guess, column) for column in columns}
        measured = real(make, shape, dtype, labels, layout, shard, counted)
        found.append({"case": f"{name} {text} {shard}", "estimated": estimated, "measured": measured})
    with open(f"{out}-{mx.dist.rank()}.json", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
