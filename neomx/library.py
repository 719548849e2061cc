"""mx.library: loading of extensions compiled for MXNet, which is not supported."""

from __future__ import annotations

import os

from .base import MXNetError

_ENDINGS = (".so", ".dll", ".dylib")


def load(path: str, verbose: bool = True) -> None:
    """Raise MXNetError, because a library compiled against MXNet's headers cannot run on PyTorch's engine."""
    if not os.path.exists(path):
        raise MXNetError(f"load path {path} does NOT exist")
    if not path.endswith(_ENDINGS):
        raise MXNetError(f"load path {path} is NOT a library file")
    raise MXNetError(
        f"cannot load {path}: ops compiled against MXNet's headers require libmxnet, which neomx does not include. "
        "Write the op in Python (mx.operator.CustomOp), or compile it as a PyTorch extension and call it on x._data"
    )
