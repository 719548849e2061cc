"""neomx: MXNet's API on PyTorch's engine. `import neomx as mx`."""

from . import autograd, base, context, ndarray, operator, random
from . import ndarray as nd
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, cpu_shared, current_context, gpu, gpu_memory_info, num_gpus

__version__ = "0.1.0"

__all__ = [
    "Context",
    "MXNetError",
    "autograd",
    "base",
    "context",
    "cpu",
    "cpu_pinned",
    "cpu_shared",
    "current_context",
    "gpu",
    "gpu_memory_info",
    "nd",
    "ndarray",
    "operator",
    "random",
    "num_gpus",
]
