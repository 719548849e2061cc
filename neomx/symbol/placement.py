"""The contexts of nodes when groups of nodes are assigned to contexts (`group2ctx`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import MXNetError, suggest
from ..context import Context
from .graph import Node


class Groups:
    """The contexts of groups of nodes, from `group2ctx={'dev1': mx.gpu(0)}`. False if there are no groups."""

    def __init__(self, group2ctx: Any):
        if not isinstance(group2ctx or {}, dict):
            raise TypeError(f"group2ctx must be a dictionary of Contexts, received {type(group2ctx).__name__}")
        self.contexts: dict[str, Context] = dict(group2ctx or {})
        for group, ctx in self.contexts.items():
            if not isinstance(ctx, Context):
                raise TypeError(f"the values of group2ctx must be Contexts, received {group}={ctx!r}")

    def __bool__(self) -> bool:
        return bool(self.contexts)

    def of(self, node: Node) -> Context | None:
        """Return the context of the node's group, or None if it is not in a group."""
        group = node.attrs.get("__ctx_group__")
        if not self.contexts or group is None:
            return None
        if group not in self.contexts:
            raise MXNetError(
                f"{node.name!r} is in ctx_group {group!r}, for which group2ctx has no context."
                f"{suggest(group, self.contexts)} Available groups: {', '.join(self.contexts)}"
            )
        return self.contexts[group].check()

    def places(self, order: Sequence[Node], variables: Mapping[str, Context], default: Context) -> dict[int, Context]:
        """Return the context of each node by id; `variables` maps the names of variables to their contexts.

        As in MXNet, a node without a group runs on the context of its first input. A node without inputs runs on the
        context of the node that uses it.
        """
        found: dict[int, Context] = {}
        for node in order:
            inputs = (found[id(source)] for source, _ in node.inputs if id(source) in found)
            ctx = variables[node.name] if node.op is None else self.of(node) or next(inputs, None)
            if ctx is not None:
                found[id(node)] = ctx
        for node in reversed(order):
            ctx = found.setdefault(id(node), default)
            for source, _ in node.inputs:
                found.setdefault(id(source), ctx)
        return found


def check_states(order: Sequence[Node], places: Mapping[int, Context]) -> None:
    """Raise an error if a state is not on the device of the op that modifies it: the op would modify a copy."""
    for node in order:
        for state in node.mutated():
            if places[id(state)].device != places[id(node)].device:
                raise MXNetError(
                    f"{node.name!r} runs on {places[id(node)]} but modifies {state.name!r}, which is on "
                    f"{places[id(state)]}. Put both into the same ctx_group"
                )
