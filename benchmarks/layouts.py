"""`make bench-layouts`: compare layouts on two workers with equivalent hand-written torch programs.

The torch programs use fully_shard, parallelize_module, PipelineStage with Schedule1F1B and DistributedDataParallel, on
gloo groups, with torch's fused AdamW. Ours use `mx.parallel.apply` (`train_step` for a pipeline) on a Gluon Block with
a Trainer, and on the torch module itself. All three train the same weights on the same batches in the same two
processes, one thread each, and step in turns. A ratio is the median over rounds of our time divided by torch's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import layout_models as models
import record
import torch
import torch.distributed as dist
import torch.nn.functional as F

import neomx as mx
from neomx import autograd, gluon
from neomx.parallel import Layout

SAMPLES = {"mlp": 64, "gpt2": 8}  # of a batch, for all workers together
TITLES = {"mlp": "MLP", "gpt2": "GPT-2"}
MICROBATCHES = 4
RATE = 1e-3
LAYOUTS = {
    "data=2": Layout(data=2),
    "full": Layout(shard=2),
    "tensor=2": Layout(tensor=2),
    "pipeline=2": Layout(pipeline=2),
}
Step = Callable[[], float]


def samples_of(model: str, layout: Layout) -> tuple[Any, Any]:
    """Return this worker's share of the batch."""
    share = SAMPLES[model] // layout.batch_size
    return models.batch(model, share, layout.batch_rank)


def adamw(params: Any) -> torch.optim.Optimizer:
    """Return torch's fused AdamW, with DTensors and tensors in separate groups, as it requires."""
    params = list(params)
    divided = [param for param in params if hasattr(param, "to_local")]
    rest = [param for param in params if not hasattr(param, "to_local")]
    return torch.optim.AdamW([{"params": each} for each in (divided, rest) if each], lr=RATE, fused=True)


def cross_entropy(scores: Any, target: Any) -> Any:
    """Compute the loss of (batch, classes) or (batch, time, classes)."""
    return F.cross_entropy(scores.flatten(0, -2), target.flatten())


def torch_loop(net: Any, optimizer: Any, loss: Any, x: Any, y: Any) -> float:
    """Run a step as in torch's tutorials."""
    optimizer.zero_grad()
    value = loss(net(x), y)
    value.backward()
    optimizer.step()
    return value.item()


# ---- hand-written torch ----


def by_hand(model: str, name: str) -> Step:
    """Return the step of a torch program."""
    net = models.as_torch(models.MAKERS[model][0]())
    x, y = samples_of(model, LAYOUTS[name])
    if name == "pipeline=2":
        return pipeline_by_hand(net, model, x, y)
    wrapped = {"data=2": replicated, "full": sharded, "tensor=2": divided}[name](net, model)
    if name == "tensor=2" and model == "gpt2":
        return partial(loss_parallel_loop, wrapped, adamw(net.parameters()), x, y)
    return partial(torch_loop, wrapped, adamw(net.parameters()), cross_entropy, x, y)


def replicated(net: Any, model: str) -> Any:
    return torch.nn.parallel.DistributedDataParallel(net)


def sharded(net: Any, model: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for piece in net if model == "mlp" else list(net)[1:-1]:
        if any(True for _ in piece.parameters()):
            fully_shard(piece, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def divided(net: Any, model: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    if model == "mlp":
        linears = [str(at) for at, layer in enumerate(net) if isinstance(layer, torch.nn.Linear)]
        pairs = {name: (ColwiseParallel, RowwiseParallel)[at % 2]() for at, name in enumerate(linears)}
        return parallelize_module(net, mesh, pairs)
    for cell in list(net)[1:-1]:
        plan = {f"attention.{each}": ColwiseParallel() for each in ("query", "key", "value")}
        plan |= {"attention.out": RowwiseParallel(), "feedforward.up": ColwiseParallel()}
        parallelize_module(cell, mesh, plan | {"feedforward.down": RowwiseParallel()})
    parallelize_module(net[0], mesh, {"embed": RowwiseParallel(input_layouts=Replicate())})
    parallelize_module(net[-1], mesh, {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    models.tie(net)
    return net


def loss_parallel_loop(net: Any, optimizer: Any, x: Any, y: Any) -> float:
    from torch.distributed.tensor.parallel import loss_parallel

    optimizer.zero_grad()
    with loss_parallel():
        value = cross_entropy(net(x), y)
        value.backward()
    optimizer.step()
    return value.to_local().item()


def pipeline_by_hand(net: Any, model: str, x: Any, y: Any) -> Step:
    """Run two stages with the same number of layers; the gradients of the shared embedding are summed."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank = dist.get_rank()
    half = len(net) // 2
    part = net[:half] if rank == 0 else net[half:]
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=cross_entropy)
    optimizer = adamw(part.parameters())
    tied = None if model == "mlp" else (part[0].embed if rank == 0 else part[-1].head).weight

    def step() -> float:
        optimizer.zero_grad()
        losses: list[Any] = []
        schedule.step(x) if rank == 0 else schedule.step(target=y, losses=losses)
        if tied is not None:
            dist.all_reduce(tied.grad)
        optimizer.step()
        value = torch.stack(losses).mean() if losses else torch.zeros(())
        dist.broadcast(value, 1)
        return value.item()

    return step


# ---- ours ----


def ours_torch(model: str, name: str) -> Step:
    """Return the step of a torch module with a layout."""
    net, layout = models.as_torch(models.MAKERS[model][0]()), LAYOUTS[name]
    x, y = samples_of(model, layout)
    if name == "pipeline=2":
        cut = [str(len(net) // 2)]
        step = mx.parallel.train_step(net, cross_entropy, adamw, layout, MICROBATCHES, cut=cut)
        return lambda: step(x, y).item()
    plan = models.TORCH_PLAN if model == "gpt2" else "auto"
    mx.parallel.apply(net, layout, plan=plan)
    loss = cross_entropy if name != "tensor=2" or model == "mlp" else sharded_loss
    return partial(torch_loop, net, adamw(net.parameters()), loss, x, y)


def sharded_loss(scores: Any, target: Any) -> Any:
    return mx.parallel.cross_entropy(scores, target).mean()


def ours_block(model: str, name: str) -> Step:
    """Return the step of a Gluon Block and a Trainer with a layout."""
    net = models.as_block(models.MAKERS[model][1](), models.as_torch(models.MAKERS[model][0]()))
    layout = LAYOUTS[name]
    x, y = models.arrays(*samples_of(model, layout))
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    settings = {"learning_rate": RATE, "wd": 0.01}
    if name == "pipeline=2":
        trainer = gluon.Trainer(net.collect_params(), "adamw", settings)
        cut = [str(len(net) // 2)] if model == "mlp" else [f"blocks.{models.BLOCKS // 2}"]
        step = mx.parallel.train_step(net, loss, trainer, layout, MICROBATCHES, cut=cut)
        return lambda: step(x, y).asscalar()
    mx.parallel.apply(net, layout)
    trainer = gluon.Trainer(net.collect_params(), "adamw", settings)

    def step_by_trainer() -> float:
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(len(x))
        return value.mean().asscalar()

    return step_by_trainer


# ---- measurement ----

CONTESTANTS = {"Block": ours_block, "module": ours_torch, "torch": by_hand}


def seconds(step: Step, count: int) -> float:
    """Return the seconds per step over `count` steps; both workers start together."""
    mx.dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count


def race(model: str, name: str, rounds: int, count: int) -> list[dict[str, float]]:
    """Return the seconds of each contestant in each round."""
    steps = {who: make(model, name) for who, make in CONTESTANTS.items()}
    began = {who: [step() for _ in range(3)] for who, step in steps.items()}
    for who, losses in began.items():
        gap = max(abs(a - b) for a, b in zip(losses, began["torch"], strict=True))
        assert gap < 5e-3, f"{model} {name}: {who} trains to {losses}, torch to {began['torch']}"
    found = []
    for number in range(rounds):
        order = list(steps)[number % 3 :] + list(steps)[: number % 3]
        found.append({who: seconds(steps[who], count) for who in order})
    return found


def table(given: argparse.Namespace) -> None:
    """All rows; worker 0 prints and writes them."""
    first, result = mx.dist.rank() == 0, record.begin("layouts")
    say = print if first else lambda *_, **__: None
    say(f"{'':20}{'torch ms':>10}{'Block ms':>10}{'ratio':>8}{'module ms':>11}{'ratio':>8}")
    for model in given.models.split(","):
        for name in given.layouts.split(","):
            found = race(model, name, given.rounds, given.steps)
            times = {who: [each[who] for each in found] for who in CONTESTANTS}
            block, module = (
                result.add(record.row(TITLES[model], name, "s", times[who], times["torch"], by=shown, against="torch"))
                for who, shown in (("Block", "a Block"), ("module", "a torch module"))
            )
            say(
                f"{model + ' ' + name:20}{1e3 * block.theirs:10.1f}{1e3 * block.ours:10.1f}{block.ratio:8.3f}"
                f"{1e3 * module.ours:11.1f}{module.ratio:8.3f}",
                flush=True,
            )
    result.save(given.json if first else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="mlp,gpt2")
    parser.add_argument("--layouts", default="data=2,full,tensor=2,pipeline=2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5)
    record.add_option(parser)
    given = parser.parse_args()
    if "RANK" not in os.environ:
        command = [sys.executable, "-m", "neomx", "run", "-n", "2", __file__, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode)
    torch.set_num_threads(1)
    mx.dist.barrier()
    table(given)


if __name__ == "__main__":
    main()
