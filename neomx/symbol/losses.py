"""Ops that know their own gradient: backward may start there without being given one."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Entry, Node, topological

_LOSSES = {
    "Custom",
    "LinearRegressionOutput",
    "LogisticRegressionOutput",
    "MAERegressionOutput",
    "MakeLoss",
    "SVMOutput",
    "SoftmaxOutput",
    "make_loss",
}


def is_loss(node: Node) -> bool:
    """Whether a node needs no gradient to start from."""
    return node.op is not None and node.op.name in _LOSSES


def losses_inside(outputs: Sequence[Entry]) -> list[Entry]:
    """The losses of a graph that are none of its outputs.

    They start a gradient of their own, even where what follows passes none back, as in MXNet.
    """
    heads = {id(node) for node, _ in outputs}
    return [(node, 0) for node in topological(node for node, _ in outputs) if is_loss(node) and id(node) not in heads]
