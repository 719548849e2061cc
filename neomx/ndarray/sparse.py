"""`mx.nd.sparse`: functions that create sparse arrays, and ops that support them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..base import MXNetError, numeric_types
from ..context import Context, current_context
from ..dtype import to_torch
from ..ops.table import OPS
from .invoke import apply
from .ndarray import NDArray
from .sparse_array import (
    STORAGES,
    BaseSparseNDArray,
    CSRNDArray,
    NotSupportedForSparseNDArray,
    RowSparseNDArray,
    cast_storage,
    elementwise,
    row_starts,
)

__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "NotSupportedForSparseNDArray",
    "RowSparseNDArray",
    "add",
    "array",
    "cast_storage",
    "csr_matrix",
    "divide",
    "empty",
    "multiply",
    "row_sparse_array",
    "subtract",
    "zeros",
]

Tensor = torch.Tensor

# The ops that `mx.nd.sparse` offers: with sparse arrays, they return sparse results where possible.
_NAMES = """
ElementWiseSum Embedding FullyConnected LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput abs
adam_update add_n arccos arccosh arcsin arcsinh arctan arctanh broadcast_add broadcast_div broadcast_minus
broadcast_mul broadcast_plus broadcast_sub cbrt ceil clip concat cos cosh degrees dot elemwise_add elemwise_div
elemwise_mul elemwise_sub exp expm1 fix floor ftrl_update gamma gammaln log log10 log1p log2 make_loss mean negative
norm radians relu rint round rsqrt sgd_mom_update sgd_update sigmoid sign sin sinh slice sqrt square stop_gradient
sum tan tanh trunc where zeros_like
"""
OP_NAMES = frozenset(_NAMES.split())


# ---- creation ----


def _values(source: Any, dtype: Any, device: torch.device) -> Tensor:
    """Return values as a tensor of `dtype`, of the source's dtype if it has one, or of float32."""
    if isinstance(source, NDArray):
        source = source._data.detach()
    elif not isinstance(source, torch.Tensor):
        dtype = dtype or getattr(source, "dtype", np.float32)
        try:
            source = torch.from_numpy(np.array(source))
        except TypeError:
            raise ValueError(f"expected an array-like object, received {source!r:.80}") from None
    return source.to(device, to_torch(dtype) if dtype is not None else source.dtype, copy=True)


def _index(source: Any, device: torch.device) -> Tensor:
    return _values(source, np.int64, device).reshape(-1)


def _sized(result: BaseSparseNDArray) -> Any:
    """Check the numbers of indices and values. `check_format` or the first op checks the indices themselves."""
    values, indices = result._parts[:2]
    of_one = result._shape[1:] if result.stype == "row_sparse" else ()
    if result.stype == "csr" and len(result._shape) != 2 or values.dim() != 1 + len(of_one):
        raise ValueError(
            f"a {result.stype} array of shape {result._shape} cannot have values of shape {tuple(values.shape)}"
        )
    if values.shape[1:] != of_one or len(values) != len(indices):
        raise MXNetError(
            f"a {result.stype} array of shape {result._shape} cannot have values {list(values.shape)} and indices "
            f"{list(indices.shape)}: expected one index for each value, and rows that match the array's shape"
        )
    result.doubt()
    return result


def _same_shape(result: NDArray, shape: Any) -> Any:
    if shape is not None and tuple(shape) != result.shape:
        raise ValueError(f"Shape mismatch detected. {result.shape} v.s. {tuple(shape)}")
    return result


def _is_shape(value: Any) -> bool:
    return all(isinstance(n, (int, np.integer)) for n in value)


def csr_matrix(arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None) -> CSRNDArray:
    """Return a csr array.

    The first argument is one of:

    - a dense matrix (a list, a numpy array, an NDArray), a csr array or a scipy.sparse matrix
    - (rows, columns): an array of zeros
    - (data, indices, indptr)
    - (data, (row indices, column indices))
    """
    ctx = (ctx or current_context()).check()
    device = ctx.device
    if isinstance(arg1, tuple):
        if len(arg1) == 2 and _is_shape(arg1):
            return _same_shape(zeros("csr", arg1, ctx, dtype), shape)
        if len(arg1) == 2:
            return _csr_of_coordinates(arg1, shape, ctx, dtype)
        if len(arg1) == 3:
            data, indices, indptr = _values(arg1[0], dtype, device), _index(arg1[1], device), _index(arg1[2], device)
            if shape is None:
                shape = (len(indptr) - 1, int(indices.max()) + 1 if len(indices) else 0)
            return _sized(CSRNDArray((data, indices, indptr), tuple(shape), ctx))
        raise ValueError(f"csr_matrix: expected a tuple of 2 or 3 items, received {len(arg1)}")
    return _from_matrix(CSRNDArray, arg1, shape, ctx, dtype)


def _csr_of_coordinates(arg1: Any, shape: Any, ctx: Context, dtype: Any) -> CSRNDArray:
    data, (rows, columns) = arg1
    dtype = dtype or (
        data.dtype if isinstance(data, NDArray) else np.asarray(data).dtype
    )  # the dtype that scipy would use, as in MXNet
    data, rows, columns = _values(data, dtype, ctx.device), _index(rows, ctx.device), _index(columns, ctx.device)
    if not len(data) == len(rows) == len(columns):
        raise ValueError(
            f"csr_matrix: expected one row and one column index per value, received {len(data)} values, "
            f"{len(rows)} row and {len(columns)} column indices"
        )
    if shape is None:
        shape = (int(rows.max()) + 1, int(columns.max()) + 1) if len(data) else (0, 0)
    for index, bound in zip((rows, columns), shape, strict=True):
        if len(index) and not (int(index.min()) >= 0 and int(index.max()) < bound):
            raise ValueError(f"csr_matrix: an index is out of bounds for shape {tuple(shape)}")
    key, inverse = torch.unique(rows * shape[1] + columns, return_inverse=True)  # duplicates are summed
    summed = torch.zeros(len(key), dtype=data.dtype, device=data.device).index_add_(0, inverse, data)
    parts = summed, key % max(shape[1], 1), row_starts(key // max(shape[1], 1), shape[0])
    return CSRNDArray(parts, tuple(shape), ctx)


def row_sparse_array(arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None) -> RowSparseNDArray:
    """Return a row_sparse array.

    The first argument is one of:

    - dense data (a list, a numpy array, an NDArray) or a row_sparse array
    - a shape with at least two dimensions: an array of zeros
    - (data, row indices)
    """
    ctx = (ctx or current_context()).check()
    device = ctx.device
    if isinstance(arg1, tuple):
        if len(arg1) < 2:
            raise ValueError(f"row_sparse_array: expected a tuple of 2 or more items, received {len(arg1)}")
        if _is_shape(arg1):
            return _same_shape(zeros("row_sparse", arg1, ctx, dtype), shape)
        if len(arg1) != 2:
            raise ValueError(
                f"row_sparse_array: expected (data, indices) or a shape, received a tuple of length {len(arg1)}"
            )
        data, indices = _values(arg1[0], dtype, device), _index(arg1[1], device)
        if shape is None:
            shape = (int(indices.max()) + 1 if len(indices) else 0, *data.shape[1:])
        return _sized(RowSparseNDArray((data, indices), tuple(shape), ctx))
    return _from_matrix(RowSparseNDArray, arg1, shape, ctx, dtype)


def _from_matrix(cls: type[BaseSparseNDArray], source: Any, shape: Any, ctx: Context, dtype: Any) -> Any:
    """Return a sparse array of class `cls` from a sparse or dense array."""
    if isinstance(source, BaseSparseNDArray) or is_scipy(source):
        result = array(source, ctx, dtype)
        if not isinstance(result, cls):
            raise ValueError(f"Unexpected input type: {type(source).__name__}")
        return _same_shape(result, shape)
    dense = _values(source, dtype, ctx.device)
    if cls is CSRNDArray and dense.dim() != 2:
        raise ValueError(f"a csr array must have 2 dimensions, received shape {tuple(dense.shape)}")
    if not dense.dim():
        raise ValueError("a row_sparse array must have at least one dimension")
    return _same_shape(cls(cls._compress(dense), tuple(dense.shape), ctx), shape)


def is_scipy(source: Any) -> bool:
    return type(source).__module__.startswith("scipy.sparse")


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Return a copy of a sparse array or of a scipy.sparse matrix."""
    ctx = (ctx or current_context()).check()
    if isinstance(source_array, BaseSparseNDArray):
        return source_array.copyto(ctx).astype(dtype or source_array.dtype, copy=False)
    if is_scipy(source_array):
        matrix = source_array.tocsr()
        matrix.sum_duplicates()
        return csr_matrix((matrix.data, matrix.indices, matrix.indptr), matrix.shape, ctx, dtype)
    if isinstance(source_array, NDArray):
        raise ValueError("Please use `tostype` to create RowSparseNDArray or CSRNDArray from an NDArray")
    raise ValueError(f"Please use mx.nd.array to create an NDArray from a {type(source_array).__name__}")


def zeros(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """Return an array of zeros with storage type `stype`."""
    if stype == "default":
        from .utils import zeros as dense_zeros

        return dense_zeros(shape, ctx, dtype, **kwargs)
    if stype not in STORAGES:
        raise ValueError(f"unknown storage type {stype!r}. Expected 'default', 'row_sparse' or 'csr'")
    ctx = (ctx or current_context()).check()
    dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
    cls = STORAGES[stype]
    return cls(cls._nothing(dims, to_torch(dtype or np.float32), ctx.device), dims, ctx)


def empty(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Like `zeros`: return an array of zeros."""
    if stype not in STORAGES:
        raise ValueError(f"unknown storage type {stype!r}. Expected 'row_sparse' or 'csr'")
    return zeros(stype, shape, ctx, dtype)


# ---- arithmetic by name ----


def _arithmetic(name: str, scalar_op: str, reverse_op: str, python: Callable[[Any, Any], Any], doc: str) -> Any:
    forward, reverse = elementwise(name, scalar_op), OPS[reverse_op]

    def function(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, NDArray):
            return forward(lhs, rhs)
        if isinstance(rhs, NDArray) and isinstance(lhs, numeric_types):
            return apply(reverse, (rhs,), {"scalar": lhs}, None, NDArray)
        if isinstance(lhs, numeric_types) and isinstance(rhs, numeric_types):
            return python(lhs, rhs)
        raise TypeError(f"expected NDArrays or numbers, received {type(lhs).__name__} and {type(rhs).__name__}")

    function.__doc__ = doc
    return function


add = _arithmetic(
    "add",
    "_plus_scalar",
    "_plus_scalar",
    lambda a, b: a + b,
    "Return a + b. The result is sparse if both arguments are.",
)
subtract = _arithmetic(
    "sub",
    "_minus_scalar",
    "_rminus_scalar",
    lambda a, b: a - b,
    "Return a - b. The result is sparse if both arguments are.",
)
multiply = _arithmetic(
    "mul", "_mul_scalar", "_mul_scalar", lambda a, b: a * b, "Return a * b. The result is sparse if one argument is."
)
divide = _arithmetic("div", "_div_scalar", "_rdiv_scalar", lambda a, b: a / b, "Return a / b.")
for _function, _name in ((add, "add"), (subtract, "subtract"), (multiply, "multiply"), (divide, "divide")):
    _function.__name__ = _function.__qualname__ = _name
