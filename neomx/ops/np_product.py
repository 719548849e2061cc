"""Products of `mx.np`: dot, matmul, tensordot, einsum and trace."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError
from .table import Shape, Types, op

Tensor = torch.Tensor


@op("_np_dot", same_dtype=True)
def np_dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot product over the last dimension of a and the second-to-last (or only) one of b. Scalars are multiplied."""
    if not a.dim() or not b.dim():
        return a * b
    if b.dim() <= 2 and b.dtype is not torch.bool:
        return torch.matmul(a, b)
    return _contracted(a, b, (-1,), (-1 if b.dim() == 1 else -2,))


@op("_npi_matmul", same_dtype=True)
def np_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product over the last two dimensions, with broadcasting of the leading ones. Vectors become matrices."""
    if not a.dim() or not b.dim():
        raise MXNetError("expected arrays with at least 1 dimension. Use multiply for scalars")
    return torch.matmul(a, b)


@op("_npi_tensordot", same_dtype=True)
def np_tensordot(a: Tensor, b: Tensor, *, a_axes_summed: Shape, b_axes_summed: Shape) -> Tensor:
    """Sum of products over pairs of axes of a and b."""
    return _contracted(a, b, a_axes_summed, b_axes_summed)


@op("_npi_tensordot_int_axes", same_dtype=True)
def np_tensordot_int_axes(a: Tensor, b: Tensor, *, axes: int) -> Tensor:
    """Sum of products over the last `axes` dimensions of a and the first `axes` dimensions of b."""
    if not 0 <= axes <= min(a.dim(), b.dim()):
        raise MXNetError(f"expected axes to be from 0 to {min(a.dim(), b.dim())}, got {axes}")
    return _contracted(a, b, tuple(range(a.dim() - axes, a.dim())), tuple(range(axes)))


def _contracted(a: Tensor, b: Tensor, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> Tensor:
    """tensordot, without torch's broadcasting of dimensions of size 1."""
    for axes, array in ((of_a, a), (of_b, b)):
        if any(not -array.dim() <= axis < array.dim() for axis in axes):
            raise MXNetError(f"axes {axes} are out of range for an array with {array.dim()} dimension(s)")
    lengths = [a.shape[axis] for axis in of_a], [b.shape[axis] for axis in of_b]
    if lengths[0] != lengths[1]:
        raise MXNetError(f"expected the summed dimensions to have equal sizes, got {lengths[0]} and {lengths[1]}")
    return torch.tensordot(a, b, (list(of_a), list(of_b)))


def _fresh_einsum(*data: Tensor, num_args: int, subscripts: str = "", optimize: int = 0) -> Tensor:
    if len(data) > 2 or data[0].dtype is torch.bool:  # `torch.einsum` orders the products of three or more
        return np_einsum(*data, num_args=num_args, subscripts=subscripts)
    result = torch._VF.einsum(subscripts, data)  # type: ignore[attr-defined]
    if result.dtype is not data[0].dtype:  # a sum of integers
        return result.to(data[0].dtype)
    if len(data) == 1 and result._base is not None:  # the transpose or diagonal of one array; products have own memory
        return result.clone(memory_format=torch.contiguous_format)
    return result


@op("_npi_einsum", same_dtype=True, may_alias=True, fresh=_fresh_einsum)
def np_einsum(*data: Tensor, num_args: int, subscripts: str = "", optimize: int = 0) -> Tensor:
    """Einstein summation by `subscripts`, such as "ij,jk->ik". torch chooses the order of the products."""
    if data[0].dtype is torch.bool:
        return torch.einsum(subscripts, *(each.int() for each in data)) != 0
    return torch.einsum(subscripts, *data).to(data[0].dtype)  # torch sums integers as int64


def _trace_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [torch.int64 if types[0] is torch.bool else types[0]]


@op("_np_trace", types=_trace_types)
def np_trace(data: Tensor, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of the diagonal with respect to `axis1` and `axis2`."""
    dtype = torch.int64 if data.dtype is torch.bool else data.dtype
    return data.diagonal(offset, axis1, axis2).sum(-1, dtype=dtype)
