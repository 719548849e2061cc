"""The placement of the Parameters of a Block that several workers hold together.

`apply` and `train_step` give each Parameter a placement. A Parameter uses it to read and write its whole value, and a
Trainer uses it to update. All Parameters of a Block share one LayoutWorkers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from .. import ndarray as nd
from ..base import MXNetError
from ..context import Context, cpu
from ..gluon.parameter import Parameter
from ..gluon.placement import Placement
from ..ndarray import NDArray
from ..ndarray.distributed import whole
from ..optimizer.part import Part, Total
from .workers import LayoutWorkers

# torch logs each tensor that two mesh dimensions shard along one axis, because gathering takes two steps.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


class Divided(Placement):
    """The placement of a Parameter under a layout: here, sharded or whole, or in another stage of a pipeline."""

    def __init__(self, workers: LayoutWorkers, stages: Sequence[int] = (0,)) -> None:
        self.workers = self.holders = workers
        self.stages = tuple(stages)  # stages of the pipeline that hold it; several may share it
        here = workers.layout.coordinates()["pipeline"]
        self.is_here, self.is_first = here in self.stages, here == self.stages[0]

    def refuse_elsewhere(self, name: str) -> None:
        """Raise if this worker does not hold the Parameter, and say which stage does."""
        if not self.is_here:
            raise MXNetError(
                f"Parameter {name!r} is in stage {', '.join(map(str, self.stages))} of the pipeline, this worker in "
                f"{self.workers.layout.coordinates()['pipeline']}. To save all, call save_parameters on all workers"
            )

    def settle(self) -> None:
        """Reshard, so that each worker holds only its part."""
        self.workers.reshard()

    def identity(self, array: NDArray) -> int:
        """Return a number that changes when torch replaces the tensor of the Parameter."""
        return id(array._data)

    def part(self, array: NDArray) -> NDArray:
        """Return the part of the Parameter that this worker updates."""
        return LeafPart(array) if isinstance(array._data, DTensor) else array

    def whole(self, arrays: list[NDArray]) -> NDArray:
        """Return the whole value on the CPU of the first worker of the model, which writes files; empty elsewhere.

        All workers must call it.
        """
        array, values = arrays[0], None
        if self.is_here:
            values = whole(array._data.detach()).cpu()
        if self.workers.layout.pipeline > 1 and 0 not in self.stages:
            values = self._fetched(array, values)
        return NDArray(torch.empty(0) if values is None or not self.workers.is_first else values, cpu())

    def _fetched(self, array: NDArray, values: torch.Tensor | None) -> torch.Tensor | None:
        """Send the value from its stage to stage 0, between the first workers of both."""
        group, owner = self.workers.model_group, self.workers.first_of_stage(self.stages[0])
        if group.rank == owner:
            assert values is not None
            group.send(values.contiguous(), 0, what="a parameter")
        elif group.rank == 0:
            values = torch.empty(array.shape, dtype=array._data.dtype)
            group.recv(values, owner, what="a parameter")
        return values

    def put(self, array: NDArray, values: Any) -> None:
        """Store this worker's part of a whole value."""
        if not self.is_here:
            return
        whole = (values if isinstance(values, NDArray) else nd.array(values))._data
        leaf = array._data.detach()
        with torch.no_grad():
            if isinstance(leaf, DTensor):
                leaf.to_local().copy_(whole[region(leaf)])
            else:
                leaf.copy_(whole)


def workers_holding(params: Iterable[Parameter | torch.Tensor]) -> LayoutWorkers | None:
    """Return the workers over which any of these Parameters or torch parameters is distributed, or None."""
    placements = (param.placement for param in params if isinstance(param, Parameter))
    return next((each.workers for each in placements if isinstance(each, Divided)), None)


def region(tensor: DTensor) -> tuple[slice, ...]:
    """Return the slices of the whole tensor that this worker holds."""
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(
        slice(None) if length == whole else slice(at, at + length)
        for at, length, whole in zip(offset, shape, tensor.shape, strict=True)
    )


class LeafPart(Part):
    """This worker's part of a Parameter that is a DTensor, with its gradient."""

    __slots__ = ("_leaf",)

    def __init__(self, array: NDArray) -> None:
        leaf = array._data
        assert isinstance(leaf, DTensor)
        values = leaf.detach()
        assert isinstance(values, DTensor)
        super().__init__(values.to_local(), array._ctx, tuple(leaf.shape), region(values), total_of(leaf))
        self._leaf = leaf
        self._grad = LeafGradient(leaf, array._ctx)


class LeafGradient(NDArray):
    """This worker's part of the gradient of a DTensor."""

    __slots__ = ("_leaf",)

    def __init__(self, leaf: DTensor, ctx: Context) -> None:
        self._leaf, self._ctx, self._grad, self._history = leaf, ctx, None, None

    @property
    def _data(self) -> torch.Tensor:  # type: ignore[override]
        gradient = local_gradient(self._leaf)
        if gradient is None:
            self._leaf.grad = torch.zeros_like(self._leaf)
            gradient = local_gradient(self._leaf)
            assert gradient is not None
        return gradient


def local_gradient(leaf: torch.Tensor) -> torch.Tensor | None:
    """Return this worker's part of the gradient of a parameter. Partial gradients are summed over the workers first."""
    gradient = leaf.grad
    if not isinstance(gradient, DTensor):
        return gradient
    assert isinstance(leaf, DTensor)
    if gradient.placements != leaf.placements:
        leaf.grad = gradient = gradient.redistribute(placements=leaf.placements)
    local: torch.Tensor = gradient._local_tensor
    return local


@cache
def _total(groups: tuple[dist.ProcessGroup, ...]) -> Total:
    def total(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for group in groups:
            dist.all_reduce(x, group=group)
        return x

    return total


def total_of(leaf: DTensor) -> Total:
    """Return a function that sums over the workers that hold the other parts. Equal placements share one function."""
    mesh = leaf.device_mesh
    divided = [at for at, kind in enumerate(leaf.placements) if not kind.is_replicate() and mesh.size(at) > 1]
    return _total(tuple(mesh.get_group(at) for at in divided))
