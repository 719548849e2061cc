"""Where the values of a Parameter are: whole in this process, unless a layout has said otherwise.

The functions at the end are what a layout does with Parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import initializer
from .. import ndarray as nd
from ..context import cpu
from ..dtype import to_torch
from ..ndarray import NDArray
from ..step import StepStrategy
from .utils import shape_is_known

if TYPE_CHECKING:
    from .parameter import Parameter


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


# ---- for a layout ----


def place(param: Parameter, placement: Placement) -> None:
    """Say where a Parameter's values are; frees the memory of those that this worker does not have."""
    param.placement = placement
    if not placement.is_here:
        for array in (param._arrays or {}).values():
            empty = torch.empty_like(array._data, device="meta", requires_grad=False)
            array._data, array._grad = torch.nn.Parameter(empty, requires_grad=False), None
        param._move_in()


def follow(params: Iterable[Parameter]) -> None:
    """Have Parameters take over the tensors that torch has put into their twins."""
    for param in params:
        param._follow()


def tell_trainers(params: Iterable[Parameter]) -> None:
    """Have the Trainers that were made before go by the placements of these Parameters."""
    for trainer in {param._trainer for param in params}:
        if trainer is not None:
            trainer.take_layout()


def has_values(param: Parameter) -> bool:
    """Whether a Parameter is initialised."""
    return param._arrays is not None


def is_waiting(param: Parameter) -> bool:
    """Whether a Parameter is to be initialised when its shape is known."""
    return bool(param._deferred_init)


def begin_with_zeros(param: Parameter) -> None:
    """Initialise a Parameter with zeros on the CPU, as soon as its shape is known."""
    param._deferred_init = (initializer.Zero(), [cpu()], initializer.Zero(), None)
    if shape_is_known(param.shape):
        param._finish_deferred_init()


def hollow_out(param: Parameter) -> None:
    """Initialise a Parameter, whose shape is known, with values that take no memory."""
    assert param.shape is not None
    values = torch.empty(param.shape, dtype=to_torch(param.dtype), device="meta")
    if param._differentiable:
        values = torch.nn.Parameter(values, requires_grad=False)
    param._arrays = {cpu(): NDArray(values, cpu())}
    param._init_grad()


def put_whole(param: Parameter, whole: NDArray) -> None:
    """Give a Parameter what belongs here of whole values."""
    param._follow()
    for array in (param._arrays or {}).values():
        param.placement.put(array, whole)


def part_of(param: Parameter) -> NDArray:
    """What this worker updates of a Parameter."""
    return param._local(None)
