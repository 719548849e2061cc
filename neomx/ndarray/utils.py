"""Functions on arrays that are not ops: creation from Python data, concatenation, and synchronization."""

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
from .invoke import apply, is_recorded
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
    """Create an array from a list or another array. The default dtype is that of an NDArray, otherwise float32."""
    ctx = (ctx or current_context()).check()
    if isinstance(source_array, NDArray):
        if source_array._sparse:
            from .sparse import array as sparse_array

            return sparse_array(source_array, ctx, dtype)
        wanted = source_array._data.dtype if dtype is None else to_torch(dtype)
        if is_recorded(source_array):
            return source_array.as_nd_ndarray().astype(wanted).as_in_context(ctx)
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
        if data.dtype.kind in "OUS":  # None and strings of digits, which numpy can convert to numbers
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
    """Return an array of zeros."""
    if stype not in (None, "default"):
        from .sparse import zeros as sparse_zeros

        return sparse_zeros(stype, shape, ctx, dtype)
    return _create("_zeros", ctx, out, shape=shape, dtype=dtype or "float32", **kwargs)


def ones(
    shape: Any, ctx: Context | None = None, dtype: Any = None, out: NDArray | None = None, **kwargs: Any
) -> NDArray:
    """Return an array of ones."""
    return _create("_ones", ctx, out, shape=shape, dtype=dtype or "float32", **kwargs)


def full(
    shape: Any, val: Any, ctx: Context | None = None, dtype: Any = np.float32, out: NDArray | None = None
) -> NDArray:
    """Return an array filled with `val`, a number or an array that is broadcast."""
    result = empty(shape, ctx, dtype) if out is None else out
    result[:] = val
    return result


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None) -> NDArray:
    """Return an array with arbitrary elements."""
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
    """Return evenly spaced values from [`start`, `stop`), or [0, `start`) without `stop`, each `repeat` times."""
    return _create("_arange", ctx, start=start, stop=stop, step=step, repeat=repeat, dtype=dtype or np.float64)


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, ctx: Context | None = None, dtype: Any = np.float32
) -> NDArray:
    """Return `num` evenly spaced values from `start` to `stop`."""
    return _create("_linspace", ctx, start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype or np.float64)


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Return an N x M array with ones on the `k`-th diagonal and zeros elsewhere."""
    return _create("_eye", ctx, N=N, M=M, k=k, dtype=dtype or "float32")


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """Return an array with the dtype of a numpy array. It shares its memory unless `zero_copy` is False."""
    if ndarray.dtype.name not in _NUMPY_NAMES:
        raise ValueError(f"{ndarray.dtype} is not supported. Expected one of {', '.join(sorted(_NUMPY_NAMES))}")
    if not zero_copy:
        return NDArray(torch.from_numpy(np.array(ndarray, order="C")), cpu(0))
    if not ndarray.flags["C_CONTIGUOUS"]:
        raise ValueError("only C-contiguous numpy arrays can share their memory; pass zero_copy=False")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(ndarray)
    ndarray.flags["WRITEABLE"] = False  # as in MXNet: only the new array may write to the shared memory
    return NDArray(tensor, cpu(0))


def histogram(a: NDArray, bins: int | NDArray = 10, range: Any = None) -> Any:
    """Return [the number of elements in each bin, the bin edges].

    `bins` is an array of edges, or the number of equal parts of `range`, which defaults to the range of the array. In
    the latter case, the result is a tuple in float32 instead of int64, as in MXNet.
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
    function.__doc__ = "Return 1 if all elements are finite, otherwise 0. With init_output=False, keep a 0 in `out`."
    return function


all_finite, multi_all_finite = _all_finite("all_finite"), _all_finite("multi_all_finite")


def from_torch(tensor: torch.Tensor, ctx: Context | None = None) -> NDArray:
    """Return an array that wraps `tensor`. They share memory and the autograd graph."""
    return NDArray(tensor, context_of(tensor.device) if ctx is None else ctx)


def from_dlpack(dlpack: Any) -> NDArray:
    """Return an array that shares the memory of a DLPack capsule or of an object that supports DLPack."""
    return from_torch(torch.from_dlpack(dlpack))


def to_dlpack_for_read(data: NDArray) -> Any:
    """Return a DLPack capsule of an array's memory for reading."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> Any:
    """Return a DLPack capsule of an array's memory for writing."""
    return data.to_dlpack_for_write()


def waitall() -> None:
    """Wait until all computations on all devices are complete."""
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
    """Move axes to other positions. The other axes keep their order."""

    def axes(given: Any, name: str) -> list[int]:
        numbers = [given] if isinstance(given, int) else list(given)
        if not all(-tensor.ndim <= axis < tensor.ndim for axis in numbers):
            raise ValueError(f"{name} must contain axes of an array with {tensor.ndim} dimensions, received {given}")
        numbers = [axis % tensor.ndim for axis in numbers]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"{name} contains an axis twice: {given}")
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
    """Raise MXNetError. MXNet 1.x replaced it with `mx.image.imdecode`."""
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
    function.__doc__ = f"{doc}. Each argument is an array or a number."
    return function


def _arithmetic(name: str, op: str, scalar: str, reverse: str, python: Callable[[Any, Any], Any], doc: str) -> Any:
    return _function(name, f"broadcast_{op}", f"_{scalar}_scalar", f"_{reverse}_scalar", python, doc)


def _question(name: str, mirrored: str, python: Callable[[Any, Any], Any], doc: str) -> Any:
    """Return a comparison or a logical function. `mirrored` is the one with swapped arguments."""
    names = f"broadcast_{name}", f"_{name}_scalar", f"_{mirrored}_scalar"
    return _function(name, *names, lambda a, b: int(bool(python(a, b))), f"1 where {doc}, otherwise 0")


add = _arithmetic("add", "add", "plus", "plus", operator.add, "lhs + rhs")
subtract = _arithmetic("subtract", "sub", "minus", "rminus", operator.sub, "lhs - rhs")
multiply = _arithmetic("multiply", "mul", "mul", "mul", operator.mul, "lhs * rhs")
divide = true_divide = _arithmetic("divide", "div", "div", "rdiv", operator.truediv, "lhs / rhs")
modulo = _arithmetic("modulo", "mod", "mod", "rmod", operator.mod, "lhs modulo rhs")
maximum = _arithmetic("maximum", "maximum", "maximum", "maximum", max, "Elementwise maximum")
minimum = _arithmetic("minimum", "minimum", "minimum", "minimum", min, "Elementwise minimum")
equal = _question("equal", "equal", operator.eq, "lhs == rhs")
not_equal = _question("not_equal", "not_equal", operator.ne, "lhs != rhs")
greater = _question("greater", "lesser", operator.gt, "lhs > rhs")
greater_equal = _question("greater_equal", "lesser_equal", operator.ge, "lhs >= rhs")
lesser = _question("lesser", "greater", operator.lt, "lhs < rhs")
lesser_equal = _question("lesser_equal", "greater_equal", operator.le, "lhs <= rhs")
logical_and = _question("logical_and", "logical_and", lambda a, b: a and b, "both are nonzero")
logical_or = _question("logical_or", "logical_or", lambda a, b: a or b, "at least one is nonzero")
logical_xor = _question("logical_xor", "logical_xor", lambda a, b: bool(a) ^ bool(b), "exactly one is nonzero")

_power = _arithmetic("power", "power", "power", "rpower", operator.pow, "Elementwise power")


def power(base: Any, exp: Any) -> Any:
    """Elementwise `base` raised to the power `exp`. Each argument is an array or a number."""
    return _power(base, exp)
