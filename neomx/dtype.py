"""The mapping between MXNet's dtypes (numpy types), torch's dtypes, and the type flags in files."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .base import InvalidDTypeError

# MXNet's type flag, used in `.params` and `-symbol.json` files, with the name and torch's dtype.
_TABLE: list[tuple[int, str, torch.dtype]] = [
    (0, "float32", torch.float32),
    (1, "float64", torch.float64),
    (2, "float16", torch.float16),
    (3, "uint8", torch.uint8),
    (4, "int32", torch.int32),
    (5, "int8", torch.int8),
    (6, "int64", torch.int64),
    (7, "bool", torch.bool),
    (12, "bfloat16", torch.bfloat16),
]

TORCH_OF_FLAG = {flag: dtype for flag, _, dtype in _TABLE}
FLAG_OF_TORCH = {dtype: flag for flag, _, dtype in _TABLE}
NAME_OF_TORCH = {dtype: name for _, name, dtype in _TABLE}
_TORCH_OF_NAME = {name: dtype for _, name, dtype in _TABLE}

# The values of `NDArray.dtype`: numpy scalar types, except torch.bfloat16, which numpy does not have.
NUMPY_OF_TORCH: dict[torch.dtype, Any] = {
    dtype: (torch.bfloat16 if name == "bfloat16" else np.dtype(name).type) for _, name, dtype in _TABLE
}


# The most common spellings. NumPy resolves the others.
_TORCH_OF: dict[Any, torch.dtype] = {
    **_TORCH_OF_NAME,
    **{dtype: dtype for dtype in FLAG_OF_TORCH},
    **{kind: dtype for dtype, kind in NUMPY_OF_TORCH.items()},
}


def to_torch(dtype: Any) -> torch.dtype:
    """Return torch's dtype for any dtype that a program may pass: 'float32', np.float32, float, torch.float32."""
    try:
        return _TORCH_OF[dtype]
    except (KeyError, TypeError):  # TypeError: it is not hashable
        pass
    if not isinstance(dtype, torch.dtype):
        try:
            return _TORCH_OF_NAME[np.dtype(dtype).name]
        except (TypeError, KeyError, ValueError, SyntaxError):  # numpy parses strings as structured dtypes
            pass
    raise InvalidDTypeError(f"unknown dtype {dtype!r:.80}. Expected one of {', '.join(_TORCH_OF_NAME)}")
