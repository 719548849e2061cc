"""The ops of nodes with subgraphs: their computation, and inference of their shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..ops.shapes import UNKNOWN
from ..ops.table import Any_, Ctx, Op, Shape
from .graph import Entry, Node, topological
from .infer import Shapes, Types, run_for_any_shape
from .lowering import Run
from .symbol import Symbol

Known = Sequence[Any]  # shapes or dtypes; None if unknown


class Subgraph:
    """The graph of a body. Its variables, in order, are its inputs."""

    __slots__ = ("heads", "variables", "names", "_run", "_inferred")

    def __init__(self, heads: Sequence[Entry]):
        self.heads = list(heads)
        self.variables: list[Node] = [n for n in topological(node for node, _ in heads) if n.op is None]
        self.names = [node.name for node in self.variables]
        self._run: Run | None = None
        # Without this cache, the cost would double with each level of nested loops.
        self._inferred: dict[Any, tuple[list[Any], list[Any]]] = {}

    def __repr__(self) -> str:
        return f"<graph of {', '.join(self.names)}>"

    def __call__(self, ctx: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs for tensors in the order of the variables."""
        if self._run is None:
            self._run = run_for_any_shape(Symbol(self.heads), self.names)
        return self._run(ctx, tensors)

    def inferred(self, kind: type[Shapes] | type[Types], inputs: Known) -> tuple[list[Any], list[Any]]:
        """Infer shapes or dtypes through the graph, and return those of its inputs and of its outputs."""
        key = kind, tuple(inputs)
        if key not in self._inferred:
            known = kind(Symbol(self.heads), dict(zip(self.names, inputs, strict=True)))
            ins = [known.of[id(node), 0] for node in self.variables]
            self._inferred[key] = ins, [known.of[id(n), i] for n, i in self.heads]
        ins, outs = self._inferred[key]
        return list(ins), list(outs)


def _input_names(attrs: dict[str, Any]) -> list[str]:
    return [f"data{i}" for i in range(attrs["num_args"] - len(attrs["subgraphs"]))]


def _placed(places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Put each value at its position."""
    return [value for _, value in sorted(zip(places, values, strict=True), key=lambda pair: pair[0])]


# ---- foreach ----


def _foreach(
    *data: torch.Tensor,
    num_args: int,
    num_outputs: int,
    num_out_data: int,
    in_data_locs: Shape,
    in_state_locs: Shape,
    remain_locs: Shape,
    subgraphs: Any_,
    ctx: Ctx | None = None,
) -> list[torch.Tensor]:
    """Apply a body to each slice along axis 0, passing the states of each step to the next."""
    (body,), places = subgraphs, (*in_data_locs, *in_state_locs, *remain_locs)
    sequences, states, rest = _parted(data, in_data_locs, in_state_locs)
    lengths = sorted({len(sequence) for sequence in sequences})
    if len(lengths) != 1 or lengths == [0]:
        raise MXNetError(f"all data must have the same size along axis 0, at least 1; received {lengths}")
    rows = []
    for slices in zip(*map(_slices, sequences), strict=True):
        results = body(ctx, _placed(places, (*slices, *states, *rest)))
        rows.append(results[:num_out_data])
        states = results[num_out_data:]
    return [*map(torch.stack, zip(*rows, strict=True)), *states]


def _slices(sequence: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the slices along axis 0. Slices of a vector are arrays with one element."""
    return (sequence.unsqueeze(1) if sequence.dim() == 1 else sequence).unbind(0)


def _parted(inputs: Sequence[Any], data_locs: Sequence[int], state_locs: Sequence[int]) -> tuple[Any, Any, Any]:
    """Split the inputs of foreach into data, states and loop-invariant inputs."""
    first, second = len(data_locs), len(data_locs) + len(state_locs)
    return list(inputs[:first]), list(inputs[first:second]), list(inputs[second:])


def _foreach_knowledge(kind: type[Shapes] | type[Types], inputs: Known, attrs: dict[str, Any]) -> Any:
    (body,), count = attrs["subgraphs"], attrs["num_out_data"]
    places = (*attrs["in_data_locs"], *attrs["in_state_locs"], *attrs["remain_locs"])
    data, states, rest = _parted(inputs, attrs["in_data_locs"], attrs["in_state_locs"])
    of_shapes = kind is Shapes
    slices = [s[1:] or (1,) if of_shapes and s else s for s in data]
    for _ in range(2):  # the second pass uses the states inferred in the first
        ins, outs = body.inferred(kind, _placed(places, (*slices, *states, *rest)))
        given = [ins[place] for place in places]
        slices, states, rest = _parted(given, attrs["in_data_locs"], attrs["in_state_locs"])
        states = [after if _unknown(state) else state for state, after in zip(states, outs[count:], strict=True)]
    if not of_shapes:
        return [*slices, *states, *rest], [*outs[:count], *states]
    length = next((s[0] for s in data if s and s[0] != UNKNOWN), UNKNOWN)
    rows = [s and (length, *s) for s in outs[:count]]
    sequences = [old if old and len(old) == 1 else s and (length, *s) for old, s in zip(data, slices, strict=True)]
    return [*sequences, *states, *rest], [*rows, *states]


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and UNKNOWN in value)


# ---- while_loop ----


def _while_loop(
    *data: torch.Tensor,
    num_args: int,
    num_outputs: int,
    num_out_data: int,
    max_iterations: int,
    cond_input_locs: Shape,
    func_input_locs: Shape,
    func_var_locs: Shape,
    subgraphs: Any_,
    ctx: Ctx | None = None,
) -> list[torch.Tensor]:
    """Apply a body to variables while a condition is true. Stack its outputs and pad them with zeros."""
    test, step = subgraphs
    inputs, rows = list(data), list[list[torch.Tensor]]()
    variables = [func_input_locs[place] for place in func_var_locs]
    while len(rows) < max_iterations and bool(test(ctx, [inputs[at] for at in cond_input_locs])[0]):
        results = step(ctx, [inputs[at] for at in func_input_locs])
        rows.append(results[:num_out_data])
        for at, value in zip(variables, results[num_out_data:], strict=True):
            inputs[at] = value
    sample = rows[0] if rows else step(ctx, [inputs[at] for at in func_input_locs])[:num_out_data]
    blank = [torch.zeros_like(tensor) for tensor in sample]
    rows += [blank] * (max_iterations - len(rows))
    return [*map(torch.stack, zip(*rows, strict=True)), *(inputs[at] for at in variables)]


def _while_knowledge(kind: type[Shapes] | type[Types], inputs: Known, attrs: dict[str, Any]) -> Any:
    (test, step), known = attrs["subgraphs"], list(inputs)
    places, count = attrs["func_input_locs"], attrs["num_out_data"]
    variables = [places[place] for place in attrs["func_var_locs"]]
    for graph, locs in ((test, attrs["cond_input_locs"]), (step, places), (step, places)):
        ins, outs = graph.inferred(kind, [known[at] for at in locs])
        for at, value in zip(locs, ins, strict=True):
            known[at] = value
        if graph is step:
            for at, value in zip(variables, outs[count:], strict=True):
                known[at] = value if _unknown(known[at]) else known[at]
    rows = [s and (attrs["max_iterations"], *s) for s in outs[:count]] if kind is Shapes else outs[:count]
    return known, [*rows, *(known[at] for at in variables)]


# ---- cond ----


def _cond(
    *data: torch.Tensor,
    num_args: int,
    num_outputs: int,
    cond_input_locs: Shape,
    then_input_locs: Shape,
    else_input_locs: Shape,
    subgraphs: Any_,
    ctx: Ctx | None = None,
) -> list[torch.Tensor]:
    """Run one of two bodies, depending on a condition."""
    test, then, other = subgraphs
    holds = bool(test(ctx, [data[at] for at in cond_input_locs])[0])
    return (then if holds else other)(ctx, [data[at] for at in (then_input_locs if holds else else_input_locs)])


def _cond_knowledge(kind: type[Shapes] | type[Types], inputs: Known, attrs: dict[str, Any]) -> Any:
    known, outs = list(inputs), list[Any]()
    for graph, role in zip(attrs["subgraphs"], ("cond", "then", "else"), strict=True):
        locs = attrs[f"{role}_input_locs"]
        ins, found = graph.inferred(kind, [known[at] for at in locs])
        for at, value in zip(locs, ins, strict=True):
            known[at] = value
        outs.append(found)
    return known, [a if a == b or _unknown(b) else b if _unknown(a) else None for a, b in zip(*outs[1:], strict=True)]


# ---- the op table ----


def _op(name: str, function: Any, knowledge: Any) -> Op:
    return Op(
        function,
        (name,),
        same_dtype=False,
        may_alias=True,
        mutates=(),
        takes=_input_names,
        outputs=lambda attrs: attrs["num_outputs"],
        infer=lambda inputs, outputs, attrs: knowledge(Shapes, inputs, attrs),
        types=lambda inputs, attrs: knowledge(Types, inputs, attrs),
    )


FOREACH = _op("_foreach", _foreach, _foreach_knowledge)
WHILE_LOOP = _op("_while_loop", _while_loop, _while_knowledge)
COND = _op("_cond", _cond, _cond_knowledge)
CONTROL = {op.name: op for op in (FOREACH, WHILE_LOOP, COND)}
# For each op: for each of its subgraphs, the attributes with the positions of its inputs.
_PLACES: dict[str, list[tuple[str, ...]]] = {
    "_foreach": [("in_data_locs", "in_state_locs", "remain_locs")],
    "_while_loop": [("cond_input_locs",), ("func_input_locs",)],
    "_cond": [("cond_input_locs",), ("then_input_locs",), ("else_input_locs",)],
}


def check_node(node: Node) -> None:
    """Raise an error if the attributes of a node do not match its subgraphs, as in a damaged file."""
    assert node.op is not None
    values, graphs, places = node.values, node.values["subgraphs"], _PLACES[node.op.name]
    if len(graphs) != len(places):
        raise MXNetError(f"expected {len(places)} subgraph(s), received {len(graphs)}")
    for graph, keys in zip(graphs, places, strict=True):
        locs = [at for key in keys for at in values[key]]
        if len(locs) != len(graph.names) or not all(0 <= at < len(node.inputs) for at in locs):
            raise MXNetError(f"{' and '.join(keys)} do not match the inputs {', '.join(graph.names)}: {locs}")
        if len(set(graph.names)) < len(graph.names):
            raise MXNetError(f"the inputs of a subgraph must have unique names, received {', '.join(graph.names)}")
    if node.op is FOREACH and sorted(locs) != list(range(len(locs))):
        raise MXNetError(f"expected each position once in {' and '.join(keys)}, received {locs}")
    states = [at for key in ("in_state_locs", "func_var_locs") for at in values.get(key, ())]
    if not all(0 <= at < len(graphs[-1].names) for at in states):
        raise MXNetError(f"positions of states must be less than {len(graphs[-1].names)}, received {states}")
    outputs = values["num_outputs"]
    if outputs != values.get("num_out_data", outputs) + len(states) or outputs != len(graphs[-1].heads):
        raise MXNetError(f"num_outputs is {outputs}, but the subgraph has {len(graphs[-1].heads)} outputs")
