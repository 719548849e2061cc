"""Where the nodes of a graph run, when groups of them have contexts of their own (`group2ctx`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import MXNetError, suggest
from ..context import Context
from .graph import Node


class Groups:
    """The contexts that groups of nodes go to, from `group2ctx={'dev1': mx.gpu(0)}`; without groups, all are alike."""

    def __init__(self, group2ctx: Any):
        if not isinstance(group2ctx or {}, dict):
            raise TypeError(f"group2ctx must be a dictionary of Contexts, received {type(group2ctx).__name__}")
        self.contexts: dict[str, Context] = dict(group2ctx or {})
        for group, ctx in self.contexts.items():
            if not isinstance(ctx, Context):
                raise TypeError(f"group2ctx must hold Contexts, received {group}={ctx!r}")

    def __bool__(self) -> bool:
        return bool(self.contexts)

    def of(self, node: Node) -> Context | None:
        """The context of the group that the node is in, or None if it is in no group."""
        group = node.attrs.get("__ctx_group__")
        if not self.contexts or group is None:
            return None
        if group not in self.contexts:
            raise MXNetError(
                f"{node.name!r} is in the ctx_group {group!r}, which group2ctx gives no context."
                f"{suggest(group, self.contexts)} group2ctx has: {', '.join(self.contexts)}"
            )
        return self.contexts[group].check()

    def places(self, order: Sequence[Node], variables: Mapping[str, Context], default: Context) -> dict[int, Context]:
        """The context of each node of a topological order, by id; `variables` says where the variables' arrays are.

        A node in no group runs where its first input is, one without inputs where it is used, as in MXNet.
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
    """Refuse states that lie on another device than the op that changes them: it would change a copy."""
    for node in order:
        for state in node.mutated():
            if places[id(state)].device != places[id(node)].device:
                raise MXNetError(
                    f"{node.name!r} runs on {places[id(node)]} and changes {state.name!r}, which is on "
                    f"{places[id(state)]}. Put both into one ctx_group"
                )
