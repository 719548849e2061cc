"""estimate: what a layout needs on each worker, in memory and in messages, before anything is allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import optimizer as opt
from ..base import MXNetError
from ..context import cpu
from ..gluon import Block
from ..ndarray import NDArray
from .layout import Layout
from .phantom import Saved, inputs_like, phantom_of, run, without_memory

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "point to point")


@dataclass(frozen=True)
class Footprint:
    """What a worker needs, in bytes: the one with the most where parts are not of one size."""

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int  # what is kept for backward, of all micro-batches that are on their way at once
    buffers: int  # gradients on their way to other workers, and parameters gathered from them
    sent: dict[str, int] = field(default_factory=dict)  # in a step, by kind; of collectives, what they work on

    @property
    def peak(self) -> int:
        """All of it at once."""
        return self.parameters + self.gradients + self.optimizer_state + self.activations + self.buffers


@dataclass(frozen=True)
class Estimate:
    """What each worker of a layout needs. The numbers are those of the pipeline's worker with the most of each."""

    layout: Layout
    workers: tuple[Footprint, ...]  # one for each worker of a pipeline; those beside it need the same

    def _most(self, name: str) -> int:
        return max(getattr(each, name) for each in self.workers)

    @property
    def parameters(self) -> int:
        """Bytes of parameters, and of what layers remember beside them, such as running means."""
        return self._most("parameters")

    @property
    def gradients(self) -> int:
        """Bytes of gradients."""
        return self._most("gradients")

    @property
    def optimizer_state(self) -> int:
        """Bytes that the optimizer remembers."""
        return self._most("optimizer_state")

    @property
    def activations(self) -> int:
        """Bytes that are kept for backward."""
        return self._most("activations")

    @property
    def peak(self) -> int:
        """Bytes of all of it at once, on the worker with the most."""
        return self._most("peak")

    @property
    def sent(self) -> dict[str, int]:
        """Bytes that a worker exchanges in a step: 'all-reduce', 'all-gather', 'reduce-scatter', 'point to point'.

        Of a collective these are the bytes of the whole that it sums or gathers.
        """
        return {kind: max(each.sent.get(kind, 0) for each in self.workers) for kind in KINDS}

    def __str__(self) -> str:
        columns = ("parameters", "gradients", "optimizer_state", "activations", "buffers", "peak")
        rows = [["memory of a worker", *(name.replace("_", " ") for name in columns)]]
        rows += [[self._title(i), *(_readable(getattr(f, c)) for c in columns)] for i, f in enumerate(self.workers)]
        sent = [["sent in a step", *KINDS]]
        sent += [[self._title(i), *(_readable(f.sent.get(k, 0)) for k in KINDS)] for i, f in enumerate(self.workers)]
        return f"{self.layout}, {self.layout.size} workers\n{_table(rows)}\n{_table(sent)}"

    def _title(self, worker: int) -> str:
        return f"pipeline {worker}" if len(self.workers) > 1 else "each"


def _readable(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1000
    raise AssertionError


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) if not at else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )


def estimate(
    net: Any,
    layout: Layout,
    batch: Any,
    optimizer: Any = "adamw",
    optimizer_params: Mapping[str, Any] | None = None,
    shard: str | None = None,
    microbatches: int = 1,
    schedule: str = "1f1b",
    cut: Sequence[str] | None = None,
    checkpoint: Any = None,
    plan: Any = "auto",
    loss: Callable[..., Any] | None = None,
    target: Any = None,
) -> Estimate:
    """The memory that each worker of a layout needs, and the bytes it exchanges in a step. Nothing is allocated.

    `net` is a Block, initialised or not, or a torch module, on the meta device too; it stays as it is. `batch` is what
    one worker gives to it in a step: an array, a tensor, a shape (of float32), or a list of several. With
    `loss(output, target)` what the loss keeps counts too. The other arguments are those of `mx.parallel.apply`,
    `mx.parallel.train_step` and `gluon.Trainer`.
    """
    shard = _check_shard(layout, shard)
    with without_memory():
        inputs, targets = (_cut(inputs_like(each), microbatches) for each in (batch, [] if target is None else [target]))
        module = phantom_of(net, inputs)
        exchanged: Counter[str] = Counter()
        if layout.tensor > 1:
            from .parts import divide

            divide(module, plan, layout.tensor, exchanged)
        rows = _Rows(module, layout, schedule, cut, microbatches)
        head = None if loss is None else _Head(loss, targets, isinstance(net, Block))
        measured = rows.measure(inputs, head, exchanged, checkpoint)
        rule = optimizer if isinstance(optimizer, opt.Optimizer) else opt.create(optimizer, **(optimizer_params or {}))
        return Estimate(layout, tuple(_footprint(each, layout, shard, rule, microbatches) for each in measured))
