"""neomx: MXNet's API on PyTorch's engine. `import neomx as mx`."""

from . import attribute, autograd, base, context, executor, name, ndarray, operator, random, symbol
from . import ndarray as nd
from . import symbol as sym
from .attribute import AttrScope
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, cpu_shared, current_context, gpu, gpu_memory_info, num_gpus

__version__ = "0.1.0"

__all__ = [
    "AttrScope",
    "Context",
    "MXNetError",
    "attribute",
    "autograd",
    "base",
    "context",
    "cpu",
    "cpu_pinned",
    "cpu_shared",
    "current_context",
    "executor",
    "gpu",
    "gpu_memory_info",
    "name",
    "nd",
    "ndarray",
    "operator",
    "random",
    "num_gpus",
    "sym",
    "symbol",
]
