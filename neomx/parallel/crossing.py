"""Communication within a tensor group: each forward operation with the operation for its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ..comm.engine import EngineGroup

Tensor = torch.Tensor
Way = Callable[[Tensor], Tensor]
SEQUENCE, FEATURES = 1, -1  # axes of activations, (batch, time, features)


class _Move(torch.autograd.Function):
    """Apply one operation in forward and another in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Way, back: Way) -> Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.back(gradient), None, None


def _moved(x: Tensor, there: Way, back: Way) -> Tensor:
    moved: Tensor = _Move.apply(x, there, back)  # type: ignore[no-untyped-call]
    return moved


class Crossing:
    """The exchanges of one layer. Errors contain the name of the layer."""

    def __init__(self, mesh: DeviceMesh, layer: str) -> None:
        self.mesh, self.layer = mesh, layer
        self.group, self.size, self.rank = mesh.get_group(), mesh.size(), mesh.get_local_rank()

    # ---- with gradients ----

    def copy(self, x: Tensor) -> Tensor:
        """Return a replicated tensor for different uses on each worker. Gradients are summed."""
        return _moved(x, self._same, self._sum)

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over the workers."""
        return _moved(x, self._sum, self._same)

    def split(self, x: Tensor) -> Tensor:
        """Return this worker's part of a replicated tensor, along the sequence."""
        return _moved(x, self._part(SEQUENCE), self._gather(SEQUENCE))

    def join(self, x: Tensor) -> Tensor:
        """Gather a sequence that is split over the workers. All workers use the result in the same way."""
        return _moved(x, self._gather(SEQUENCE), self._part(SEQUENCE))

    def join_features(self, x: Tensor) -> Tensor:
        """Gather features that are split over the workers. All workers use the result in the same way."""
        return _moved(x, self._gather(FEATURES), self._part(FEATURES))

    def join_copy(self, x: Tensor) -> Tensor:
        """Gather a sequence that is split over the workers, for different uses on each worker."""
        return _moved(x, self._gather(SEQUENCE), self._sum_part)

    def sum_split(self, x: Tensor) -> Tensor:
        """Return this worker's part, along the sequence, of the sum over the workers."""
        return _moved(x, self._sum_part, self._gather(SEQUENCE))

    # ---- without ----

    def _same(self, x: Tensor) -> Tensor:
        return x.view_as(x)

    def _sum(self, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        self._call(dist.all_reduce, total)
        return total

    def _part(self, axis: int) -> Way:
        return lambda x: x.chunk(self.size, axis)[self.rank].contiguous()

    def _gather(self, axis: int) -> Way:
        def gather(x: Tensor) -> Tensor:
            parts = x.new_empty(self.size, *x.shape)
            self._call(dist.all_gather_single, parts, x.contiguous())
            return torch.cat(parts.unbind(), axis)

        return gather

    def _sum_part(self, x: Tensor) -> Tensor:
        parts = torch.stack(x.chunk(self.size, SEQUENCE))
        part = torch.empty_like(parts[0])
        self._call(dist.reduce_scatter_single, part, parts)
        return part

    def _call(self, collective: Callable[..., object], *tensors: Tensor) -> None:
        if not isinstance(self.group, EngineGroup):
            collective(*tensors, group=self.group)
            return
        before, self.group.what = self.group.what, self.layer
        collective(*tensors, group=self.group)
        self.group.what = before
