"""Build the Symbol of the recorded computation of an array, for `autograd.get_symbol`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..base import MXNetError
from ..ndarray.history import READ, Inlined, Read, Source, Step, source_of
from ..ndarray.indexing import Index
from ..ndarray.invoke import in_graph
from ..ndarray.ndarray import NDArray
from ..ops.slicing import forward_slice
from ..ops.table import OPS, Op
from .build import text_of
from .graph import Entry, Node, rebuilt, topological
from .spelling import spelled_out
from .symbol import Symbol

# An array maps to the same variable in every symbol, as variables are identified by name. MXNet numbers variables and
# constants with one counter.
_variables = WeakTensorKeyDictionary()
_MADE = 3  # index of the outputs that were built for a step
_variable_numbers, _node_numbers = itertools.count(), itertools.count()


def recorded_symbol(array: NDArray) -> Symbol:
    """Return the graph of the recorded ops that computed an array. Inputs of the recording become variables.

    Variables with a gradient are named var0, var1, ..., constants null2, ..., and nodes node_0, node_1, ...
    """
    if in_graph(array.to_torch()) is None:
        raise MXNetError(
            "get_symbol: the array is not in a computational graph. Compute it inside `with autograd.record():` from "
            "arrays with attach_grad(), and call get_symbol before backward, or pass retain_graph=True to backward"
        )
    return Symbol([_Graph().entry(source_of(array))])


def traced_symbol(
    outputs: Sequence[NDArray], inputs: Sequence[tuple[str, NDArray]], known: Sequence[tuple[str, NDArray]]
) -> Symbol:
    """Return the graph of recorded outputs. The variables of `inputs`, pairs of a name and an array, get these names.

    Arrays in `known` get their names, too, with a number if another variable has the same name. The other variables
    are named constant0, constant1, ...
    """
    for name, array in inputs:
        _variables[array.to_torch()] = Node(None, name)
    graph = _Graph()
    entries = [graph.entry(source_of(each)) for each in outputs]
    nodes = topological(node for node, _ in entries)
    given = {id(_variables[array.to_torch()]) for _, array in inputs}
    names = {id(_variables[each.to_torch()]): name for name, each in known if each.to_torch() in _variables}
    taken = {name for name, _ in inputs} | {node.name for node in nodes if node.op is not None}

    def renamed(node: Node, _: list[Entry]) -> list[Entry] | None:
        if node.op is not None or id(node) in given:
            return None
        name = names.get(id(node))
        numbered = (f"{name or 'constant'}{i}" for i in itertools.count())
        free = name if name and name not in taken else next(each for each in numbered if each not in taken)
        taken.add(free)
        return [(Node(None, free), 0)]

    return Symbol(rebuilt(entries, renamed))


def _unmade(sources: Sequence[Source]) -> list[Step]:
    """Return the steps among `sources` for which no nodes have been built."""
    steps = [source[0] if isinstance(source, tuple) else source for source in sources]
    return [each for each in steps if isinstance(each, list) and len(each) == _MADE]


class _Graph:
    """Builds nodes from steps. A step keeps its outputs, so that symbols of the same computation share nodes."""

    def __init__(self) -> None:
        self.gone: dict[int, Node] = {}  # variables of constants whose tensors were freed, by reference

    def entry(self, source: Source) -> Entry:
        """Return the node output or variable for a source."""
        stack = _unmade([source])
        while stack:  # inputs first; the history may exceed the recursion limit
            step = stack[-1]
            waiting = _unmade(step[2])
            if waiting and len(step) == _MADE:
                stack += reversed(waiting)
            else:
                stack.pop()
                if len(step) == _MADE:
                    step.append(self.outputs(*step))
        return self.made_entry(source)

    def made_entry(self, source: Source) -> Entry:
        if isinstance(source, list):
            return source[_MADE][0]
        if isinstance(source, tuple):
            return source[0][_MADE][source[1]]
        assert source is not None
        tensor = source()
        return (self.gone_variable(source) if tensor is None else _variable(tensor)), 0

    def gone_variable(self, reference: weakref.ref[torch.Tensor]) -> Node:
        if id(reference) not in self.gone:
            self.gone[id(reference)] = _constant()
        return self.gone[id(reference)]

    def outputs(self, how: Any, attrs: Any, sources: Sequence[Source]) -> list[Entry]:
        """Return the outputs of a step as entries of the graph."""
        inputs = [None if source is None else self.made_entry(source) for source in sources]
        if how is READ:
            return [_read(inputs[0], attrs)]
        if isinstance(how, Symbol):
            return self.inlined(how, attrs, inputs)
        return self.node(how, inputs, attrs)

    def node(self, op: Op, inputs: Sequence[Entry | None], given: dict[str, Any]) -> list[Entry]:
        """Return the outputs of a node of an op. Fused ops are expanded into the MXNet ops that they replace."""
        parts = spelled_out(op, inputs, given, self.node)
        if parts is not None:
            return parts
        by_name = {name: value for name, value in given.items() if isinstance(value, NDArray)}  # of a Custom op
        values = op.converted({name: given[name] for name in given if name not in ("ctx", *by_name)})
        count = len(inputs) + len(by_name)
        if op.variadic and "num_args" in op.attrs:
            values.setdefault("num_args", count)
        names = op.input_names(values, count)
        present = [entry for entry in inputs if entry is not None]
        # Positional inputs are those that the attributes select, or all possible inputs of the op.
        by_position = len(present) == len(names) or op.variadic
        found = dict(zip(names, present, strict=False) if by_position else zip(op.inputs, inputs, strict=False))
        found.update({name: self.entry(source_of(array)) for name, array in by_name.items()})
        attrs = {name: text_of(value) for name, value in values.items()}
        entries = [found.get(name) or (_constant(), 0) for name in names]
        made = Node(op, f"node_{next(_node_numbers)}", entries, attrs, values)
        return [(made, i) for i in range(made.count_outputs())]

    def inlined(self, graph: Symbol, attrs: Inlined, inputs: Sequence[Entry | None]) -> list[Entry]:
        """Insert the nodes of a hybridized Block, or of another graph that ran as a single function."""
        found = dict(zip(attrs.names, (*inputs, *((_variable(each), 0) for each in attrs.parameters)), strict=True))
        prefix = f"node_{next(_node_numbers)}_"

        def replace(node: Node, inputs: list[Entry]) -> list[Entry]:
            if node.op is None:
                return [found[node.name] or (_constant(), 0)]
            made = Node(node.op, prefix + node.name, inputs, dict(node.attrs), dict(node.values))
            return [(made, i) for i in range(made.count_outputs())]

        return rebuilt(graph._outputs, replace)


def _variable(tensor: torch.Tensor) -> Node:
    """Return the variable for a tensor that was not computed by a recorded op."""
    if tensor not in _variables:
        kind = "var" if tensor.requires_grad else "null"
        _variables[tensor] = Node(None, f"{kind}{next(_variable_numbers)}")
    found: Node = _variables[tensor]
    return found


def _constant() -> Node:
    """Return a variable for an array that is only known to the recorded call."""
    return Node(None, f"null{next(_variable_numbers)}")


def _node(name: str, inputs: Sequence[Entry], **values: Any) -> Entry:
    attrs = {key: text_of(value) for key, value in values.items()}
    return Node(OPS[name], f"node_{next(_node_numbers)}", inputs, attrs, values), 0


def _read(data: Entry | None, attrs: Read) -> Entry:
    """Express `x[key]` as ops: a slice, then a reshape. Index arrays become constants of `gather_nd`."""
    assert data is not None
    key = attrs.key
    if isinstance(key, torch.Tensor) or isinstance(key, Index) and key.advanced is not None:
        return _node("gather_nd", [data, (_constant(), 0)])
    basic = key.basic if isinstance(key, Index) else key if isinstance(key, tuple) else (key,)
    slices, axis = [], 0
    for item in basic:
        if item is not None:
            length = attrs.shape[axis]
            row = item % length if isinstance(item, int) else 0
            slices.append(slice(row, row + 1) if isinstance(item, int) else forward_slice(item, length)[0])
            axis += 1
    entry = data
    if any(each.indices(length) != (0, length, 1) for each, length in zip(slices, attrs.shape, strict=False)):
        begin, end = tuple(each.start for each in slices), tuple(each.stop for each in slices)
        entry = _node("slice", [entry], begin=begin, end=end, step=tuple(each.step or 1 for each in slices))
    lengths = [len(range(*each.indices(length))) for each, length in zip(slices, attrs.shape, strict=False)]
    if (*lengths, *attrs.shape[len(slices) :]) != tuple(attrs.result):
        entry = _node("Reshape", [entry], shape=tuple(attrs.result))
    if isinstance(key, Index) and key.flips:
        entry = _node("reverse", [entry], axis=tuple(key.flips))
    return entry
