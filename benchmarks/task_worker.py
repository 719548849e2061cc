"""One worker of a team (`dist_team.py`) that trains tasks: `task_worker.py neomx` or `task_worker.py torch`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dist_worker import serve

RATE = 0.001
Step = Callable[[], Any]


class Steps(dict[str, Step]):
    """Steps of tasks by name, built when they are first requested."""

    def __init__(self, build: Callable[[str], Step]):
        super().__init__(wait=lambda: None)
        self._build = build

    def __missing__(self, name: str) -> Step:
        self[name] = self._build(name)
        return self[name]


def forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def neomx_step(name: str) -> Step:
    """Train as examples/tasks do."""
    from task_workloads import DATA, OURS, arrays

    import neomx as mx
    from neomx import autograd, gluon

    task, size = OURS[name](), DATA[name].batch
    shard = mx.dist.shard(gluon.data.ArrayDataset(*arrays(name)), shuffle=True)
    batches = forever(gluon.data.DataLoader(shard, size, last_batch="discard"))
    task.net.initialize(mx.init.Xavier())
    task.net.hybridize()
    trainer = gluon.Trainer(task.net.collect_params(), "adam", {"learning_rate": RATE}, kvstore="dist_sync")

    def step() -> None:
        batch = next(batches)
        with autograd.record():
            loss = task.loss(*batch) if isinstance(batch, list) else task.loss(batch)
        loss.backward()
        trainer.step(size * mx.dist.size())

    return step


def torch_step(name: str) -> Step:
    """Train as torch's documentation shows: DDP, DistributedSampler and DataLoader, with a fused optimizer."""
    import torch
    from task_torch import THEIRS
    from task_workloads import DATA, arrays
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    task = THEIRS[name]()
    dataset = TensorDataset(*map(torch.from_numpy, arrays(name)))
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    batches = forever(DataLoader(dataset, DATA[name].batch, sampler=sampler, drop_last=True))
    net = torch.nn.parallel.DistributedDataParallel(task.net, gradient_as_bucket_view=True)
    sparse = any(getattr(module, "sparse", False) for module in net.modules())
    adam = torch.optim.SparseAdam if sparse else partial(torch.optim.Adam, fused=True)
    optimizer = adam(list(net.parameters()), lr=RATE)

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad()
        task.loss(net, *batch).backward()
        optimizer.step()

    return step


def main(engine: str) -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if engine == "torch":
        torch.distributed.init_process_group("gloo")
        serve(Steps(torch_step))
        torch.distributed.destroy_process_group()
    else:
        serve(Steps(neomx_step))


if __name__ == "__main__":
    main(*sys.argv[1:])
