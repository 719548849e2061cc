"""MXNet's private names in gluon: programs read them, and libraries use them in subclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..context import Context
from ..ndarray import NDArray
from .structure import flatten, regroup

if TYPE_CHECKING:
    from ..step.choose import Asked
    from .parameter import Parameter


def _flatten(args: Any, inout_str: str) -> tuple[list[Any], Any]:
    """Flatten nested lists. The format is 0 for an array, -1 for None, and a list for a list."""
    return flatten(args)


def _regroup(args: list[Any], fmt: Any) -> tuple[Any, list[Any]]:
    """Nest arrays as the format of `_flatten` describes. Also return the remaining arrays."""
    count = _count(fmt)
    return regroup(args[:count], fmt), args[count:]


def _count(fmt: Any) -> int:
    return sum(map(_count, fmt)) if isinstance(fmt, (list, tuple)) else max(fmt, 1)


class PrivateNames:
    """`_data`, `_grad` and `_ctx_list` of a Parameter: None until initialized, then lists with one item per context.

    `_data` can be assigned from another Parameter, which includes its gradients and contexts.
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

    _ctx_map: Any = None  # MXNet's lookup of arrays by context; can be copied but is not used here

    def _check_and_get(self, arrays: Any, ctx: Context | type[list] | None) -> Any:
        """The array of `_data` or `_grad` on a context, or all of them for `list`."""
        every = self._list()  # type: ignore[attr-defined]
        if ctx is list:
            return arrays
        wanted = self._find(ctx)  # type: ignore[attr-defined]
        return next(array for array, own in zip(arrays, every, strict=True) if own is wanted)


class TrainerNames:
    """MXNet's private attributes of a Trainer."""

    _asked: Asked
    _params: list[Parameter]
    _strategy: Any

    @property
    def _compression_params(self) -> Any:
        return self._asked.compression

    @property
    def _param2idx(self) -> dict[str, int]:
        return {param.name: i for i, param in enumerate(self._params)}

    @property
    def _params_to_init(self) -> list[Parameter]:
        """The Parameters that are not in the store yet: all of them until the first step."""
        begun = self._strategy is not None and self._strategy.has_begun
        return [param for param in self._params if param._arrays is None or not begun]

    @property
    def _contains_sparse_weight(self) -> bool:
        return any(param._stype != "default" for param in self._params)

    @property
    def _contains_sparse_grad(self) -> bool:
        return any(param._grad_stype != "default" for param in self._params)

    @property
    def _distributed(self) -> bool | None:
        """Whether the store is distributed, or None before it is chosen."""
        store = None if self._strategy is None else self._strategy.store
        return None if store is None else "dist" in store.type
