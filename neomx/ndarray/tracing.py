"""Check that a function that `mx.sym.to_static` records does not read values, which would be fixed in its graph."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError, modes
from .invoke import in_graph


def check_untraced(tensor: torch.Tensor, use: str, remedy: str) -> None:
    """Raise if `to_static` is recording and the tensor depends on its inputs."""
    if modes.tracing is None or not modes.recording or in_graph(tensor) is None:
        return
    raise MXNetError(
        f"to_static: {modes.tracing} uses a traced array of shape {tuple(tensor.shape)} as {use}, which would be fixed "
        f"in the graph for all inputs. {remedy}"
    )


def check_value(tensor: torch.Tensor) -> None:
    """Raise if the values of a traced tensor leave the graph, as Python or NumPy values."""
    check_untraced(
        tensor,
        "a Python or NumPy value (if, while, bool, int, float, asscalar, asnumpy)",
        "To choose by value, use nd.where, or F.where, F.contrib.cond or F.contrib.while_loop in a HybridBlock. To fix "
        "the value, pass it to to_static as a number, or read it from x.detach()",
    )


def check_key(key: Any) -> None:
    """Raise if the key of `x[key]` contains a traced array."""
    for item in key if isinstance(key, tuple) else (key,):
        tensor = getattr(item, "_data", None)
        if isinstance(tensor, torch.Tensor):
            check_untraced(tensor, "an index", "Use nd.take, nd.pick or nd.gather_nd instead, or nd.where for a mask")
