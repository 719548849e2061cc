"""What the networks share."""

from __future__ import annotations

from typing import Any, TypeVar

from ....context import cpu
from ...block import HybridBlock
from ...contrib.nn import HybridConcurrent
from ...nn import HybridSequential
from ..model_store import get_model_file

CPU = cpu()  # where published weights go unless a program says otherwise
Net = TypeVar("Net", bound=HybridBlock)


class Classifier(HybridBlock):
    """A network in two parts: `features` of a picture, and the `output` made of them, a score for each class."""

    features: HybridSequential
    output: HybridBlock

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """The scores of a batch of pictures."""
        return self.output(self.features(x))


def row(*layers: HybridBlock) -> HybridSequential:
    """Layers one after the other. The row leaves no mark on their names."""
    layout = HybridSequential(prefix="")
    layout.add(*layers)
    return layout


def side_by_side(*branches: HybridBlock) -> HybridConcurrent:
    """Branches on the same input, their channels joined. It leaves no mark on their names."""
    layout = HybridConcurrent(axis=1, prefix="")
    layout.add(*branches)
    return layout


def with_weights(net: Net, pretrained: bool, name: str, ctx: Any, root: str) -> Net:
    """`net`, with the weights published for `name` if it is to be `pretrained`."""
    if pretrained:
        net.load_parameters(get_model_file(name, root=root), ctx=ctx)
    return net


def entry(table: dict[int, Any], num_layers: int) -> Any:
    """The row of a family's table for a network of so many layers."""
    if num_layers not in table:
        raise KeyError(f"no network of {num_layers!r} layers: choose one of {', '.join(map(str, table))}")
    return table[num_layers]
