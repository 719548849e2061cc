"""`Block.summary`: a table of layers, output shapes and numbers of parameters."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ..ndarray import NDArray
from ..symbol import Symbol
from .utils import shape_is_known

_RULE = 80


def print_summary(block: Any, inputs: Any) -> None:
    """Run `block` on `inputs` and print the output of each Block except plain sequences."""
    from .nn import HybridSequential, Sequential  # imported here because nn imports Block

    rows: list[tuple[str, str, int, int, int]] = [("Input", _shapes(inputs), 0, 0, 0)]
    seen: set[int] = set()
    handles = []

    def tell(layer: Any, inputs: Any, output: Any) -> None:
        if any(isinstance(each, Symbol) for each in inputs):
            return  # a trace for shape inference
        total = trainable = shared = 0
        for param in layer.params.values():
            count = math.prod(param.shape) if shape_is_known(param.shape) else 0
            total += count
            trainable += 0 if param.grad_req == "null" else count
            shared += count if id(param) in seen else 0
            seen.add(id(param))
        rows.append((f"{type(layer).__name__}-{len(rows)}", _shapes(output), total, trainable, shared))

    def watch(layer: Any) -> None:
        if getattr(layer, "_active", False) and not hasattr(layer, "_outputs"):
            raise AssertionError(f'"{layer.name}" must not be hybridized to print summary.')
        if not isinstance(layer, (Sequential, HybridSequential)):
            handles.append(layer.register_forward_hook(partial(tell)))  # a shared layer needs several distinct hooks

    try:
        block.apply(watch)
        block(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    total, trainable, shared = (sum(column) for column in zip(*(row[2:] for row in rows), strict=True))
    print("-" * _RULE)
    print(f"{'Layer (type)':>20}  {'Output Shape':>42} {'Param #':>15}")
    print("=" * _RULE)
    for name, shape, count, _, _ in rows:
        print(f"{name:>20}  {shape:>42} {count:>15}")
    print("=" * _RULE)
    print("Parameters in forward computation graph, duplicate included")
    print(f"   Total params: {total}")
    print(f"   Trainable params: {trainable}")
    print(f"   Non-trainable params: {total - trainable}")
    print(f"Shared params in forward computation graph: {shared}")
    print(f"Unique parameters in model: {total - shared}")
    print("-" * _RULE)


def _shapes(value: Any) -> str:
    """The shapes of the arrays in nested lists, as text."""
    if isinstance(value, NDArray):
        return str(value.shape)
    if isinstance(value, (list, tuple)):
        inside = ", ".join(_shapes(item) for item in value)
        return inside if len(value) == 1 else f"[{inside}]"
    return type(value).__name__
