"""`foreach`, `while_loop` and `cond` as nodes of a graph that contain the graphs of their bodies as subgraphs.

A body is called once, with variables in place of slices and states. Nodes that it creates get the attribute
`__subgraph_name__`. Values that the body uses from outside do not have it, and become inputs of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import attribute
from .. import name as naming
from ..base import MXNetError
from ..ndarray.control_flow import listed, shaped
from ..ops.table import OPS, Op
from .build import create, entry_of, scope_attrs, text_of
from .control_ops import COND, FOREACH, WHILE_LOOP, Subgraph
from .graph import Entry, Node, rebuilt
from .symbol import Symbol

_MARK = "__subgraph_name__"
_made: Counter[str] = Counter()  # how often each body name has been used


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> Any:
    """Apply `body(slice, states) -> (outputs, states)` to each slice along axis 0 and return the stacked outputs."""
    sequences = _entries(listed(data, "foreach input", Symbol), FOREACH)
    states = _entries(listed(init_states, "foreach input", Symbol), FOREACH)
    with _body(name) as mark:
        slices, variables = _variables(sequences), _variables(states)
        given = shaped(_symbols(slices), data), shaped(_symbols(variables), init_states)
        outputs, changed = body(*given)
        flat = listed(outputs, "foreach output", Symbol)
        flat_states = listed(changed, "foreach output", Symbol)
        if _nesting(changed) != _nesting(init_states):
            raise AssertionError("foreach: body must return states with the same nesting as the states it receives")
        taken = {id(symbol._outputs[0][0]) for symbol in flat}
        heads = [_owned(symbol, mark) for symbol in flat]
        # A state that is also an output gets a separate node, as in MXNet.
        heads += [_owned(symbol, mark, copy=id(symbol._outputs[0][0]) in taken) for symbol in flat_states]
    graph, sources = _cut(heads, mark)
    places = {id(node): at for at, node in enumerate(graph.variables)}
    for what, nodes in (("data", slices), ("state", variables)):
        if any(id(node) not in places for node in nodes):
            raise AssertionError(f"the {what} arrays have to be used in the loop body")
    rest = [node for node in graph.variables if id(node) not in {id(n) for n in (*slices, *variables)}]
    results = _node(
        FOREACH,
        [*sequences, *states, *(sources[id(node)] for node in rest)],
        [graph],
        num_outputs=len(heads),
        num_out_data=len(flat),
        in_data_locs=[places[id(node)] for node in slices],
        in_state_locs=[places[id(node)] for node in variables],
        remain_locs=[places[id(node)] for node in rest],
    )
    return shaped(results[: len(flat)], outputs), shaped(results[len(flat) :], init_states)


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> Any:
    """Apply `func(*vars) -> (outputs, vars)` while `cond(*vars)` is true, at most `max_iterations` times.

    The outputs are stacked and padded with zeros to `max_iterations` rows.
    """
    if max_iterations is None:
        raise ValueError("max_iterations should be specified")
    try:
        most = int(max_iterations)
    except (TypeError, ValueError):
        raise ValueError(f"max_iterations must be an int, received {max_iterations!r}") from None
    starts = _entries(listed(loop_vars, "while_loop input", Symbol), WHILE_LOOP)
    if not starts:
        raise ValueError("loop_vars should contain at least one element")
    like = [loop_vars] if isinstance(loop_vars, Symbol) else loop_vars
    with _body(name + "_cond") as mark:
        tested = _variables(starts)
        holds = cond(*shaped(_symbols(tested), like))
        if not isinstance(holds, Symbol):
            raise ValueError(f"while_loop: cond must return a Symbol, but returned {type(holds).__name__}")
        test, test_sources = _cut([_owned(holds, mark)], mark)
    with _body(name + "_func") as mark:
        stepped = _variables(starts)
        outputs, changed = func(*shaped(_symbols(stepped), like))
        flat = listed(outputs, "while_loop output", Symbol)
        flat_vars = listed(changed, "while_loop output", Symbol)
        if len(flat_vars) != len(starts):
            raise ValueError(f"func must return {len(starts)} loop variable(s), but returned {len(flat_vars)}")
        heads = [_owned(symbol, mark) for symbol in (*flat, *flat_vars)]
        step, step_sources = _cut(heads, mark)
    within = [id(node) for node in step.variables]
    for at, node in enumerate(stepped):
        if id(node) not in within:
            raise ValueError(f"while_loop: func must use every loop variable, but does not use variable {at}")
    given = {id(node): start for nodes in (tested, stepped) for node, start in zip(nodes, starts, strict=True)}
    inputs = _Inputs({**test_sources, **step_sources, **given}, lambda variable, source: id(variable) in given)
    results = _node(
        WHILE_LOOP,
        inputs.entries,
        [test, step],
        max_iterations=most,
        num_outputs=len(heads),
        num_out_data=len(flat),
        cond_input_locs=inputs.places(test),
        func_input_locs=inputs.places(step),
        func_var_locs=[within.index(id(node)) for node in stepped],
    )
    return shaped(results[: len(flat)], outputs), shaped(results[len(flat) :], loop_vars)


def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str = "cond") -> Any:
    """Return `then_func()` if `pred` is nonzero, otherwise `else_func()`."""
    graphs, sources, outputs = [], {}, []
    for role, branch in (("pred", lambda: pred), ("then", then_func), ("else", else_func)):
        with _body(f"{name}_{role}") as mark:
            outputs.append(branch())
            heads = [_owned(symbol, mark) for symbol in listed(outputs[-1], "cond output", Symbol)]
            graph, found = _cut(heads, mark)
        graphs.append(graph)
        sources.update(found)
    test, then, other = graphs
    if len(test.heads) != 1:
        raise MXNetError(f"cond: pred must be one Symbol, received {len(test.heads)}")
    if len(then.heads) != len(other.heads):
        raise ValueError(
            f"cond: then_func and else_func must return the same number of outputs, received {len(then.heads)} and "
            f"{len(other.heads)}"
        )
    inputs = _Inputs(sources, lambda variable, source: source[0].op is None)
    results = _node(
        COND,
        inputs.entries,
        graphs,
        num_outputs=len(then.heads),
        cond_input_locs=inputs.places(test),
        then_input_locs=inputs.places(then),
        else_input_locs=inputs.places(other),
    )
    return shaped(results, outputs[1])


# ---- bodies ----


@contextmanager
def _body(name: str) -> Iterator[str]:
    """Mark nodes created in the `with` block as part of a body with a unique name."""
    outer = attribute.current().get(None).get(_MARK)
    name = name if outer is None else f"{outer}${name}"
    mark = f"{name}{_made[name]}"
    _made[name] += 1
    with attribute.AttrScope(**{_MARK: mark}):
        yield mark


def _variables(entries: Sequence[Entry]) -> list[Node]:
    """Return variables that represent these outputs inside a body."""
    return [Node(None, f"{node.name}-{index}", attrs=scope_attrs()) for node, index in entries]


def _symbols(nodes: Sequence[Node]) -> list[Symbol]:
    return [Symbol([(node, 0)]) for node in nodes]


def _entries(symbols: Sequence[Symbol], op: Op) -> list[Entry]:
    return [entry_of(op, f"arg{i}", symbol, Symbol) for i, symbol in enumerate(symbols)]


def _nesting(value: Any) -> Any:
    return None if isinstance(value, Symbol) else [_nesting(item) for item in value]


def _owned(symbol: Symbol, mark: str, copy: bool = False) -> Entry:
    """Return an output of a body. An output of an outside node is copied, so that its node is inside the body."""
    node, _ = entry = entry_of(OPS["identity"], "data", symbol, Symbol)
    if node.op is None or node.attrs.get(_MARK) != mark or copy:
        return create(OPS["identity"], "identity", (symbol,), {}, Symbol)._outputs[0]
    return entry


def _cut(heads: Sequence[Entry], mark: str) -> tuple[Subgraph, dict[int, Entry]]:
    """Return the graph of a body, and the outside value of each of its variables by id."""
    sources: dict[int, Entry] = {}

    def replace(node: Node, inputs: list[Entry]) -> list[Entry] | None:
        if node.op is None:
            sources[id(node)] = (node, 0)
            return [(node, 0)]
        if node.attrs.get(_MARK) == mark:
            return None
        stand_ins = [(Node(None, name), 0) for name in node.output_names()]
        sources.update({id(stand_in): (node, i) for i, (stand_in, _) in enumerate(stand_ins)})
        return stand_ins

    graph = Subgraph(rebuilt(heads, replace))
    if len(set(graph.names)) < len(graph.names):
        raise AssertionError(f"the inputs of a loop body must have unique names, received {', '.join(graph.names)}")
    return graph, {id(node): sources[id(node)] for node in graph.variables}


class _Inputs:
    """The inputs of a node for all its subgraphs. Subgraphs share an input where `shares` allows it, as in MXNet."""

    def __init__(self, sources: dict[int, Entry], shares: Callable[[Node, Entry], bool]):
        self.sources, self.shares, self.entries = sources, shares, list[Entry]()

    def places(self, graph: Subgraph) -> list[int]:
        """Return the position of each variable of a graph among the inputs, adding inputs that are new."""
        return [self._place(variable, self.sources[id(variable)]) for variable in graph.variables]

    def _place(self, variable: Node, source: Entry) -> int:
        if self.shares(variable, source):
            for at, (node, index) in enumerate(self.entries):
                if node is source[0] and index == source[1]:
                    return at
        self.entries.append(source)
        return len(self.entries) - 1


def _node(op: Op, inputs: list[Entry], graphs: list[Subgraph], **given: Any) -> list[Symbol]:
    """Return the outputs of a new node with the subgraphs `graphs`."""
    given["num_args"] = len(inputs) + len(graphs)
    attrs = scope_attrs() | {key: text_of(value) for key, value in given.items()}
    values = op.converted({**given, "subgraphs": tuple(graphs)})
    node = Node(op, naming.current().get(None, op.name), inputs, attrs, values)
    return [Symbol([(node, i)]) for i in range(op.visible_outputs(values))]
