"""Products of arrays."""

from __future__ import annotations

from typing import Any

from .call import call

__all__ = ["dot", "einsum", "inner", "matmul", "outer", "tensordot", "trace", "vdot"]


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The dot product: of vectors, matrices, or over the last dimension of a and the last but one of b."""
    return call("_np_dot", (a, b), out)


def matmul(a: Any, b: Any, out: Any = None, **kwargs: Any) -> Any:
    """The matrix product; dimensions before the last two broadcast."""
    return call("_npi_matmul", (a, b), out)


def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last dimensions."""
    return tensordot(a, b, ([-1], [-1]))


def outer(a: Any, b: Any) -> Any:
    """The products of each element of a with each of b, both flattened."""
    return tensordot(_flat(a), _flat(b), 0)


def vdot(a: Any, b: Any) -> Any:
    """The dot product of both arrays flattened."""
    return tensordot(_flat(a), _flat(b), 1)


def _flat(a: Any) -> Any:
    return call("Reshape", (a,), shape=(-1,))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum of products over `axes` dimensions, or over the dimensions that the pair `axes` names."""
    if isinstance(axes, int):
        return call("_npi_tensordot_int_axes", (a, b), axes=axes)
    of_a, of_b = axes
    return call("_npi_tensordot", (a, b), a_axes_summed=of_a, b_axes_summed=of_b)


def einsum(*operands: Any, **kwargs: Any) -> Any:
    """Sums of products as Einstein wrote them: `einsum("ij,jk->ik", a, b, optimize=False, out=None)`."""
    subscripts, *arrays = operands
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum expects the subscripts as a string first, received {type(subscripts).__name__}")
    out, optimize = kwargs.pop("out", None), kwargs.pop("optimize", False)
    if kwargs:
        raise TypeError(f"einsum has no argument {', '.join(kwargs)}. Expected optimize or out")
    return call("_npi_einsum", arrays, out, num_args=len(arrays), subscripts=subscripts, optimize=int(bool(optimize)))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, out: Any = None) -> Any:
    """The sum of a diagonal of the matrices in two dimensions."""
    return call("_np_trace", (a,), out, offset=offset, axis1=axis1, axis2=axis2)
