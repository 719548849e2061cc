"""Functions on arrays that are not ops: making them from Python data, joining lists, waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..base import MXNetError
from ..context import Context, current_context
from ..dtype import to_torch
from ..ops.table import OPS
from .invoke import apply
from .ndarray import NDArray


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """An array from a list, a numpy array or another array; float32 unless told, or unless it is an NDArray."""
    ctx = (ctx or current_context()).check()
    if isinstance(source_array, NDArray):
        if source_array._sparse:
            from .sparse import array as sparse_array

            return sparse_array(source_array, ctx, dtype)
        wanted = source_array._data.dtype if dtype is None else to_torch(dtype)
        return NDArray(source_array._data.detach().to(ctx.device, wanted, copy=True), ctx)
    wanted = torch.float32 if dtype is None else to_torch(dtype)
    if isinstance(source_array, torch.Tensor):
        return NDArray(source_array.detach().to(ctx.device, wanted, copy=True), ctx)
    if isinstance(source_array, (list, tuple)) and any(isinstance(item, NDArray) for item in source_array):
        source_array = [item.asnumpy() if isinstance(item, NDArray) else item for item in source_array]
    try:
        data = np.array(source_array)
        if data.dtype == object:
            raise ValueError("rows of different lengths, or things that are not numbers")
        tensor = torch.from_numpy(np.ascontiguousarray(data).reshape(data.shape)).to(ctx.device, wanted)
    except (TypeError, ValueError) as error:
        raise TypeError(f"source_array must be array like, received {type(source_array).__name__}: {error}") from None
    return NDArray(tensor, ctx)


def _create(name: str, ctx: Context | None, **attrs: Any) -> NDArray:
    op = OPS[name]
    attrs = {k: op.convert(k, v) for k, v in attrs.items()}
    return apply(op, (), {**attrs, "ctx": ctx or current_context()}, None, NDArray)


def zeros(shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """An array of zeros."""
    stype = kwargs.pop("stype", None)
    if stype not in (None, "default"):
        from .sparse import zeros as sparse_zeros

        return sparse_zeros(stype, shape, ctx, dtype)
    return _create("_zeros", ctx, shape=shape, dtype=dtype or "float32")


def ones(shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """An array of ones."""
    return _create("_ones", ctx, shape=shape, dtype=dtype or "float32")


def full(shape: Any, val: float, ctx: Context | None = None, dtype: Any = np.float32, out: NDArray | None = None) -> NDArray:
    """An array filled with `val`."""
    result = _create("_full", ctx, shape=shape, value=val, dtype=dtype)
    return result if out is None else result.copyto(out)


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """An array whose elements may be anything."""
    return zeros(shape, ctx, dtype)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: Context | None = None,
    dtype: Any = np.float32,
) -> NDArray:
    """Evenly spaced numbers from `start` (or 0) up to but without `stop`, each `repeat` times."""
    return _create("_arange", ctx, start=start, stop=stop, step=step, repeat=repeat, dtype=dtype)


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, ctx: Context | None = None, dtype: Any = np.float32
) -> NDArray:
    """`num` evenly spaced numbers from `start` to `stop`."""
    return _create("_linspace", ctx, start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype)


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Ones on the `k`-th diagonal, zeros elsewhere."""
    return _create("_eye", ctx, N=N, M=M, k=k, dtype=dtype or "float32")


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An array of a numpy array's dtype, sharing its memory unless told not to."""
    to_torch(ndarray.dtype)
    if not zero_copy:
        ndarray = ndarray.copy()
    elif not ndarray.flags["C_CONTIGUOUS"]:
        raise ValueError("only C-contiguous numpy arrays can share their memory; pass zero_copy=False")
    tensor = torch.from_numpy(ndarray)
    if zero_copy:
        ndarray.flags["WRITEABLE"] = False  # as MXNet does: two owners, one writer
    return NDArray(tensor, Context("cpu", 0))


def from_torch(tensor: torch.Tensor, ctx: Context | None = None) -> NDArray:
    """An array that holds `tensor`: shared memory, and one autograd graph."""
    if ctx is None:
        ctx = Context("cpu" if tensor.device.type == "cpu" else "gpu", tensor.device.index or 0)
    return NDArray(tensor, ctx)


def from_dlpack(dlpack: Any) -> NDArray:
    """An array that shares the memory of a DLPack capsule or of any object that offers one."""
    return from_torch(torch.from_dlpack(dlpack))


def to_dlpack_for_read(data: NDArray) -> Any:
    """A DLPack capsule of an array's memory, to read from."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> Any:
    """A DLPack capsule of an array's memory, to write to."""
    return data.to_dlpack_for_write()


def waitall() -> None:
    """Wait until everything is computed."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Join arrays along an existing axis."""
    if not arrays:
        raise MXNetError("concatenate: expected at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return apply(OPS["concat"], list(arrays), {"dim": axis}, None, NDArray)


def moveaxis(tensor: NDArray, source: Any, destination: Any) -> NDArray:
    """Move axes to other positions; the rest keep their order."""
    source = [source] if isinstance(source, int) else list(source)
    destination = [destination] if isinstance(destination, int) else list(destination)
    if len(source) != len(destination):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    source = [s % tensor.ndim for s in source]
    order = [axis for axis in range(tensor.ndim) if axis not in source]
    for to, axis in sorted(zip([d % tensor.ndim for d in destination], source, strict=True)):
        order.insert(to, axis)
    return tensor.transpose(axes=order)


def split_v2(ary: NDArray, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Any:
    """Split into equal sections (an int) or at the given indices."""
    if isinstance(indices_or_sections, int):
        attrs: dict[str, Any] = {"sections": indices_or_sections, "indices": ()}
        if ary.shape[axis] % indices_or_sections:
            raise ValueError(f"array split does not result in an equal division of {ary.shape[axis]}")
    else:
        attrs = {"sections": 0, "indices": (0, *indices_or_sections)}
    result = apply(OPS["_split_v2"], (ary,), {**attrs, "axis": axis, "squeeze_axis": squeeze_axis}, None, NDArray)
    return result[0] if isinstance(result, list) and len(result) == 1 else result


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Write the one-hot rows of `indices` into `out`."""
    return apply(OPS["_onehot_encode"], (indices, out), {}, out, NDArray)


def imdecode(*args: Any, **kwargs: Any) -> NDArray:
    """Removed in MXNet 1.x in favour of `mx.image.imdecode`."""
    raise MXNetError("nd.imdecode: use mx.image.imdecode")


# ---- arithmetic by name: arrays or numbers on either side ----


def _function(name: str, array_op: str, scalar_op: str, reverse_op: str, python: Any, doc: str) -> Any:
    def function(lhs: Any, rhs: Any) -> Any:
        left, right = isinstance(lhs, NDArray), isinstance(rhs, NDArray)
        if left and right:
            return apply(OPS[array_op], (lhs, rhs), {}, None, NDArray)
        if left and isinstance(rhs, (int, float, np.generic)):
            return apply(OPS[scalar_op], (lhs,), {"scalar": rhs}, None, NDArray)
        if right and isinstance(lhs, (int, float, np.generic)):
            return apply(OPS[reverse_op], (rhs,), {"scalar": lhs}, None, NDArray)
        if isinstance(lhs, (int, float, np.generic)) and isinstance(rhs, (int, float, np.generic)):
            return python(lhs, rhs)
        raise TypeError(f"{name}: expected NDArrays or numbers, received {type(lhs).__name__} and {type(rhs).__name__}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


add = _function("add", "broadcast_add", "_plus_scalar", "_plus_scalar", lambda a, b: a + b, "a + b")
subtract = _function("subtract", "broadcast_sub", "_minus_scalar", "_rminus_scalar", lambda a, b: a - b, "a - b")
multiply = _function("multiply", "broadcast_mul", "_mul_scalar", "_mul_scalar", lambda a, b: a * b, "a * b")
divide = true_divide = _function("divide", "broadcast_div", "_div_scalar", "_rdiv_scalar", lambda a, b: a / b, "a / b")
modulo = _function("modulo", "broadcast_mod", "_mod_scalar", "_rmod_scalar", lambda a, b: a % b, "a modulo b")
power = _function("power", "broadcast_power", "_power_scalar", "_rpower_scalar", pow, "a to the b")
pow = power
maximum = _function("maximum", "broadcast_maximum", "_maximum_scalar", "_maximum_scalar", max, "the larger one")
minimum = _function("minimum", "broadcast_minimum", "_minimum_scalar", "_minimum_scalar", min, "the smaller one")
equal = _function("equal", "broadcast_equal", "_equal_scalar", "_equal_scalar", lambda a, b: float(a == b), "a == b")
not_equal = _function(
    "not_equal", "broadcast_not_equal", "_not_equal_scalar", "_not_equal_scalar", lambda a, b: float(a != b), "a != b"
)
greater = _function("greater", "broadcast_greater", "_greater_scalar", "_lesser_scalar", lambda a, b: float(a > b), "a > b")
greater_equal = _function(
    "greater_equal",
    "broadcast_greater_equal",
    "_greater_equal_scalar",
    "_lesser_equal_scalar",
    lambda a, b: float(a >= b),
    "a >= b",
)
lesser = _function("lesser", "broadcast_lesser", "_lesser_scalar", "_greater_scalar", lambda a, b: float(a < b), "a < b")
lesser_equal = _function(
    "lesser_equal",
    "broadcast_lesser_equal",
    "_lesser_equal_scalar",
    "_greater_equal_scalar",
    lambda a, b: float(a <= b),
    "a <= b",
)
logical_and = _function(
    "logical_and", "broadcast_logical_and", "_logical_and_scalar", "_logical_and_scalar", lambda a, b: float(a and b), "a and b"
)
logical_or = _function(
    "logical_or", "broadcast_logical_or", "_logical_or_scalar", "_logical_or_scalar", lambda a, b: float(a or b), "a or b"
)
logical_xor = _function(
    "logical_xor",
    "broadcast_logical_xor",
    "_logical_xor_scalar",
    "_logical_xor_scalar",
    lambda a, b: float(bool(a) ^ bool(b)),
    "just one of a and b",
)
