"""Where the values of a Parameter are: whole in this process, unless a layout has said otherwise."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from .. import ndarray as nd
from ..context import cpu
from ..ndarray import NDArray
from ..step import StepStrategy


class Holders(Protocol):
    """The workers that hold the Parameters of a model together: `mx.parallel` has one for each layout."""

    def strategy(self) -> StepStrategy:
        """How the gradients of a Trainer's Parameters meet."""

    def any(self, flag: bool) -> bool:
        """Whether it is true on any worker."""

    def writing(self) -> AbstractContextManager[bool]:
        """Whether this worker writes a file for all; after it all know that it is there, or why it is not."""


class Placement:
    """Whole, with a replica on each context of this process. `mx.parallel` derives others from it."""

    holders: Holders | None = None  # who has the rest
    is_here = True  # whether this worker has any of the values
    is_first = True  # whether no other stage of a pipeline has them before

    def refuse_elsewhere(self, name: str) -> None:
        """Raise if this worker has none of the values of the Parameter `name`."""

    def settle(self) -> None:
        """Make ready for values to be read or written as a whole."""

    def identity(self, array: NDArray) -> int:
        """A number that changes when torch puts another tensor in the place of the Parameter's."""
        return 0

    def part(self, array: NDArray) -> NDArray:
        """What this worker updates of an array."""
        return array

    def whole(self, arrays: list[NDArray]) -> NDArray:
        """All of its values, on the CPU: the mean of the replicas. What workers hold together is only on the first."""
        found = [array.detach().as_in_context(cpu()) for array in arrays]
        return found[0].copy() if len(found) == 1 else nd.add_n(*found) / len(found)

    def put(self, array: NDArray, values: Any) -> None:
        """Take what belongs here of whole values."""
        array[:] = values


WHOLE = Placement()
