"""Ops that define their own gradient, so that backward can start there without a head gradient."""

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
    """Whether backward can start at a node without a head gradient."""
    return node.op is not None and node.op.name in _LOSSES


def losses_inside(outputs: Sequence[Entry]) -> list[Entry]:
    """Return the losses of a graph that are not among its outputs.

    As in MXNet, they start a gradient even if the ops that follow do not propagate one.
    """
    heads = {id(node) for node, _ in outputs}
    return [(node, 0) for node in topological(node for node, _ in outputs) if is_loss(node) and id(node) not in heads]
