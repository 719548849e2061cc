"""Casts between dtypes, and other ops for mixed precision training."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.compiler import is_compiling

from ..base import MXNetError
from ..dtype import to_torch
from .table import DType, Types, op, typed

Tensor = torch.Tensor

_NARROW = (torch.float16, torch.bfloat16)


@op("Cast", "cast", "_npi_cast", "_npx_cast", infer="same")
def cast(data: Tensor, *, dtype: DType) -> Tensor:
    """A copy of the elements as `dtype`. Floats are truncated to integers."""
    if data.is_floating_point() and dtype.is_floating_point or is_compiling():
        return data.to(dtype) if data.dtype is not dtype else data.clone()
    return _through_integers(data, dtype)


class _Through(torch.autograd.Function):
    """Converts integers to floats, with a gradient for the floats that the integers were cast from.

    As in MXNet, the gradient itself is truncated to integers.
    """

    @staticmethod
    def forward(ctx, source, integers, dtype):
        ctx.cut, ctx.given = integers.dtype, source.dtype
        return integers.to(dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.cut).to(ctx.given), None, None


def _through_integers(data: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast from or to integers. Integers have no gradient in torch, so the floats they come from represent them."""
    source = data if data.is_floating_point() else stand_in(data)
    if source is None or not (source.requires_grad and torch.is_grad_enabled()):
        return data.to(dtype, copy=True)
    if dtype.is_floating_point:
        return _Through.apply(source, data, dtype)
    integers = data.to(dtype, copy=True)
    set_stand_in(integers, source.view_as(source))
    return integers


def stand_in(tensor: Tensor) -> Tensor | None:
    """Return the tensor that represents recorded integers or booleans in the autograd graph, or None."""
    return None if is_compiling() or tensor.is_floating_point() else getattr(tensor, "_stand_in", None)


def set_stand_in(integers: Tensor, place: Tensor) -> None:
    """Set the float tensor that represents integers or booleans in the autograd graph."""
    integers._stand_in = place  # type: ignore[attr-defined]


def _cast_type(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    (given,) = types
    return types, [to_torch(attrs["dtype"]) if given is None or given.is_floating_point else given]


@op("amp_cast", may_alias=True, infer="same", types=_cast_type)
def amp_cast(
    data: Tensor,
    *,
    dtype: Literal["bfloat16", "float16", "float32", "float64", "int32", "int64", "int8", "uint8"],
) -> Tensor:
    """Floats as `dtype`. Other arrays are returned unchanged."""
    return data.to(to_torch(dtype)) if data.is_floating_point() else data


def _common_type(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    if None in types:
        return types, types
    empty = [torch.empty(0, dtype=dtype, device="meta") for dtype in types]
    return types, [tensor.dtype for tensor in amp_multicast(*empty, **attrs)]


@op(
    "amp_multicast",
    may_alias=True,
    takes=lambda a: [f"data_{i}" for i in range(a["num_outputs"])],
    outputs=lambda a: a["num_outputs"],
    types=_common_type,
)
def amp_multicast(*data: Tensor, num_outputs: int, cast_narrow: bool = False) -> list[Tensor]:
    """Cast all half and single precision arrays to their widest dtype, or to the narrowest if `cast_narrow`."""
    if num_outputs != len(data):
        raise MXNetError(f"expected num_outputs={num_outputs} arrays, got {len(data)}")
    present = {tensor.dtype for tensor in data}
    narrow = next((dtype for dtype in _NARROW if dtype in present), None)
    wanted = narrow if narrow and (cast_narrow or torch.float32 not in present) else torch.float32
    castable = (*_NARROW, torch.float32)
    return [tensor.to(wanted) if tensor.dtype in castable else tensor for tensor in data]


@op("all_finite", types=typed([torch.float32]))
def all_finite(data: Tensor, *, init_output: bool = True) -> Tensor:
    """1 if no element is infinite or NaN, else 0."""
    return multi_all_finite(data, init_output=init_output)


@op(
    "multi_all_finite",
    same_dtype=True,
    takes=lambda a: [f"array_{i}" for i in range(a["num_arrays"])],
    types=typed([torch.float32]),
)
def multi_all_finite(*data: Tensor, num_arrays: int = 1, init_output: bool = True) -> Tensor:
    """1 if no element of any array is infinite or NaN, else 0.

    With init_output=False, front ends combine the result with the previous value of `out=`.
    """
    if num_arrays != len(data):
        raise MXNetError(f"expected num_arrays={num_arrays} arrays, got {len(data)}")
    if not all(tensor.is_floating_point() for tensor in data):
        raise MXNetError("expected arrays of floats")
    flags = [torch.isfinite(tensor.detach()).all() for tensor in data]
    return torch.stack(flags).all().reshape(1).float()
