"""ResNet: version 1 (https://arxiv.org/abs/1512.03385) and version 2 (https://arxiv.org/abs/1603.05027)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import nn
from ...block import HybridBlock
from ..model_store import ROOT
from .parts import CPU, Classifier, row, with_weights

__all__ = [
    "BasicBlockV1",
    "BasicBlockV2",
    "BottleneckV1",
    "BottleneckV2",
    "ResNetV1",
    "ResNetV2",
    "get_resnet",
    "resnet101_v1",
    "resnet101_v2",
    "resnet152_v1",
    "resnet152_v2",
    "resnet18_v1",
    "resnet18_v2",
    "resnet34_v1",
    "resnet34_v2",
    "resnet50_v1",
    "resnet50_v2",
]


def _conv3x3(channels: int, stride: int, in_channels: int) -> nn.Conv2D:
    return nn.Conv2D(channels, kernel_size=3, strides=stride, padding=1, use_bias=False, in_channels=in_channels)


def _conv1x1(channels: int, stride: int = 1, in_channels: int = 0) -> nn.Conv2D:
    return nn.Conv2D(channels, kernel_size=1, strides=stride, use_bias=False, in_channels=in_channels)


# ---- version 1: normalization after each convolution, relu after the sum ----


class _BlockV1(HybridBlock):
    """relu of the sum of body and shortcut. With `downsample`, the shortcut has a convolution.

    The subclasses sum in different orders, as in MXNet: the order of arguments in saved graphs depends on it.
    """

    def __init__(self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.body = self._make_body(channels, stride, in_channels)
        self.downsample = row(_conv1x1(channels, stride, in_channels), nn.BatchNorm()) if downsample else None

    def _make_body(self, channels: int, stride: int, in_channels: int) -> HybridBlock:
        raise NotImplementedError

    def _shortcut(self, x: Any) -> Any:
        return x if self.downsample is None else self.downsample(x)


class BasicBlockV1(_BlockV1):
    """Two 3x3 convolutions, for ResNets with 18 and 34 layers."""

    def _make_body(self, channels: int, stride: int, in_channels: int) -> HybridBlock:
        return row(
            _conv3x3(channels, stride, in_channels),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(channels, 1, channels),
            nn.BatchNorm(),
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output of the block."""
        return F.Activation(self._shortcut(x) + self.body(x), act_type="relu")


class BottleneckV1(_BlockV1):
    """A 3x3 convolution on a quarter of the channels, for ResNets with 50 or more layers."""

    def _make_body(self, channels: int, stride: int, in_channels: int) -> HybridBlock:
        narrow = channels // 4
        return row(
            nn.Conv2D(narrow, kernel_size=1, strides=stride),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(narrow, 1, narrow),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, kernel_size=1, strides=1),
            nn.BatchNorm(),
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output of the block."""
        return F.Activation(self.body(x) + self._shortcut(x), act_type="relu")


# ---- version 2: normalization and relu before each convolution, none after the sum ----


class BasicBlockV2(HybridBlock):
    """Two 3x3 convolutions, for ResNets with 18 and 34 layers."""

    def __init__(self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv3x3(channels, stride, in_channels)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels, 1, channels)
        self.downsample = _conv1x1(channels, stride, in_channels) if downsample else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output of the block."""
        active = F.Activation(self.bn1(x), act_type="relu")
        shortcut = x if self.downsample is None else self.downsample(active)
        body = self.conv1(active)
        body = self.conv2(F.Activation(self.bn2(body), act_type="relu"))
        return body + shortcut


class BottleneckV2(HybridBlock):
    """A 3x3 convolution on a quarter of the channels, for ResNets with 50 or more layers."""

    def __init__(self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        narrow = channels // 4
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv1x1(narrow)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(narrow, stride, narrow)
        self.bn3 = nn.BatchNorm()
        self.conv3 = _conv1x1(channels)
        self.downsample = _conv1x1(channels, stride, in_channels) if downsample else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output of the block."""
        active = F.Activation(self.bn1(x), act_type="relu")
        shortcut = x if self.downsample is None else self.downsample(active)
        body = self.conv1(active)
        body = self.conv2(F.Activation(self.bn2(body), act_type="relu"))
        body = self.conv3(F.Activation(self.bn3(body), act_type="relu"))
        return body + shortcut


# ---- the networks ----


def _stem(channels: int, thumbnail: bool) -> list[HybridBlock]:
    """The layers before the blocks. They reduce the image to a quarter of its size, unless `thumbnail`."""
    if thumbnail:
        return [_conv3x3(channels, 1, 0)]
    conv = nn.Conv2D(channels, kernel_size=7, strides=2, padding=3, use_bias=False)
    return [conv, nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(pool_size=3, strides=2, padding=1)]


def _stages(block: type[HybridBlock], layers: Sequence[int], channels: Sequence[int]) -> list[HybridBlock]:
    """Stages of `layers[i]` blocks with `channels[i + 1]` channels. All but the first halve the size of the image."""
    return [
        _stage(block, count, number, out, given)
        for number, (count, out, given) in enumerate(zip(layers, channels[1:], channels, strict=False), start=1)
    ]


def _stage(block: Any, count: int, number: int, channels: int, in_channels: int) -> HybridBlock:
    stage = nn.HybridSequential(prefix=f"stage{number}_")
    with stage.name_scope():
        stride = 1 if number == 1 else 2
        stage.add(block(channels, stride, channels != in_channels, in_channels=in_channels, prefix=""))
        stage.add(*(block(channels, 1, False, in_channels=channels, prefix="") for _ in range(count - 1)))
    return stage


class ResNetV1(Classifier):
    """Stages of `layers[i]` blocks of class `block` with `channels[i + 1]` channels. `channels[0]` is for the stem.

    `thumbnail` is for small images, such as those of CIFAR.
    """

    def __init__(
        self,
        block: type[HybridBlock],
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        _check_stages(layers, channels)
        with self.name_scope():
            self.features = row(*_stem(channels[0], thumbnail), *_stages(block, layers, channels), nn.GlobalAvgPool2D())
            self.output = nn.Dense(classes, in_units=channels[-1])


class ResNetV2(Classifier):
    """Like `ResNetV1`, with blocks of version 2. The input and the last sum are normalized."""

    def __init__(
        self,
        block: type[HybridBlock],
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        _check_stages(layers, channels)
        with self.name_scope():
            self.features = row(
                nn.BatchNorm(scale=False, center=False),
                *_stem(channels[0], thumbnail),
                *_stages(block, layers, channels),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.GlobalAvgPool2D(),
                nn.Flatten(),
            )
            self.output = nn.Dense(classes, in_units=channels[-1])


def _check_stages(layers: Sequence[int], channels: Sequence[int]) -> None:
    assert len(layers) == len(channels) - 1, (
        f"{len(layers)} stages need {len(layers) + 1} channel counts, the first for the stem; received {list(channels)}"
    )


# By number of layers: the kind of block, blocks per stage, channels of the stem and of each stage.
resnet_spec = {
    18: ("basic_block", [2, 2, 2, 2], [64, 64, 128, 256, 512]),
    34: ("basic_block", [3, 4, 6, 3], [64, 64, 128, 256, 512]),
    50: ("bottle_neck", [3, 4, 6, 3], [64, 256, 512, 1024, 2048]),
    101: ("bottle_neck", [3, 4, 23, 3], [64, 256, 512, 1024, 2048]),
    152: ("bottle_neck", [3, 8, 36, 3], [64, 256, 512, 1024, 2048]),
}
resnet_net_versions: list[Any] = [ResNetV1, ResNetV2]
resnet_block_versions: list[dict[str, Any]] = [
    {"basic_block": BasicBlockV1, "bottle_neck": BottleneckV1},
    {"basic_block": BasicBlockV2, "bottle_neck": BottleneckV2},
]


def get_resnet(
    version: int, num_layers: int, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> Any:
    """Return ResNet version 1 or 2 with 18, 34, 50, 101 or 152 layers, with ImageNet weights if `pretrained`."""
    assert num_layers in resnet_spec, (
        f"Invalid number of layers: {num_layers!r}. Options are {', '.join(map(str, resnet_spec))}"
    )
    assert version in (1, 2), f"Invalid resnet version: {version!r}. Options are 1 and 2"
    kind, layers, channels = resnet_spec[num_layers]
    block = resnet_block_versions[version - 1][kind]
    net = resnet_net_versions[version - 1](block, layers, channels, **kwargs)
    return with_weights(net, pretrained, f"resnet{num_layers}_v{version}", ctx, root)


def resnet18_v1(**kwargs: Any) -> ResNetV1:
    """ResNet with 18 layers, version 1."""
    return get_resnet(1, 18, **kwargs)


def resnet34_v1(**kwargs: Any) -> ResNetV1:
    """ResNet with 34 layers, version 1."""
    return get_resnet(1, 34, **kwargs)


def resnet50_v1(**kwargs: Any) -> ResNetV1:
    """ResNet with 50 layers, version 1."""
    return get_resnet(1, 50, **kwargs)


def resnet101_v1(**kwargs: Any) -> ResNetV1:
    """ResNet with 101 layers, version 1."""
    return get_resnet(1, 101, **kwargs)


def resnet152_v1(**kwargs: Any) -> ResNetV1:
    """ResNet with 152 layers, version 1."""
    return get_resnet(1, 152, **kwargs)


def resnet18_v2(**kwargs: Any) -> ResNetV2:
    """ResNet with 18 layers, version 2."""
    return get_resnet(2, 18, **kwargs)


def resnet34_v2(**kwargs: Any) -> ResNetV2:
    """ResNet with 34 layers, version 2."""
    return get_resnet(2, 34, **kwargs)


def resnet50_v2(**kwargs: Any) -> ResNetV2:
    """ResNet with 50 layers, version 2."""
    return get_resnet(2, 50, **kwargs)


def resnet101_v2(**kwargs: Any) -> ResNetV2:
    """ResNet with 101 layers, version 2."""
    return get_resnet(2, 101, **kwargs)


def resnet152_v2(**kwargs: Any) -> ResNetV2:
    """ResNet with 152 layers, version 2."""
    return get_resnet(2, 152, **kwargs)
