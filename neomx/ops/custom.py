"""The `Custom` op, which calls ops registered with `mx.operator.register`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..base import MXNetError, suggest
from ..dtype import NUMPY_OF_TORCH, to_torch
from .shapes import UNKNOWN
from .table import Ctx, Shapes, Types, op


class Registered(NamedTuple):
    """A custom op: a function that runs it, and one that creates its CustomOpProp with names, shapes and types."""

    run: Callable[..., Sequence[torch.Tensor]]  # (tensors, parameters, ctx, memory) -> tensors
    prop: Callable[[dict[str, Any]], Any]


REGISTERED: dict[str, Registered] = {}  # by op_type; `mx.operator` fills it
# An attribute of the nodes of a bound graph: a dictionary that keeps a node's CustomOpProp and CustomOp.
MEMORY = "_memory"


def _registered(op_type: str) -> Registered:
    if op_type not in REGISTERED:
        raise MXNetError(
            f"no custom op is registered as {op_type!r}.{suggest(op_type, REGISTERED)} Use @mx.operator.register"
        )
    return REGISTERED[op_type]


def _prop(attrs: dict[str, Any]) -> Any:
    memory = attrs.get(MEMORY, {})
    if not isinstance(memory, dict):
        raise MXNetError(f"Custom: the attribute {MEMORY!r} is reserved")
    if "prop" not in memory:
        parameters = {name: value for name, value in attrs.items() if name not in ("op_type", "ctx", MEMORY)}
        memory["prop"] = _registered(attrs["op_type"]).prop(parameters)
    return memory["prop"]


def _input_names(attrs: dict[str, Any]) -> Sequence[str]:
    prop = _prop(attrs)
    return [*prop.list_arguments(), *prop.list_auxiliary_states()]


def _shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> tuple[Shapes, Shapes]:
    """Infer shapes with the CustomOpProp, which usually needs the shape of the first input."""
    prop = _prop(attrs)
    count = len(prop.list_arguments())
    if shapes and shapes[0] is None:
        return shapes, outputs
    written = [[max(n, 0) for n in shape or ()] for shape in shapes[:count]]
    inferred = [[tuple(n or UNKNOWN for n in s) or None for s in each] for each in prop.infer_shape(written)]
    states = inferred[2] if len(inferred) > 2 else []
    return [*inferred[0], *states, *shapes[count + len(states) :]], inferred[1]


def _types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    prop = _prop(attrs)
    count = len(prop.list_arguments())
    known = next((t for t in types if t is not None), None)
    if known is None:
        return types, [None] * len(prop.list_outputs())
    inferred = prop.infer_type([NUMPY_OF_TORCH[t or known] for t in types[:count]])
    states = inferred[2] if len(inferred) > 2 else []
    found = [[to_torch(dtype) for dtype in each] for each in (inferred[0], inferred[1], states)]
    return [*found[0], *found[2], *types[count + len(found[2]) :]], found[1]


@op(
    "Custom",
    "_npi_Custom",
    takes=_input_names,
    states=lambda a: _prop(a).list_auxiliary_states(),
    outputs=lambda a: tuple(_prop(a).list_outputs()),
    infer=_shapes,
    types=_types,
)
def custom(*data: torch.Tensor, op_type: str, ctx: Ctx | None = None, **parameters: Any) -> Any:
    """An op written in Python: a CustomOp, found by the name that its CustomOpProp was registered under."""
    outputs = _registered(op_type).run(data, parameters, ctx, parameters.pop(MEMORY, {}))
    return outputs[0] if len(outputs) == 1 else list(outputs)
