"""Arrays and shapes for tests, drawn from numpy's random generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base import MXNetError
from ..context import Context, current_context
from ..ndarray import NDArray, array
from ..ndarray.sparse import csr_matrix, row_sparse_array

Shape = tuple[int, ...]


def default_context() -> Context:
    """Return the context that tests run on."""
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Set the context that tests run on."""
    Context.default_ctx = ctx


def default_dtype() -> type:
    """Return float32."""
    return np.float32


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> Shape:
    """Return a random shape of two dimensions, at most `dim0` and `dim1`."""
    return _rand_shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> Shape:
    """Return a random shape of three dimensions, at most `dim0`, `dim1` and `dim2`."""
    return _rand_shape((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> Shape:
    """Return a random shape of `num_dim` dimensions, each at most `dim`."""
    least = 0 if allow_zero_size else 1
    return tuple(int(size) for size in np.random.randint(least, dim + 1, size=num_dim))


def _rand_shape(most: Sequence[int], allow_zero_size: bool) -> Shape:
    least = 0 if allow_zero_size else 1
    return tuple(int(np.random.randint(least, size + 1)) for size in most)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """Return a random point with x_low <= x < x_high and y_low <= y < y_high."""
    x = np.random.randint(x_low, x_high, dtype=np.int64)
    return int(x), int(np.random.randint(y_low, y_high, dtype=np.int64))


def random_arrays(*shapes: Shape) -> Any:
    """Return a numpy array of normally distributed values for each shape; a list if there are several shapes."""
    arrays: list[np.ndarray] = [np.array(np.random.randn(*shape), dtype=default_dtype()) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: Shape, low: float = 0.0, high: float = 1.0, dtype: Any = None) -> list[np.ndarray]:
    """Return a list with a numpy array of uniform values in [low, high) for each shape."""
    dtype = dtype or default_dtype()
    return [np.array(np.random.uniform(low, high, shape), dtype=dtype) for shape in shapes]


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """Return `k` distinct items of a sequence."""
    assert 0 <= k <= len(population), f"cannot draw {k} of {len(population)} items"
    shuffled = list(population)
    np.random.shuffle(shuffled)
    return shuffled[:k]


def rand_ndarray(
    shape: Shape,
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Context | None = None,
) -> NDArray:
    """Return a random array: normally distributed, or a sparse array (see `rand_sparse_ndarray`)."""
    if stype == "default":
        return array(random_arrays(shape), dtype=dtype or default_dtype(), ctx=ctx)
    made = rand_sparse_ndarray(
        shape, stype, density, dtype, distribution, None, None, modifier_func, shuffle_csr_indices, ctx
    )
    return made[0]


def rand_sparse_ndarray(
    shape: Shape,
    stype: str,
    density: float | None = None,
    dtype: Any = None,
    distribution: str | None = None,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    ctx: Context | None = None,
) -> tuple[NDArray, tuple[Any, ...]]:
    """Return a random sparse array and its parts: (values, rows) or (indptr, indices, values).

    `density` is the fraction of stored rows, or of stored elements of a csr array (random if not given). Values are
    uniform in [0, 1), or `data_init`, passed through `modifier_func`. The elements of a csr array are at random
    positions ('uniform'), or their number doubles from row to row ('powerlaw').
    """
    density = float(np.random.rand()) if density is None else density
    dtype = np.dtype(dtype or default_dtype())
    distribution = distribution or "uniform"
    if stype == "row_sparse":
        assert distribution == "uniform", f"Distribution {distribution} not supported for row_sparse"
        return _rand_rows(shape, density, dtype, data_init, rsp_indices, modifier_func, ctx)
    assert stype == "csr", f"unknown storage type {stype!r}: expected 'row_sparse' or 'csr'"
    assert len(shape) == 2, f"a csr array must have two dimensions, received shape {shape}"
    assert distribution in ("uniform", "powerlaw"), f"Distribution not supported: {distribution}"
    make = _rand_csr if distribution == "uniform" else _powerlaw_csr
    return _csr(make(shape, density, data_init), dtype, modifier_func, shuffle_csr_indices, ctx)


def _rand_rows(
    shape: Shape,
    density: float,
    dtype: np.dtype,
    data_init: float | None,
    rsp_indices: Sequence[int] | None,
    modifier_func: Callable[[Any], Any] | None,
    ctx: Context | None,
) -> tuple[NDArray, tuple[Any, ...]]:
    if rsp_indices is None:
        rows = np.argwhere(np.random.rand(shape[0]) < density).flatten()
    else:
        rows = np.asarray(rsp_indices)
        assert len(rows) <= shape[0], f"{len(rows)} rows do not fit into the shape {shape}"
    values = np.random.rand(len(rows), *shape[1:]) if data_init is None else np.full((len(rows), *shape[1:]), data_init)
    values = assign_each(values.astype(dtype), modifier_func)
    made = row_sparse_array((values, rows), shape=shape, dtype=dtype, ctx=ctx)
    return made, (made.data, made.indices)


def _rand_csr(shape: Shape, density: float, data_init: float | None) -> np.ndarray:
    """Return random values, with NaN where no element is stored."""
    values = np.random.uniform(size=shape) if data_init is None else np.full(shape, float(data_init))
    values[np.random.uniform(size=shape) >= density] = np.nan
    return values


def _powerlaw_csr(shape: Shape, density: float, data_init: float | None) -> np.ndarray:
    """Return values in [1, 3): two in the first row, four in the second, and so on up to the density; NaN elsewhere."""
    values, left = np.full(shape, np.nan), round(density * shape[0] * shape[1])
    for row in range(shape[0]):
        count = min(2 ** min(row + 1, 30), shape[1], left)
        values[row, :count] = np.random.uniform(1, 3, count) if data_init is None else data_init
        left -= count
    return values


def _csr(
    values: np.ndarray, dtype: np.dtype, modifier_func: Callable[[Any], Any] | None, shuffled: bool, ctx: Context | None
) -> tuple[NDArray, tuple[Any, ...]]:
    """Return a csr array of the values that are not NaN, and its parts."""
    rows, columns = np.nonzero(~np.isnan(values))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(values)))]).astype(np.int64)
    if shuffled:
        for begin, end in zip(indptr[:-1], indptr[1:], strict=True):
            columns[begin:end] = np.random.permutation(columns[begin:end])
    data = assign_each(values[rows, columns].astype(dtype), modifier_func)
    made = csr_matrix((data, columns.astype(np.int64), indptr), shape=values.shape, dtype=dtype, ctx=ctx)
    return made, (made.indptr, made.indices, made.data)


def create_sparse_array(
    shape: Shape,
    stype: str,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """Return a random sparse array; stored values are `data_init` if given."""
    return rand_sparse_ndarray(
        shape, stype, density, dtype, None, data_init, rsp_indices, modifier_func, shuffle_csr_indices
    )[0]


def create_sparse_array_zd(
    shape: Shape,
    stype: str,
    density: float,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """As `create_sparse_array`; a row_sparse array stores exactly the rows `rsp_indices`."""
    density = 0.0 if stype == "row_sparse" else density
    return create_sparse_array(shape, stype, data_init, rsp_indices, dtype, modifier_func, density, shuffle_csr_indices)


def shuffle_csr_column_indices(csr: Any) -> None:
    """Shuffle the column indices within each row of a scipy-like csr matrix, in place."""
    for begin, end in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        np.random.shuffle(csr.indices[begin:end])


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """Return a copy of an array with a function applied to each element."""
    if function is None:
        return np.array(the_input)
    return np.array([function(each) for each in the_input.flat], dtype=the_input.dtype).reshape(the_input.shape)


def assign_each2(input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None) -> np.ndarray:
    """Return an array of a function applied to corresponding elements of two arrays."""
    if function is None:
        return np.array(input1)
    if input1.shape != input2.shape:
        raise MXNetError(f"assign_each2: expected arrays of equal shape, received {input1.shape} and {input2.shape}")
    pairs = zip(input1.flat, input2.flat, strict=True)
    return np.array([function(a, b) for a, b in pairs], dtype=input1.dtype).reshape(input1.shape)


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """Return the array [0, 1, ..., size - 1]."""
    return array(np.arange(size), dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """Return a matrix in which each element is its row index."""
    return array(np.repeat(np.arange(rows)[:, None], columns, axis=1), dtype=dtype)


def get_identity_mat(size: int) -> NDArray:
    """Return the identity matrix."""
    return array(np.identity(size), dtype=np.float32)


def get_identity_mat_batch(size: int) -> NDArray:
    """Return a batch of two identity matrices."""
    return array(np.stack([np.identity(size)] * 2), dtype=np.float32)


def new_orthonormal_matrix_2d(n: int) -> np.ndarray:
    """Return a random matrix whose columns are orthonormal."""
    return np.linalg.qr(np.random.uniform(-1.0, 1.0, (n, n)))[0]


def new_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """Return a random matrix with real eigenvalues."""
    basis = np.random.uniform(-1.0, 1.0, (n, n))
    return basis @ np.diag(np.random.uniform(-10.0, 10.0, n)) @ np.linalg.inv(basis)


def new_matrix_with_real_eigvals_nd(shape: Shape) -> np.ndarray:
    """Return random matrices with real eigenvalues, in the last two dimensions of `shape`."""
    return _stacked(shape, new_matrix_with_real_eigvals_2d)


def new_sym_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """Return a random symmetric matrix."""
    basis = new_orthonormal_matrix_2d(n)
    return basis @ np.diag(np.random.uniform(-10.0, 10.0, n)) @ basis.T


def new_sym_matrix_with_real_eigvals_nd(shape: Shape) -> np.ndarray:
    """Return random symmetric matrices, in the last two dimensions of `shape`."""
    return _stacked(shape, new_sym_matrix_with_real_eigvals_2d)


def _stacked(shape: Shape, make: Callable[[int], np.ndarray]) -> np.ndarray:
    count = int(np.prod(shape[:-2]))
    return np.stack([make(shape[-1]) for _ in range(count)]).reshape(shape)


def np_reduce(dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> np.ndarray:
    """Apply a numpy reduction over one axis, several, or all (None)."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    result = dat
    for each in sorted((a % dat.ndim for a in axes), reverse=True):
        result = numpy_reduce_func(result, axis=each)
    if keepdims:
        reduced = {a % dat.ndim for a in axes}
        result = result.reshape([1 if i in reduced else size for i, size in enumerate(dat.shape)])
    return result


def collapse_sum_like(a: np.ndarray, shape: Shape) -> np.ndarray:
    """Sum an array over the axes along which broadcasting from `shape` would repeat it."""
    assert len(a.shape) >= len(shape), f"{a.shape} has fewer dimensions than {shape}"
    lead = a.ndim - len(shape)
    summed = a.sum(axis=tuple(range(lead))) if lead else a
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and summed.shape[i] != 1)
    return summed.sum(axis=axes, keepdims=True) if axes else summed
