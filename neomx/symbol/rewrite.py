"""Graph rewriting before execution: merge equal nodes as MXNet does, and replace nodes by faster equivalents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..ops.cross_entropy import CROSS_ENTROPY
from ..ops.rnn import RNN_OF_PARTS
from ..ops.table import OPS, Op
from .graph import Entry, Node, topological

# Ops that MXNet never merges, although equal inputs produce equal results.
_APART = {
    "BilinearSampler",
    "Convolution_v1",
    "Correlation",
    "Crop",
    "GridGenerator",
    "InstanceNorm",
    "L2Normalization",
    "MakeLoss",
    "Pad",
    "Pooling_v1",
    "ROIPooling",
    "SVMOutput",
    "SequenceLast",
    "SequenceMask",
    "SequenceReverse",
    "SliceChannel",
    "SpatialTransformer",
    "SwapAxis",
    "_contrib_DeformableConvolution",
    "_contrib_DeformablePSROIPooling",
    "_contrib_MultiBoxDetection",
    "_contrib_MultiBoxPrior",
    "_contrib_MultiBoxTarget",
    "_contrib_PSROIPooling",
    "_contrib_dequantize",
    "_contrib_quantize_asym",
    "_contrib_quantize_v2",
}
_NOT_RANDOM = {"LeakyReLU", "_contrib_arange_like", "_npi_full_like"}  # although they receive a context


def _may_merge(node: Node) -> bool:
    """Whether an equal node may replace this one."""
    op = node.op
    if op is None or not node.inputs or op.name in _APART or "subgraphs" in node.values:
        return False
    random = op.needs_ctx and (op.name not in _NOT_RANDOM or node.values.get("act_type") == "rrelu")
    return not random and not node.mutated()


def deduplicated(heads: Sequence[Entry], with_heads: bool) -> list[Entry]:
    """Merge nodes of the graph of `heads` that have the same op, equal inputs and identical attribute strings.

    The gradient of ops that ignore the gradient from above, such as SoftmaxOutput, then counts once. A head is not
    replaced unless `with_heads`, but it replaces later nodes that are equal to it. As in MXNet, the environment
    variable MXNET_ELIMINATE_COMMON_EXPR=0 disables merging.
    """
    if os.environ.get("MXNET_ELIMINATE_COMMON_EXPR", "1") == "0":
        return list(heads)
    first: dict[Any, Node] = {}
    made: dict[int, Node] = {}  # by node id: the node with merged inputs
    used: dict[int, Node] = {}  # by node id: the node that replaces it as an input
    for node in topological(node for node, _ in heads):
        inputs = [(used[id(source)], i) for source, i in node.inputs]
        same = all(new is old for (new, _), (old, _) in zip(inputs, node.inputs, strict=True))
        made[id(node)] = used[id(node)] = node if same else Node(node.op, node.name, inputs, node.attrs, node.values)
        if _may_merge(node):
            key = node.op, frozenset(node.attrs.items()), tuple((id(source), i) for source, i in inputs)
            used[id(node)] = first.setdefault(key, made[id(node)])
    return [((used if with_heads else made)[id(node)], i) for node, i in heads]


def rewritten(heads: Sequence[Entry]) -> list[Entry]:
    """Return the graph of `heads` with faster nodes for packed RNN parameters and for stepwise cross-entropy."""
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
    """Return an RNN with separate parameters. Packing would copy all weights, and all their gradients in backward."""
    if node.op is not OPS["RNN"] or node.inputs[1][0].op is not OPS["_rnn_param_concat"]:
        return None
    flat = [source for source, _ in node.inputs[1][0].inputs]
    if any(each.op is not OPS["Reshape"] or each.values.get("shape") != (-1,) for each in flat):
        return None
    parts = [each.inputs[0] for each in flat]
    return RNN_OF_PARTS, [node.inputs[0], *node.inputs[2:], *parts], node.values


def _example_loss(node: Node, uses: Counter[int]) -> Other | None:
    """Return the mean cross-entropy of each example."""
    if node.op is not OPS["mean"] or node.values.get("axis") != (0,) or not node.values.get("exclude"):
        return None
    inner = node.inputs[0][0]
    found = _cross_entropy(inner, uses) if uses[id(inner)] == 1 and not node.values.get("keepdims") else None
    return found and (found[0], found[1], {"by_example": True})


def _cross_entropy(node: Node, uses: Counter[int]) -> Other | None:
    """Return a fused cross-entropy that replaces -pick(log_softmax(x), label, keepdims=True)."""
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
