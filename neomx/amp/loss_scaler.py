"""Dynamic loss scaling: keeps the scale as large as possible without overflow in the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ..ndarray import NDArray
from ..ndarray.sparse import BaseSparseNDArray


class LossScaler:
    """Halves the scale when gradients overflow, and doubles it after 2000 consecutive steps without overflow.

    As in MXNet, a new scale takes effect one step later.
    """

    def __init__(self) -> None:
        self._loss_scale = self._next_loss_scale = 65536.0
        self._max_loss_scale = 2.0**24
        self._scale_seq_len = 2000
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        """The factor of the loss."""
        return self._loss_scale

    def has_overflow(self, params: Any) -> bool:
        """Return whether a gradient of these Parameters is not finite, and adjust the next scale."""
        trained = [param for param in params if param.grad_req != "null"]
        return self.overflowed([grad for param in trained for grad in param.list_grad()])

    def overflowed(self, gradients: Sequence[NDArray], agree: Callable[[bool], bool] | None = None) -> bool:
        """Return whether a gradient is not finite on this rank or, with `agree`, on any rank. Adjust the next scale."""
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

    def state(self) -> dict[str, float]:
        """Return the state as numbers by name, for a checkpoint."""
        return {"scale": self._loss_scale, "next_scale": self._next_loss_scale, "unskipped": self._unskipped}

    def load_state(self, state: dict[str, float]) -> None:
        """Restore a state that `state` returned."""
        self._loss_scale, self._next_loss_scale = float(state["scale"]), float(state["next_scale"])
        self._unskipped = int(state["unskipped"])

    def take_over(self, broadcast: Callable[[torch.Tensor], Any]) -> None:
        """Continue with the state of another worker. `broadcast` overwrites a tensor in place."""
        numbers = torch.tensor([self._loss_scale, self._next_loss_scale, self._unskipped], dtype=torch.float64)
        broadcast(numbers)
        self._loss_scale, self._next_loss_scale, unskipped = numbers.tolist()
        self._unskipped = int(unskipped)


def all_finite(arrays: Sequence[NDArray]) -> bool:
    """Return whether all elements of all arrays are finite."""
    extremes: dict[Any, list[torch.Tensor]] = {}
    for array in arrays:
        tensor = (array.data if isinstance(array, BaseSparseNDArray) else array)._data.detach()
        if tensor.numel():  # the minimum and maximum preserve inf and nan, and need only one pass
            extremes.setdefault((tensor.device, tensor.dtype), []).extend(torch.aminmax(tensor))
    return all(bool(torch.stack(found).isfinite().all()) for found in extremes.values())


class Gathers(Protocol):
    """A group of workers, such as a `comm` group."""

    def all_gather_small(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        """Return the tensors of all workers, stacked."""


def agree(group: Gathers) -> Callable[[bool], bool]:
    """Return a function for `trainer._amp_agree` that is true if its argument is true on any rank. All must call it."""

    def anywhere(flag: bool) -> bool:
        said = group.all_gather_small(torch.tensor([int(flag)]), what="whether gradients overflowed")
        return bool(said.any())

    return anywhere
