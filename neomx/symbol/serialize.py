"""Symbols in MXNet's JSON format: writes the format of MXNet 1.9.1, reads all versions since 0.8."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..base import MXNetError, modes
from ..formats.atomic import replacing
from ..ops.table import OP_ERRORS, get_op
from .build import hint_starts, made_variable
from .control_ops import CONTROL, Subgraph, check_node
from .graph import ANNOTATIONS, Entry, Node, annotated, is_annotation, rebuilt, topological
from .spelling import expanded, restored
from .symbol import Symbol

_MOST_OUTPUTS, _MOST_DEPTH = 1 << 16, 32  # limits for the total outputs of a file, and for nested graphs
VERSION = 10901  # the MXNet version of the format
_NAME_IN_FILES = {"cumsum": "_np_cumsum"}
_NAME_HERE = {name: ours for ours, name in _NAME_IN_FILES.items()}


# ---- writing ----


def to_json(symbol: Symbol, remove_amp_cast: bool = True) -> str:
    """Return the symbol as JSON, identical to the output of MXNet's `tojson`."""
    return _pretty(graph_of(_without_amp(symbol._outputs) if remove_amp_cast else symbol._outputs))


def save(fname: str, symbol: Symbol, remove_amp_cast: bool = True) -> None:
    """Write a symbol to a file atomically."""
    with replacing(fname) as file:
        file.write(symbol.tojson(remove_amp_cast).encode())


def _without_amp(heads: Sequence[Entry]) -> list[Entry]:
    """Return the graph without the casts that mixed precision inserted."""
    kept = {id(node) for node, _ in heads}

    def replace(node: Node, inputs: list[Entry]) -> list[Entry] | None:
        casts = node.op is not None and node.op.name in ("amp_cast", "amp_multicast")
        return inputs if casts and id(node) not in kept else None

    return rebuilt(heads, replace)


def graph_of(heads: Sequence[Entry]) -> dict[str, Any]:
    """Return the graph as the dictionaries and lists of its JSON."""
    shapes = {"is_np_shape": ["int", 1]} if modes.np_shape else {}
    return {**_graph_of(heads), "attrs": {**shapes, "mxnet_version": ["int", VERSION]}}


def _graph_of(heads: Sequence[Entry]) -> dict[str, Any]:
    heads = expanded(heads)
    order = topological(node for node, _ in heads)
    number = {id(node): i for i, node in enumerate(order)}
    version: dict[int, int] = {}  # for each variable, the number of ops that have modified it so far
    nodes, row = [], [0]
    for node in order:
        for changed in node.mutated():
            version[id(changed)] = version.get(id(changed), 0) + 1
        inputs = [[number[id(n)], i, version.get(id(n), 0)] for n, i in node.inputs]
        op_name = "null" if node.op is None else _NAME_IN_FILES.get(node.op.name, node.op.name)
        attrs = {"attrs": dict(sorted(node.attrs.items()))} if node.attrs else {}
        inner = [_graph_of(graph.heads) for graph in node.values.get("subgraphs", ())]
        graphs = {"subgraphs": inner} if inner else {}
        nodes.append({"op": op_name, "name": node.name, **attrs, "inputs": inputs, **graphs})
        row.append(row[-1] + (1 if node.op is None else len(node.op.output_names(node.values))))
    return {
        "nodes": nodes,
        "arg_nodes": [number[id(node)] for node in order if node.op is None],
        "node_row_ptr": row,
        "heads": [[number[id(n)], i, version.get(id(n), 0)] for n, i in heads],
    }


def _pretty(value: Any, indent: str = "") -> str:
    """Format JSON as MXNet does, with short lists and dictionaries of one item on one line."""
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_pretty(v, indent + '  ')}" for key, v in value.items()]
        return _enclosed(parts, "{}", indent, broken=len(parts) > 1)
    if isinstance(value, list):
        parts = [_pretty(v, indent + "  ") for v in value]
        return _enclosed(parts, "[]", indent, broken=len(parts) > 10 or any(isinstance(v, dict) for v in value))
    return json.dumps(value, ensure_ascii=False)


def _enclosed(parts: list[str], brackets: str, indent: str, broken: bool) -> str:
    if not broken:
        return brackets[0] + ", ".join(parts) + brackets[1]
    inside = f", \n{indent}  ".join(parts)
    return f"{brackets[0]}\n{indent}  {inside}\n{indent}{brackets[1]}"


# ---- reading ----


def load(fname: str) -> Symbol:
    """Load a symbol from a file written by `save` or by MXNet."""
    if not isinstance(fname, str):
        raise TypeError(f"load expects a file name, received {type(fname).__name__}")
    try:
        with open(fname, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise MXNetError(f"cannot read a symbol from {fname}: {error}") from error
    try:
        return load_json(text)
    except MXNetError as error:
        raise MXNetError(f"{fname}: {error}") from error


def load_json(json_str: str) -> Symbol:
    """Load a symbol from JSON written by `tojson` or by MXNet, of any version since 0.8."""
    if not isinstance(json_str, str):
        raise TypeError(f"load_json expects a string, received {type(json_str).__name__}")
    try:
        return Symbol(_Reader().heads_of(json.loads(json_str)))
    except (ValueError, RecursionError) as error:
        raise MXNetError(f"not a symbol's JSON: {error!s:.200}") from None


fromjson = load_json


class _Reader:
    """Reads the graph of a file and its subgraphs. The total number of outputs is limited."""

    def __init__(self) -> None:
        self._outputs_left, self._depth = _MOST_OUTPUTS, 0

    def heads_of(self, graph: Any) -> list[Entry]:
        """Return the outputs of a graph, given as the dictionaries and lists of its JSON."""
        if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list):
            raise MXNetError("not a symbol's JSON: expected a dictionary with a list of nodes")
        nodes: list[tuple[Node, int]] = []
        for i, facts in enumerate(graph["nodes"]):
            where = f"node {i}"
            if not isinstance(facts, dict) or not all(isinstance(facts.get(key), str) for key in ("op", "name")):
                raise MXNetError(f"{where}: expected a dictionary with an op and a name, received {facts!r:.80}")
            where = f"node {i}, {facts['op']:.80} {facts['name']!r:.200}"
            node = self._node(facts, _entries(facts.get("inputs"), nodes, where), where)
            nodes.append((node, self._count(node, where)))
        heads = _entries(graph.get("heads"), nodes, "heads")
        if not heads:
            raise MXNetError("not a symbol's JSON: 'heads' is missing")
        return restored(heads)

    def _count(self, node: Node, where: str) -> int:
        """Return the number of outputs of a node."""
        try:
            count = node.count_outputs()
        except (MXNetError, *OP_ERRORS) as error:
            raise MXNetError(f"{where}: {error}") from error
        self._outputs_left -= count
        if self._outputs_left < 0:
            raise MXNetError(f"{where}: the file has more than {_MOST_OUTPUTS} node outputs, which is the limit")
        return count

    def _node(self, facts: dict[str, Any], inputs: list[Entry], where: str) -> Node:
        attrs: dict[str, str] = {}
        for key in ("param", "attr", "attrs"):  # in files of 0.8, of 0.9 to 1.0, and of later versions
            found = facts.get(key) or {}
            if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
                raise MXNetError(f"{where}: expected {key} to be a dictionary of strings, received {found!r:.80}")
            attrs.update({annotated(k): v for k, v in found.items()})
        if facts["op"] == "null":
            if inputs:
                raise MXNetError(f"{where}: a variable cannot have inputs, received {len(inputs)}")
            return Node(None, facts["name"], attrs=attrs)
        try:
            op = CONTROL.get(facts["op"]) or get_op(_NAME_HERE.get(facts["op"], facts["op"]))
            node = Node(op, facts["name"], inputs, attrs)
            _hand_over(node)
            given: dict[str, Any] = {key: v for key, v in node.attrs.items() if not is_annotation(key)}
            if facts["op"] in CONTROL:
                given["subgraphs"] = self._subgraphs(facts.get("subgraphs"))
            node.values = op.converted(given)
            _check_counts(node)
            _complete(node)
            if facts["op"] in CONTROL:
                check_node(node)
        except MXNetError as error:
            raise MXNetError(f"{where}: {error}") from None
        except OP_ERRORS as error:  # for example, a CustomOpProp that rejects the attributes
            raise MXNetError(f"{where}: {type(error).__name__}: {error}") from error
        return node

    def _subgraphs(self, graphs: Any) -> tuple[Subgraph, ...]:
        """Return the subgraphs of a control flow node."""
        if not isinstance(graphs, list):
            raise MXNetError(f"expected a list of subgraphs, received {graphs!r:.80}")
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise MXNetError(f"control flow is nested more than {_MOST_DEPTH} levels deep, which is the limit")
        found = tuple(Subgraph(self.heads_of(graph)) for graph in graphs)
        self._depth -= 1
        return found


def _check_counts(node: Node) -> None:
    """Raise an error if attributes specify impossible numbers of inputs or outputs, before any are created."""
    most = len(node.inputs) + len(node.values.get("subgraphs", ()))
    for key in ("num_args", "num_arrays", "num_weights", "num_tensors"):
        if node.values.get(key, 0) > most:
            raise MXNetError(f"{key} is {node.values[key]}, but there are {len(node.inputs)} input(s)")
    for key in ("num_outputs", "sections"):
        if node.values.get(key, 0) > _MOST_OUTPUTS:
            raise MXNetError(f"{key} is {node.values[key]}, but a file can have at most {_MOST_OUTPUTS} node outputs")


def _entries(references: Any, nodes: Sequence[tuple[Node, int]], where: str) -> list[Entry]:
    """Return outputs of earlier nodes, given as [node, output] or [node, output, version]."""
    if not isinstance(references, list):
        raise MXNetError(f"{where}: expected a list of inputs, received {references!r:.80}")
    entries = []
    for reference in references:
        numbers = isinstance(reference, list) and len(reference) in (2, 3) and all(type(n) is int for n in reference)
        if not numbers or not 0 <= reference[0] < len(nodes):
            raise MXNetError(
                f"{where}: expected [node, output, version] that refers to one of the {len(nodes)} previous nodes, "
                f"received {reference!r:.80}"
            )
        (node, count), output = nodes[reference[0]], reference[1]
        if not 0 <= output < count:
            raise MXNetError(f"{where}: {node.name!r} has {count} output(s), but output {output} is referenced")
        entries.append((node, output))
    return entries


def _hand_over(node: Node) -> None:
    """Move `weight_lr_mult`, which files of 0.8 keep with the op, to the weight variable."""
    assert node.op is not None
    for key in [k for k in node.attrs if k not in node.op.attrs and k.endswith(ANNOTATIONS)]:
        of, annotation = next((key.removesuffix(a).rstrip("_"), a) for a in ANNOTATIONS if key.endswith(a))
        if of in node.op.inputs:
            value = node.attrs.pop(key)
            position = node.op.inputs.index(of)
            if position < len(node.inputs) and node.inputs[position][0].op is None:
                node.inputs[position][0].attrs[annotated(annotation)] = value


def _complete(node: Node) -> None:
    """Add auxiliary states that files of 0.8 omit, and check that no other input is missing."""
    assert node.op is not None
    names = node.input_names()
    missing = names[len(node.inputs) :]
    if missing and set(missing) <= set(node.op.state_names(node.values)):
        node.inputs += [(made_variable(node, name), 0) for name in missing]
        hint_starts(node)
    if len(names) != len(node.inputs):
        raise MXNetError(f"expected the inputs {', '.join(names) or 'none'}, received {len(node.inputs)}")
