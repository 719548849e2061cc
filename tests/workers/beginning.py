"""Two workers start under layouts: a Block without values, torch modules, the example that runs under any layout."""

import json
import os
import sys

import torch

import neomx as mx
from neomx import gluon
from neomx.parallel import Layout

torch.set_num_threads(1)
folder = sys.argv[1]
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "examples"))
LAYOUTS = [(Layout(data=2), None), (Layout(data=2), "full"), (Layout(data=2), "optimizer"), (Layout(tensor=2), None)]


def block():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(24, activation="relu", in_units=20), gluon.nn.Dense(10, in_units=24))
    return net


def hollow():
    """The difference between values of a Block that `apply` initializes and those of `initialize`."""
    mx.random.seed(5)
    one = block()
    one.initialize(mx.init.Xavier())
    one.save_parameters(f"{folder}/one-{mx.dist.rank()}.params")
    want = mx.nd.load(f"{folder}/one-{mx.dist.rank()}.params")
    differences = []
    for layout, shard in LAYOUTS:
        mx.random.seed(5)
        net = mx.parallel.apply(block(), layout, shard=shard, init=mx.init.Xavier())
        net.save_parameters(f"{folder}/filled.params")
        got = mx.nd.load(f"{folder}/filled.params")
        differences += [float(abs(got[name] - want[name]).max().asscalar()) for name in want]
    return max(differences)


def unknown_shape():
    try:
        mx.parallel.apply(gluon.nn.Dense(3), Layout(data=2))
    except mx.MXNetError as error:
        return str(error)


def module():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.ReLU(), torch.nn.Linear(24, 10))


def train(layout=None, shard=None):
    """A torch module after ten steps with gradient clipping."""
    net, rank, size = module(), 0, 1
    if layout is not None:
        mx.parallel.apply(net, layout, shard=shard)
        rank, size = layout.batch_rank, layout.batch_size
    optimizer = mx.parallel.optimizer(net, torch.optim.AdamW, lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        x, y = torch.randn(16, 20, generator=generator), torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rank::size]), y[rank::size]).backward()
        mx.parallel.clip_global_norm(net.parameters(), 0.3)
        optimizer.step()
    return net


def torch_modules():
    want = train().state_dict()
    trained, loaded = {}, {}
    for layout, shard in LAYOUTS:
        net = train(layout, shard)
        trained[f"{layout} {shard}"] = furthest(mx.parallel.state_dict(net), want)
        other = mx.parallel.apply(module(), layout, shard=shard)
        mx.parallel.load_state_dict(other, want)
        loaded[f"{layout} {shard}"] = furthest(mx.parallel.state_dict(other), want)
    return trained, loaded


def furthest(got, want):
    assert got.keys() == want.keys()
    return max(float((got[name] - want[name]).abs().max()) for name in want)


def example():
    """The losses of the example in a pipeline."""
    import layouts

    os.environ["NEOMX_LAYOUT"] = "pipeline=2"
    return layouts.main(steps=4)


trained, loaded = torch_modules()
found = {
    "hollow": hollow(),
    "unknown shape": unknown_shape(),
    "torch": trained,
    "whole": loaded,
    "example": example(),
}
if mx.dist.rank() == 0:
    with open(f"{folder}/found.json", "w") as file:
        json.dump(found, file)
