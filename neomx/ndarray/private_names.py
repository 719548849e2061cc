"""MXNet's private attributes of arrays and of `mx.nd.ndarray` that programs and libraries use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtype import FLAG_OF_TORCH, NUMPY_OF_TORCH
from .freshness import is_fresh, mark_fresh, mark_used

if TYPE_CHECKING:
    from .ndarray import NDArray

_STORAGE_TYPE_STR_TO_ID = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}
_STORAGE_TYPE_UNDEFINED, _STORAGE_TYPE_DEFAULT, _STORAGE_TYPE_ROW_SPARSE, _STORAGE_TYPE_CSR = -1, 0, 1, 2
_STORAGE_TYPE_ID_TO_STR = {number: name for name, number in _STORAGE_TYPE_STR_TO_ID.items()}
_GRAD_REQ_MAP = {"null": 0, "write": 1, "add": 3}
_DTYPE_NP_TO_MX: dict[Any, int] = {None: -1, **{NUMPY_OF_TORCH[dtype]: flag for dtype, flag in FLAG_OF_TORCH.items()}}
_DTYPE_MX_TO_NP: dict[int, Any] = {flag: dtype for dtype, flag in _DTYPE_NP_TO_MX.items()}
py_slice = slice


class PrivateNames:
    """The private attributes of all arrays."""

    __slots__ = ()

    def _at(self, idx: int) -> NDArray:
        """Return a view of row `idx`."""
        return self[idx]  # type: ignore[index, no-any-return]

    def _slice(self, start: int | None, stop: int | None) -> NDArray:
        """Return a view of rows `start` to `stop`."""
        return self[start:stop]  # type: ignore[index, no-any-return]

    def _full(self, value: Any) -> NDArray:
        """Fill the array with a value."""
        self[:] = value  # type: ignore[index]
        return self  # type: ignore[return-value]

    def _sync_copyfrom(self, source_array: Any) -> None:
        """Copy the values of a numpy array of the same shape."""
        source = np.asarray(source_array)
        if source.shape != self.shape:  # type: ignore[attr-defined]
            raise ValueError(f"Shape inconsistent: expected {self.shape}, received {source.shape}")  # type: ignore[attr-defined]
        self[:] = source  # type: ignore[index]

    @property
    def _fresh_grad(self) -> bool:
        """Whether a backward pass has written the gradient since a Trainer used it."""
        return is_fresh(self)

    @_fresh_grad.setter
    def _fresh_grad(self, fresh: bool) -> None:
        (mark_fresh if fresh else mark_used)(self)


class SparsePrivateNames:
    """The private attributes of sparse arrays: the index arrays."""

    __slots__ = ()

    @property
    def _num_aux(self) -> int:
        return len(self._index_tensors())  # type: ignore[attr-defined]

    @property
    def _aux_types(self) -> list[Any]:
        return [np.int64] * self._num_aux

    def _aux_type(self, i: int) -> Any:
        return self._aux_types[i]

    def _aux_data(self, i: int) -> NDArray:
        from .ndarray import NDArray

        return NDArray(self._index_tensors()[i].clone(), self._ctx)  # type: ignore[attr-defined]
