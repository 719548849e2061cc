"""`mx.sym`: symbolic graphs, with every op of the op table as a function on symbols.

The prefix of an op's name selects its namespace, as in `mx.nd`: `_contrib_x` is `sym.contrib.x`, and so on.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..base import suggest
from ..ndarray.sparse import OP_NAMES
from ..ops import OPS
from . import _internal, contrib, image, linalg, op, random, sparse
from .build import make_function
from .cached_op import CachedOp  # noqa: F401
from .lowering import lower  # noqa: F401
from .serialize import fromjson, load, load_json  # noqa: F401
from .symbol import Symbol
from .utils import *  # noqa: F403

# Functions of `neomx.networks`, which is loaded when one of them is first used, because it imports this package.
_NETWORKS = {
    "Bert",
    "DeConvolution",
    "Fft",
    "GPT2",
    "HammingWindow",
    "Ifft",
    "LSTM",
    "Leading",
    "Mixup",
    "MultiHeadAttention",
    "RandomFlip",
    "RandomRotation",
    "Resnet",
    "SelfAttention",
    "VGG",
    "dequantize",
    "quantize",
}
_PLACES = {"_contrib_": contrib, "_linalg_": linalg, "_image_": image, "_sparse_": sparse, "_random_": random}


def _place_functions() -> None:
    for name, row in OPS.items():
        if name.startswith("_np"):
            continue  # ops of mx.np and mx.npx
        for prefix, module in _PLACES.items():
            short = name.removeprefix(prefix)
            if name.startswith(prefix) and (module is not random or name.endswith("_like")):
                vars(module).setdefault(short, make_function(row, short, Symbol))
        function = make_function(row, name, Symbol)
        if name.startswith("_"):
            vars(_internal).setdefault(name, function)
            continue
        vars(op).setdefault(name, function)
        globals().setdefault(name, function)
        if name in OP_NAMES:
            vars(sparse).setdefault(name, function)


_place_functions()


def __getattr__(name: str) -> Any:
    if name in ("np", "npx", "numpy", "numpy_extension"):  # imported lazily, because they import this package
        return import_module("neomx.numpy_extension.fronts").of_symbols(name)
    if name == "to_static":  # likewise
        return import_module("neomx.gluon.static").to_static
    if name in _NETWORKS:
        return getattr(import_module("neomx.networks"), name)
    raise AttributeError(f"module 'mx.sym' has no attribute {name!r}.{suggest(name, __dir__())}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NETWORKS, "to_static"})
