"""Ops that MXNet does not have, written as MXNet's ops: in files, so that MXNet loads them, and in recorded graphs.

A file keeps the name and the attributes of such an op with the last of the nodes that replace it. Reading the file
gives the op again, if the nodes are unchanged.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..base import MXNetError
from ..ops.cross_entropy import CROSS_ENTROPY
from ..ops.rnn import RNN_OF_PARTS
from ..ops.table import OP_ERRORS, OPS, Op
from .build import text_of
from .graph import Entry, Node, is_annotation, rebuilt, topological

# Creates a node from an op, its inputs and attributes, and returns the node's outputs.
Make = Callable[[Op, Sequence[Any], dict[str, Any]], list[Entry]]
ATTENTION, GELU_TANH = OPS["_contrib_attention"], OPS["_contrib_gelu_tanh"]

_SPELLED = "__spelled__"  # the annotation of the last node: [op, attributes] as JSON


def spelled_out(op: Op, inputs: Sequence[Any], values: dict[str, Any], make: Make) -> list[Entry] | None:
    """Expand an op that fuses several MXNet ops into those ops, using `make`. Return None for all other ops."""
    if op is RNN_OF_PARTS:
        before = len(OPS["RNN"].input_names(OPS["RNN"].converted(values))) - 1
        flat = [make(OPS["Reshape"], [part], {"shape": (-1,)})[0] for part in inputs[before:]]
        packed = make(OPS["_rnn_param_concat"], flat, {"dim": 0})[0]
        return make(OPS["RNN"], [inputs[0], packed, *inputs[1:before]], values)
    if op is CROSS_ENTROPY:
        logs = make(OPS["log_softmax"], inputs[:1], {"axis": -1})[0]
        picked = make(OPS["pick"], [logs, inputs[1]], {"axis": -1, "keepdims": True})[0]
        losses = make(OPS["negative"], [picked], {})
        return make(OPS["mean"], losses, {"axis": (0,), "exclude": True}) if values.get("by_example") else losses
    if op is ATTENTION and values["head_size"] > 0:
        return [_attention(make, *inputs, **values)]
    return [_gelu_tanh(make, inputs[0])] if op is GELU_TANH else None


def _attention(
    make: Make,
    query: Entry,
    key: Entry,
    value: Entry,
    valid_length: Entry | None = None,
    *,
    head_size: int,
    causal: bool = False,
    dropout: float = 0.0,
    **others: Any,
) -> Entry:
    def put(op: str, *inputs: Entry, **values: Any) -> Entry:
        return make(OPS[op], inputs, values)[0]

    def heads(x: Entry) -> Entry:
        return put("transpose", put("Reshape", x, shape=(0, 0, -1, head_size)), axes=(0, 2, 1, 3))

    def rows(x: Entry) -> Entry:
        return put("Reshape", x, shape=(-3, 0, 0))

    queries = heads(query)
    scaled = put("_mul_scalar", rows(queries), scalar=1 / math.sqrt(head_size))
    scores = put("batch_dot", scaled, rows(heads(key)), transpose_b=True)
    lengths = _lengths(put, query, key, queries, valid_length, causal)
    if lengths is None:
        weights = put("softmax", scores, axis=-1)
    else:
        weights = put("softmax", scores, lengths, axis=-1, use_length=True)
    if dropout > 0:
        weights = put("Dropout", weights, p=dropout)
    mixed = put("reshape_like", put("batch_dot", weights, rows(heads(value))), queries)
    return put("Reshape", put("transpose", mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -3))


def _lengths(
    put: Callable[..., Entry], query: Entry, key: Entry, queries: Entry, valid_length: Entry | None, causal: bool
) -> Entry | None:
    """The number of keys that each query attends to, (batch * heads, time), or None if all do to all."""
    found = []
    if valid_length is not None:
        # MXNet's softmax has a gradient of 0 if its lengths require one, and reads invalid memory beyond the last key.
        lengths = put("Cast", put("BlockGrad", valid_length), dtype="float32")  # one dtype, which huge numbers fit in
        keys = put("slice_axis", put("shape_array", key), axis=0, begin=1, end=2)
        limited = put("broadcast_minimum", lengths, put("Cast", keys, dtype="float32"))
        found.append(put("Reshape", put("_maximum_scalar", limited, scalar=0), shape=(-1, 1, 1)))
    if causal:
        steps = put("_plus_scalar", put("_contrib_arange_like", query, axis=1), scalar=1)
        found.append(put("Reshape", put("Cast", steps, dtype="float32") if found else steps, shape=(1, 1, -1)))
    if not found:
        return None
    axes = (1,) if len(found) == 2 else (0, 1) if causal else (1, 2)  # those of size 1
    limits = put("broadcast_minimum", *found) if len(found) == 2 else found[0]
    each = put("broadcast_like", limits, queries, lhs_axes=axes, rhs_axes=axes)
    return put("Cast", put("Reshape", each, shape=(-3, 0)), dtype="int32")


def _gelu_tanh(make: Make, x: Entry) -> Entry:
    def put(op: str, *inputs: Entry, **values: Any) -> Entry:
        return make(OPS[op], inputs, values)[0]

    scale = math.sqrt(2 / math.pi)
    squared = put("elemwise_mul", x, x)  # MXNet's MKL-DNN gives wrong results for `square` of a FullyConnected
    slope = put("_plus_scalar", put("_mul_scalar", squared, scalar=0.044715 * scale), scalar=scale)
    factor = put("_plus_scalar", put("tanh", put("elemwise_mul", x, slope)), scalar=1)
    return put("elemwise_mul", put("_mul_scalar", x, scalar=0.5), factor)


# ---- writing a file ----


def expanded(heads: Sequence[Entry]) -> list[Entry]:
    """Return the graph with MXNet's ops in place of attention and of the tanh form of GELU."""
    if all(node.op not in (ATTENTION, GELU_TANH) for node in topological(node for node, _ in heads)):
        return list(heads)
    return rebuilt(heads, _expansion)


def _expansion(node: Node, inputs: Sequence[Entry]) -> list[Entry] | None:
    """Return MXNet's nodes for a node. The last one has its name, and describes it in an annotation."""
    if node.op not in (ATTENTION, GELU_TANH):
        return None
    common = {key: value for key, value in node.attrs.items() if is_annotation(key)}
    numbers = itertools.count()

    def make(op: Op, inputs: Sequence[Entry], values: dict[str, Any]) -> list[Entry]:
        name = f"{node.name}_{op.name.strip('_').lower()}{next(numbers)}"
        attrs = {key: text_of(value) for key, value in values.items()}
        return [(Node(op, name, inputs, {**common, **attrs}, op.converted(values)), 0)]

    assert node.op is not None
    outputs = spelled_out(node.op, inputs, node.values, make)
    if outputs is not None:
        last = outputs[0][0]
        own = {key: value for key, value in sorted(node.attrs.items()) if key not in common}
        last.name, last.attrs[_SPELLED] = node.name, json.dumps([node.op.name, own])
    return outputs


# ---- reading a file ----


def restored(heads: list[Entry]) -> list[Entry]:
    """Return the graph with attention and GELU in place of the nodes that `expanded` has written for them."""
    order = topological(node for node, _ in heads)
    if all(_SPELLED not in node.attrs for node in order):
        return heads
    uses = Counter(id(source) for node in order for source, _ in node.inputs)
    uses.update(id(node) for node, _ in heads)
    made: dict[int, Node] = {}
    for node in order:
        old = _restored(node, uses) or node
        inputs = [(made[id(source)], i) for source, i in old.inputs]
        made[id(node)] = Node(old.op, old.name, inputs, old.attrs, old.values)
    return [(made[id(node)], i) for node, i in heads]


def _restored(node: Node, uses: Counter[int]) -> Node | None:
    """Return the node that `node` and the nodes before it stand for; None if they do not match its annotation."""
    try:
        name, own = json.loads(node.attrs[_SPELLED])
        op = {each.name: each for each in (ATTENTION, GELU_TANH)}[name]
        own = {str(key): str(value) for key, value in own.items()}
        values = op.converted(own)
        common = {key: value for key, value in node.attrs.items() if is_annotation(key) and key != _SPELLED}
        inputs: list[Entry] = [(Node(None, each), 0) for each in op.input_names(values)]
        found = Node(op, node.name, inputs, {**common, **own}, values)
        outputs = _expansion(found, inputs)
    except (MXNetError, AttributeError, RecursionError, *OP_ERRORS):  # the file may contain anything
        return None
    bound: dict[int, Entry] = {}
    inner: dict[int, Node] = {}
    if outputs is None or not _matches(outputs[0], (node, 0), bound, inner):
        return None
    used = Counter(id(source) for each in inner.values() for source, _ in each.inputs)
    if any(uses[key] != used[key] for key in inner if key != id(node)):
        return None  # the program uses an inner value as well
    found.inputs = [bound[id(variable)] for variable, _ in inputs]
    return found


def _matches(form: Entry, entry: Entry, bound: dict[int, Entry], inner: dict[int, Node]) -> bool:
    """Compare a graph with its form, whose variables stand for any entry. Collects these and the nodes compared."""
    (wanted, output), (node, index) = form, entry
    if wanted.op is None:
        return bound.setdefault(id(wanted), entry) == entry
    inner[id(node)] = node
    return (
        wanted.op is node.op
        and (wanted.name, wanted.attrs, output) == (node.name, node.attrs, index)
        and len(wanted.inputs) == len(node.inputs)
        and all(_matches(*pair, bound, inner) for pair in zip(wanted.inputs, node.inputs, strict=True))
    )
