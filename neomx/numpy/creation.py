"""Arrays out of nothing or out of Python data."""

from __future__ import annotations

from typing import Any

import numpy as onp
import torch

from ..context import Context, current_context
from ..dtype import to_torch
from ..ndarray.ndarray import NDArray
from .call import make
from .multiarray import ndarray

__all__ = ["array", "ones", "zeros"]


def array(object: Any, dtype: Any = None, ctx: Context | None = None) -> ndarray:
    """An array of any data. Without a dtype, arrays keep theirs and lists and numbers become float32."""
    ctx = (ctx or current_context()).check()
    if isinstance(object, NDArray):
        wanted = object.to_torch().dtype if dtype is None else to_torch(dtype)
        return ndarray(object.to_torch().detach().to(ctx.device, wanted, copy=True), ctx)
    if isinstance(object, torch.Tensor):
        wanted = object.dtype if dtype is None else to_torch(dtype)
        return ndarray(object.detach().to(ctx.device, wanted, copy=True), ctx)
    if dtype is None:
        dtype = object.dtype if isinstance(object, onp.ndarray) else onp.float32
    data = onp.array(_without_arrays(object), order="C")
    return ndarray(torch.from_numpy(data).to(ctx.device, to_torch(dtype)), ctx)


def _without_arrays(value: Any) -> Any:
    """Nested lists with numpy arrays in place of ours."""
    if isinstance(value, NDArray):
        return value.asnumpy()
    return [_without_arrays(item) for item in value] if isinstance(value, (list, tuple)) else value


def zeros(shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None) -> Any:
    """An array of zeros, float32 unless told."""
    return make("_npi_zeros", ctx, shape=shape, dtype=dtype or "float32")


def ones(shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None) -> Any:
    """An array of ones, float32 unless told."""
    return make("_npi_ones", ctx, shape=shape, dtype=dtype or "float32")
