"""The placement of a Parameter's values: entirely in this process, unless a layout changes it.

The functions at the end of the module are for layouts.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import initializer
from .. import ndarray as nd
from ..comm.group import Group
from ..context import cpu
from ..dtype import to_torch
from ..ndarray import NDArray
from ..step import StepStrategy
from .utils import shape_is_known

if TYPE_CHECKING:
    from .parameter import Parameter


class Holders(Protocol):
    """The workers that share the Parameters of a model. `mx.parallel` has an implementation for each layout."""

    @property
    def described(self) -> str:
        """The layout and what it shards, such as 'data=2,tensor=2, shard=full'."""

    @property
    def model_group(self) -> Group:
        """The workers that train this model together."""

    def strategy(self) -> StepStrategy:
        """Return the strategy that combines the gradients of a Trainer's Parameters."""

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any worker."""

    def writing(self) -> AbstractContextManager[bool]:
        """Return a context manager for writing a file; its value says whether this worker writes.

        On exit, all workers know that the file exists, or raise the error of the worker that wrote it.
        """


class Placement:
    """The default placement: the whole value, with a replica on each context. `mx.parallel` has subclasses."""

    holders: Holders | None = None  # the workers that share the values
    joins_workers = False  # whether a Trainer that names no store of workers combines gradients over all of them
    is_here = True  # whether this worker has some of the values
    is_first = True  # whether no earlier pipeline stage has the values

    def refuse_elsewhere(self, name: str) -> None:
        """Raise if this worker has none of the values of the Parameter `name`."""

    def settle(self) -> None:
        """Prepare for reading or writing the whole value."""

    def identity(self, array: NDArray) -> int:
        """Return a number that changes when torch replaces the tensor of the Parameter."""
        return 0

    def part(self, array: NDArray) -> NDArray:
        """Return the part of an array that this worker updates."""
        return array

    def whole(self, arrays: list[NDArray]) -> NDArray:
        """Return the whole value on the CPU: the mean of the replicas. If workers share it, only the first gets it."""
        found = [array.detach().as_in_context(cpu()) for array in arrays]
        return found[0].copy() if len(found) == 1 else nd.add_n(*found) / len(found)

    def put(self, array: NDArray, values: Any) -> None:
        """Write the part of the whole value `values` that belongs to this worker."""
        array[:] = values


WHOLE = Placement()


class Replicated(Placement):
    """The placement of `mx.parallel.data_parallel`: every worker has the whole value, and all of them train it."""

    joins_workers = True


# ---- for a layout ----


def place(param: Parameter, placement: Placement) -> None:
    """Set the placement of a Parameter and free the memory of values that this worker does not keep."""
    param.placement = placement
    if not placement.is_here:
        for array in (param._arrays or {}).values():
            empty = torch.empty_like(array._data, device="meta", requires_grad=False)
            array._data, array._grad = torch.nn.Parameter(empty, requires_grad=False), None
        param._move_in()


def follow(params: Iterable[Parameter]) -> None:
    """Update Parameters whose tensors torch has replaced in their twins."""
    for param in params:
        param._follow()


def tell_trainers(params: Iterable[Parameter]) -> None:
    """Notify the Trainers of these Parameters that the placements have changed."""
    for trainer in {param._trainer for param in params}:
        if trainer is not None:
            trainer.take_layout()


def has_values(param: Parameter) -> bool:
    """Whether a Parameter is initialized."""
    return param._arrays is not None


def is_waiting(param: Parameter) -> bool:
    """Whether the initialization of a Parameter is deferred until its shape is known."""
    return bool(param._deferred_init)


def begin_with_zeros(param: Parameter) -> None:
    """Initialize a Parameter with zeros on the CPU, as soon as its shape is known."""
    param._deferred_init = (initializer.Zero(), [cpu()], initializer.Zero(), None)
    if shape_is_known(param.shape):
        param._finish_deferred_init()


def hollow_out(param: Parameter) -> None:
    """Initialize a Parameter, whose shape is known, with tensors that use no memory."""
    assert param.shape is not None
    values = torch.empty(param.shape, dtype=to_torch(param.dtype), device="meta")
    if param._differentiable:
        values = torch.nn.Parameter(values, requires_grad=False)
    param._arrays = {cpu(): NDArray(values, cpu())}
    param._init_grad()


def put_whole(param: Parameter, whole: NDArray) -> None:
    """Write this worker's part of the whole value into a Parameter."""
    param._follow()
    for array in (param._arrays or {}).values():
        param.placement.put(array, whole)


def part_of(param: Parameter) -> NDArray:
    """Return the part of a Parameter that this worker updates."""
    return param._local(None)
