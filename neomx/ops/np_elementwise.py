"""Elementwise ops of `mx.np`: they broadcast, and mixed dtypes meet in a common one.

The rules are MXNet's: floats win over integers, the wider float wins, uint8 and int8 meet in int32. A number takes the
array's dtype, except that division of integers gives float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .table import op

Tensor = torch.Tensor


def common_dtype(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The dtype in which two dtypes meet."""
    met = torch.promote_types(a, b)
    return torch.int32 if met is torch.int16 else met


def _binary(name: str, function: Callable[..., Tensor]) -> None:
    """Enter `_npi_<name>` for two arrays, `_npi_<name>_scalar` for an array and a number."""

    @op(f"_npi_{name}")
    def of_arrays(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.dtype is not rhs.dtype:
            dtype = common_dtype(lhs.dtype, rhs.dtype)
            lhs, rhs = lhs.to(dtype), rhs.to(dtype)
        return function(lhs, rhs)

    @op(f"_npi_{name}_scalar")
    def with_number(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        return function(data, _as_number_of(data, scalar))


def _as_number_of(data: Tensor, scalar: Any) -> Any:
    return scalar if data.is_floating_point() else int(scalar)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul}
for _name, _function in _FUNCTIONS.items():
    _binary(_name, _function)
