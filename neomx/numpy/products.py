"""Products of arrays."""

from __future__ import annotations

from typing import Any

from .call import call, call_converted

__all__ = ["dot", "einsum", "inner", "matmul", "outer", "tensordot", "trace", "vdot"]


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Dot product of vectors or matrices. In general, over the last axis of a and the second-to-last axis of b."""
    return call("_np_dot", (a, b), out)


def matmul(a: Any, b: Any, out: Any = None, **kwargs: Any) -> Any:
    """Matrix product. Dimensions before the last two are broadcast."""
    return call("_npi_matmul", (a, b), out)


def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last axes."""
    return tensordot(a, b, ([-1], [-1]))


def outer(a: Any, b: Any) -> Any:
    """Outer product of the flattened arrays."""
    return tensordot(_flat(a), _flat(b), 0)


def vdot(a: Any, b: Any) -> Any:
    """Dot product of the flattened arrays."""
    return tensordot(_flat(a), _flat(b), 1)


def _flat(a: Any) -> Any:
    return call("Reshape", (a,), shape=(-1,))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum of products over the given number of axes, or over the pair of axis lists `axes`."""
    if isinstance(axes, int):
        return call("_npi_tensordot_int_axes", (a, b), axes=axes)
    of_a, of_b = axes
    return call("_npi_tensordot", (a, b), a_axes_summed=of_a, b_axes_summed=of_b)


def einsum(*operands: Any, **kwargs: Any) -> Any:
    """Einstein summation: `einsum("ij,jk->ik", a, b, optimize=False, out=None)`."""
    subscripts, arrays = operands[0] if operands else None, operands[1:]
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum expects the subscripts as a string first, received {type(subscripts).__name__}")
    if not kwargs:
        return call_converted("_npi_einsum", arrays, None, {"num_args": len(arrays), "subscripts": subscripts})
    out, optimize = kwargs.pop("out", None), kwargs.pop("optimize", False)
    if kwargs:
        raise TypeError(f"einsum has no argument {', '.join(kwargs)}. Expected optimize or out")
    return call("_npi_einsum", arrays, out, num_args=len(arrays), subscripts=subscripts, optimize=int(bool(optimize)))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, out: Any = None) -> Any:
    """Sum of the diagonal of the matrices in two axes."""
    return call("_np_trace", (a,), out, offset=offset, axis1=axis1, axis2=axis2)
