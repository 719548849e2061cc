"""DenseNet: https://arxiv.org/abs/1608.06993."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import nn
from ...block import HybridBlock
from ...contrib.nn import Identity
from ..model_store import ROOT
from .parts import CPU, Classifier, entry, row, side_by_side, with_weights

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]

# By number of layers: initial channels, growth rate, layers per stage.
densenet_spec = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


class DenseNet(Classifier):
    """Stages of `block_config[i]` layers, each adding `growth_rate` channels to its input.

    A layer first computes `bn_size * growth_rate` channels. `dropout` is the dropout rate at the end of each layer.
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: Sequence[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = row(
                nn.Conv2D(num_init_features, kernel_size=7, strides=2, padding=3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(pool_size=3, strides=2, padding=1),
            )
            channels = num_init_features
            for number, count in enumerate(block_config, start=1):
                self.features.add(_stage(number, count, bn_size, growth_rate, dropout))
                channels += count * growth_rate
                if number < len(block_config):
                    channels //= 2
                    self.features.add(_transition(channels))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(pool_size=7), nn.Flatten())
            self.output = nn.Dense(classes)


def _stage(number: int, count: int, bn_size: int, growth_rate: int, dropout: float) -> HybridBlock:
    stage = nn.HybridSequential(prefix=f"stage{number}_")
    with stage.name_scope():
        for _ in range(count):
            stage.add(side_by_side(Identity(), _layer(bn_size, growth_rate, dropout)))
    return stage


def _layer(bn_size: int, growth_rate: int, dropout: float) -> HybridBlock:
    layer = row(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(bn_size * growth_rate, kernel_size=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(growth_rate, kernel_size=3, padding=1, use_bias=False),
    )
    if dropout:
        layer.add(nn.Dropout(dropout))
    return layer


def _transition(channels: int) -> HybridBlock:
    """The transition between stages, which reduces the channels and halves the size."""
    return row(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(channels, kernel_size=1, use_bias=False),
        nn.AvgPool2D(pool_size=2, strides=2),
    )


def get_densenet(
    num_layers: int, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> DenseNet:
    """Return DenseNet with 121, 161, 169 or 201 layers, on `ctx` with ImageNet weights if `pretrained`."""
    net = DenseNet(*entry(densenet_spec, num_layers), **kwargs)
    return with_weights(net, pretrained, f"densenet{num_layers}", ctx, root)


def densenet121(**kwargs: Any) -> DenseNet:
    """DenseNet with 121 layers."""
    return get_densenet(121, **kwargs)


def densenet161(**kwargs: Any) -> DenseNet:
    """DenseNet with 161 layers."""
    return get_densenet(161, **kwargs)


def densenet169(**kwargs: Any) -> DenseNet:
    """DenseNet with 169 layers."""
    return get_densenet(169, **kwargs)


def densenet201(**kwargs: Any) -> DenseNet:
    """DenseNet with 201 layers."""
    return get_densenet(201, **kwargs)
