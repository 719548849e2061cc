"""Array creation: from shapes, from Python data, or like another array; triangles and diagonals."""

from __future__ import annotations

from typing import Any

import numpy as onp
import torch

from ..base import numeric_types
from ..context import Context, current_context
from ..dtype import NUMPY_OF_TORCH, to_torch
from ..ndarray.invoke import is_recorded
from ..ndarray.ndarray import NDArray
from ..symbol import Symbol
from .call import call, call_converted, front
from .multiarray import ndarray
from .shape import broadcast_to, reshape, unless

__all__ = [
    "arange",
    "array",
    "blackman",
    "copy",
    "diag",
    "diag_indices_from",
    "diagflat",
    "diagonal",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "hamming",
    "hanning",
    "identity",
    "indices",
    "linspace",
    "logspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "zeros",
    "zeros_like",
]


def array(object: Any, dtype: Any = None, ctx: Context | None = None) -> ndarray:
    """Create an array from data. Without a dtype, arrays and numpy scalars keep theirs; otherwise it is float32."""
    ctx = (ctx or current_context()).check()
    if isinstance(object, NDArray) and not isinstance(object, ndarray):
        raise ValueError("expected data for an mx.np array, received an mx.nd array. Use x.as_np_ndarray()")
    if isinstance(object, ndarray) and is_recorded(object):
        return object.astype(object.dtype if dtype is None else dtype).as_in_ctx(ctx)
    if isinstance(object, (ndarray, torch.Tensor)):
        tensor = object.to_torch() if isinstance(object, ndarray) else object
        wanted = tensor.dtype if dtype is None else to_torch(dtype)
        return ndarray(tensor.detach().to(ctx.device, wanted, copy=True), ctx)
    if dtype is None:
        dtype = object.dtype if isinstance(object, (onp.ndarray, onp.generic)) else onp.float32
    wanted = to_torch(dtype)
    try:
        data = onp.array(_without_arrays(object), dtype=NUMPY_OF_TORCH[wanted], order="C")
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected numbers, nested lists of numbers or an array, received {object!r:.80}") from error
    return ndarray(torch.from_numpy(data).to(ctx.device, wanted), ctx)


def _without_arrays(value: Any) -> Any:
    """Return nested lists with numpy arrays in place of `mx.np` arrays."""
    if isinstance(value, NDArray):
        return value.asnumpy()
    return [_without_arrays(item) for item in value] if isinstance(value, (list, tuple)) else value


def _only_rows_first(order: str) -> None:
    if order != "C":
        raise NotImplementedError(f"only order='C' is supported, received order={order!r}")


def _or_float32(dtype: Any) -> Any:
    return "float32" if dtype is None else dtype


# ---- filled ----


def zeros(shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None) -> Any:
    """Return an array of zeros, of dtype float32 by default."""
    if order != "C":
        _only_rows_first(order)
    if ctx is None and (dtype is None or dtype is onp.float32) and not front.symbols:  # the op's defaults
        return call("_npi_zeros", shape=shape)
    return call("_npi_zeros", ctx=ctx, shape=shape, dtype=_or_float32(dtype))


def ones(shape: Any, dtype: Any = onp.float32, order: str = "C", ctx: Context | None = None) -> Any:
    """Return an array of ones, of dtype float32 by default."""
    if order != "C":
        _only_rows_first(order)
    if ctx is None and (dtype is None or dtype is onp.float32) and not front.symbols:  # the op's defaults
        return call("_npi_ones", shape=shape)
    return call("_npi_ones", ctx=ctx, shape=shape, dtype=_or_float32(dtype))


def empty(shape: Any, dtype: Any = onp.float32, order: str = "C", ctx: Context | None = None) -> Any:
    """Return an array with arbitrary elements (here zeros), of dtype float32 by default."""
    return zeros(shape, dtype, order, ctx)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None, out: Any = None
) -> Any:
    """Return an array filled with a number, or with an array that is broadcast to the shape."""
    _only_rows_first(order)
    if isinstance(fill_value, (ndarray, Symbol)):
        filled = broadcast_to(fill_value, shape)
        return filled if dtype is None else filled.astype(dtype)
    if dtype is None:
        dtype = bool if isinstance(fill_value, bool) else onp.float32
    return call("_npi_full", (), out, ctx=ctx, shape=shape, value=fill_value, dtype=dtype)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None, out: Any = None
) -> Any:
    """Return an array with the shape of `a`, and by default its dtype, filled with a number."""
    if order != "C":
        _only_rows_first(order)
    if dtype is None:  # not written to files
        if type(a) is ndarray and type(fill_value) in (int, float):
            return call_converted("_npi_full_like", (a,), out, {"fill_value": float(fill_value)})
        return call("_npi_full_like", (a,), out, fill_value=fill_value)
    return call("_npi_full_like", (a,), out, fill_value=fill_value, dtype=dtype)


def zeros_like(a: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None, out: Any = None) -> Any:
    """Return zeros with the shape of `a`, and by default its dtype."""
    return full_like(a, 0, dtype, order, ctx, out)


def ones_like(a: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None, out: Any = None) -> Any:
    """Return ones with the shape of `a`, and by default its dtype."""
    return full_like(a, 1, dtype, order, ctx, out)


def empty_like(prototype: Any, dtype: Any = None, order: str = "C", subok: bool = False, shape: Any = None) -> Any:
    """Return arbitrary elements (here zeros) with the shape of `prototype`, and by default its dtype."""
    if subok or shape is not None:
        raise NotImplementedError("empty_like does not support subok and shape. Omit them")
    return zeros_like(prototype, dtype, order)


# ---- progressions ----


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, ctx: Context | None = None) -> Any:
    """Return values from [`start`, `stop`), of dtype float32 by default. `arange(stop)` starts from 0."""
    if stop is None:
        start, stop = 0, 0 if start is None else start
    if step is None:
        step = 1
    if step == 0:
        raise ZeroDivisionError("step cannot be 0")
    return call("_npi_arange", ctx=ctx, start=start, stop=stop, step=step, dtype=_or_float32(dtype))


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    ctx: Context | None = None,
) -> Any:
    """Return `num` evenly spaced values from `start` to `stop`, including `stop` if `endpoint`.

    With `retstep`, also return the distance between values.
    """
    _only_numbers(start, stop, axis)
    attrs = {} if dtype is None else {"dtype": dtype}
    numbers = call("_npi_linspace", ctx=ctx, start=start, stop=stop, num=num, endpoint=endpoint, **attrs)
    if not retstep:
        return numbers
    gaps = num - 1 if endpoint else num
    return numbers, (stop - start) / gaps if gaps > 0 else onp.nan


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    axis: int = 0,
    ctx: Context | None = None,
) -> Any:
    """Return powers of `base` whose exponents are evenly spaced from `start` to `stop`."""
    _only_numbers(start, stop, axis)
    attrs = {} if dtype is None else {"dtype": dtype}
    return call("_npi_logspace", ctx=ctx, start=start, stop=stop, num=num, endpoint=endpoint, base=base, **attrs)


def _only_numbers(start: Any, stop: Any, axis: int) -> None:
    if not isinstance(start, numeric_types) or not isinstance(stop, numeric_types) or axis != 0:
        raise NotImplementedError("start and stop must be numbers, and axis must be 0")


def hanning(M: int, dtype: Any = onp.float32, ctx: Context | None = None) -> Any:
    """Return the Hann window with M points."""
    return call("_npi_hanning", ctx=ctx, M=M, dtype=_or_float32(dtype))


def hamming(M: int, dtype: Any = onp.float32, ctx: Context | None = None) -> Any:
    """Return the Hamming window with M points."""
    return call("_npi_hamming", ctx=ctx, M=M, dtype=_or_float32(dtype))


def blackman(M: int, dtype: Any = onp.float32, ctx: Context | None = None) -> Any:
    """Return the Blackman window with M points."""
    return call("_npi_blackman", ctx=ctx, M=M, dtype=_or_float32(dtype))


# ---- matrices and grids ----


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = onp.float32, **kwargs: Any) -> Any:
    """Return an N x M (by default N x N) array of zeros with ones on the k-th diagonal."""
    ctx = kwargs.pop("ctx", None)
    if kwargs:
        raise NotImplementedError(f"eye does not support the argument {', '.join(kwargs)}")
    return call("_npi_eye", ctx=ctx, N=N, M=M, k=k, dtype=_or_float32(dtype))


def identity(n: int, dtype: Any = None, ctx: Context | None = None) -> Any:
    """Return the n x n identity matrix."""
    if not isinstance(n, (int, onp.integer)):
        raise TypeError(f"n must be an integer, received {type(n).__name__}")
    if n < 0:
        raise ValueError(f"n cannot be negative, received {n}")
    return call("_npi_identity", ctx=ctx, shape=(n, n), dtype=_or_float32(dtype))


def indices(dimensions: Any, dtype: Any = onp.int32, ctx: Context | None = None) -> Any:
    """Return, for each dimension, an array of the given dimensions with the indices along it."""
    if not isinstance(dimensions, (tuple, list)):
        raise ValueError(f"dimensions must be a tuple of ints, received {dimensions!r:.80}")
    return call("_npi_indices", ctx=ctx, dimensions=tuple(dimensions), dtype=dtype)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Return coordinate matrices from coordinate vectors; with 'xy', the first two axes are swapped."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be 'xy' or 'ij', received {indexing!r}")
    if sparse or not copy:
        raise NotImplementedError("meshgrid returns full copies. Omit sparse and copy")
    places = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        places[:2] = [1, 0]
    lines = [
        reshape(x, tuple(-1 if i == place else 1 for i in range(len(xi)))) for x, place in zip(xi, places, strict=True)
    ]
    shape = onp.broadcast_shapes(*(line.shape for line in lines))
    return [broadcast_to(line, shape) for line in lines]


def tril(m: Any, k: int = 0) -> Any:
    """Return a copy with zeros above the k-th diagonal."""
    return call("_npi_tril", (m,), k=k)


def diag(array: Any, k: int = 0) -> Any:
    """Return the k-th diagonal of a matrix, or a matrix with the given diagonal."""
    return call("_np_diag", (array,), k=k)


def diagflat(array: Any, k: int = 0) -> Any:
    """Return a matrix with the flattened array as its k-th diagonal."""
    return call("_np_diagflat", (array,), **unless(k=(k, 0)))


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the diagonals of two axes, as the last axis of the result."""
    return call("_np_diagonal", (a,), **unless(offset=(offset, 0), axis1=(axis1, 0), axis2=(axis2, 1)))


def diag_indices_from(arr: Any) -> Any:
    """Return the indices of the diagonal, one array per dimension. All dimensions of `arr` must be equal."""
    if isinstance(arr, Symbol):
        return call("_npi_diag_indices_from", (arr,))
    if arr.ndim < 2 or len(set(arr.shape)) > 1:
        raise ValueError(f"expected at least 2 dimensions, all of the same size, received shape {arr.shape}")
    return tuple(call("_npi_diag_indices_from", (arr,)))


def copy(a: Any, out: Any = None) -> Any:
    """Return a copy."""
    return call("_np_copy", (a,), out)
