"""MXNet's private names of what a Parameter holds: programs read them, and libraries copy them as they extend it."""

from __future__ import annotations

from typing import Any

from ..context import Context
from ..ndarray import NDArray


class PrivateNames:
    """`_data`, `_grad`, `_ctx_list`: None until it is initialised, then a list, one for each context.

    Arrays may be set, from those of another Parameter; their gradients and contexts come with them.
    """

    _arrays: dict[Context, NDArray] | None

    @property
    def _data(self) -> list[NDArray] | None:
        return None if self._arrays is None else list(self._arrays.values())

    @_data.setter
    def _data(self, arrays: list[NDArray] | None) -> None:
        self._arrays = None if arrays is None else {array.context: array for array in arrays}

    @property
    def _grad(self) -> list[NDArray] | None:
        gradients = [array._grad for array in self._data or () if array._grad is not None]
        return gradients or None

    @_grad.setter
    def _grad(self, gradients: Any) -> None:
        pass

    @property
    def _ctx_list(self) -> list[Context] | None:
        return None if self._arrays is None else list(self._arrays)

    @_ctx_list.setter
    def _ctx_list(self, contexts: Any) -> None:
        pass

    _ctx_map: Any = None  # MXNet's way to an array by its context; copied, and of no use here

    def _check_and_get(self, arrays: Any, ctx: Context | type[list] | None) -> Any:
        """The one of `_data` or of `_grad` on a context; all of them for `list`."""
        every = self._list()  # type: ignore[attr-defined]
        if ctx is list:
            return arrays
        wanted = self._find(ctx)  # type: ignore[attr-defined]
        return next(array for array, own in zip(arrays, every, strict=True) if own is wanted)
