"""Functions on arrays that are not ops: making them from Python data, joining lists, waiting."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..base import MXNetError, numeric_types
from ..context import Context, context_of, cpu, current_context, num_gpus
from ..dtype import NAME_OF_TORCH, to_torch
from ..ops.table import OPS
from .invoke import apply
from .ndarray import NDArray

__all__ = [
    "add",
    "all_finite",
    "arange",
    "array",
    "concatenate",
    "divide",
    "empty",
    "equal",
    "eye",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "full",
    "greater",
    "greater_equal",
    "histogram",
    "imdecode",
    "lesser",
    "lesser_equal",
    "linspace",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "moveaxis",
    "multi_all_finite",
    "multiply",
    "not_equal",
    "onehot_encode",
    "ones",
    "power",
    "split_v2",
    "subtract",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "true_divide",
    "waitall",
    "zeros",
]

_NUMPY_NAMES = frozenset(NAME_OF_TORCH.values()) - {"bfloat16"}


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """An array from a list, a numpy array or another array; float32 unless told, or unless it is an NDArray."""
    ctx = (ctx or current_context()).check()
    if isinstance(source_array, NDArray):
        if source_array._sparse:
            from .sparse import array as sparse_array

            return sparse_array(source_array, ctx, dtype)
        wanted = source_array._data.dtype if dtype is None else to_torch(dtype)
        return NDArray(source_array._data.detach().to(ctx.device, wanted, copy=True), ctx)
    if type(source_array).__module__.startswith("scipy.sparse") and source_array.format == "csr":
        from .sparse import array as sparse_array

        return sparse_array(source_array, ctx, dtype)
    wanted = torch.float32 if dtype is None else to_torch(dtype)
    if isinstance(source_array, torch.Tensor):
        return NDArray(source_array.detach().to(ctx.device, wanted, copy=True), ctx)
    if isinstance(source_array, (list, tuple)) and any(isinstance(item, NDArray) for item in source_array):
        source_array = [item.asnumpy() if isinstance(item, NDArray) else item for item in source_array]
    try:
        data = np.array(source_array, order="C")
        if data.dtype.kind in "OUS":  # None and digits, which numpy makes numbers of if asked to
            data = data.astype(np.float32)
        tensor = torch.from_numpy(data)
        if tensor.is_complex():
            raise TypeError("complex numbers")
    except (TypeError, ValueError) as error:
        raise TypeError(f"source_array must be array like, received {type(source_array).__name__}: {error}") from None
    return NDArray(tensor.to(ctx.device, wanted), ctx)


def _create(name: str, ctx: Context | None, out: NDArray | None = None, /, **attrs: Any) -> NDArray:
    op = OPS[name]
    _, attrs = op.bind((), {**attrs, "ctx": ctx or current_context()}, NDArray)
    return apply(op, (), attrs, out, NDArray)


def zeros(
    shape: Any,
    ctx: Context | None = None,
    dtype: Any = None,
    stype: str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """An array of zeros."""
    if stype not in (None, "default"):
        from .sparse import zeros as sparse_zeros

        return sparse_zeros(stype, shape, ctx, dtype)
    return _create("_zeros", ctx, out, shape=shape, dtype=dtype or "float32", **kwargs)


def ones(
    shape: Any, ctx: Context | None = None, dtype: Any = None, out: NDArray | None = None, **kwargs: Any
) -> NDArray:
    """An array of ones."""
    return _create("_ones", ctx, out, shape=shape, dtype=dtype or "float32", **kwargs)


def full(
    shape: Any, val: Any, ctx: Context | None = None, dtype: Any = np.float32, out: NDArray | None = None
) -> NDArray:
    """An array filled with `val`, a number or an array that broadcasts."""
    result = empty(shape, ctx, dtype) if out is None else out
    result[:] = val
    return result


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None) -> NDArray:
    """An array whose elements may be anything."""
    return zeros(shape, ctx, dtype, stype)


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
    return _create("_arange", ctx, start=start, stop=stop, step=step, repeat=repeat, dtype=dtype or np.float64)


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, ctx: Context | None = None, dtype: Any = np.float32
) -> NDArray:
    """`num` evenly spaced numbers from `start` to `stop`."""
    return _create("_linspace", ctx, start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype or np.float64)


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Ones on the `k`-th diagonal, zeros elsewhere."""
    return _create("_eye", ctx, N=N, M=M, k=k, dtype=dtype or "float32")


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An array of a numpy array's dtype, sharing its memory unless told not to."""
    if ndarray.dtype.name not in _NUMPY_NAMES:
        raise ValueError(f"{ndarray.dtype} is not supported. Expected one of {', '.join(sorted(_NUMPY_NAMES))}")
    if not zero_copy:
        return NDArray(torch.from_numpy(np.array(ndarray, order="C")), cpu(0))
    if not ndarray.flags["C_CONTIGUOUS"]:
        raise ValueError("only C-contiguous numpy arrays can share their memory; pass zero_copy=False")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(ndarray)
    ndarray.flags["WRITEABLE"] = False  # as MXNet does: two owners, one writer
    return NDArray(tensor, cpu(0))


def histogram(a: NDArray, bins: int | NDArray = 10, range: Any = None) -> Any:
    """[how many elements fall between neighbouring edges, the edges].

    `bins` are the edges, or the number of equal parts of `range`, which is the array's own without one. MXNet then
    answers with a tuple, in float32 instead of int64.
    """
    if isinstance(bins, NDArray):
        return apply(OPS["_histogram"], (a, bins), {}, None, NDArray)
    if not isinstance(bins, int):
        raise ValueError(f"bins must be an int or an NDArray, received {type(bins).__name__}")
    if bins < 1:
        raise ValueError(f"bins must be positive, received {bins}")
    whole = range is None
    if whole:
        a = a.astype(np.float32)
        range = (float(a._data.min()), float(a._data.max()))
    op = OPS["_histogram"]
    results = apply(op, (a, None), {"bin_cnt": bins, "range": op.convert("range", range)}, None, NDArray)
    return tuple(result.astype(np.float32) for result in results) if whole else results


def _all_finite(name: str) -> Any:
    def function(*data: NDArray, init_output: bool = True, out: NDArray | None = None, **kwargs: Any) -> NDArray:
        op = OPS[name]
        arrays, attrs = op.bind(data, kwargs, NDArray)
        result = apply(op, arrays, attrs, None, NDArray)
        if out is None:
            return result
        out[:] = result if init_output else result * out
        return out

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "1 if all elements are finite, else 0; with init_output=False, 0 if `out` held 0 before."
    return function


all_finite, multi_all_finite = _all_finite("all_finite"), _all_finite("multi_all_finite")


def from_torch(tensor: torch.Tensor, ctx: Context | None = None) -> NDArray:
    """An array that holds `tensor`: shared memory, and one autograd graph."""
    return NDArray(tensor, context_of(tensor.device) if ctx is None else ctx)


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
    """Wait until everything is computed, on all devices."""
    for device in range(num_gpus()):
        torch.accelerator.synchronize(device)


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Join arrays along an existing axis."""
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise MXNetError(f"concatenate: expected a list of at least one array, received {arrays!r:.80}")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return apply(OPS["concat"], arrays, {"dim": axis}, None, NDArray)


def moveaxis(tensor: NDArray, source: Any, destination: Any) -> NDArray:
    """Move axes to other positions; the rest keep their order."""

    def axes(given: Any, name: str) -> list[int]:
        numbers = [given] if isinstance(given, int) else list(given)
        if not all(-tensor.ndim <= axis < tensor.ndim for axis in numbers):
            raise ValueError(f"{name} must name axes of an array of {tensor.ndim} dimensions, received {given}")
        numbers = [axis % tensor.ndim for axis in numbers]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"{name} names an axis twice: {given}")
        return numbers

    sources, destinations = axes(source, "source"), axes(destination, "destination")
    if len(sources) != len(destinations):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(tensor.ndim) if axis not in sources]
    for to, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(to, axis)
    return tensor.transpose(axes=order)


def split_v2(ary: NDArray, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Any:
    """Split into equal sections (an int) or at the given indices."""
    if isinstance(indices_or_sections, int):
        attrs: dict[str, Any] = {"sections": indices_or_sections, "indices": ()}
        if indices_or_sections < 1 or ary.shape[axis] % indices_or_sections:
            raise ValueError(f"array split does not result in an equal division of {ary.shape[axis]}")
    elif isinstance(indices_or_sections, (tuple, list)):
        attrs = {"sections": 0, "indices": (0, *indices_or_sections)}
    else:
        raise ValueError(
            f"indices_or_sections must be an int or a tuple of ints, received {type(indices_or_sections).__name__}"
        )
    result = apply(OPS["_split_v2"], (ary,), {**attrs, "axis": axis, "squeeze_axis": squeeze_axis}, None, NDArray)
    return result[0] if isinstance(result, list) and len(result) == 1 else result


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Write the one-hot rows of `indices` into `out`."""
    return apply(OPS["_onehot_encode"], (indices, out), {}, out, NDArray)


def imdecode(*args: Any, **kwargs: Any) -> NDArray:
    """Removed in MXNet 1.x in favour of `mx.image.imdecode`."""
    raise MXNetError("nd.imdecode: use mx.image.imdecode")


# ---- arithmetic by name: arrays or numbers on either side ----


def _function(
    name: str, array_op: str, scalar_op: str, reverse_op: str, python: Callable[[Any, Any], Any], doc: str
) -> Any:
    def function(lhs: Any, rhs: Any) -> Any:
        left, right = isinstance(lhs, NDArray), isinstance(rhs, NDArray)
        if left and right:
            return apply(OPS[array_op], (lhs, rhs), {}, None, NDArray)
        if left and isinstance(rhs, numeric_types):
            return apply(OPS[scalar_op], (lhs,), {"scalar": rhs}, None, NDArray)
        if right and isinstance(lhs, numeric_types):
            return apply(OPS[reverse_op], (rhs,), {"scalar": lhs}, None, NDArray)
        if isinstance(lhs, numeric_types) and isinstance(rhs, numeric_types):
            return python(lhs, rhs)
        raise TypeError(f"{name}: expected NDArrays or numbers, received {type(lhs).__name__} and {type(rhs).__name__}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}; each side an array or a number."
    return function


def _arithmetic(name: str, op: str, scalar: str, reverse: str, python: Callable[[Any, Any], Any], doc: str) -> Any:
    return _function(name, f"broadcast_{op}", f"_{scalar}_scalar", f"_{reverse}_scalar", python, doc)


def _question(name: str, mirrored: str, python: Callable[[Any, Any], Any], doc: str) -> Any:
    """A comparison or a logical function; `mirrored` is the one with the sides exchanged."""
    names = f"broadcast_{name}", f"_{name}_scalar", f"_{mirrored}_scalar"
    return _function(name, *names, lambda a, b: int(bool(python(a, b))), f"1 where {doc}, else 0")


add = _arithmetic("add", "add", "plus", "plus", operator.add, "lhs + rhs")
subtract = _arithmetic("subtract", "sub", "minus", "rminus", operator.sub, "lhs - rhs")
multiply = _arithmetic("multiply", "mul", "mul", "mul", operator.mul, "lhs * rhs")
divide = true_divide = _arithmetic("divide", "div", "div", "rdiv", operator.truediv, "lhs / rhs")
modulo = _arithmetic("modulo", "mod", "mod", "rmod", operator.mod, "lhs modulo rhs")
maximum = _arithmetic("maximum", "maximum", "maximum", "maximum", max, "The larger one")
minimum = _arithmetic("minimum", "minimum", "minimum", "minimum", min, "The smaller one")
equal = _question("equal", "equal", operator.eq, "lhs == rhs")
not_equal = _question("not_equal", "not_equal", operator.ne, "lhs != rhs")
greater = _question("greater", "lesser", operator.gt, "lhs > rhs")
greater_equal = _question("greater_equal", "lesser_equal", operator.ge, "lhs >= rhs")
lesser = _question("lesser", "greater", operator.lt, "lhs < rhs")
lesser_equal = _question("lesser_equal", "greater_equal", operator.le, "lhs <= rhs")
logical_and = _question("logical_and", "logical_and", lambda a, b: a and b, "neither is 0")
logical_or = _question("logical_or", "logical_or", lambda a, b: a or b, "one is not 0")
logical_xor = _question("logical_xor", "logical_xor", lambda a, b: bool(a) ^ bool(b), "just one is not 0")

_power = _arithmetic("power", "power", "power", "rpower", operator.pow, "base to the exp")


def power(base: Any, exp: Any) -> Any:
    """`base` to the `exp`; each side an array or a number."""
    return _power(base, exp)
