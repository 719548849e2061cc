"""`mx.npx`: what neural networks need beyond NumPy, on `mx.np` arrays."""

from __future__ import annotations

from ..context import Context, cpu, cpu_pinned, current_context, gpu, gpu_memory_info, num_gpus
from ..ndarray.utils import waitall
from ..util import get_cuda_compute_capability, is_np_array, is_np_shape, reset_np, set_np
from . import random
from .ops import *  # noqa: F403

__all__ = [
    "Context",
    "cpu",
    "cpu_pinned",
    "current_context",
    "get_cuda_compute_capability",
    "gpu",
    "gpu_memory_info",
    "is_np_array",
    "is_np_shape",
    "num_gpus",
    "random",
    "reset_np",
    "set_np",
    "waitall",
]
