"""Common parts of the vision networks."""

from __future__ import annotations

from typing import Any, TypeVar

from ....context import cpu
from ...block import HybridBlock
from ...contrib.nn import HybridConcurrent
from ...nn import HybridSequential
from ..model_store import get_model_file

CPU = cpu()  # the default context of pretrained weights
Net = TypeVar("Net", bound=HybridBlock)


class Classifier(HybridBlock):
    """A network in two parts: `features` of an image, and `output`, which computes a score for each class."""

    features: HybridSequential
    output: HybridBlock

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the scores for a batch of images."""
        return self.output(self.features(x))


def row(*layers: HybridBlock) -> HybridSequential:
    """Return a sequence of layers, without a prefix in their names."""
    layout = HybridSequential(prefix="")
    layout.add(*layers)
    return layout


def side_by_side(*branches: HybridBlock) -> HybridConcurrent:
    """Return branches on the same input whose channels are concatenated, without a prefix in their names."""
    layout = HybridConcurrent(axis=1, prefix="")
    layout.add(*branches)
    return layout


def with_weights(net: Net, pretrained: bool, name: str, ctx: Any, root: str) -> Net:
    """Load the weights published for `name` into `net` if `pretrained`. Return `net`."""
    if pretrained:
        net.load_parameters(get_model_file(name, root=root), ctx=ctx)
    return net


def entry(table: dict[int, Any], num_layers: int) -> Any:
    """Return the entry of a family's table for a network with `num_layers` layers."""
    if num_layers not in table:
        raise KeyError(f"no network with {num_layers!r} layers: choose one of {', '.join(map(str, table))}")
    return table[num_layers]
