"""Dispatch of NumPy's own functions on `mx.np` arrays: `numpy.mean(x)`, `numpy.sin(x)`.

Functions that MXNet implements are called in `mx.np`. Autograd records them, and they return `mx.np` arrays. All
others run in NumPy on the CPU, with arrays and results converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as onp
import torch

from .. import numpy as np  # this package; its names are complete when functions are called
from ..base import MXNetError, modes
from ..context import Context
from ..dtype import to_torch
from ..ndarray.ndarray import NDArray

# NumPy functions that are replaced by those of mx.np.
FUNCTIONS = frozenset([
    "all", "any", "sometrue", "argmin", "argmax", "around", "round", "round_", "argsort", "sort", "append",
    "broadcast_arrays", "broadcast_to", "clip", "concatenate", "copy", "cumsum", "diag", "diagonal", "diagflat",
    "dot", "expand_dims", "fix", "flip", "flipud", "fliplr", "inner", "insert", "max", "amax", "mean", "min",
    "amin", "nonzero", "ones_like", "atleast_1d", "atleast_2d", "atleast_3d", "prod", "product", "ravel", "repeat",
    "reshape", "roll", "split", "array_split", "hsplit", "vsplit", "dsplit", "squeeze", "stack", "std", "sum",
    "swapaxes", "take", "tensordot", "tile", "transpose", "unique", "unravel_index", "diag_indices_from", "delete",
    "var", "vdot", "vstack", "column_stack", "hstack", "dstack", "zeros_like", "shape", "trace", "tril", "meshgrid",
    "outer", "einsum", "polyval", "shares_memory", "may_share_memory", "quantile", "percentile", "diff", "ediff1d",
    "resize", "where", "full_like", "bincount", "empty_like", "nan_to_num", "isposinf", "isneginf", "pad",
    "linalg.norm", "linalg.cholesky", "linalg.inv", "linalg.solve", "linalg.tensorinv", "linalg.tensorsolve",
    "linalg.pinv", "linalg.eigvals", "linalg.eig", "linalg.eigvalsh", "linalg.eigh",
])  # fmt: skip
# The same for ufuncs. The `__name__` of some differs from the name they are called by: mod is `remainder`.
UFUNCS = frozenset([
    "abs", "absolute", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cbrt", "ceil", "copysign", "cos", "cosh", "degrees",
    "divide", "equal", "exp", "expm1", "fabs", "floor", "greater", "greater_equal", "hypot", "invert", "isfinite",
    "isinf", "isnan", "lcm", "less", "less_equal", "log", "log10", "log2", "logical_not", "matmul", "maximum",
    "minimum", "mod", "multiply", "negative", "not_equal", "power", "reciprocal", "remainder", "rint", "sign",
    "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "true_divide", "trunc",
])  # fmt: skip


def _own(path: str) -> Callable[..., Any]:
    """Return the function of `mx.np` at the path."""
    space, _, name = path.rpartition(".")
    return getattr(getattr(np, space) if space else np, name)


def array_function(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call NumPy's function `func`, or its mx.np replacement, on arguments that include mx.np arrays."""
    path = f"{func.__module__}.{func.__name__}".removeprefix("numpy.")
    return _own(path)(*args, **kwargs) if path in FUNCTIONS else in_numpy(func, args, kwargs)


def array_ufunc(ufunc: onp.ufunc, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """Like `array_function`, for a ufunc. Only plain calls are implemented, not e.g. `numpy.add.reduce`."""
    if method != "__call__":
        return NotImplemented
    out = kwargs.get("out")
    if isinstance(out, tuple) and len(out) == 1:
        kwargs = {**kwargs, "out": out[0]}
    if ufunc.__name__ in UFUNCS:
        return getattr(np, ufunc.__name__)(*inputs, **kwargs)
    if any(isinstance(value, onp.ndarray) for value in inputs):
        return NotImplemented
    return in_numpy(ufunc, inputs, kwargs)


def in_numpy(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call NumPy's function on mx.np arrays, and convert its results to mx.np arrays."""
    arrays = list(_arrays_in((args, kwargs)))
    if not arrays:
        return func(*args, **kwargs)
    name = func.__name__
    if modes.recording and any(array.to_torch().requires_grad for array in arrays):
        raise ValueError(
            f"{name} runs in NumPy, which autograd cannot record. Call it outside of autograd.record(), or on "
            "x.detach()"
        )
    args, kwargs = _to_numpy((args, kwargs))
    return _from_numpy(func(*args, **kwargs), name, arrays[0].context)


def computed_by_numpy(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of NumPy arrays to accept and return mx.np arrays."""

    @wraps(func)
    def on_arrays(*args: Any, **kwargs: Any) -> Any:
        return in_numpy(func, args, kwargs)

    return on_arrays


def _arrays_in(value: Any) -> Iterator[NDArray]:
    if isinstance(value, NDArray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays_in(item)
    elif isinstance(value, dict):
        yield from _arrays_in(list(value.values()))


def _to_numpy(value: Any) -> Any:
    if isinstance(value, NDArray):
        return value.asnumpy()
    if isinstance(value, (list, tuple)):
        return type(value)([_to_numpy(item) for item in value])
    return {key: _to_numpy(item) for key, item in value.items()} if isinstance(value, dict) else value


def _from_numpy(value: Any, name: str, ctx: Context) -> Any:
    if isinstance(value, onp.ndarray):
        try:
            dtype = to_torch(value.dtype)
        except MXNetError:
            raise ValueError(
                f"{name}: NumPy's result has dtype {value.dtype}, which mx.np does not support. Call numpy.{name} on "
                "x.asnumpy() instead"
            ) from None
        kind: Any = np.ndarray
        return kind(torch.from_numpy(onp.array(value, order="C")).to(ctx.device, dtype), ctx)
    if isinstance(value, tuple):
        return tuple(_from_numpy(item, name, ctx) for item in value)
    return [_from_numpy(item, name, ctx) for item in value] if isinstance(value, list) else value
