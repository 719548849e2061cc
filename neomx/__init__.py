"""neomx: MXNet's API on PyTorch's engine. `import neomx as mx`."""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from . import onednn

onednn.limit()  # before torch is loaded

if TYPE_CHECKING:
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
        numpy,
        numpy_extension,
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
    from . import numpy as np
    from . import numpy_extension as npx
    from . import random as rnd
    from . import symbol as sym
    from .attribute import AttrScope
    from .base import MXNetError
    from .context import Context, cpu, cpu_pinned, cpu_shared, current_context, gpu, gpu_memory_info, num_gpus
    from .util import is_np_array, is_np_shape, np_array, np_shape, set_np_shape, use_np, use_np_array, use_np_shape

__version__ = "0.1.0"

# Submodules are imported on first use, so that `neomx run` starts workers without importing torch itself.
_ALIASES = {"img": "image", "init": "initializer", "kv": "kvstore", "mod": "module", "mon": "monitor", "nd": "ndarray"}
_ALIASES |= {"np": "numpy", "npx": "numpy_extension", "optim": "optimizer", "rnd": "random", "sym": "symbol"}
_ALIASES |= {"viz": "visualization"}
_NAMES = {
    "attribute": "AttrScope",
    "base": "MXNetError",
    "context": "Context cpu cpu_pinned cpu_shared current_context gpu gpu_memory_info num_gpus",
    "distributed.comm": "comm_allreduce comm_allreduce_sum comm_broadcast comm_finalize comm_init parallel_rank",
    "util": "is_np_array is_np_shape np_array np_shape set_np_shape use_np use_np_array use_np_shape",
}
_HOMES = {name: room for room, names in _NAMES.items() for name in names.split()}

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
    "np",
    "np_array",
    "np_shape",
    "npx",
    "num_gpus",
    "numpy",
    "numpy_extension",
    "operator",
    "optimizer",
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


# Rarely used or slow to import, so `from neomx import *` does not include them.
_OTHERS = (
    "autodiff checkpoint comm_allreduce comm_allreduce_sum comm_broadcast comm_finalize comm_init distributed elastic "
    "engine error executor_manager learn libinfo library log mod module networks onnx optim parallel parallel_rank "
    "profiler rnn rtc runtime util visualization viz"
)


def __getattr__(attribute: str) -> object:
    room = _ALIASES.get(attribute) or _HOMES.get(attribute) or attribute
    try:
        value: object = importlib.import_module(f"{__name__}.{room}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{room}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}") from None
    if attribute in _HOMES:
        value = getattr(value, attribute)
    globals()[attribute] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_OTHERS.split()})


def _is_command() -> bool:
    """Whether this process is the `neomx` command or `python -m neomx`, and not a program launched by it."""
    if sys.argv[0] != "-m":  # Python's placeholder until it has found the module, whose package may import neomx
        return os.path.basename(sys.argv[0]) == "neomx"
    return "neomx" in sys.orig_argv[:-1] and sys.orig_argv[sys.orig_argv.index("neomx") - 1] == "-m"


# Environment variables that configure event sinks. Two of them predate the prefix.
_SINKS = ("NEOMX_SINK_", "NEOMX_PROGRESS", "NEOMX_TENSORBOARD")
if any(name.startswith(_SINKS) and value for name, value in os.environ.items()) and not _is_command():
    from . import monitor

    monitor.start_from_environment()
if (os.environ.get("NEOMX_CHECKPOINT") or os.environ.get("NEOMX_RESUME")) and not _is_command():
    from . import checkpoint

    checkpoint.start_from_environment()
if os.environ.get("NEOMX_ELASTIC") == "1" and not _is_command():
    from . import elastic

    elastic.start_from_environment()
if os.environ.get("MXNET_PROFILER_AUTOSTART", "0") not in ("", "0") and not _is_command():
    from . import profiler

    profiler.start_from_environment()
