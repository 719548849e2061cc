"""Constants, dtypes and memory sharing."""

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
    """Whether two arrays share memory."""
    return builtins.bool(call("_npi_share_memory", (a, b)).item())


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> builtins.bool:
    """Alias of `shares_memory`, which is equally fast."""
    return shares_memory(a, b)


def set_printoptions(precision: int | None = None, threshold: int | None = None, **kwarg: Any) -> None:
    """Set NumPy's print options: the precision, and the number of elements above which arrays are summarized."""
    if kwarg:
        raise NotImplementedError(
            f"set_printoptions supports precision and threshold only, received {', '.join(kwarg)}. Use "
            "numpy.set_printoptions, which also applies to arrays of mx.np"
        )
    onp.set_printoptions(precision=precision, threshold=threshold)
