"""train_step: one step of training under any layout, from a batch to new weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import autograd
from ..base import MXNetError
from ..comm.session import session
from ..gluon import Block, Trainer
from ..gluon.twin import unwrap, wrap
from ..ndarray import NDArray
from . import stages as cutting
from .layout import Layout
from .pipeline import Pipeline, Schedule, check_microbatches, find_schedule, place_of
from .stages import Piece, Stage


def train_step(
    net: Any,
    loss: Callable[..., Any],
    trainer: Any,
    layout: Layout,
    microbatches: int = 1,
    schedule: str = "1f1b",
    cut: str | Sequence[str] | None = None,
    checkpoint: Any = None,
    shard: str | None = None,
    plan: Any = None,
    clip: float | None = None,
) -> TrainStep:
    """A function `step(*inputs, target)` that trains on one batch and gives its loss, the same on every worker.

    The batch, this worker's share of it, is cut into `microbatches`, whose gradients are added before one update. The
    loss is that of one process on the whole batch: `loss(net(x), y).mean()`. With `layout.pipeline` > 1 each worker
    keeps some stages of `net`: cut by measured 'time' (the default), by 'parameters', or where the named pieces begin.
    `trainer` is a gluon.Trainer for a Block, a torch optimizer for a torch module.
    """
    return TrainStep(net, loss, trainer, layout, microbatches, schedule, cut, checkpoint, shard, plan, clip)


class TrainStep:
    """What `train_step` gives."""

    def __init__(
        self,
        net: Any,
        loss: Callable[..., Any],
        trainer: Any,
        layout: Layout,
        microbatches: int,
        schedule: str,
        cut: str | Sequence[str] | None,
        checkpoint: Any,
        shard: str | None,
        plan: Any,
        clip: float | None,
    ) -> None:
        if not isinstance(microbatches, int) or microbatches < 1:
            raise ValueError(f"microbatches must be a whole number from 1, received {microbatches!r}")
        layout.check(session().world.size)
        self.net, self.trainer, self.layout, self.microbatches = net, trainer, layout, microbatches
        self._updates_block = isinstance(trainer, Trainer)
        self._head = Head(loss, microbatches, self._updates_block)
        self._cut = Cut(net, layout.pipeline, find_schedule(schedule), cut, microbatches)
        self._pipeline: Pipeline | None = None
        self._tied: list[tuple[Any, Any]] = []
        self._ready = False

    # ---- a step ----

    def __call__(self, *batch: Any) -> Any:
        """Train on `(*inputs, target)`; the loss."""
        if len(batch) < 2:
            raise TypeError(f"step takes the inputs and, last, the target: received {len(batch)} argument(s)")
        *inputs, target = unwrap(batch)
        samples = self._samples(inputs, target)
        if not self._ready:
            self._prepare(inputs)
        self._clear()
        self._head.begin(samples)
        if self._pipeline is not None:
            self._pipeline.run(inputs, target)
        else:
            self._accumulate(inputs, target)
        self._add_tied()
        self._update(samples)
        value = self._agreed_loss()
        return wrap(value.reshape(1)) if isinstance(batch[0], NDArray) else value

    def _samples(self, inputs: Sequence[torch.Tensor], target: torch.Tensor) -> int:
        lengths = {len(each) for each in (*inputs, target)}
        if len(lengths) > 1:
            raise ValueError(
                f"inputs and target must have as many samples, received {[len(each) for each in (*inputs, target)]}"
            )
        samples = lengths.pop()
        if not samples or samples % self.microbatches:
            raise ValueError(
                f"a batch of {samples} samples does not divide into {self.microbatches} micro-batches: "
                f"{samples} / {self.microbatches} = {samples / self.microbatches:g}"
            )
        return samples

    def _accumulate(self, inputs: Sequence[torch.Tensor], target: torch.Tensor) -> None:
        for part in zip(*(each.chunk(self.microbatches) for each in (*inputs, target)), strict=True):
            self._head(self._whole(*part[:-1]), part[-1]).backward()

    def _clear(self) -> None:
        for param in self._parameters:
            param.grad = None

    @property
    def _parameters(self) -> list[torch.Tensor]:
        modules = [self._whole] if self._pipeline is None else self._pipeline.stages.values()
        return [param for module in modules for param in module.parameters()]

    def _add_tied(self) -> None:
        """Parameters that several stages use: the sum of their gradients in each."""
        for leaf, group in self._tied:
            if leaf.grad is None:
                leaf.grad = torch.zeros_like(leaf)
            group.all_reduce_(leaf.grad, "sum", "the gradient of a parameter that several stages use")

    def _update(self, samples: int) -> None:
        if self._updates_block:
            self.trainer.step(samples)
        else:
            self.trainer.step()

    def _agreed_loss(self) -> torch.Tensor:
        """From the last stage to all."""
        value = self._head.mean()
        if self._pipeline is not None:
            last = self._pipeline.place(self._pipeline.total - 1)
            dist.broadcast(value, group=self._pipeline.group, group_src=last)
        return value

    # ---- the first step ----

    def _prepare(self, inputs: Sequence[torch.Tensor]) -> None:
        part = [each[: len(each) // self.microbatches] for each in inputs]
        if isinstance(self.net, Block):
            with autograd.pause():
                self.net(*wrap(tuple(part)))  # parameters that wait for their shapes
        if self.layout.pipeline == 1:
            self._whole = Piece("net", self.net)
            self._whole.open()
        else:
            self._open_pipeline(part)
        self._ready = True

    def _open_pipeline(self, part: Sequence[torch.Tensor]) -> None:
        cut = self._cut
        for piece in cut.pieces:
            piece.open()
        ends = cut.ends(part)
        begins = [0, *ends[:-1]]
        homes = [place_of(number, cut.schedule, self.layout.pipeline) for number in range(len(ends))]
        here = self.layout.place().pipeline
        stages = {
            number: Stage(cut.pieces[begin:end])
            for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if homes[number] == here
        }
        holders = self._holders(begins, ends, homes)
        cutting.keep_only(self.net, {param for param, places in holders.items() if here in places})
        self._tied = self._tie(holders)
        self._pipeline = Pipeline(stages, len(ends), self.layout, cut.schedule, self.microbatches, self._head)

    def _holders(self, begins: list[int], ends: list[int], homes: list[int]) -> dict[int, set[int]]:
        """The workers of the pipeline that have each parameter, by its id."""
        holders: dict[int, set[int]] = {}
        for begin, end, home in zip(begins, ends, homes, strict=True):
            for piece in self._cut.pieces[begin:end]:
                for param in piece.holds():
                    holders.setdefault(id(param), set()).add(home)
        return holders

    def _tie(self, holders: dict[int, set[int]]) -> list[tuple[Any, Any]]:
        return []


class Head:
    """The loss at the end of a model, as the scalar that is differentiated."""

    def __init__(self, loss: Callable[..., Any], microbatches: int, sums: bool) -> None:
        """`sums`: the gradients are those of the sum over samples, which a Trainer divides; else of the mean."""
        self._loss = Piece("loss", loss)
        self._loss.open()
        self._microbatches, self._sums = microbatches, sums
        self._means: list[torch.Tensor] = []

    def begin(self, samples: int) -> None:
        """A new batch of so many samples."""
        self._samples = samples // self._microbatches
        self._means = []

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        values = self._loss(output, target)
        if not isinstance(values, torch.Tensor):
            raise MXNetError(f"the loss must give an array, received a {type(values).__name__}")
        mean = values.mean()
        self._means.append(mean.detach())
        if not self._sums:
            return mean / self._microbatches
        return values.sum() if values.numel() == self._samples else mean * self._samples

    def mean(self) -> torch.Tensor:
        """The mean over the batch; zero on workers that do not compute it."""
        return torch.stack(self._means).mean() if self._means else torch.zeros(())


class Cut:
    """Where a model is to be cut, checked before anything runs."""

    def __init__(self, net: Any, workers: int, schedule: Schedule, cut: Any, microbatches: int) -> None:
        self.schedule, self._how = schedule, cut
        self._stages = schedule.stages * workers
        if workers == 1:
            return
        self.pieces = cutting.pieces_of(net)
        cutting.refuse_homeless(net, self.pieces)
        if isinstance(cut, str) and cut not in ("time", "parameters"):
            raise ValueError(f"cut must be 'time', 'parameters' or a list of names, received {cut!r}")
        if cut is not None and not isinstance(cut, str):
            self._given = cutting.ends_at(cut, self.pieces)
            self._stages = len(self._given)
            self._check_given(workers)
        if len(self.pieces) < self._stages:
            raise MXNetError(
                f"{self._stages} stages need at least as many pieces, and the model has {len(self.pieces)}: "
                f"{', '.join(piece.name for piece in self.pieces)}"
            )
        check_microbatches(schedule, workers, self._stages, microbatches)

    def _check_given(self, workers: int) -> None:
        per_worker, rest = divmod(self._stages, workers)
        fixed = not self.schedule.several or self.schedule.returns
        if rest or (fixed and per_worker != self.schedule.stages):
            wanted = f"{self.schedule.stages * workers}" if fixed else f"a multiple of {workers}"
            raise ValueError(
                f"cut: the schedule {self.schedule.name!r} on {workers} workers needs {wanted} stages, and "
                f"{self._stages - 1} cuts make {self._stages}"
            )

    def ends(self, part: Sequence[torch.Tensor]) -> list[int]:
        """Where each stage ends."""
        if self._how is not None and not isinstance(self._how, str):
            return self._given
        costs = cutting.by_parameters(self.pieces) if self._how == "parameters" else cutting.by_time(self.pieces, part)
        return cutting.balance(costs, self._stages)
