"""Convolution, transposed convolution, pooling and padding layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import MXNetError
from ..block import HybridBlock
from .basic_layers import activation_layer, check_sizes

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "ReflectionPad2D",
]

Sizes = int | Sequence[int]


def per_axis(name: str, value: Sizes, rank: int) -> tuple[int, ...]:
    """Return a tuple of `rank` integers, from an integer for all axes or a sequence with one for each."""
    numbers = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(numbers) != rank or not all(isinstance(number, (int, np.integer)) for number in numbers):
        raise AssertionError(f"{name} must be an integer or a sequence of {rank} integers, received {value!r}")
    return numbers


def check_layout(layer: object, layout: str, layouts: Sequence[str]) -> None:
    """Raise if the layer does not support `layout`."""
    if layout not in layouts:
        raise AssertionError(
            f"layout of {type(layer).__name__} must be {' or '.join(map(repr, layouts))}, received {layout!r}"
        )


def weight_shape(layout: str, rows: int, columns: int, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a convolution weight: (rows, columns, *kernel), with columns at the layout's channel axis."""
    return (rows, *kernel, columns) if layout.endswith("C") else (rows, columns, *kernel)


class _Conv(HybridBlock):
    """The base of all convolutions. `adj` makes the convolution transposed."""

    _layouts: tuple[str, ...]

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes,
        padding: Sizes,
        dilation: Sizes,
        groups: int,
        layout: str,
        in_channels: int = 0,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        adj: Sizes | None = None,
        prefix: str | None = None,
        params: Any = None,
    ):
        check_layout(self, layout, self._layouts)
        check_sizes(1, channels=channels, groups=groups)
        check_sizes(0, in_channels=in_channels)
        super().__init__(prefix=prefix, params=params)
        rank = len(layout) - 2
        self._channels, self._in_channels = channels, in_channels
        self._kwargs: dict[str, Any] = {
            "kernel": per_axis("kernel_size", kernel_size, rank),
            "stride": per_axis("strides", strides, rank),
            "dilate": per_axis("dilation", dilation, rank),
            "pad": per_axis("padding", padding, rank),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        for name, count in (("channels", channels), ("in_channels", in_channels)):
            if count % groups:
                raise MXNetError(f"{name} must be a multiple of groups={groups}, received {count}")
        self._op_name, rows, columns = "Convolution", channels, in_channels // groups
        if adj is not None:
            self._kwargs["adj"] = per_axis("output_padding", adj, rank)
            self._op_name, rows, columns = "Deconvolution", in_channels, channels // groups
        with self.name_scope():
            self.weight = self.params.get(
                "weight",
                shape=weight_shape(layout, rows, columns, self._kwargs["kernel"]),
                init=weight_initializer,
                allow_deferred_init=True,
            )
            self.bias = None
            if use_bias:
                self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True)
            self.act = activation_layer(activation)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        arrays = (x, weight) if bias is None else (x, weight, bias)
        out = getattr(F, self._op_name)(*arrays, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def _alias(self) -> str:
        return "conv"

    def __repr__(self) -> str:
        return describe(self, self.weight.shape or (None, None), self._kwargs, self.bias is not None)


def describe(layer: Any, shape: Sequence[int | None], attributes: dict[str, Any], bias: bool) -> str:
    """Return the representation of a convolution as MXNet prints it. Default values are omitted."""
    words = [
        f"{shape[1] or None} -> {shape[0]}",
        f"kernel_size={attributes['kernel']}",
        f"stride={attributes['stride']}",
    ]
    if any(attributes["pad"]):
        words.append(f"padding={attributes['pad']}")
    if any(d != 1 for d in attributes["dilate"]):
        words.append(f"dilation={attributes['dilate']}")
    if attributes["num_group"] != 1:
        words.append(f"groups={attributes['num_group']}")
    if not bias:
        words.append("bias=False")
    if layer.act is not None:
        words.append(repr(layer.act))
    return f"{type(layer).__name__}({', '.join(words)})"


class Conv1D(_Conv):
    """Convolution of a signal (batch, channels, width)."""

    _layouts = ("NCW",)

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        spatial = channels, kernel_size, strides, padding, dilation, groups, layout, in_channels
        rest = activation, use_bias, weight_initializer, bias_initializer
        super().__init__(*spatial, *rest, **kwargs)


class Conv2D(_Conv):
    """Convolution of images (batch, channels, height, width)."""

    _layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes = (1, 1),
        padding: Sizes = (0, 0),
        dilation: Sizes = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        spatial = channels, kernel_size, strides, padding, dilation, groups, layout, in_channels
        rest = activation, use_bias, weight_initializer, bias_initializer
        super().__init__(*spatial, *rest, **kwargs)


class Conv3D(_Conv):
    """Convolution of volumes (batch, channels, depth, height, width)."""

    _layouts = ("NCDHW", "NDHWC")

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes = (1, 1, 1),
        padding: Sizes = (0, 0, 0),
        dilation: Sizes = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        spatial = channels, kernel_size, strides, padding, dilation, groups, layout, in_channels
        rest = activation, use_bias, weight_initializer, bias_initializer
        super().__init__(*spatial, *rest, **kwargs)


class Conv1DTranspose(_Conv):
    """Transposed convolution of a signal (batch, channels, width): the gradient of Conv1D as a layer."""

    _layouts = ("NCW",)

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        spatial = channels, kernel_size, strides, padding, dilation, groups, layout, in_channels
        rest = activation, use_bias, weight_initializer, bias_initializer, output_padding
        super().__init__(*spatial, *rest, **kwargs)


class Conv2DTranspose(_Conv):
    """Transposed convolution of images (batch, channels, height, width): the gradient of Conv2D as a layer."""

    _layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes = (1, 1),
        padding: Sizes = (0, 0),
        output_padding: Sizes = (0, 0),
        dilation: Sizes = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        spatial = channels, kernel_size, strides, padding, dilation, groups, layout, in_channels
        rest = activation, use_bias, weight_initializer, bias_initializer, output_padding
        super().__init__(*spatial, *rest, **kwargs)


class Conv3DTranspose(_Conv):
    """Transposed convolution of volumes (batch, channels, depth, height, width): the gradient of Conv3D as a layer."""

    _layouts = ("NCDHW", "NDHWC")

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes,
        strides: Sizes = (1, 1, 1),
        padding: Sizes = (0, 0, 0),
        output_padding: Sizes = (0, 0, 0),
        dilation: Sizes = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        spatial = channels, kernel_size, strides, padding, dilation, groups, layout, in_channels
        rest = activation, use_bias, weight_initializer, bias_initializer, output_padding
        super().__init__(*spatial, *rest, **kwargs)


class _Pooling(HybridBlock):
    """The base of all pooling layers."""

    _layouts: tuple[str, ...]

    def __init__(
        self,
        pool_size: Sizes,
        strides: Sizes | None,
        padding: Sizes,
        ceil_mode: bool,
        global_pool: bool,
        pool_type: str,
        layout: str,
        count_include_pad: bool | None = None,
        **kwargs: Any,
    ):
        check_layout(self, layout, self._layouts)
        super().__init__(**kwargs)
        rank = len(layout) - 2
        self._kwargs: dict[str, Any] = {
            "kernel": per_axis("pool_size", pool_size, rank),
            "stride": per_axis("strides", pool_size if strides is None else strides, rank),
            "pad": per_axis("padding", padding, rank),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        ceil_mode = self._kwargs["pooling_convention"] == "full"
        return (
            "{name}(size={kernel}, stride={stride}, padding={pad}, ceil_mode={ceil_mode}, global_pool={global_pool}, "
            "pool_type={pool_type}, layout={layout})".format(
                name=type(self).__name__, ceil_mode=ceil_mode, **self._kwargs
            )
        )


class MaxPool1D(_Pooling):
    """Max pooling over a signal (batch, channels, width)."""

    _layouts = ("NCW", "NWC")

    def __init__(
        self,
        pool_size: Sizes = 2,
        strides: Sizes | None = None,
        padding: Sizes = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class MaxPool2D(_Pooling):
    """Max pooling over images (batch, channels, height, width)."""

    _layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        pool_size: Sizes = (2, 2),
        strides: Sizes | None = None,
        padding: Sizes = 0,
        layout: str = "NCHW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class MaxPool3D(_Pooling):
    """Max pooling over volumes (batch, channels, depth, height, width)."""

    _layouts = ("NCDHW", "NDHWC")

    def __init__(
        self,
        pool_size: Sizes = (2, 2, 2),
        strides: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class AvgPool1D(_Pooling):
    """Average pooling over a signal (batch, channels, width)."""

    _layouts = ("NCW", "NWC")

    def __init__(
        self,
        pool_size: Sizes = 2,
        strides: Sizes | None = None,
        padding: Sizes = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class AvgPool2D(_Pooling):
    """Average pooling over images (batch, channels, height, width)."""

    _layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        pool_size: Sizes = (2, 2),
        strides: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        layout: str = "NCHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class AvgPool3D(_Pooling):
    """Average pooling over volumes (batch, channels, depth, height, width)."""

    _layouts = ("NCDHW", "NDHWC")

    def __init__(
        self,
        pool_size: Sizes = (2, 2, 2),
        strides: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ):
        super().__init__(pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class _GlobalPooling(_Pooling):
    """Pooling with a single window that covers the whole channel."""

    def __init__(self, pool_type: str, layout: str, **kwargs: Any):
        super().__init__(1, None, 0, True, True, pool_type, layout, **kwargs)


class GlobalMaxPool1D(_GlobalPooling):
    """The maximum of each channel of a signal (batch, channels, width)."""

    _layouts = ("NCW", "NWC")

    def __init__(self, layout: str = "NCW", **kwargs: Any):
        super().__init__("max", layout, **kwargs)


class GlobalMaxPool2D(_GlobalPooling):
    """The maximum of each channel of images (batch, channels, height, width)."""

    _layouts = ("NCHW", "NHWC")

    def __init__(self, layout: str = "NCHW", **kwargs: Any):
        super().__init__("max", layout, **kwargs)


class GlobalMaxPool3D(_GlobalPooling):
    """The maximum of each channel of volumes (batch, channels, depth, height, width)."""

    _layouts = ("NCDHW", "NDHWC")

    def __init__(self, layout: str = "NCDHW", **kwargs: Any):
        super().__init__("max", layout, **kwargs)


class GlobalAvgPool1D(_GlobalPooling):
    """The mean of each channel of a signal (batch, channels, width)."""

    _layouts = ("NCW", "NWC")

    def __init__(self, layout: str = "NCW", **kwargs: Any):
        super().__init__("avg", layout, **kwargs)


class GlobalAvgPool2D(_GlobalPooling):
    """The mean of each channel of images (batch, channels, height, width)."""

    _layouts = ("NCHW", "NHWC")

    def __init__(self, layout: str = "NCHW", **kwargs: Any):
        super().__init__("avg", layout, **kwargs)


class GlobalAvgPool3D(_GlobalPooling):
    """The mean of each channel of volumes (batch, channels, depth, height, width)."""

    _layouts = ("NCDHW", "NDHWC")

    def __init__(self, layout: str = "NCDHW", **kwargs: Any):
        super().__init__("avg", layout, **kwargs)


class ReflectionPad2D(HybridBlock):
    """Pads images (batch, channels, height, width) by reflecting their borders.

    `padding` is one number for all four sides, or eight: two per axis, of which the first four must be 0.
    """

    def __init__(self, padding: Sizes = 0, **kwargs: Any):
        super().__init__(**kwargs)
        if isinstance(padding, (int, np.integer)):
            padding = (0, 0, 0, 0, padding, padding, padding, padding)
        if not isinstance(padding, Sequence) or len(padding) != 8:
            raise AssertionError(
                f"padding must be an integer or 8 integers (0, 0, 0, 0, top, bottom, left, right), received {padding!r}"
            )
        self._padding = tuple(padding)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
