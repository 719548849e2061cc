"""`mx.npx`: functions for neural networks on `mx.np` arrays, beyond those of NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..context import Context, cpu, cpu_pinned, current_context, gpu, gpu_memory_info, num_gpus
from ..ndarray.utils import waitall
from ..util import get_cuda_compute_capability, is_np_array, is_np_shape, reset_np, set_np
from . import image, random
from .ops import *  # noqa: F403
from .serialize import load, save

__all__ = [
    "Context",
    "cpu",
    "cpu_pinned",
    "current_context",
    "get_cuda_compute_capability",
    "gpu",
    "gpu_memory_info",
    "image",
    "is_np_array",
    "is_np_shape",
    "load",
    "num_gpus",
    "random",
    "reset_np",
    "save",
    "set_np",
    "waitall",
]


def __getattr__(name: str) -> Any:
    if name == "amp":  # mixed precision; imported lazily, as it imports this package
        return import_module("neomx.amp")
    raise AttributeError(f"module 'mx.npx' has no attribute {name!r}")
