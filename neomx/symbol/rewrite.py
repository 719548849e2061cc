"""Graphs as they run best: the same results from other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..ops.cross_entropy import CROSS_ENTROPY
from ..ops.rnn import RNN_OF_PARTS
from ..ops.table import OPS, Op
from .graph import Entry, Node, topological


def rewritten(heads: Sequence[Entry]) -> list[Entry]:
    """The graph of `heads`, faster where it packs the parameters of an RNN or takes a cross-entropy in steps."""
    made: dict[int, Node] = {}
    order = topological(node for node, _ in heads)
    uses = Counter(id(source) for node in order for source, _ in node.inputs)
    uses.update(id(node) for node, _ in heads)
    for node in order:
        op, inputs, values = (
            _rnn_of_parts(node)
            or _example_loss(node, uses)
            or _cross_entropy(node, uses)
            or (node.op, node.inputs, node.values)
        )
        changed = [(made[id(source)], i) for source, i in inputs]
        same = op is node.op and all(new is old for (new, _), (old, _) in zip(changed, inputs, strict=True))
        made[id(node)] = node if same else Node(op, node.name, changed, node.attrs, values)
    return [(made[id(node)], i) for node, i in heads]


Other = tuple[Op, list[Entry], dict]


def _rnn_of_parts(node: Node) -> Other | None:
    """An RNN that takes its parameters one by one: packing copies all weights, and its gradient all theirs."""
    if node.op is not OPS["RNN"] or node.inputs[1][0].op is not OPS["_rnn_param_concat"]:
        return None
    flat = [source for source, _ in node.inputs[1][0].inputs]
    if any(each.op is not OPS["Reshape"] or each.values.get("shape") != (-1,) for each in flat):
        return None
    parts = [each.inputs[0] for each in flat]
    return RNN_OF_PARTS, [node.inputs[0], *node.inputs[2:], *parts], node.values


def _example_loss(node: Node, uses: Counter[int]) -> Other | None:
    """The mean of a cross-entropy for each example."""
    if node.op is not OPS["mean"] or node.values.get("axis") != (0,) or not node.values.get("exclude"):
        return None
    inner = node.inputs[0][0]
    found = _cross_entropy(inner, uses) if uses[id(inner)] == 1 and not node.values.get("keepdims") else None
    return found and (found[0], found[1], {"by_example": True})


def _cross_entropy(node: Node, uses: Counter[int]) -> Other | None:
    """The cross-entropy of classes in place of -pick(log_softmax(x), label, keepdims=True)."""
    if node.op is not OPS["negative"] and not (node.op is OPS["_mul_scalar"] and node.values.get("scalar") == -1):
        return None
    picked = node.inputs[0][0]
    if picked.op is not OPS["pick"] or picked.values.get("axis", -1) != -1 or uses[id(picked)] > 1:
        return None
    if not picked.values.get("keepdims") or picked.values.get("mode", "clip") != "clip":
        return None
    logs = picked.inputs[0][0]
    plain = all(logs.values.get(name) is None for name in ("temperature", "dtype"))
    if logs.op is not OPS["log_softmax"] or logs.values.get("axis", -1) != -1 or not plain or uses[id(logs)] > 1:
        return None
    return CROSS_ENTROPY, [logs.inputs[0], picked.inputs[1]], {}
