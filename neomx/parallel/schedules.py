"""Schedules: in which order the workers of a pipeline run the micro-batches of their stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base import suggest


@dataclass(frozen=True)
class Schedule:
    """In which order a worker runs the micro-batches of its stages."""

    name: str
    kind: str  # torch's class in torch.distributed.pipelining
    several: bool  # whether a worker has a list of stages, in torch's class
    stages: int  # that a worker has, unless the cut says otherwise
    even: bool = False  # whether micro-batches go through in rounds of equal length
    splits: bool = False  # whether backward is done in two parts, of which that for the weights can wait
    returns: bool = False  # whether the second half of the stages goes back from the last worker to the first

    def over(self, stages: list[Any], microbatches: int, **options: Any) -> Any:
        """torch's schedule for a worker's stages."""
        from torch.distributed import pipelining  # a second to load, which other layouts need not wait for

        return getattr(pipelining, self.kind)(stages if self.several else stages[0], microbatches, **options)

    def bubble(self, workers: int, stages: int, microbatches: int) -> float:
        """The part of the time that workers wait, at least: stages take equally long, backward twice forward's time."""
        steps = microbatches * (stages // workers) * (3 if self.splits else 1)
        return (workers - 1) / (steps + workers - 1)

    def place(self, stage: int, workers: int) -> int:
        """The worker that has a stage."""
        lap, place = divmod(stage, workers)
        return workers - 1 - place if self.returns and lap % 2 else place

    def check_checkpoint(self, checkpoint: object) -> None:
        """Refuse activation checkpointing where each part of backward would compute activations again."""
        if self.splits and checkpoint:
            raise ValueError(
                f"the schedule {self.name!r} does backward in two parts, for which checkpointed activations would be "
                "computed twice. Leave checkpoint out, or take '1f1b' or 'interleaved'"
            )

    def check(self, workers: int, stages: int, microbatches: int) -> None:
        """Refuse numbers that it cannot run."""
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
                f"{microbatches}. Give more, or take 'gpipe'"
            )
        rounds = max(1, microbatches // workers)
        if self.even and microbatches % rounds:
            fewer = microbatches // workers * workers
            raise ValueError(
                f"the schedule {self.name!r} needs micro-batches that are a multiple of the pipeline's {workers} "
                f"workers, received {microbatches}: take {fewer} or {fewer + workers}"
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
    """The schedule of that name."""
    if not isinstance(name, str) or name not in SCHEDULES:
        raise ValueError(
            f"there is no schedule {name!r}.{suggest(str(name), SCHEDULES)} Give any of {', '.join(SCHEDULES)}"
        )
    return SCHEDULES[name]
