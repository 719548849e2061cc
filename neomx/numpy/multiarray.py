"""`mx.np.ndarray`: an NDArray with NumPy semantics, as far as MXNet supports them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as onp
import torch

from .. import numpy as np  # this package; its names are complete when functions are called
from ..base import modes, numeric_types
from ..context import Context
from ..dtype import NUMPY_OF_TORCH, to_torch
from ..ndarray.invoke import apply
from ..ndarray.ndarray import WIDE, Gradient, NDArray
from ..ops.table import OPS
from .dispatch import array_function, array_ufunc
from .indexing import Indexed
from .methods import Methods, check_astype, check_order

# The values of `x.dtype`: NumPy dtypes, except torch.bfloat16, which NumPy does not have.
_DTYPES: dict[torch.dtype, Any] = {
    dtype: kind if dtype is torch.bfloat16 else onp.dtype(kind) for dtype, kind in NUMPY_OF_TORCH.items()
}


def _operator(array_op: str, scalar_op: str) -> Callable[..., Any]:
    """Return a binary operator, with one op for two arrays and another for an array and a number."""

    def binary(self: ndarray, other: Any) -> Any:
        # Looked up on each call, because torch.compile can trace a global but not a closure variable.
        if isinstance(other, ndarray):
            return apply(OPS[array_op], (self, other), {}, None, ndarray)
        if isinstance(other, numeric_types):
            return apply(OPS[scalar_op], (self,), {"scalar": other}, None, ndarray)
        raise unsupported(other)

    return binary


def _in_place(array_op: str, scalar_op: str, direct: Callable[..., torch.Tensor] | None = None) -> Callable[..., Any]:
    """Return an in-place operator. It uses `direct` where torch's operation does the same."""

    def binary(self: ndarray, other: Any) -> Any:
        data, value = self._data, other
        if isinstance(other, ndarray):
            value = other._data
            same = value.dtype is data.dtype and value.shape == data.shape and other._ctx is self._ctx
            op_name, arrays, attrs = array_op, (self, other), {}
        elif isinstance(other, numeric_types):
            same = data.dtype in WIDE  # torch rounds a number differently to narrow floats
            op_name, arrays, attrs = scalar_op, (self,), {"scalar": other}  # type: ignore[assignment]
        else:
            raise unsupported(other)
        if direct is None or not same or not data.is_floating_point() or modes.recording:
            return apply(OPS[op_name], arrays, attrs, self, ndarray)
        try:
            direct(self._writable_data(), value.detach() if value is not other and value.requires_grad else value)
        except (RuntimeError, OverflowError):  # overlapping arrays, booleans, an int of more than 64 bits
            return apply(OPS[op_name], arrays, attrs, self, ndarray)
        return self

    return binary


def _unary(name: str) -> Callable[..., Any]:
    def unary(self: ndarray) -> Any:
        return apply(OPS[name], (self,), {}, None, ndarray)

    return unary


def unsupported(value: Any) -> TypeError:
    """Return the error for an operand that is neither an mx.np array nor a number."""
    return TypeError(
        f"expected an mx.np array or a number as operand of an mx.np array, received {type(value).__name__}. Convert "
        "it with mx.np.array(...), or an mx.nd array with x.as_np_ndarray()"
    )


class ndarray(Methods, Indexed):  # type: ignore[misc]  # NumPy's methods have different signatures
    """An n-dimensional array with NumPy's shapes, indexing and broadcasting."""

    __slots__ = ()

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of the elements, such as `dtype('float32')`."""
        return _DTYPES[self._data.dtype]

    def as_nd_ndarray(self) -> NDArray:
        """Return an `mx.nd` array that shares this array's memory, gradient and position in the autograd graph."""
        return self._as_kind(NDArray)

    def as_np_ndarray(self) -> ndarray:
        """Return this array, which is already an `mx.np` array."""
        return self

    # ---- conversion ----

    def __repr__(self) -> str:
        text = repr(self._printable())
        if self.size:
            text = re.sub(r",\s*shape=\([\d, ]*\)", "", text)  # NumPy 2 adds the shape to summaries
        if self.dtype == onp.float32:  # MXNet's default dtype is not shown
            text = re.sub(r",\s*dtype=float32", "", text)
        elif "dtype=" not in text and self.dtype != onp.bool_:
            text = f"{text[:-1]}, dtype={self.dtype})"
        return text if self._ctx.device_type == "cpu" else f"{text[:-1]}, ctx={self._ctx})"

    def __str__(self) -> str:
        return str(self._printable())

    def __format__(self, spec: str) -> str:
        if not self.ndim:
            return format(self._printable().item(), spec)
        if spec:
            raise TypeError(
                f"cannot format an array of shape {self.shape} with {spec!r}, expected one element. Use x.item()"
            )
        return str(self)

    def item(self, *args: Any) -> Any:
        """Return one element as a Python number."""
        return self.asnumpy().item(*args)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self.asnumpy().tolist()

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError("The truth value of an ndarray with multiple elements is ambiguous. Use all() or any()")
        return bool(self.size and self.item())

    __nonzero__ = __bool__

    def __float__(self) -> float:
        return float(self._only_element())

    def __int__(self) -> int:
        return int(self._only_element())

    def _only_element(self) -> Any:
        if self.size != 1:
            raise TypeError(
                f"only an array with one element can be converted to a Python number, received shape {self.shape}"
            )
        return self.item()

    # ---- NumPy's functions on these arrays ----

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(kind, ndarray) for kind in types):
            return NotImplemented
        return array_function(func, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return array_ufunc(ufunc, method, inputs, kwargs)

    # ---- copies and views ----

    def astype(  # type: ignore[override]  # NumPy's order of arguments
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """Return a copy with elements of `dtype`; with `copy=False`, the array itself if it already has that dtype."""
        if order != "K" or casting != "unsafe" or not subok:
            check_astype(order, casting, subok)
        wanted = to_torch("float32" if dtype is None else dtype)
        if not copy and wanted is self._data.dtype:
            return self
        return apply(OPS["cast"], (self,), {"dtype": wanted}, None, ndarray)

    def reshape(self, *shape: Any, order: str = "C") -> Any:  # type: ignore[override]
        """Return a copy with another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        sizes = shape[0] if len(shape) == 1 and type(shape[0]) is tuple else shape
        for size in sizes:
            if type(size) is not int:
                break
        else:
            if sizes and order == "C":  # a call with attributes that need no conversion
                return apply(OPS["_np_reshape"], (self,), {"newshape": sizes}, None, ndarray)
        return super().reshape(*shape, order=order)

    def copy(self, order: str = "C") -> Any:
        """Return a copy on the same context."""
        check_order(order)
        return super().copyto(self._ctx)

    def copyto(self, other: Any) -> Any:
        """Copy into another array, or to a new array on a context."""
        if not isinstance(other, (ndarray, Context)):
            raise TypeError(f"copyto expects an mx.np array or a Context, received {type(other).__name__}")
        return super().copyto(other)

    def as_in_ctx(self, ctx: Context) -> Any:
        """Return this array if it is on the context, otherwise a copy on that context."""
        return self.as_in_context(ctx)

    def slice_assign(self, rhs: ndarray, begin: Any, end: Any, step: Any) -> Any:
        """Write `rhs` into the elements from `begin` to `end`."""
        return self._slice_assign("_slice_assign", (self, rhs), begin=begin, end=end, step=step)

    def slice_assign_scalar(self, value: float, begin: Any, end: Any, step: Any) -> Any:
        """Write a number into the elements from `begin` to `end`."""
        return self._slice_assign("_slice_assign_scalar", (self,), scalar=value, begin=begin, end=end, step=step)

    def _slice_assign(self, name: str, arrays: Any, **attrs: Any) -> Any:
        op = OPS[name]
        bound, values = op.bind(arrays, attrs, ndarray)
        return apply(op, bound, values, self, ndarray)

    def reshape_view(self, *shape: Any, **kwargs: Any) -> Any:
        """Return a view with another shape. It shares memory, and supports MXNet's codes 0 to -4, as in `mx.nd`."""
        return NDArray.reshape(self, *shape, **kwargs)

    def tostype(self, stype: str) -> Any:
        """Return this array. `mx.np` has no other storage types."""
        if stype != "default":
            raise AttributeError(f"an mx.np array cannot be stored as {stype!r}. Use x.as_nd_ndarray().tostype(...)")
        return self

    def sort(self, axis: Any = -1, kind: Any = None, order: Any = None) -> None:
        """Sort the elements in place. Use `np.sort` for a sorted copy."""
        self._assign(np.sort(self, axis=axis, kind=kind, order=order)._data)

    # ---- operators ----

    __add__ = __radd__ = _operator("_npi_add", "_npi_add_scalar")
    __sub__ = _operator("_npi_subtract", "_npi_subtract_scalar")
    __rsub__ = _operator("_npi_subtract", "_npi_rsubtract_scalar")
    __mul__ = __rmul__ = _operator("_npi_multiply", "_npi_multiply_scalar")
    __truediv__ = __div__ = _operator("_npi_true_divide", "_npi_true_divide_scalar")
    __rtruediv__ = __rdiv__ = _operator("_npi_true_divide", "_npi_rtrue_divide_scalar")
    __mod__ = _operator("_npi_mod", "_npi_mod_scalar")
    __rmod__ = _operator("_npi_mod", "_npi_rmod_scalar")
    __pow__ = _operator("_npi_power", "_npi_power_scalar")
    __rpow__ = _operator("_npi_power", "_npi_rpower_scalar")
    __and__ = _operator("_npi_bitwise_and", "_npi_bitwise_and_scalar")
    __or__ = _operator("_npi_bitwise_or", "_npi_bitwise_or_scalar")
    __xor__ = _operator("_npi_bitwise_xor", "_npi_bitwise_xor_scalar")
    __eq__ = _operator("_npi_equal", "_npi_equal_scalar")
    __ne__ = _operator("_npi_not_equal", "_npi_not_equal_scalar")
    __gt__ = _operator("_npi_greater", "_npi_greater_scalar")
    __ge__ = _operator("_npi_greater_equal", "_npi_greater_equal_scalar")
    __lt__ = _operator("_npi_less", "_npi_less_scalar")
    __le__ = _operator("_npi_less_equal", "_npi_less_equal_scalar")
    __hash__ = object.__hash__
    __iadd__ = _in_place("_npi_add", "_npi_add_scalar", torch.Tensor.add_)
    __isub__ = _in_place("_npi_subtract", "_npi_subtract_scalar", torch.Tensor.sub_)
    __imul__ = _in_place("_npi_multiply", "_npi_multiply_scalar", torch.Tensor.mul_)
    __itruediv__ = __idiv__ = _in_place("_npi_true_divide", "_npi_true_divide_scalar", torch.Tensor.div_)
    __imod__ = _in_place("_npi_mod", "_npi_mod_scalar")
    __iand__ = _in_place("_npi_bitwise_and", "_npi_bitwise_and_scalar")
    __ior__ = _in_place("_npi_bitwise_or", "_npi_bitwise_or_scalar")
    __ixor__ = _in_place("_npi_bitwise_xor", "_npi_bitwise_xor_scalar")
    __abs__ = _unary("_npi_absolute")
    __invert__ = _unary("_npi_bitwise_not")
    __floor__ = _unary("_npi_floor")
    __ceil__ = _unary("_npi_ceil")
    __trunc__ = _unary("_npi_trunc")

    def __neg__(self) -> Any:
        if self._data.dtype is torch.bool:  # torch cannot negate booleans, but can multiply them
            return self * -1
        return apply(OPS["_npi_negative"], (self,), {}, None, ndarray)

    def __round__(self, n: int = 0) -> Any:
        return self.round(n or 0)

    def __matmul__(self, other: Any) -> Any:
        return np.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return np.matmul(other, self)

    def __imatmul__(self, other: Any) -> Any:
        return np.matmul(self, other, out=self)


class _NpGradient(Gradient, ndarray):  # type: ignore[misc]
    """The gradient of an mx.np variable."""

    __slots__ = ()


ndarray._kind, ndarray._gradient_kind = ndarray, _NpGradient
