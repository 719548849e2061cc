"""MobileNet (https://arxiv.org/abs/1704.04861) and MobileNetV2 (https://arxiv.org/abs/1801.04381)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...block import HybridBlock
from ..model_store import ROOT
from .parts import CPU, Classifier, row, with_weights

__all__ = [
    "MobileNet",
    "MobileNetV2",
    "get_mobilenet",
    "get_mobilenet_v2",
    "mobilenet0_25",
    "mobilenet0_5",
    "mobilenet0_75",
    "mobilenet1_0",
    "mobilenet_v2_0_25",
    "mobilenet_v2_0_5",
    "mobilenet_v2_0_75",
    "mobilenet_v2_1_0",
]

# The output channels and the stride of each separable convolution of MobileNet.
_SEPARABLE = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]

# The bottlenecks of MobileNetV2: expansion factor, channels, repetitions, stride of the first.
_BOTTLENECKS = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


class RELU6(HybridBlock):
    """max(0, min(x, 6))."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Clip x to the range from 0 to 6."""
        return F.clip(x, 0, 6, name="relu6")


def _conv(channels: int, kernel_size: int = 1, activation: Any = None, **kwargs: Any) -> list[HybridBlock]:
    """A convolution that keeps the size except for strides, then batch normalization and the `activation` Block."""
    conv = nn.Conv2D(channels, kernel_size, padding=kernel_size // 2, use_bias=False, **kwargs)
    return [conv, nn.BatchNorm(), *([] if activation is None else [activation()])]


def _relu() -> HybridBlock:
    return nn.Activation("relu")


class LinearBottleneck(HybridBlock):
    """MobileNetV2's block: expands the channels by `t`, applies a depthwise convolution, projects to `channels`.

    The input is added if `stride` is 1 and the number of channels does not change.
    """

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        wide = in_channels * t
        with self.name_scope():
            self.out = nn.HybridSequential()
            self.out.add(*_conv(wide, activation=RELU6))
            self.out.add(*_conv(wide, 3, RELU6, strides=stride, groups=wide))
            self.out.add(*_conv(channels))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output of the block."""
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNet(Classifier):
    """MobileNet with `multiplier` times the number of channels in the paper."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            channels = int(32 * multiplier)
            self.features = row(*_conv(channels, 3, _relu, strides=2))
            for wanted, stride in _SEPARABLE:
                self.features.add(*_conv(channels, 3, _relu, strides=stride, groups=channels))
                channels = int(wanted * multiplier)
                self.features.add(*_conv(channels, activation=_relu))
            self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)


class MobileNetV2(Classifier):
    """MobileNetV2 with `multiplier` times the channels of the paper. The last layer has at least 1280."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                self._add_features(multiplier)
            output = nn.HybridSequential(prefix="output_")
            with output.name_scope():
                output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())
            self.output = output

    def _add_features(self, multiplier: float) -> None:
        before = int(32 * multiplier)
        self.features.add(*_conv(before, 3, RELU6, strides=2))
        for t, wanted, count, first_stride in _BOTTLENECKS:
            channels = int(wanted * multiplier)
            for i in range(count):
                self.features.add(LinearBottleneck(before, channels, t, first_stride if i == 0 else 1))
                before = channels
        self.features.add(*_conv(max(1280, int(1280 * multiplier)), activation=RELU6))
        self.features.add(nn.GlobalAvgPool2D())


def _published(multiplier: float) -> str:
    """The multiplier as written in the names of published weights: 1.0, 0.75, 0.5."""
    text = f"{multiplier:.2f}"
    return text[:-1] if text in ("1.00", "0.50") else text


def get_mobilenet(
    multiplier: float, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> MobileNet:
    """Return MobileNet, on `ctx` with ImageNet weights if `pretrained` (multipliers 1.0, 0.75, 0.5, 0.25)."""
    net = MobileNet(multiplier, **kwargs)
    return with_weights(net, pretrained, f"mobilenet{_published(multiplier)}", ctx, root)


def get_mobilenet_v2(
    multiplier: float, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> MobileNetV2:
    """Return MobileNetV2, on `ctx` with ImageNet weights if `pretrained` (multipliers 1.0, 0.75, 0.5, 0.25)."""
    net = MobileNetV2(multiplier, **kwargs)
    return with_weights(net, pretrained, f"mobilenetv2_{_published(multiplier)}", ctx, root)


def mobilenet1_0(**kwargs: Any) -> MobileNet:
    """MobileNet with the number of channels in the paper."""
    return get_mobilenet(1.0, **kwargs)


def mobilenet0_75(**kwargs: Any) -> MobileNet:
    """MobileNet with 0.75 times the channels."""
    return get_mobilenet(0.75, **kwargs)


def mobilenet0_5(**kwargs: Any) -> MobileNet:
    """MobileNet with 0.5 times the channels."""
    return get_mobilenet(0.5, **kwargs)


def mobilenet0_25(**kwargs: Any) -> MobileNet:
    """MobileNet with 0.25 times the channels."""
    return get_mobilenet(0.25, **kwargs)


def mobilenet_v2_1_0(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 with the number of channels in the paper."""
    return get_mobilenet_v2(1.0, **kwargs)


def mobilenet_v2_0_75(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 with 0.75 times the channels."""
    return get_mobilenet_v2(0.75, **kwargs)


def mobilenet_v2_0_5(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 with 0.5 times the channels."""
    return get_mobilenet_v2(0.5, **kwargs)


def mobilenet_v2_0_25(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 with 0.25 times the channels."""
    return get_mobilenet_v2(0.25, **kwargs)
