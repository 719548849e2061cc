"""Estimate the size of the result of an ONNX node of constants, before it is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_MOST = 1 << 62


def elements_of(node: Any, inputs: Sequence[np.ndarray | None]) -> int:
    """Return the approximate number of elements of the results; exact for operators that can enlarge their inputs."""
    given = [each for each in inputs if each is not None]
    if node.op_type == "ConstantOfShape" and given:
        return _product(_numbers(given[0]))
    if node.op_type == "Range" and len(given) == 3:
        start, stop, step = (float(each.reshape(-1)[0]) if each.size else 0.0 for each in given)
        count = (stop - start) / step if step else 0.0
        return int(count) if 0 <= count < _MOST else 0 if count < 0 or math.isnan(count) else _MOST
    if len(given) < 2:
        return given[0].size if given else 0
    first, second = given[:2]
    if node.op_type == "Expand":
        return _broadcast([first.shape, _numbers(second)])
    if node.op_type in ("Tile", "OneHot"):
        return _product([first.size, *_numbers(second)])
    if node.op_type == "Pad":
        pads = _numbers(second)
        return _product([n + sum(pads[i :: max(first.ndim, 1)]) for i, n in enumerate(first.shape)])
    if node.op_type in ("Resize", "Upsample"):
        scales = [_product(float(n) for n in each.reshape(-1)[:8] if n > 0) for each in given[1:]]
        return _product([first.size, max(scales)])
    if node.op_type == "Gather":
        return (
            first.size
            * second.size
            // max(1, first.shape[_axis(node)] if -first.ndim <= _axis(node) < first.ndim else 1)
        )
    if node.op_type in ("MatMul", "Gemm"):
        inner = second.shape[-2] if second.ndim > 1 else second.size  # approximate: Gemm may transpose
        return first.size * second.size // max(1, inner) ** 2
    return _broadcast([each.shape for each in given])


def _axis(node: Any) -> int:
    return next((each.i for each in node.attribute if each.name == "axis"), 0)


def _numbers(values: np.ndarray) -> list[int]:
    flat = values.reshape(-1)[:64].tolist()
    return [int(n) if isinstance(n, (int, float)) and abs(n) < _MOST else 1 for n in flat]


def _product(numbers: Any) -> int:
    return int(min(math.prod(max(1, n) for n in numbers), _MOST))


def _broadcast(shapes: Sequence[Sequence[int]]) -> int:
    rank = max(map(len, shapes), default=0)
    return _product(max(shape[-i] for shape in shapes if len(shape) >= i) for i in range(1, rank + 1))
