"""Shapes that a model computes from the shapes of its inputs, some dimensions of which are symbolic: (batch, 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .reader import Call


def lengths_of(call: Call) -> np.ndarray | None:
    """Return the dimensions that a node computes, as an object array of integers and names; None for other nodes."""
    if call.op == "Shape":
        dims = call.dims(call.node.input[0])
        if dims is None or None in dims:
            return None
        return np.array(dims, dtype=object)[call.attrs.get("start", 0) : call.attrs.get("end", len(dims))]
    names = [name for name in call.node.input if name]
    partial, constants = call.graph.partial, call.graph.constants
    if call.op not in _ON_LENGTHS or not any(name in partial for name in names):
        return None
    if not all(name in partial or name in constants for name in names):
        return None
    return _ON_LENGTHS[call.op](call, *(partial[name] if name in partial else constants[name] for name in names))


def _gather(call: Call, lengths: np.ndarray, index: np.ndarray) -> np.ndarray:
    return np.array(lengths[index], dtype=object)


def _slice(call: Call, lengths: np.ndarray, *bounds: np.ndarray) -> np.ndarray:
    start, end = (
        int(call.attrs[n][0]) if n in call.attrs else int(bounds[i][0]) for i, n in enumerate(("starts", "ends"))
    )
    step = int(bounds[3][0]) if len(bounds) > 3 else 1
    return lengths[start:end:step]


def _concat(call: Call, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype=object) for part in parts])


def _reshaped(call: Call, lengths: np.ndarray, *axes: np.ndarray) -> np.ndarray:
    """Squeeze, Unsqueeze or Reshape a list of dimensions, or one dimension."""
    return lengths.reshape(() if call.op == "Squeeze" else -1)


def _product(call: Call, first: np.ndarray, second: np.ndarray) -> np.ndarray | None:
    """Multiply integers; a symbolic dimension may be multiplied by 1."""
    pairs = np.broadcast(np.asarray(first, dtype=object), np.asarray(second, dtype=object))
    found = [_times(a, b) for a, b in pairs]
    return None if None in found else np.array(found, dtype=object).reshape(pairs.shape)


def _times(a: Any, b: Any) -> Any:
    if isinstance(a, str) or isinstance(b, str):
        return a if b == 1 else b if a == 1 else None
    return a * b


_ON_LENGTHS: dict[str, Callable[..., np.ndarray | None]] = {
    "Cast": lambda call, lengths: lengths,
    "Identity": lambda call, lengths: lengths,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Reshape": _reshaped,
    "Mul": _product,
}
