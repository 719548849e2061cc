"""Samples that an elastic job deals to its workers: those of an iterator that is created with `num_parts`.

The iterator gives its samples to the job's dealer, and receives batches of those that belong to this worker, which
change when workers are lost or join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..process import state


@dataclass
class Samples:
    """The samples of an iterator, known by number, and how it iterates over them."""

    count: int
    batch_size: int  # of one worker
    make: Callable[[list[int], list[int]], Any]  # returns the batch of the samples with these numbers and seeds
    shuffle: bool = False
    seed: int = 0
    last_batch: Literal["keep", "discard", "rollover"] = "keep"
    threads: int = 0  # that make batches ahead of time, or 0
    ahead: int = 0  # the number of these batches


class Dealt(Iterator[Any], Protocol):
    """The batches of this worker, pass after pass. It ends with a pass, until `restart` is called."""

    def restart(self) -> None:
        """Begin the next pass."""

    def state(self) -> dict[str, Any]:
        """Return the position in the data of all workers, as JSON values."""

    def load_state(self, position: dict[str, Any]) -> None:
        """Continue at a position."""


class Dealer(Protocol):
    """Deals samples to the workers of an elastic job."""

    def check(self, who: str, num_parts: int) -> None:
        """Raise MXNetError if an iterator has another number of parts than there are workers."""

    def deal(self, samples: Samples) -> Dealt:
        """Return this worker's batches."""


def dealer() -> Dealer | None:
    """Return the dealer of this process, or None if its job is not elastic."""
    found: Dealer | None = state.dealer
    return found
