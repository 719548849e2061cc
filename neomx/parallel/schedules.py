"""Schedules: the order in which the workers of a pipeline run the micro-batches of their stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base import suggest


@dataclass(frozen=True)
class Schedule:
    """The order in which a worker runs the micro-batches of its stages."""

    name: str
    kind: str  # name of the class in torch.distributed.pipelining
    several: bool  # whether torch's class takes a list of stages per worker
    stages: int  # stages per worker, unless the cut says otherwise
    even: bool = False  # whether micro-batches are processed in rounds of equal length
    splits: bool = False  # whether backward for the weights is deferred
    returns: bool = False  # whether the second half of the stages runs from the last worker back to the first

    def over(self, stages: list[Any], microbatches: int, **options: Any) -> Any:
        """torch's schedule for a worker's stages."""
        from torch.distributed import pipelining  # takes a second to import, and only pipelines need it

        return getattr(pipelining, self.kind)(stages if self.several else stages[0], microbatches, **options)

    def bubble(self, workers: int, stages: int, microbatches: int) -> float:
        """Return the minimum idle fraction, if all stages take equally long and backward takes twice as long."""
        steps = microbatches * (stages // workers) * (3 if self.splits else 1)
        return (workers - 1) / (steps + workers - 1)

    def place(self, stage: int, workers: int) -> int:
        """Return the worker that holds a stage."""
        lap, place = divmod(stage, workers)
        return workers - 1 - place if self.returns and lap % 2 else place

    def check_checkpoint(self, checkpoint: object) -> None:
        """Raise for activation checkpointing if each part of backward would recompute activations."""
        if self.splits and checkpoint:
            raise ValueError(
                f"the schedule {self.name!r} runs backward in two parts, so checkpointed activations would be "
                "recomputed twice. Remove checkpoint, or use '1f1b' or 'interleaved'"
            )

    def check(self, workers: int, stages: int, microbatches: int) -> None:
        """Raise for combinations that the schedule does not support."""
        per_worker, rest = divmod(stages, workers)
        fixed = not self.several or self.returns
        if rest or (fixed and per_worker != self.stages):
            wanted = f"{self.stages * workers}" if fixed else f"a multiple of {workers}"
            raise ValueError(
                f"the schedule {self.name!r} on {workers} workers needs {wanted} stages, and {stages - 1} cuts make "
                f"{stages}"
            )
        if self.name == "1f1b" and microbatches < stages:
            raise ValueError(
                f"the schedule '1f1b' needs at least as many micro-batches as stages: {stages}, received "
                f"{microbatches}. Use more, or use 'gpipe'"
            )
        rounds = max(1, microbatches // workers)
        if self.even and microbatches % rounds:
            fewer = microbatches // workers * workers
            raise ValueError(
                f"the schedule {self.name!r} needs a number of micro-batches that is a multiple of the {workers} "
                f"workers of the pipeline, received {microbatches}. Use {fewer} or {fewer + workers}"
            )


SCHEDULES = {
    each.name: each
    for each in (
        Schedule("gpipe", "ScheduleGPipe", False, 1),
        Schedule("1f1b", "Schedule1F1B", False, 1),
        Schedule("interleaved", "ScheduleInterleaved1F1B", True, 2, even=True),
        Schedule("zero-bubble", "ScheduleInterleavedZeroBubble", True, 1, even=True, splits=True),
        Schedule("zbv", "ScheduleZBVZeroBubble", True, 2, splits=True, returns=True),
    )
}


def find_schedule(name: str) -> Schedule:
    """Return the schedule with this name."""
    if not isinstance(name, str) or name not in SCHEDULES:
        raise ValueError(
            f"unknown schedule {name!r}.{suggest(str(name), SCHEDULES)} Expected one of {', '.join(SCHEDULES)}"
        )
    return SCHEDULES[name]
