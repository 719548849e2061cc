"""The common methods of `mx.np` arrays and `mx.sym.np` symbols, which call functions of `mx.np`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .. import numpy as np  # this package; its names are complete when functions are called

# Methods of `mx.nd` arrays that `mx.np` arrays do not have. Most exist as functions in mx.np or mx.npx.
ABSENT = [
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "argmax_channel", "asscalar",
    "broadcast_axes", "broadcast_like", "cbrt", "ceil", "cos", "cosh", "degrees", "depth_to_space", "diag", "exp",
    "expand_dims", "expm1", "fix", "flip", "floor", "log", "log10", "log1p", "log2", "log_softmax", "nanprod", "nansum",
    "norm", "one_hot", "ones_like", "pad", "pick", "radians", "rcbrt", "reciprocal", "relu", "reshape_like", "rint",
    "rsqrt", "shape_array", "sigmoid", "sign", "sin", "sinh", "size_array", "slice", "slice_axis", "slice_like",
    "softmax", "softmin", "space_to_depth", "split", "split_v2", "sqrt", "square", "tan", "tanh", "tile", "topk",
    "trunc", "zeros_like",
]  # fmt: skip


def check_order(order: str) -> None:
    """Raise NotImplementedError for any memory order except 'C'."""
    if order != "C":
        raise NotImplementedError(f"only order='C' is supported, received {order!r}")


def check_astype(order: str, casting: str, subok: bool) -> None:
    """Raise ValueError for NumPy keywords of `astype` that are not supported."""
    if order not in ("C", "K"):
        raise ValueError(f"order must be either 'K' or 'C', received {order!r}")
    if casting != "unsafe":
        raise ValueError(f"casting must be equal to 'unsafe', received {casting!r}")
    if not subok:
        raise ValueError("subok must be equal to True")


class Methods:
    """Functions of `mx.np` as methods."""

    __slots__ = ()

    @property
    def T(self) -> Any:
        """A copy with the dimensions in reverse order."""
        return np.transpose(self)

    def all(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.all` of this array."""
        return np.all(self, axis=axis, keepdims=keepdims, out=out)

    def any(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.any` of this array."""
        return np.any(self, axis=axis, keepdims=keepdims, out=out)

    def argmax(self, axis: Any = None, out: Any = None) -> Any:
        """`np.argmax` of this array."""
        return np.argmax(self, axis, out)

    def argmin(self, axis: Any = None, out: Any = None) -> Any:
        """`np.argmin` of this array."""
        return np.argmin(self, axis, out)

    def argsort(self, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
        """`np.argsort` of this array."""
        return np.argsort(self, axis=axis, kind=kind, order=order)

    def broadcast_to(self, shape: Any) -> Any:
        """`np.broadcast_to` of this array."""
        return np.broadcast_to(self, shape)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        """`np.clip` of this array."""
        return np.clip(self, min, max, out=out)

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """`np.cumsum` of this array."""
        return np.cumsum(self, axis=axis, dtype=dtype, out=out)

    def dot(self, b: Any, out: Any = None) -> Any:
        """`np.dot` of this array and `b`."""
        return np.dot(self, b, out=out)

    def flatten(self, order: str = "C") -> Any:
        """Return a flattened copy."""
        return self.reshape(-1, order=order)

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.max` of this array."""
        return np.max(self, axis, keepdims, out)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.mean` of this array."""
        return np.mean(self, axis, dtype, out, keepdims)

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.min` of this array."""
        return np.min(self, axis, keepdims, out)

    def nonzero(self) -> Any:
        """`np.nonzero` of this array."""
        return np.nonzero(self)

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.prod` of this array."""
        return np.prod(self, axis=axis, dtype=dtype, keepdims=keepdims, out=out)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """`np.repeat` of this array."""
        return np.repeat(self, repeats=repeats, axis=axis)

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Return a copy with another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        if not shape:
            raise TypeError("reshape: expected a shape, received no arguments")
        check_order(order)
        return np.reshape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)

    def round(self, decimals: int = 0, out: Any = None, **kwargs: Any) -> Any:
        """`np.round` of this array."""
        return np.round(self, decimals=decimals, out=out, **kwargs)

    def squeeze(self, axis: Any = None) -> Any:
        """`np.squeeze` of this array."""
        return np.squeeze(self, axis=axis)

    def std(self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
        """`np.std` of this array."""
        return np.std(self, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, out=out)

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """`np.sum` of this array."""
        return np.sum(self, axis, dtype, keepdims, None, out)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """`np.swapaxes` of this array."""
        return np.swapaxes(self, axis1, axis2)

    def take(self, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
        """`np.take` of this array."""
        return np.take(self, indices, axis, mode=mode)

    def transpose(self, *axes: Any) -> Any:
        """`np.transpose` of this array: `x.transpose(1, 0)`, or `x.transpose((1, 0))`."""
        wanted = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return np.transpose(self, tuple(wanted) if wanted else None)

    def var(self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
        """`np.var` of this array."""
        return np.var(self, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, out=out)


def _absent(name: str) -> Callable[..., NoReturn]:
    def method(self: Methods, *args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(
            f"an mx.np array has no attribute {name}, only mx.nd arrays do. Use a function of mx.np or mx.npx"
        )

    method.__name__, method.__doc__ = name, "Only available on mx.nd arrays; raises AttributeError."
    return method


for _name in ABSENT:
    setattr(Methods, _name, _absent(_name))
