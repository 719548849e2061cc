"""neomx: MXNet's API on PyTorch's engine. `import neomx as mx`."""

import os
import sys

from . import (
    amp,
    attribute,
    autograd,
    base,
    callback,
    context,
    contrib,
    dist,
    executor,
    gluon,
    image,
    initializer,
    io,
    kvstore,
    lr_scheduler,
    metric,
    model,
    monitor,
    name,
    ndarray,
    operator,
    optimizer,
    random,
    recordio,
    registry,
    symbol,
    test_utils,
)
from . import image as img
from . import initializer as init
from . import kvstore as kv
from . import monitor as mon
from . import ndarray as nd
from . import random as rnd
from . import symbol as sym
from .attribute import AttrScope
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, cpu_shared, current_context, gpu, gpu_memory_info, num_gpus
from .util import is_np_array, is_np_shape, np_array, np_shape, set_np_shape, use_np, use_np_array, use_np_shape

__version__ = "0.1.0"

__all__ = [
    "AttrScope",
    "Context",
    "MXNetError",
    "amp",
    "attribute",
    "autograd",
    "base",
    "callback",
    "context",
    "contrib",
    "cpu",
    "cpu_pinned",
    "cpu_shared",
    "current_context",
    "dist",
    "executor",
    "gluon",
    "gpu",
    "gpu_memory_info",
    "image",
    "img",
    "init",
    "initializer",
    "io",
    "is_np_array",
    "is_np_shape",
    "kv",
    "kvstore",
    "lr_scheduler",
    "metric",
    "model",
    "mon",
    "monitor",
    "name",
    "nd",
    "ndarray",
    "np_array",
    "np_shape",
    "num_gpus",
    "operator",
    "optimizer",
    "parallel",
    "random",
    "recordio",
    "registry",
    "rnd",
    "set_np_shape",
    "sym",
    "symbol",
    "test_utils",
    "use_np",
    "use_np_array",
    "use_np_shape",
]


# Loaded when they are used: `mx.parallel` takes a second, the others are seldom wanted.
_LATER = {
    "engine": "engine",
    "error": "error",
    "executor_manager": "executor_manager",
    "libinfo": "libinfo",
    "library": "library",
    "log": "log",
    "mod": "module",
    "module": "module",
    "onnx": "onnx",
    "parallel": "parallel",
    "profiler": "profiler",
    "rnn": "rnn",
    "rtc": "rtc",
    "runtime": "runtime",
    "util": "util",
    "visualization": "visualization",
    "viz": "visualization",
}


def __getattr__(attribute_name: str) -> object:
    if attribute_name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {attribute_name!r}")
    import importlib

    return importlib.import_module(f".{_LATER[attribute_name]}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


monitor.start_from_environment()
_is_command = os.path.basename(sys.argv[0]) in ("neomx", "-m")  # the launcher, not the program that it launches
if os.environ.get("MXNET_PROFILER_AUTOSTART", "0") not in ("", "0") and not _is_command:
    from . import profiler

    profiler.start_from_environment()
