"""SqueezeNet: https://arxiv.org/abs/1602.07360."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...block import HybridBlock
from ..model_store import ROOT
from .parts import CPU, Classifier, row, side_by_side, with_weights

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]


class SqueezeNet(Classifier):
    """SqueezeNet, `version` "1.0" of the paper, or "1.1", the authors' revision with less computation."""

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        assert version in ("1.0", "1.1"), f"Unsupported SqueezeNet version {version}: expected 1.0 or 1.1"
        with self.name_scope():
            self.features = row(*(_layers_1_0() if version == "1.0" else _layers_1_1()), nn.Dropout(0.5))
            self.output = row(*_conv(classes, 1), nn.AvgPool2D(13), nn.Flatten())


def _layers_1_0() -> list[HybridBlock]:
    return [
        *_conv(96, 7, strides=2),
        _pool(),
        *(_fire(size) for size in (16, 16, 32)),
        _pool(),
        *(_fire(size) for size in (32, 48, 48, 64)),
        _pool(),
        _fire(64),
    ]


def _layers_1_1() -> list[HybridBlock]:
    return [
        *_conv(64, 3, strides=2),
        _pool(),
        *(_fire(size) for size in (16, 16)),
        _pool(),
        *(_fire(size) for size in (32, 32)),
        _pool(),
        *(_fire(size) for size in (48, 48, 64, 64)),
    ]


def _conv(channels: int, kernel_size: int, **kwargs: Any) -> tuple[HybridBlock, HybridBlock]:
    return nn.Conv2D(channels, kernel_size, **kwargs), nn.Activation("relu")


def _pool() -> HybridBlock:
    return nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True)


def _fire(squeezed: int) -> HybridBlock:
    """Squeeze to a few channels, then expand to eight times as many: half by 1x1 and half by 3x3 convolutions."""
    expanded = 4 * squeezed
    return row(row(*_conv(squeezed, 1)), side_by_side(row(*_conv(expanded, 1)), row(*_conv(expanded, 3, padding=1))))


def get_squeezenet(
    version: str, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> SqueezeNet:
    """Return SqueezeNet "1.0" or "1.1", on `ctx` with weights trained on ImageNet if `pretrained`."""
    return with_weights(SqueezeNet(version, **kwargs), pretrained, f"squeezenet{version}", ctx, root)


def squeezenet1_0(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.0."""
    return get_squeezenet("1.0", **kwargs)


def squeezenet1_1(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.1."""
    return get_squeezenet("1.1", **kwargs)
