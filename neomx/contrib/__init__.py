"""`mx.contrib`: MXNet's contributed modules."""

import importlib
import sys

from .. import amp
from ..ndarray import contrib as nd
from ..ndarray import contrib as ndarray
from ..symbol import contrib as sym
from ..symbol import contrib as symbol

# Supports `import mxnet.contrib.amp`.
sys.modules[f"{__name__}.amp"] = amp
for _name in ("nd", "ndarray"):
    sys.modules[f"{__name__}.{_name}"] = nd
for _name in ("sym", "symbol"):
    sys.modules[f"{__name__}.{_name}"] = sym

__all__ = ["amp", "nd", "ndarray", "sym", "symbol"]

# Loaded on first use.
_LATER = ("autograd", "io", "onnx", "svrg_optimization", "tensorboard", "text")


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
