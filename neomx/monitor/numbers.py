"""Conversion of reported values to numbers and text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bar import duration

__all__ = ["duration", "number", "rate"]


def number(value: Any) -> float:
    """Return a number, or the mean of an array."""
    import torch  # not at the top: the launcher imports this module and does not need torch

    if isinstance(value, torch.Tensor):
        return value.double().mean().item()
    return float(np.mean(value.asnumpy() if hasattr(value, "asnumpy") else value))


def rate(per_second: float) -> str:
    """Format a rate as '12,345 samples/s' or '0.52 samples/s'."""
    return f"{per_second:,.0f} samples/s" if per_second >= 10 else f"{per_second:.2g} samples/s"
