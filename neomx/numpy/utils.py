"""Constants, dtypes, and whether arrays share memory."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as onp
from numpy import bool_, e, finfo, float16, float32, float64, inf, int8, int32, int64, nan, newaxis, pi, uint8

from .call import call

__all__ = [
    "NAN",
    "NINF",
    "NZERO",
    "NaN",
    "PINF",
    "PZERO",
    "bool",
    "bool_",
    "e",
    "finfo",
    "float16",
    "float32",
    "float64",
    "inf",
    "int32",
    "int64",
    "int8",
    "may_share_memory",
    "nan",
    "newaxis",
    "pi",
    "set_printoptions",
    "shares_memory",
    "uint8",
]

NAN = NaN = nan
PINF, NINF = inf, -inf
PZERO, NZERO = 0.0, -0.0
bool = builtins.bool


def shares_memory(a: Any, b: Any, max_work: Any = None) -> builtins.bool:
    """Whether two arrays have memory in common."""
    return builtins.bool(call("_npi_share_memory", (a, b)).item())


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> builtins.bool:
    """The same as `shares_memory`, which is as fast."""
    return shares_memory(a, b)


def set_printoptions(precision: int | None = None, threshold: int | None = None, **kwarg: Any) -> None:
    """How arrays are printed: digits after the point, and how many elements before a summary. They are NumPy's."""
    if kwarg:
        raise NotImplementedError(
            f"set_printoptions supports precision and threshold only, received {', '.join(kwarg)}. Use "
            "numpy.set_printoptions, which arrays of mx.np follow too"
        )
    onp.set_printoptions(precision=precision, threshold=threshold)
