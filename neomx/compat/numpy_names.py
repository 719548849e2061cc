"""Names that NumPy removed in 1.24 and that MXNet 1.9 programs use: `np.float`, `np.int`, `np.Inf`, ..."""

import functools
from typing import Any

import numpy as np

# Aliases of Python's types, and names that were replaced by others.
BUILTINS = {"bool": bool, "complex": complex, "float": float, "int": int, "long": int, "object": object}
BUILTINS |= {"str": str, "unicode": str}
RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "alltrue": "all",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "in1d": "isin",
    "infty": "inf",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "sometrue": "any",
    "string_": "bytes_",
    "trapz": "trapezoid",
    "unicode_": "str_",
}


def restore() -> None:
    """Restore NumPy's removed names, for programs written for MXNet, and `fromstring` of bytes."""
    names = vars(np)
    for name, value in BUILTINS.items():
        names.setdefault(name, value)
    for name, later in RENAMED.items():
        if later in names:
            names.setdefault(name, names[later])
    if not hasattr(np.fromstring, "__wrapped__"):
        names["fromstring"] = _reading_bytes(np.fromstring)


def _reading_bytes(fromstring: Any) -> Any:
    """Return an `np.fromstring` that still reads binary data if no separator is given."""

    @functools.wraps(fromstring)
    def read(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **rest: Any) -> Any:
        if sep:
            return fromstring(string, dtype, count, sep=sep, **rest)
        data = string.encode("latin1") if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy()

    return read
