"""`mx.np.ndarray`: an NDArray with NumPy's semantics, where MXNet has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
import torch

from ..base import numeric_types
from ..ndarray.invoke import apply
from ..ndarray.ndarray import Gradient, NDArray
from ..ops.table import OPS
from .indexing import Indexed


def _operator(array_op: str, scalar_op: str) -> Callable[..., Any]:
    """A binary operator: one op for two arrays, another for an array and a number."""

    def binary(self: ndarray, other: Any) -> Any:
        # Looked up each time: torch.compile can follow a global, not what a closure keeps.
        if isinstance(other, ndarray):
            return apply(OPS[array_op], (self, other), {}, None, ndarray)
        if isinstance(other, numeric_types):
            return apply(OPS[scalar_op], (self,), {"scalar": other}, None, ndarray)
        raise unsupported(other)

    return binary


def _in_place(array_op: str, scalar_op: str) -> Callable[..., Any]:
    """A binary operator that writes its result into the array on its left."""

    def binary(self: ndarray, other: Any) -> Any:
        if isinstance(other, ndarray):
            return apply(OPS[array_op], (self, other), {}, self, ndarray)
        if isinstance(other, numeric_types):
            return apply(OPS[scalar_op], (self,), {"scalar": other}, self, ndarray)
        raise unsupported(other)

    return binary


def unsupported(value: Any) -> TypeError:
    """The error for an operand that is neither an mx.np array nor a number."""
    return TypeError(
        f"an mx.np array cannot be combined with {type(value).__name__}. Expected an mx.np array or a number; "
        "make an array of it with mx.np.array(...), or of an mx.nd array with x.as_np_ndarray()"
    )


class ndarray(Indexed):
    """An n-dimensional array with NumPy's shapes, indexing and broadcasting."""

    __slots__ = ()

    def as_nd_ndarray(self) -> NDArray:
        """An `mx.nd` array that shares this array's memory, gradient and place in the autograd graph."""
        return self._as_kind(NDArray)

    def as_np_ndarray(self) -> ndarray:
        """This array, which is an `mx.np` array already."""
        return self

    def __repr__(self) -> str:
        text = repr(self.asnumpy())
        if self.dtype == onp.float32:  # MXNet's default, which needs no mention
            text = text.replace(", dtype=float32", "")
        return text if self._ctx.device_type == "cpu" else f"{text[:-1]}, ctx={self._ctx})"

    def __str__(self) -> str:
        return str(self.asnumpy())

    def item(self, *args: Any) -> Any:
        """One element as a Python number."""
        return self.asnumpy().item(*args)

    __add__ = __radd__ = _operator("_npi_add", "_npi_add_scalar")
    __sub__ = _operator("_npi_subtract", "_npi_subtract_scalar")
    __mul__ = __rmul__ = _operator("_npi_multiply", "_npi_multiply_scalar")
    __rsub__ = _operator("_npi_subtract", "_npi_rsubtract_scalar")
    __truediv__ = __div__ = _operator("_npi_true_divide", "_npi_true_divide_scalar")
    __rtruediv__ = __rdiv__ = _operator("_npi_true_divide", "_npi_rtrue_divide_scalar")
    __pow__ = _operator("_npi_power", "_npi_power_scalar")
    __rpow__ = _operator("_npi_power", "_npi_rpower_scalar")
    __iadd__ = _in_place("_npi_add", "_npi_add_scalar")
    __isub__ = _in_place("_npi_subtract", "_npi_subtract_scalar")
    __imul__ = _in_place("_npi_multiply", "_npi_multiply_scalar")
    __itruediv__ = __idiv__ = _in_place("_npi_true_divide", "_npi_true_divide_scalar")
    __hash__ = object.__hash__


class _NpGradient(Gradient, ndarray):
    """The gradient of an mx.np variable."""

    __slots__ = ()


ndarray._kind, ndarray._gradient_kind = ndarray, _NpGradient


def from_tensor(tensor: torch.Tensor, ctx: Any = None) -> ndarray:
    """An mx.np array that holds `tensor`: shared memory, and one autograd graph."""
    return ndarray(tensor, ctx)
