"""The graph of a symbol: nodes, each of which is an op of the op table or a variable, with their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ops.table import Op

# Attributes that annotate a node instead of parameterizing its op. `lr_mult` is stored as `__lr_mult__`.
ANNOTATIONS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")


def is_annotation(key: str) -> bool:
    """Whether an attribute annotates the node, and is not a parameter of its op."""
    return key in ANNOTATIONS or key.startswith("__") and key.endswith("__")


def annotated(key: str) -> str:
    """Return the name under which an attribute is stored."""
    return f"__{key}__" if key in ANNOTATIONS else key


class Node:
    """An op applied to outputs of other nodes, or a variable if `op` is None.

    `attrs` are the attributes as strings, including annotations. `values` are the converted parameters of the op.
    """

    __slots__ = ("op", "name", "inputs", "attrs", "values")

    def __init__(
        self,
        op: Op | None,
        name: str,
        inputs: Sequence[Entry] = (),
        attrs: dict[str, str] | None = None,
        values: dict[str, Any] | None = None,
    ):
        self.op, self.name, self.inputs = op, name, list(inputs)
        self.attrs = {} if attrs is None else attrs
        self.values = {} if values is None else values

    def input_names(self) -> Sequence[str]:
        """Return the op's names for its inputs."""
        return () if self.op is None else self.op.input_names(self.values, len(self.inputs))

    def count_outputs(self) -> int:
        """Return the number of visible outputs."""
        return 1 if self.op is None else self.op.visible_outputs(self.values)

    def output_names(self) -> list[str]:
        """Return the names of the visible outputs."""
        if self.op is None:
            return [self.name]
        names = self.op.output_names(self.values)
        return [f"{self.name}_{name}" for name in names[: self.count_outputs()]]

    def mutated(self) -> list[Node]:
        """Return the variables that the op modifies in place: its auxiliary states."""
        states = () if self.op is None else self.op.state_names(self.values)
        if not states:
            return []
        return [node for name, (node, _) in zip(self.input_names(), self.inputs, strict=True) if name in states]


Entry = tuple[Node, int]


def topological(heads: Iterable[Node]) -> list[Node]:
    """Return `heads` and all nodes that they depend on, inputs first, in MXNet's depth-first order."""
    order: list[Node] = []
    seen: set[int] = set()
    for head in heads:
        stack = [(head, 0)] if id(head) not in seen else []
        seen.add(id(head))
        while stack:
            node, position = stack.pop()
            if position == len(node.inputs):
                order.append(node)
                continue
            stack.append((node, position + 1))
            child = node.inputs[position][0]
            if id(child) not in seen:
                seen.add(id(child))
                stack.append((child, 0))
    return order


def rebuilt(
    outputs: Sequence[Entry], replace: Callable[[Node, list[Entry]], Sequence[Entry] | None] = lambda node, inputs: None
) -> list[Entry]:
    """Copy the graph. `replace` receives each node with its new inputs and may return entries to use as its outputs."""
    made: dict[int, Sequence[Entry] | Node] = {}

    def entry(old: Entry) -> Entry:
        new = made[id(old[0])]
        return (new, old[1]) if isinstance(new, Node) else new[old[1]]

    for node in topological(node for node, _ in outputs):
        inputs = [entry(e) for e in node.inputs]
        made[id(node)] = replace(node, inputs) or Node(node.op, node.name, inputs, dict(node.attrs), dict(node.values))
    return [entry(e) for e in outputs]


def auxiliary(order: Sequence[Node]) -> set[int]:
    """Return the ids of the variables that an op modifies in place."""
    return {id(variable) for node in order for variable in node.mutated() if variable.op is None}
