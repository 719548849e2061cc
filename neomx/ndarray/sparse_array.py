"""Sparse arrays, which store only some rows (row_sparse) or elements (csr).

All ops accept them. An op without a rule in `sparse_ops` converts them to dense arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..base import MXNetError, modes, numeric_types
from ..context import Context, current_context
from ..dtype import NUMPY_OF_TORCH, to_torch
from ..ops.table import OPS
from .history import step
from .invoke import apply, on_tape
from .ndarray import NDArray, _not_supported
from .private_names import SparsePrivateNames

Tensor = torch.Tensor


class NotSupportedForSparseNDArray(MXNetError):
    """An operation that sparse arrays do not support."""

    def __init__(self, function: Any, alias: str | None, *args: Any):
        name = getattr(function, "__name__", str(function))
        name += f" ({alias})" if alias else ""
        super().__init__(f"{name} is not supported for a sparse array. Call tostype('default') first")


def elementwise(name: str, scalar_op: str, in_place: bool = False) -> Callable[..., Any]:
    """Return an operator that keeps the storage type: elementwise for equal shapes, otherwise with broadcasting."""
    same, broad, with_scalar = OPS["elemwise_" + name], OPS["broadcast_" + name], OPS[scalar_op]

    def binary(self: NDArray, other: Any) -> Any:
        out = self if in_place else None
        if isinstance(other, NDArray):
            return apply(same if self.shape == other.shape else broad, (self, other), {}, out, NDArray)
        if isinstance(other, numeric_types):
            return apply(with_scalar, (self,), {"scalar": other}, out, NDArray)
        return _not_supported(other)

    return binary


class BaseSparseNDArray(SparsePrivateNames, NDArray):
    """A sparse array.

    `_parts` are its tensors: the values, then the indices. While the array takes part in autograd, the dense tensor
    `_graph` holds its elements, and the parts are computed from it on demand.
    """

    __slots__ = ("_stored", "_shape", "_graph", "_doubted")
    _sparse = True

    def __init__(
        self,
        parts: tuple[Tensor, ...] | None,
        shape: tuple[int, ...] = (),
        ctx: Context | None = None,
        graph: Tensor | None = None,
    ):
        self._stored, self._shape, self._graph = parts, tuple(shape), graph
        self._ctx = current_context() if ctx is None else ctx
        self._grad = self._history = None
        self._doubted = False

    def doubt(self) -> None:
        """Mark the parts, which a program supplied, as unchecked. They are checked before the first computation."""
        self._doubted = True

    def trust(self) -> None:
        """Raise MXNetError if the index of a stored element is out of bounds. Ops rely on valid indices."""
        if self._doubted:
            problem = self._shape_problem() or self._place_problem()
            if problem:
                raise MXNetError(f"{type(self).__name__} of shape {self._shape}: {problem}")
            self._doubted = False

    @classmethod
    def _compress(cls, dense: Tensor) -> tuple[Tensor, ...]:
        """Return the parts of a dense tensor, which contain its nonzero elements."""
        raise NotImplementedError

    @classmethod
    def _nothing(cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        """Return the parts of an array of zeros."""
        raise NotImplementedError

    def _densify(self) -> Tensor:
        raise NotImplementedError

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        if self._stored is None:
            assert self._graph is not None
            self._stored = self._compress(self._graph.detach())
        return self._stored

    @_parts.setter
    def _parts(self, parts: tuple[Tensor, ...]) -> None:
        self._stored = parts
        if self._graph is not None:
            with torch.no_grad():
                self._graph.data.copy_(self._densify())

    @property
    def _data(self) -> Tensor:  # type: ignore[override]
        if self._graph is not None:
            return self._graph
        self.trust()
        return self._densify()

    @_data.setter
    def _data(self, value: Tensor) -> None:
        if self._graph is None or value.data_ptr() != self._graph.data_ptr():  # not just detached
            self._stored = None
        self._graph = value

    @property
    def _values(self) -> Tensor:
        return self._parts[0]

    @property
    def _indices(self) -> Tensor:
        return self._parts[1]

    def _index_tensors(self) -> tuple[Tensor, ...]:
        """Return the index tensors in the order used in files."""
        return self._parts[:0:-1]

    def _dense(self) -> NDArray:
        """Return a dense array with the same elements and history."""
        dense = NDArray(self._data, self._ctx)
        dense._history = self._history
        return dense

    def _in_graph(self) -> bool:
        return self._graph is not None and self._graph.requires_grad

    def _like(self, values: Tensor) -> BaseSparseNDArray:
        """Return an array with the same indices and other values."""
        return STORAGES[self.stype]((values, *self._parts[1:]), self._shape, self._ctx)

    def _assign(self, result: Tensor) -> None:
        if modes.recording and result.requires_grad and not self._in_graph():
            self._data = result.to(self._values.dtype)
            return
        self._writable_data()
        self._parts = self._compress(result.detach().to(self._values.device, self._values.dtype))

    def _writable_data(self, *values: Any) -> Tensor:
        if modes.recording and self._in_graph():
            raise MXNetError("cannot write to a sparse array of a computational graph while recording")
        return self._values

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._shape

    @property
    def dtype(self) -> Any:
        """The numpy type of the elements."""
        return NUMPY_OF_TORCH[self._values.dtype]

    @property
    def size(self) -> int:
        """The number of elements, stored or not."""
        return math.prod(self._shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    def __len__(self) -> int:
        return self._shape[0]

    def wait_to_read(self) -> None:
        """Wait until the array is computed."""
        NDArray(self._values, self._ctx).wait_to_read()

    wait_to_write = wait_to_read

    @property
    def data(self) -> NDArray:
        """A copy of the stored values."""
        return NDArray(self._values.detach().clone(), self._ctx)

    @property
    def indices(self) -> NDArray:
        """A copy of the indices of the stored rows (row_sparse), or of the columns of the stored elements (csr)."""
        return NDArray(self._indices.clone(), self._ctx)

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Copy into another array, which is dense or has the same storage type, or to a new array on a context."""
        if isinstance(other, Context):
            device = other.check().device
            if modes.recording and self._in_graph():
                copied = STORAGES[self.stype](None, self._shape, other, self._data.to(device, copy=True))
                return on_tape(copied, step(OPS["_copyto"], {}, (self,)))
            return STORAGES[self.stype](
                tuple(part.detach().to(device, copy=True) for part in self._parts), self._shape, other
            )
        if isinstance(other, BaseSparseNDArray):
            if other.stype != self.stype:
                raise TypeError(f"copyto: cannot copy a {self.stype} array into a {other.stype} array")
            if other is not self:
                if other.shape != self.shape:
                    raise MXNetError(f"copyto: expected a target of shape {self.shape}, received {other.shape}")
                values, *indices = (part.detach().to(other._ctx.device, copy=True) for part in self._parts)
                other._parts = (values.to(other._values.dtype), *indices)
            return other
        return super().copyto(other)

    def astype(self, dtype: Any, copy: bool = True) -> NDArray:
        """Return a copy with elements of `dtype`; with `copy=False`, the array itself if it already has that dtype."""
        wanted = to_torch(dtype)
        if not copy and wanted is self._values.dtype:
            return self
        if modes.recording and self._in_graph():
            with torch.enable_grad():
                cast = STORAGES[self.stype](None, self._shape, self._ctx, self._data.to(wanted, copy=True))
                return on_tape(cast, step(OPS["Cast"], {"dtype": wanted}, (self,)))
        values, *indices = self._parts
        parts = (values.detach().to(wanted, copy=True), *(index.clone() for index in indices))
        return STORAGES[self.stype](parts, self._shape, self._ctx)

    def detach(self) -> NDArray:
        """Return an array with the same values, outside the autograd graph."""
        return STORAGES[self.stype](self._parts, self._shape, self._ctx)

    def tostype(self, stype: str) -> NDArray:
        """Return this array with storage type 'default' or its own storage type."""
        if stype not in ("default", self.stype):
            raise ValueError(f"cast_storage from {self.stype} to {stype} is not supported. Convert to 'default' first")
        return cast_storage(self, stype)

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """Raise NotSupportedForSparseNDArray."""
        raise NotSupportedForSparseNDArray("reshape", None)

    def _view(self, of: Callable[[Tensor], Tensor], how: Any, attrs: Any) -> NDArray:
        raise NotSupportedForSparseNDArray("a view", None)

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make the array a variable whose gradient has storage type `stype`, by default that of the array."""
        super().attach_grad(grad_req, stype or self.stype)

    def check_format(self, full_check: bool = True) -> None:
        """Raise MXNetError if the indices are invalid. `full_check` checks all of them."""
        values, indices = self._parts[:2]
        problem = self._shape_problem() or (self._index_problem() if full_check else "")
        if problem:
            raise MXNetError(
                f"check_format: {type(self).__name__} of shape {self._shape} with values {list(values.shape)} and "
                f"indices {list(indices.shape)}: {problem}"
            )

    def _shape_problem(self) -> str:
        raise NotImplementedError

    def _place_problem(self) -> str:
        """Return a description of an index that is out of bounds, or ''."""
        raise NotImplementedError

    def _index_problem(self) -> str:
        """Return a description of invalid indices, including their order, or ''."""
        raise NotImplementedError

    def __setitem__(self, key: Any, value: Any) -> None:
        if not (isinstance(key, slice) and key == slice(None)):
            raise ValueError(f"a {self.stype} array only supports assignment to the whole array: x[:] = value")
        if isinstance(value, NDArray):
            value.copyto(self)
            return
        device, dtype = self._values.device, self._values.dtype
        if isinstance(value, numeric_types):
            if self.stype == "csr":
                raise ValueError("a number cannot be assigned to a csr array")
            value = torch.full(self._shape, value.item() if isinstance(value, np.generic) else value)
            self._parts = (value.to(device, dtype), torch.arange(self._shape[0], device=device))
            return
        dense = torch.as_tensor(np.asarray(value), device=device)
        self._assign(dense.to(dtype).broadcast_to(self._shape))

    def _zeros(self, values: Tensor) -> Tensor:
        """Return zeros of the array's shape, which may come from a file and may not fit into memory."""
        try:
            return torch.zeros(self._shape, dtype=values.dtype, device=values.device)
        except (RuntimeError, TypeError, MemoryError) as error:
            raise MXNetError(
                f"cannot convert a {self.stype} array of shape {self._shape} to dense, which requires "
                f"{math.prod(self._shape) * values.dtype.itemsize} bytes: {error!s:.200}"
            ) from error

    def __repr__(self) -> str:
        name = "CSRNDArray" if self.stype == "csr" else "RowSparseNDArray"
        return f"\n<{name} {'x'.join(map(str, self._shape))} @{self._ctx}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.stype, tuple(part.detach().cpu() for part in self._parts), self._shape, self._ctx)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the parts from a pickle of MXNet, which creates an empty object and then calls this method."""
        from .serialize import array_frombuffer

        read = array_frombuffer(state["handle"])
        if not isinstance(read, type(self)):
            raise MXNetError(f"expected a {self.stype} array in the pickle, received a {read.stype} array")
        BaseSparseNDArray.__init__(self, read._parts, read.shape, read.context)

    # Without reflected operators: the dense array computes dense * csr.
    __add__ = elementwise("add", "_plus_scalar")
    __sub__ = elementwise("sub", "_minus_scalar")
    __mul__ = elementwise("mul", "_mul_scalar")
    __truediv__ = __div__ = elementwise("div", "_div_scalar")
    __iadd__ = elementwise("add", "_plus_scalar", in_place=True)
    __isub__ = elementwise("sub", "_minus_scalar", in_place=True)
    __imul__ = elementwise("mul", "_mul_scalar", in_place=True)
    __itruediv__ = __idiv__ = elementwise("div", "_div_scalar", in_place=True)


class CSRNDArray(BaseSparseNDArray):
    """A matrix that stores single elements, row by row: `data`, their columns `indices` and the row starts `indptr`."""

    __slots__ = ()

    @property
    def stype(self) -> str:
        """'csr'."""
        return "csr"

    @property
    def indptr(self) -> NDArray:
        """A copy of the row starts. Row i contains the elements indptr[i] to indptr[i + 1] - 1."""
        return NDArray(self._indptr.clone(), self._ctx)

    @property
    def _indptr(self) -> Tensor:
        return self._parts[2]

    @property
    def _rows(self) -> Tensor:
        """Return the row of each stored element."""
        return row_of_each(self._indptr)

    @classmethod
    def _compress(cls, dense: Tensor) -> tuple[Tensor, ...]:
        rows, columns = torch.nonzero(dense, as_tuple=True)
        return dense[rows, columns], columns, row_starts(rows, dense.shape[0])

    @classmethod
    def _nothing(cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        if len(shape) != 2:
            raise ValueError(f"a csr array must have 2 dimensions, received shape {shape}")
        index = torch.zeros(shape[0] + 1, dtype=torch.int64, device=device)
        return torch.zeros(0, dtype=dtype, device=device), index[:0], index

    def _densify(self) -> Tensor:
        values, columns, _ = self._parts
        result = self._zeros(values)
        return result.index_put_((self._rows, columns), values, accumulate=values.dtype is not torch.bool)

    def _coo_key(self) -> Tensor:
        """Return one number for each stored element, in row-major order."""
        return self._rows * self._shape[1] + self._indices

    def __getitem__(self, key: Any) -> NDArray:
        if isinstance(key, tuple):
            raise ValueError("Multi-dimension indexing is not supported")
        count = self._shape[0]
        if isinstance(key, (int, np.integer)):
            if not -count <= key < count:
                raise IndexError(f"index {key} is out of bounds for axis 0 with size {count}")
            begin = int(key) % count
            key = slice(begin, begin + 1)
        if not isinstance(key, slice):
            raise ValueError(f"the index of a csr array must be an int or a slice of rows, received {key!r}")
        begin, end, step = key.indices(count)
        if step != 1:
            raise ValueError("CSRNDArray only supports continuous slicing on axis 0")
        return (
            self
            if (begin, end) == (0, count)
            else apply(OPS["slice"], (self,), {"begin": (begin,), "end": (max(begin, end),)}, None, NDArray)
        )

    def asscipy(self) -> Any:
        """Return a scipy.sparse.csr_matrix with the same elements."""
        parts = tuple(part.detach().cpu().numpy() for part in self._parts)
        return import_scipy().csr_matrix(parts, shape=self._shape, dtype=self.dtype)

    def _shape_problem(self) -> str:
        values, columns, starts = self._parts
        if values.shape != columns.shape or starts.shape != (self._shape[0] + 1,):
            return f"expected equal numbers of values and indices, and {self._shape[0] + 1} entries in indptr"
        return ""

    def _place_problem(self) -> str:
        values, columns, starts = self._parts
        if int(starts[0]) != 0 or int(starts[-1]) != len(values) or bool((starts[1:] < starts[:-1]).any()):
            return f"indptr must increase from 0 to {len(values)}"
        if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= self._shape[1]):
            return f"indices must be in 0 .. {self._shape[1] - 1}"
        return ""

    def _index_problem(self) -> str:
        problem = self._place_problem()
        if problem:
            return problem
        columns, rows = self._indices, self._rows
        falls = (columns[1:] <= columns[:-1]) & (rows[1:] == rows[:-1])
        return "indices must be ascending in each row" if bool(falls.any()) else ""


class RowSparseNDArray(BaseSparseNDArray):
    """An array that stores some rows: `data`, and their row numbers in `indices`."""

    __slots__ = ()

    @property
    def stype(self) -> str:
        """'row_sparse'."""
        return "row_sparse"

    @classmethod
    def _compress(cls, dense: Tensor) -> tuple[Tensor, ...]:
        rows = torch.nonzero(dense.reshape(dense.shape[0], -1).any(dim=1)).reshape(-1)
        return dense[rows], rows

    @classmethod
    def _nothing(cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        values = torch.zeros((0, *shape[1:]), dtype=dtype, device=device)
        return values, torch.zeros(0, dtype=torch.int64, device=device)

    def _densify(self) -> Tensor:
        values, rows = self._parts
        result = self._zeros(values)
        return result.index_copy_(0, rows, values)

    def _at_rows(self, rows: Tensor) -> Tensor:
        """Return the values of the given rows, with zeros for rows that are not stored."""
        values, stored = self._parts
        if self._has_all_rows():
            return values[rows]
        result = torch.zeros((len(rows), *self._shape[1:]), dtype=values.dtype, device=values.device)
        if len(stored):
            order = torch.argsort(stored)
            found = torch.searchsorted(stored, rows, sorter=order).clamp_(max=len(stored) - 1)
            found = order[found]
            there = stored[found] == rows
            result[there] = values[found[there]]
        return result

    def _has_all_rows(self) -> bool:
        """Whether all rows are stored in order, so that row i is at position i."""
        stored = self._indices
        return len(stored) == self._shape[0] and bool((stored[1:] > stored[:-1]).all())

    def _put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Overwrite rows, adding those that are not yet stored."""
        if self._stored is not None and self._graph is None and self._has_all_rows():
            self._values[rows] = values
            return
        union = torch.unique(torch.cat((self._indices, rows)))
        merged = self._at_rows(union)
        merged[torch.searchsorted(union, rows)] = values
        self._parts = merged, union

    def retain(self, indices: NDArray) -> RowSparseNDArray:
        """Return an array that contains only the given rows."""
        return apply(OPS["_sparse_retain"], (self, indices), {}, None, NDArray)

    def __getitem__(self, key: Any) -> NDArray:
        if isinstance(key, slice) and key == slice(None):
            return self
        raise NotSupportedForSparseNDArray("row_sparse indexing other than x[:]", None)

    def _shape_problem(self) -> str:
        values, rows = self._parts
        if values.shape[1:] != self._shape[1:] or rows.shape != values.shape[:1]:
            return "expected one index for each row of values, and rows that match the array's shape"
        return ""

    def _place_problem(self) -> str:
        rows = self._indices
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= self._shape[0]):
            return f"indices must be in 0 .. {self._shape[0] - 1}"
        return ""

    def _index_problem(self) -> str:
        rows = self._indices
        return self._place_problem() or ("indices must be ascending" if bool((rows[1:] <= rows[:-1]).any()) else "")


STORAGES: dict[str, type[BaseSparseNDArray]] = {"csr": CSRNDArray, "row_sparse": RowSparseNDArray}


class _SparseGradient(BaseSparseNDArray):
    """The gradient of a variable with sparse storage. It wraps the `.grad` of the tensor."""

    __slots__ = ()
    _leaf: Tensor

    def __init__(self, leaf: Tensor, ctx: Context):
        super().__init__(None, tuple(leaf.shape), ctx)
        self._leaf = leaf  # type: ignore[misc]  # the slot is in the subclasses: two bases cannot both have some

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        leaf = self._leaf
        if leaf.grad is None:
            return self._nothing(self._shape, leaf.dtype, leaf.device)
        if not leaf.grad.is_sparse:
            return self._compress(leaf.grad)
        if not leaf.grad.is_coalesced():
            leaf.grad = leaf.grad.coalesce()
        if self.stype == "row_sparse" and leaf.grad.sparse_dim() == 1:
            return leaf.grad.values(), leaf.grad.indices()[0]
        return self._compress(leaf.grad.to_dense())

    @_parts.setter
    def _parts(self, parts: tuple[Tensor, ...]) -> None:
        self._leaf.grad = STORAGES[self.stype](parts, self._shape, self._ctx)._densify()

    @property
    def _data(self) -> Tensor:  # type: ignore[override]
        return self._densify()

    @_data.setter
    def _data(self, value: Tensor) -> None:
        self._leaf.grad = value


class _CSRGradient(_SparseGradient, CSRNDArray):
    __slots__ = ("_leaf",)


class _RowSparseGradient(_SparseGradient, RowSparseNDArray):
    __slots__ = ("_leaf",)


def gradient(leaf: Tensor, ctx: Context, stype: str) -> NDArray:
    """Return the `.grad` array of a variable with a sparse gradient."""
    if stype == "csr":
        return _CSRGradient(leaf, ctx)
    if stype == "row_sparse":
        return _RowSparseGradient(leaf, ctx)
    raise ValueError(f"unknown storage type {stype!r}. Expected 'default', 'row_sparse' or 'csr'")


def row_of_each(starts: Tensor) -> Tensor:
    """Return the row of each element, given the row starts."""
    return torch.repeat_interleave(torch.arange(len(starts) - 1, device=starts.device), starts.diff())


def row_starts(rows: Tensor, count: int) -> Tensor:
    """Return the row starts (indptr) of elements in these rows."""
    starts = torch.zeros(count + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=count), dim=0, out=starts[1:])
    return starts


def _unpickle(stype: str, parts: tuple[Tensor, ...], shape: tuple[int, ...], ctx: Context) -> NDArray:
    try:
        ctx.check()
    except MXNetError:
        ctx = Context("cpu", 0)
    return STORAGES[stype](tuple(part.to(ctx.device) for part in parts), shape, ctx)


def cast_storage(data: NDArray, stype: str, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Return `data` with storage type 'default', 'row_sparse' or 'csr'."""
    if not isinstance(data, NDArray):
        raise MXNetError(f"cast_storage: argument data must be an NDArray, received {type(data).__name__}")
    stype = OPS["cast_storage"].convert("stype", stype)
    if data._sparse and stype not in ("default", data.stype):
        raise MXNetError(f"cast_storage: from {data.stype} to {stype} is not supported. Convert to 'default' first")
    if stype == "csr" and data.ndim != 2:
        raise ValueError(f"a csr array must have 2 dimensions, received shape {data.shape}")
    if stype == "default":
        # A sparse array's dense tensor is a new one, unless it is in the graph, where writing to it is forbidden.
        result = NDArray(data._data if data._sparse else data._data.clone(), data._ctx)
    elif data._sparse:
        result = data.copy()
    elif modes.recording and data._data.requires_grad:
        result = STORAGES[stype](None, data.shape, data._ctx, data._data)
    else:
        result = STORAGES[stype](STORAGES[stype]._compress(data._data.detach()), data.shape, data._ctx)
    if modes.recording and (
        result._in_graph() if isinstance(result, BaseSparseNDArray) else result._data.requires_grad
    ):
        on_tape(result, step(OPS["cast_storage"], {"stype": stype}, (data,)))
    return result if out is None else result.copyto(out)


def import_scipy() -> Any:
    """Return the module scipy.sparse, or raise ImportError with installation instructions."""
    try:
        import scipy.sparse
    except ImportError:
        raise ImportError('scipy is required and not installed. Install it with: pip install "neomx[scipy]"') from None
    return scipy.sparse
