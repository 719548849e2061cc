"""A state of an optimizer as fused kernels keep it."""

from __future__ import annotations

from typing import Any

import torch

from ..dtype import NUMPY_OF_TORCH
from ..ndarray import NDArray


class Moment(NDArray):
    """A state that is kept divided by a factor between fused steps; who reads it finds it multiplied back.

    torch's kernel cannot rescale gradients without writing them. Dividing what it averages by the same factor gives
    the same weights, and costs nothing until someone looks.
    """

    __slots__ = ("_kept", "_factor")
    _kept: torch.Tensor
    _factor: float

    @property
    def _data(self) -> torch.Tensor:  # type: ignore[override]
        if self._factor != 1.0:
            self._kept.mul_(self._factor)
            self._factor = 1.0
        return self._kept

    @_data.setter
    def _data(self, value: torch.Tensor) -> None:
        self._kept, self._factor = value, 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension; to ask is not to read."""
        return tuple(self._kept.shape)

    @property
    def dtype(self) -> Any:
        """The numpy type of its elements."""
        return NUMPY_OF_TORCH[self._kept.dtype]

    @classmethod
    def restored(cls, kept: NDArray, factor: float) -> Moment:
        """What was kept with this factor, to the bit."""
        moment = cls(kept._data, kept._ctx)
        moment._factor = factor
        return moment
