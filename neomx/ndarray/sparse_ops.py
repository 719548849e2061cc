"""Rules of ops that compute on sparse arrays without converting them to dense ones.

A rule takes (op, arrays, attributes with defaults, out) and returns an array, or None if it does not apply. In that
case, the op computes on dense arrays, as in MXNet. Rules only see stored values. If autograd records an input, the
dense computation is recorded, and the rule only determines the storage type of the result.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base import MXNetError, modes
from ..ops.table import Op
from . import invoke
from .ndarray import NDArray
from .sparse_array import (
    STORAGES,
    BaseSparseNDArray,
    CSRNDArray,
    RowSparseNDArray,
    cast_storage,
    row_of_each,
    row_starts,
)

Tensor = torch.Tensor
Rule = Callable[[Op, Sequence[Any], dict[str, Any], Any], Any]
RULES: dict[str, Rule] = {}
_RECORDS = {"dot"}  # rules that compute in the autograd graph themselves


def apply_sparse(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any, cls: type) -> Any:
    """Implementation of `invoke.apply` for calls with a sparse input."""
    for array in arrays:
        if array is not None and array._sparse:
            array.trust()
    rule = RULES.get(op.name)
    result = None
    if rule is not None:
        try:
            result = rule(op, arrays, op.with_defaults(attrs), out)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise invoke.failure(op, arrays, attrs, str(error)) from error
    stype, parts = ("default", None) if result is None or not result._sparse else (result.stype, result._parts)
    recorded = modes.recording and op.name not in _RECORDS and any(a is not None and _in_graph(a) for a in arrays)
    if result is None or (recorded and op.name not in _LAZY):
        dense = [a._dense() if a is not None and a._sparse else a for a in arrays]
        result = invoke.apply(op, dense, attrs, None if stype != "default" else out, cls)
        for i in _changed(op, arrays, dense, out):
            arrays[i]._assign(dense[i]._data)
        if stype == "default":
            return result
        stored = STORAGES[stype](parts, result.shape, result._ctx, result._data)
        result = invoke.on_tape(stored, result._history) if recorded else stored
    if out is None or result is out:
        return result
    return _store(op, result, out)


def _changed(op: Op, arrays: Sequence[Any], dense: Sequence[Any], out: Any) -> list[int]:
    """Return the positions of sparse arrays whose dense copies the op has modified."""
    if not op.variadic:
        places = [op.input_index[name] for name in op.mutates if op.input_index[name] < len(arrays)]
        return [i for i in places if arrays[i] is not None and arrays[i]._sparse]
    if not op.mutates:
        return []
    written = out if isinstance(out, (list, tuple)) else [out]  # the results are already in out
    return [
        i
        for i, (array, copy) in enumerate(zip(arrays, dense, strict=True))
        if array._sparse and not any(array is each for each in written) and not torch.equal(array._data, copy._data)
    ]


def _in_graph(array: Any) -> bool:
    return array._in_graph() if array._sparse else array._data.requires_grad


def _store(op: Op, result: NDArray, out: Any) -> Any:
    target = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    if isinstance(target, BaseSparseNDArray) and target.stype == result.stype and target.shape == result.shape:
        result.copyto(target)
        return out
    return invoke.store(op.name, (result._data,), out)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these ops."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return enter


def _stypes(*arrays: Any) -> tuple[str, ...]:
    return tuple(array.stype for array in arrays)


def _check_alike(a: NDArray, b: NDArray) -> None:
    if a.shape != b.shape:
        raise MXNetError(f"expected two arrays of the same shape, got {a.shape} and {b.shape}")
    if a.dtype != b.dtype:
        raise MXNetError("expected arrays of one dtype. Use astype")


# ---- one array: f(0) = 0 keeps the sparsity pattern ----


_KEEP_ZERO = """
abs arcsin arcsinh arctan arctanh cbrt ceil degrees expm1 fix floor log1p negative radians relu rint round sign sin sinh
sqrt square tan tanh trunc _copy BlockGrad make_loss _mul_scalar _div_scalar _scatter_plus_scalar _scatter_minus_scalar
"""
KEEP_ZERO = frozenset(_KEEP_ZERO.split())


@rule(*KEEP_ZERO)
def _keeps_zero(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    return arrays[0]._like(op.fn(arrays[0]._values.detach(), **attrs))


_MAY_KEEP_ZERO = """
clip _plus_scalar _minus_scalar _equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar _lesser_scalar
_lesser_equal_scalar
"""


@rule(*_MAY_KEEP_ZERO.split())
def _may_keep_zero(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    values = arrays[0]._values.detach()
    return arrays[0]._like(op.fn(values, **attrs)) if not op.fn(values.new_zeros(1), **attrs) else None


@rule("_contrib_quadratic")
def _quadratic(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    return _may_keep_zero(op, arrays, attrs, out) if arrays[0].stype == "csr" else None


@rule("_square_sum")
def _square_sum(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array = arrays[0]
    if array.stype != "row_sparse" or attrs["axis"] not in ((1,), (-1,)) or not attrs["keepdims"] or array.ndim != 2:
        return None
    parts = op.fn(array._values.detach(), **attrs), array._indices.clone()
    return RowSparseNDArray(parts, (array.shape[0], 1), array._ctx)


@rule("BatchNorm", "BatchNorm_v1")
def _batch_norm(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    raise MXNetError("expected dense arrays, received sparse arrays. Call tostype('default') first")


@rule("zeros_like")
def _zeros_like(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array = arrays[0]
    parts = array._nothing(array.shape, array._values.dtype, array._values.device)
    return STORAGES[array.stype](parts, array.shape, array._ctx)


@rule("_sparse_retain")
def _retain(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array, wanted = arrays
    if array.stype != "row_sparse":
        raise MXNetError(f"expected a row_sparse array, received a {array.stype} array")
    rows = wanted._data.detach().reshape(-1).long()
    if rows.numel() and not (int(rows.min()) >= 0 and int(rows.max()) < array.shape[0]):
        raise MXNetError(f"expected row indices in 0 .. {array.shape[0] - 1}")
    return RowSparseNDArray((array._at_rows(rows), rows), array.shape, array._ctx)


@rule("take")
def _take(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array, indices = arrays
    if _stypes(array, indices) != ("csr", "default") or attrs["axis"] != 0 or attrs["mode"] == "raise":
        return None
    if indices.ndim != 1:
        raise MXNetError(f"expected one-dimensional indices for a csr array, received {indices.ndim} dimensions")
    rows = op.fn(array._data.detach(), indices._data, **attrs)
    return cast_storage(NDArray(rows, array._ctx), "csr")


@rule("sum", "mean")
def _sum(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array = arrays[0]
    values = array._values.detach()
    axes = {axis % array.ndim for axis in attrs["axis"] or range(array.ndim)}
    if attrs["exclude"] or (op.name == "mean" and not values.is_floating_point()):
        return None
    if len(axes) == array.ndim:
        result = values.sum(dtype=values.dtype).reshape([1] * array.ndim if attrs["keepdims"] else 1)
    elif array.stype == "csr":
        (axis,) = axes
        result = torch.zeros(array.shape[1 - axis], dtype=values.dtype, device=values.device)
        result.index_add_(0, array._indices if axis == 0 else array._rows, values)
        result = result.unsqueeze(axis) if attrs["keepdims"] else result
    else:
        return None
    if op.name == "mean":
        result /= math.prod(array.shape[axis] for axis in axes)
    return NDArray(result, array._ctx)


@rule("norm")
def _norm(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array = arrays[0]
    whole = attrs["axis"] is None and not attrs["keepdims"]
    return NDArray(op.fn(array._values.detach().reshape(-1), **attrs), array._ctx) if whole else None


@rule("slice")
def _slice(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    array = arrays[0]
    if array.stype != "csr" or any(step not in (None, 1) for step in attrs["step"] or ()):
        return None
    spans = []
    for i, size in enumerate(array.shape):
        begin, end = (bounds[i] if i < len(bounds) else None for bounds in (attrs["begin"], attrs["end"]))
        begin, end, _ = slice(begin, end).indices(size)
        spans.append((begin, max(begin, end)))
    (top, bottom), (left, right) = spans
    first, last = int(array._indptr[top]), int(array._indptr[bottom])
    values, columns, rows = array._values[first:last], array._indices[first:last], array._rows[first:last]
    inside = (columns >= left) & (columns < right)
    parts = values[inside], columns[inside] - left, row_starts(rows[inside] - top, bottom - top)
    return CSRNDArray(parts, (bottom - top, right - left), array._ctx)


@rule("Concat")
def _concat(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    if set(_stypes(*arrays)) != {"csr"} or attrs["dim"] not in (0, -2):
        return None
    if len({array.shape[1] for array in arrays}) > 1:
        raise MXNetError("expected matrices with the same number of columns")
    rows = torch.cat([array._indptr.diff() for array in arrays])
    starts = torch.cat((rows.new_zeros(1), rows.cumsum(0)))
    parts = torch.cat([a._values.detach() for a in arrays]), torch.cat([a._indices for a in arrays]), starts
    return CSRNDArray(parts, (len(rows), arrays[0].shape[1]), arrays[0]._ctx)


# ---- two arrays ----


def _csr_of_keys(keys: Tensor, values: Tensor, like: CSRNDArray) -> CSRNDArray:
    rows, columns = keys // max(like.shape[1], 1), keys % max(like.shape[1], 1)
    return CSRNDArray((values, columns, row_starts(rows, like.shape[0])), like.shape, like._ctx)


def _merge_csr(op: Op, a: CSRNDArray, b: CSRNDArray) -> CSRNDArray:
    """Apply `op` at the elements that are stored in either array, and drop zeros from the result."""
    left, right = a._coo_key(), b._coo_key()
    keys, places = torch.unique(torch.cat((left, right)), return_inverse=True)
    sides = []
    for values, where in ((a._values, places[: len(left)]), (b._values, places[len(left) :])):
        sides.append(values.new_zeros(len(keys)).index_add_(0, where, values.detach()))
    values = op.fn(*sides)
    kept = values != 0
    return _csr_of_keys(keys[kept], values[kept], a)


def _merge_rows(op: Op, a: RowSparseNDArray, b: RowSparseNDArray) -> RowSparseNDArray:
    """Apply `op` to the rows that are stored in either array."""
    rows = torch.unique(torch.cat((a._indices, b._indices)))
    return RowSparseNDArray((op.fn(a._at_rows(rows), b._at_rows(rows)), rows), a.shape, a._ctx)


@rule("_scatter_elemwise_div")
def _scatter_divide(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    a, b = arrays
    _check_alike(a, b)
    if a.stype != "row_sparse":
        return None
    there = b._at_rows(a._indices) if b.stype == "row_sparse" else b._data.detach()[a._indices]
    return a._like(op.fn(a._values.detach(), there))


@rule("elemwise_add", "elemwise_sub", "elemwise_mul", "_hypot")
def _elementwise(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    a, b = arrays
    _check_alike(a, b)
    if _stypes(a, b) == ("csr", "csr"):
        return _merge_csr(op, a, b)
    if _stypes(a, b) == ("row_sparse", "row_sparse"):
        return _merge_rows(op, a, b)
    if op.name == "elemwise_mul" and "default" in _stypes(a, b):
        sparse, dense = (a, b._data.detach()) if a._sparse else (b, a._data.detach())
        there = dense[sparse._rows, sparse._indices] if sparse.stype == "csr" else dense[sparse._indices]
        return sparse._like(op.fn(sparse._values.detach(), there))
    return None


@rule("broadcast_mul", "broadcast_div")
def _broadcast(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    a, b = arrays
    if _stypes(a, b) != ("csr", "default") or (op.name == "broadcast_div" and a.shape == b.shape):
        return None
    if torch.broadcast_shapes(a.shape, b.shape) != a.shape or a.dtype != b.dtype:
        return None
    there = b._data.detach().expand(a.shape)[a._rows, a._indices]
    return a._like(op.fn(a._values.detach(), there))


@rule("add_n")
def _add_n(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    if set(_stypes(*arrays)) != {"row_sparse"}:
        return None
    for array in arrays[1:]:
        _check_alike(arrays[0], array)
    rows = torch.unique(torch.cat([array._indices for array in arrays]))
    return RowSparseNDArray((op.fn(*[a._at_rows(rows) for a in arrays]), rows), arrays[0].shape, arrays[0]._ctx)


# ---- dot ----


class _CsrDot(torch.autograd.Function):
    """Product of a csr matrix, or its transpose, with a dense matrix.

    With `rows_only`, the gradient of the dense matrix is sparse, with one row per stored column of the csr matrix.
    """

    @staticmethod
    def forward(ctx: Any, dense: Tensor, csr: CSRNDArray, transpose: bool, rows_only: bool) -> Tensor:
        ctx.call = csr, transpose, rows_only
        return _csr_times(csr, dense, transpose)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        csr, transpose, rows_only = ctx.call
        if not rows_only:
            return _csr_times(csr, grad, not transpose), None, None, None
        rows, values = _transposed_rows(csr, grad)
        shape = (csr.shape[1], grad.shape[1])
        gradient = torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True, check_invariants=False)
        return gradient, None, None, None


def _csr_times(csr: CSRNDArray, dense: Tensor, transpose: bool) -> Tensor:
    if transpose:
        rows, values = _transposed_rows(csr, dense)
        return values.new_zeros(csr.shape[1], values.shape[1]).index_copy_(0, rows, values)
    values, columns, starts = (part.detach() for part in csr._parts)
    return _multiply(values, columns, starts, dense)


def _transposed_rows(csr: CSRNDArray, dense: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the nonzero rows of csr.T times dense, and their values. `among` are the only nonzero rows of dense."""
    values, columns, rows = csr._values.detach(), csr._indices, csr._rows
    if among is not None:
        there = torch.isin(rows, among)
        values, columns, rows = values[there], columns[there], rows[there]
    columns, order = torch.sort(columns)
    wanted, counts = torch.unique_consecutive(columns, return_counts=True)
    starts = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    return wanted, _multiply(values[order], rows[order], starts, dense)


def _multiply(values: Tensor, columns: Tensor, starts: Tensor, dense: Tensor) -> Tensor:
    """Return the product of a csr matrix, given by its parts, and a dense matrix."""
    if values.dtype in (torch.float32, torch.float64) and len(values):
        _expect_the_warning()
        shape = (len(starts) - 1, dense.shape[0])
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False) @ dense
    result = torch.zeros(len(starts) - 1, dense.shape[1], dtype=values.dtype, device=values.device)
    return result.index_add_(0, row_of_each(starts), values[:, None] * dense[columns])


@functools.cache
def _expect_the_warning() -> None:
    """Suppress torch's warning that csr tensors are in beta. Matrix products are reliable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0], [], [], (0, 0))


@rule("dot")
def _dot(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    a, b = arrays
    stypes = _stypes(a, b)
    left, right = attrs["transpose_a"], attrs["transpose_b"]
    if "csr" in stypes and (a.ndim != 2 or b.ndim != 2):
        raise MXNetError(f"expected two matrices, got {a.ndim} and {b.ndim} dimensions")
    if "csr" in stypes and a.shape[0 if left else 1] != b.shape[1 if right else 0]:
        raise MXNetError(f"expected equal inner dimensions, got {a.shape} and {b.shape}")
    if a.dtype != b.dtype:
        raise MXNetError("expected arrays of one dtype. Use astype")
    result = None
    if stypes[0] == "csr" and stypes[1] != "csr" and not (modes.recording and _in_graph(a)):
        result = _csr_dot(a, b, left, right)
    elif stypes == ("default", "csr") and not left:
        tensor = _dense(op, arrays, attrs)
        in_graph = tensor if tensor.requires_grad else None
        result = CSRNDArray(_columns_of(b, right, tensor.detach()), tuple(tensor.shape), a._ctx, in_graph)
    wanted = attrs["forward_stype"]
    if wanted in (None, "None") or wanted == (result.stype if result is not None else "default"):
        return result if result is not None else NDArray(_dense(op, arrays, attrs), a._ctx)
    dense = NDArray(_dense(op, arrays, attrs) if result is None else result._data, a._ctx)
    return dense.tostype(wanted)


def _columns_of(csr: CSRNDArray, transposed: bool, product: Tensor) -> tuple[Tensor, ...]:
    """Return the parts of dense times csr: every row has all nonempty columns of the csr matrix, including zeros."""
    columns = torch.unique(csr._rows if transposed else csr._indices)
    starts = torch.arange(len(product) + 1, device=columns.device) * len(columns)
    return product[:, columns].reshape(-1), columns.repeat(len(product)), starts


def _dense(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Tensor:
    with torch.set_grad_enabled(modes.recording):
        return op.fn(*[array._data for array in arrays], **{**attrs, "forward_stype": None})


def _csr_dot(a: CSRNDArray, b: Any, left: bool, right: bool) -> NDArray:
    recorded = modes.recording and _in_graph(b)
    if left and not recorded:
        dense = b._data.detach()
        among = b._indices if b._sparse and not right else None
        rows, values = _transposed_rows(a, dense.t() if right else dense, among)
        return RowSparseNDArray((values, rows), (a.shape[1], values.shape[1]), a._ctx)
    with torch.set_grad_enabled(modes.recording):
        dense = b._data.t() if right else b._data
        rows_only = dense.is_leaf and not left and b._grad is not None and b._grad.stype == "row_sparse"
        tensor = _CsrDot.apply(dense, a, left, rows_only)
    return RowSparseNDArray(None, tuple(tensor.shape), a._ctx, tensor) if left else NDArray(tensor, a._ctx)


# ---- optimizers: a row_sparse gradient updates only its rows ----


_LAZY = {"sgd_update", "sgd_mom_update", "adam_update", "ftrl_update", "_sparse_adagrad_update"}


@rule(*_LAZY)
def _lazy_update(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any) -> Any:
    """Apply the op to the rows of the gradient."""
    weight, grad, *states = arrays
    targets = [weight, *states]
    stypes = set(_stypes(*targets))
    if grad.stype != "row_sparse" or not attrs.get("lazy_update", True) or len(stypes) > 1 or "csr" in stypes:
        return None
    if op.name == "ftrl_update" and stypes != {"row_sparse"}:
        return None
    if any(target.shape != grad.shape for target in targets):
        raise MXNetError(f"all arrays must have the gradient's shape {grad.shape}")
    rows = grad._indices
    with torch.no_grad():
        weight_rows, *state_rows = (
            target._at_rows(rows) if target._sparse else target._data.detach()[rows] for target in targets
        )
        updated = op.fn(weight_rows, grad._values.detach(), *state_rows, **attrs)
        result = weight if out is weight else weight.copy()
        for target, values in zip((result, *states), (updated, *state_rows), strict=True):
            if target._sparse:
                target._put_rows(rows, values)
            else:
                target._writable_data()[rows] = values
    return result
