"""Graphs as they run best: the same results from other nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ..ops.rnn import RNN_OF_PARTS
from ..ops.table import OPS
from .graph import Entry, Node, topological


def rewritten(heads: Sequence[Entry]) -> list[Entry]:
    """The graph of `heads` with RNN nodes that take their parameters one by one, where the graph packs them.

    Packing copies all weights in each run, and its gradient copies all theirs.
    """
    made: dict[int, Node] = {}
    for node in topological(node for node, _ in heads):
        parts = _packed_parts(node)
        inputs = node.inputs if parts is None else [node.inputs[0], *node.inputs[2:], *parts]
        changed = [(made[id(source)], i) for source, i in inputs]
        op = node.op if parts is None else RNN_OF_PARTS
        same = parts is None and all(new is old for (new, _), (old, _) in zip(changed, inputs, strict=True))
        made[id(node)] = node if same else Node(op, node.name, changed, node.attrs, node.values)
    return [(made[id(node)], i) for node, i in heads]


def _packed_parts(node: Node) -> list[Entry] | None:
    """What the parameters of an RNN node are packed from, if they are."""
    if node.op is not OPS["RNN"] or node.inputs[1][0].op is not OPS["_rnn_param_concat"]:
        return None
    flat = [source for source, _ in node.inputs[1][0].inputs]
    if any(each.op is not OPS["Reshape"] or each.values.get("shape") != (-1,) for each in flat):
        return None
    return [each.inputs[0] for each in flat]
