"""Infer the storage types of outputs and gradients in a graph with sparse variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..context import Context
from ..ndarray.ndarray import NDArray
from ..ndarray.sparse import zeros
from ..ndarray.sparse_ops import KEEP_ZERO, RULES
from ..ops.shapes import is_known
from .graph import Entry, Node
from .infer import Shapes
from .lowering import node_error

Storages = dict[tuple[int, int], str]
_NAMES = ("default", "row_sparse", "csr")  # indexed by the number in a variable's attribute
_PASSED_ON = {
    "_copy",
    "_div_scalar",
    "_mul_scalar",
    "add_n",
    "cast_storage",
    "elemwise_add",
    "elemwise_sub",
    "negative",
}


def declared(node: Node) -> str:
    """Return the storage type that a variable declares."""
    text = node.attrs.get("__storage_type__", "0")
    if text not in ("0", "1", "2"):
        return "default"
    return _NAMES[int(text)]


def infer_storage(shapes: Shapes, given: Mapping[str, str], ctx: Context) -> Storages:
    """Infer the storage type of each output of each node from those of the variables; the default is dense."""
    found: Storages = {}
    for node in shapes.order:
        stype = given.get(node.name, "default") if node.op is None else _stored(node, shapes, found, ctx)
        found.update({(id(node), i): stype for i in range(node.count_outputs())})
    return found


def _stored(node: Node, shapes: Shapes, found: Storages, ctx: Context) -> str:
    """Return the storage type of an op's result, found by running the op on arrays without stored elements."""
    assert node.op is not None
    stypes = [found[id(source), i] for source, i in node.inputs]
    attrs = node.op.with_defaults(node.values)
    if node.op.name == "cast_storage":
        if stypes[0] not in ("default", attrs["stype"]) and attrs["stype"] != "default":
            raise node_error(node, f"casting from {stypes[0]} to {attrs['stype']} is not supported", [])
        return str(attrs["stype"])
    rule = RULES.get(node.op.name)
    if rule is None or set(stypes) <= {"default"} or not all(is_known(shape) for shape in shapes.inputs(node)):
        return "default"
    arrays = [_empty(stype, shape, ctx) for stype, shape in zip(stypes, shapes.inputs(node), strict=True)]
    try:
        result = rule(node.op, arrays, attrs, None)
    except MXNetError as error:
        raise node_error(node, error, [f"{n}: {s}" for n, s in zip(node.input_names(), stypes, strict=True)]) from error
    return "default" if result is None else str(result.stype)


def _empty(stype: str, shape: Any, ctx: Context) -> NDArray:
    """Return zeros that use no memory."""
    if stype == "default":
        return NDArray(torch.zeros((), device=ctx.device).expand(shape), ctx)
    return zeros(stype, shape, ctx)


def gradient_storage(order: Sequence[Node], heads: Sequence[Entry], stored: Storages) -> dict[str, str]:
    """Infer the storage types of variables' gradients, as MXNet's executors do."""
    of: Storages = {}

    def add(entry: Entry, stype: str) -> None:
        key = id(entry[0]), entry[1]
        of[key] = stype if key not in of or of[key] == stype == "row_sparse" else "default"

    for node, i in heads:
        add((node, i), stored[id(node), i])
    for node in reversed(order):
        if node.op is not None:
            above = of.get((id(node), 0), "default")
            for position, source in enumerate(node.inputs):
                add(source, _gradient(node, position, above, stored))
    return {node.name: of.get((id(node), 0), "default") for node in order if node.op is None}


def _gradient(node: Node, position: int, above: str, stored: Storages) -> str:
    """Return the storage type of an input's gradient, given that of the result's gradient."""
    assert node.op is not None
    name, attrs = node.op.name, node.op.with_defaults(node.values)
    own = stored[id(node.inputs[position][0]), node.inputs[position][1]]
    if name in _PASSED_ON:
        return above
    if name in KEEP_ZERO:
        return above if above == own else "default"
    if name == "_square_sum":
        return own
    if name == "dot" and position == 1:
        first = stored[id(node.inputs[0][0]), node.inputs[0][1]]
        return "row_sparse" if first == "csr" and not attrs["transpose_a"] and not attrs["transpose_b"] else "default"
    by_row = name == "_contrib_SparseEmbedding" or name == "Embedding" and attrs["sparse_grad"]
    return "row_sparse" if by_row and position == 1 else "default"
