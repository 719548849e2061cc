"""The scale of a loss: as large as gradients stay finite with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ..ndarray import NDArray
from ..ndarray.sparse import BaseSparseNDArray


class LossScaler:
    """Halves the scale when gradients overflow, doubles it after 2000 steps in a row without.

    As in MXNet a new scale holds from the step after the next.
    """

    def __init__(self) -> None:
        self._loss_scale = self._next_loss_scale = 65536.0
        self._max_loss_scale = 2.0**24
        self._scale_seq_len = 2000
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by."""
        return self._loss_scale

    def has_overflow(self, params: Any) -> bool:
        """Whether a gradient of these Parameters is not finite; sets the next scale by it."""
        trained = [param for param in params if param.grad_req != "null"]
        return self.overflowed([grad for param in trained for grad in param.list_grad()])

    def overflowed(self, gradients: Sequence[NDArray], agree: Callable[[bool], bool] | None = None) -> bool:
        """Whether one of these is not finite, here or, if ranks `agree`, anywhere; sets the next scale by it."""
        found = not all_finite(gradients)
        if agree is not None:
            found = agree(found)
        self._loss_scale = self._next_loss_scale
        if found:
            self._next_loss_scale = self._loss_scale / 2
            self._unskipped = 0
        else:
            self._unskipped += 1
        if self._unskipped == self._scale_seq_len:
            self._next_loss_scale = min(self._max_loss_scale, self._loss_scale * 2)
            self._unskipped = 0
        return found

    def take_over(self, broadcast: Callable[[torch.Tensor], Any]) -> None:
        """Go on from where another worker is; `broadcast` puts its numbers in place of ours."""
        numbers = torch.tensor([self._loss_scale, self._next_loss_scale, self._unskipped], dtype=torch.float64)
        broadcast(numbers)
        self._loss_scale, self._next_loss_scale, unskipped = numbers.tolist()
        self._unskipped = int(unskipped)


def all_finite(arrays: Sequence[NDArray]) -> bool:
    """Whether no element of any array is infinite or nan."""
    extremes: dict[Any, list[torch.Tensor]] = {}
    for array in arrays:
        tensor = (array.data if isinstance(array, BaseSparseNDArray) else array)._data.detach()
        if tensor.numel():  # the least and the largest keep inf and nan, in one pass over the memory
            extremes.setdefault((tensor.device, tensor.dtype), []).extend(torch.aminmax(tensor))
    return all(bool(torch.stack(found).isfinite().all()) for found in extremes.values())


class Gathers(Protocol):
    """A group of workers, as `comm` has it."""

    def all_gather_small(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        """Every worker's tensor, stacked."""


def agree(group: Gathers) -> Callable[[bool], bool]:
    """A function for `trainer._amp_agree`: whether something is so on any rank of a `comm` group; all must call it."""

    def anywhere(flag: bool) -> bool:
        said = group.all_gather_small(torch.tensor([int(flag)]), what="whether gradients overflowed")
        return bool(said.any())

    return anywhere
