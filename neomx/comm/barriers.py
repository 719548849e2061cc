"""Detects barriers that not all workers call. Workers that wait at a barrier take part in the rounds of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

PAUSES, LEAVES, BARRIER = -1, -2, -3  # what a worker without a step reports: end of data, end of program, barrier
MEETS, FOLLOWS = -4, -5  # it is between two batches, and meets those that follow; it follows the others
_RULE = "All workers must call barrier() equally often, and at the same points of their programs"


class Barriers:
    """Tracks which workers wait at a barrier while others step: if they step later on their own, the models differ."""

    def __init__(self) -> None:
        self._waiting: dict[int, Counter[int]] = {}  # by waiting worker: how many steps the others made meanwhile
        self._passed: dict[int, Counter[int]] = {}  # the same for the last barrier passed, until the next step
        self._told: set[int] = set()  # workers for which a message was returned; a loop would repeat it

    def hear(self, said: Sequence[int], steps: bool) -> str:
        """Process a round and return an error message, or "" if nothing is wrong.

        `said` is what each worker reported. `steps` is whether the active workers step in this round.
        """
        active = [rank for rank, what in enumerate(said) if what >= 0]
        for rank, what in enumerate(said):
            if what == BARRIER:
                self._waiting.setdefault(rank, Counter()).update(active if steps else ())
        if not active:
            self._passed, self._waiting = self._waiting, {}
            return self._without([rank for rank, what in enumerate(said) if what == LEAVES])
        return self._alone(active) if steps else ""

    def _without(self, ended: list[int]) -> str:
        """Describe that workers passed a barrier because others had ended their programs."""
        if not ended or not self._passed:
            return ""
        passed, self._passed = self._passed, {}
        rank, missed = next(iter(passed.items()))
        if rank in self._told:
            return ""
        self._told.add(rank)
        return (
            f"worker {rank} called mx.dist.barrier(), {_workers(ended)} did not: {_steps(missed, ended, rank)}the "
            f"program ended there. {_RULE}"
        )

    def _alone(self, active: list[int]) -> str:
        """Check the first step after a barrier."""
        passed, self._passed = self._passed, {}
        for rank, missed in passed.items():
            others = [other for other in missed if other not in active]
            if rank in active and others and rank not in self._told:
                self._told.add(rank)
                return (
                    f"worker {rank} waited at mx.dist.barrier() while {_workers(others)} made "
                    f"{max(missed[other] for other in others)} steps without it, and now steps without "
                    f"{_workers(others)}: the model differs from that of a single process. {_RULE}"
                )
        return ""


def _workers(ranks: list[int]) -> str:
    return ("worker " if len(ranks) == 1 else "workers ") + ", ".join(map(str, sorted(ranks)))


def _steps(missed: Counter[int], ended: list[int], rank: int) -> str:
    count = max((missed[other] for other in ended), default=0)
    return f"after {count} steps without worker {rank} " if count else ""
