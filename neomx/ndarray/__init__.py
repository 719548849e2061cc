"""`mx.nd`: arrays, with every op of the op table as a function on them.

The prefix of an op's name selects its namespace: `_contrib_x` is `nd.contrib.x`, `_linalg_x` is `nd.linalg.x`,
`_image_x` is `nd.image.x`, `_sparse_x` is `nd.sparse.x`, any other `_x` is `nd._internal._x`. All others are in `nd`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..base import suggest
from ..ops import OPS
from . import _internal, contrib, image, linalg, op, private_names, random, sparse  # noqa: F401
from .invoke import make_function
from .ndarray import NDArray
from .serialize import load, load_frombuffer, save  # noqa: F401
from .sparse import cast_storage
from .utils import *  # noqa: F403

_PLACES = {"_contrib_": contrib, "_linalg_": linalg, "_image_": image, "_sparse_": sparse}


def _place_functions() -> None:
    op.cast_storage = cast_storage  # type: ignore[attr-defined]
    for name, row in OPS.items():
        if name.startswith("_np"):
            continue  # ops of mx.np and mx.npx
        function = make_function(row, name, NDArray)
        for prefix, module in _PLACES.items():
            if name.startswith(prefix):
                vars(module).setdefault(name.removeprefix(prefix), function)
        if name.startswith("_"):
            vars(_internal).setdefault(name, function)
        else:
            vars(op).setdefault(name, function)
            globals().setdefault(name, function)
            if name in sparse.OP_NAMES:
                vars(sparse).setdefault(name, function)


_place_functions()


def __getattr__(name: str) -> Any:
    if name in ("np", "npx", "numpy", "numpy_extension"):  # imported lazily, because they import this package
        return import_module("neomx.numpy_extension.fronts").of_arrays(name)
    if name in ("_DTYPE_MX_TO_NP", "_DTYPE_NP_TO_MX", "_GRAD_REQ_MAP"):
        return getattr(private_names, name)
    raise AttributeError(f"module 'mx.nd' has no attribute {name!r}.{suggest(name, globals())}")
