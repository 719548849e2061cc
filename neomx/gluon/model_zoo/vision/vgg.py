"""VGG: https://arxiv.org/abs/1409.1556."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....initializer import Xavier
from ... import nn
from ...block import HybridBlock
from ..model_store import ROOT
from .parts import CPU, Classifier, entry, row, with_weights

__all__ = ["VGG", "get_vgg", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]

# By number of layers: convolutions per stage, channels per stage.
vgg_spec = {
    11: ([1, 1, 2, 2, 2], [64, 128, 256, 512, 512]),
    13: ([2, 2, 2, 2, 2], [64, 128, 256, 512, 512]),
    16: ([2, 2, 3, 3, 3], [64, 128, 256, 512, 512]),
    19: ([2, 2, 4, 4, 4], [64, 128, 256, 512, 512]),
}


class VGG(Classifier):
    """Stages of `layers[i]` convolutions with `filters[i]` channels. Each stage halves the size of the image."""

    def __init__(
        self,
        layers: Sequence[int],
        filters: Sequence[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        assert len(layers) == len(filters), f"layers has {len(layers)} stages, but filters has {len(filters)}"
        with self.name_scope():
            stages = [
                layer
                for count, channels in zip(layers, filters, strict=True)
                for layer in _stage(count, channels, batch_norm)
            ]
            self.features = row(*stages, *_dense(), *_dense())
            self.output = nn.Dense(classes, weight_initializer="normal", bias_initializer="zeros")


def _stage(count: int, channels: int, batch_norm: bool) -> list[HybridBlock]:
    layers: list[HybridBlock] = []
    for _ in range(count):
        init = Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
        layers.append(nn.Conv2D(channels, 3, padding=1, weight_initializer=init, bias_initializer="zeros"))
        if batch_norm:
            layers.append(nn.BatchNorm())
        layers.append(nn.Activation("relu"))
    return [*layers, nn.MaxPool2D(strides=2)]


def _dense() -> tuple[HybridBlock, HybridBlock]:
    dense = nn.Dense(4096, activation="relu", weight_initializer="normal", bias_initializer="zeros")
    return dense, nn.Dropout(0.5)


def get_vgg(num_layers: int, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any) -> VGG:
    """Return VGG with 11, 13, 16 or 19 layers, on `ctx` with weights trained on ImageNet if `pretrained`."""
    layers, filters = entry(vgg_spec, num_layers)
    name = f"vgg{num_layers}" + ("_bn" if kwargs.get("batch_norm") else "")
    return with_weights(VGG(layers, filters, **kwargs), pretrained, name, ctx, root)


def vgg11(**kwargs: Any) -> VGG:
    """VGG with 11 layers."""
    return get_vgg(11, **kwargs)


def vgg13(**kwargs: Any) -> VGG:
    """VGG with 13 layers."""
    return get_vgg(13, **kwargs)


def vgg16(**kwargs: Any) -> VGG:
    """VGG with 16 layers."""
    return get_vgg(16, **kwargs)


def vgg19(**kwargs: Any) -> VGG:
    """VGG with 19 layers."""
    return get_vgg(19, **kwargs)


def vgg11_bn(**kwargs: Any) -> VGG:
    """VGG with 11 layers and batch normalization."""
    return get_vgg(11, **{**kwargs, "batch_norm": True})


def vgg13_bn(**kwargs: Any) -> VGG:
    """VGG with 13 layers and batch normalization."""
    return get_vgg(13, **{**kwargs, "batch_norm": True})


def vgg16_bn(**kwargs: Any) -> VGG:
    """VGG with 16 layers and batch normalization."""
    return get_vgg(16, **{**kwargs, "batch_norm": True})


def vgg19_bn(**kwargs: Any) -> VGG:
    """VGG with 19 layers and batch normalization."""
    return get_vgg(19, **{**kwargs, "batch_norm": True})
