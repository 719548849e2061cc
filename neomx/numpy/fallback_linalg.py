"""Linear algebra functions that MXNet delegates to NumPy (see `dispatch`)."""

from __future__ import annotations

from numpy.linalg import cond, lstsq, matrix_power, matrix_rank, multi_dot, qr

__all__ = ["cond", "lstsq", "matrix_power", "matrix_rank", "multi_dot", "qr"]
