"""Moment: an optimizer state in the form that fused kernels use."""

from __future__ import annotations

from typing import Any

import torch

from ..context import Context
from ..dtype import NUMPY_OF_TORCH
from ..ndarray import NDArray


class Moment(NDArray):
    """A state that is stored divided by a factor between fused steps. Reading it multiplies it back.

    torch's kernel cannot rescale gradients without writing them. Dividing the averages by the same factor results in
    the same weights, at no cost until the state is read.
    """

    __slots__ = ("_kept", "_factor")
    _kept: torch.Tensor
    _factor: float

    @property
    def _data(self) -> torch.Tensor:  # type: ignore[override]
        if self._factor != 1.0:  # not in place: a checkpoint may be reading the stored tensor (Updater.lend)
            self._kept, self._factor = self._kept * self._factor, 1.0
        return self._kept

    @_data.setter
    def _data(self, value: torch.Tensor) -> None:
        self._kept, self._factor = value, 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. It does not count as reading."""
        return tuple(self._kept.shape)

    @property
    def dtype(self) -> Any:
        """The numpy type of the elements."""
        return NUMPY_OF_TORCH[self._kept.dtype]

    @classmethod
    def restored(cls, kept: NDArray, factor: float) -> Moment:
        """Return a Moment with the given stored array and factor, without rounding."""
        moment = cls(kept._data, kept._ctx)
        moment._factor = factor
        return moment

    def as_in_context(self, context: Context) -> Moment:
        """Return this state if it is on the context, otherwise a copy on that context, with the same stored bits."""
        return (
            self
            if context is self._ctx
            else Moment.restored(NDArray(self._kept, self._ctx).copyto(context), self._factor)
        )
