"""Deformable convolutions: another convolution computes offsets of the sampling points of the kernel."""

from __future__ import annotations

from math import prod
from typing import Any

from ....base import MXNetError
from ...block import HybridBlock
from ...nn.basic_layers import activation_layer, check_sizes
from ...nn.conv_layers import Sizes, describe, per_axis, weight_shape

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class _Deformable(HybridBlock):
    """A convolution that computes offsets (and masks), and a deformable convolution that uses them."""

    _op_name: str
    _per_point: int  # number of values for each kernel point and position
    _offset_first: bool  # order of the parameters
    deformable_conv_weight: Any
    deformable_conv_bias: Any

    def __init__(
        self,
        channels: int,
        kernel_size: Sizes = (1, 1),
        strides: Sizes = (1, 1),
        padding: Sizes = (0, 0),
        dilation: Sizes = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        op_name: str | None = None,
        adj: Any = None,
        prefix: str | None = None,
        params: Any = None,
    ):
        if adj is not None:
            raise MXNetError(f"{type(self).__name__} has no transposed variant: adj must be None, received {adj!r}")
        check_sizes(1, channels=channels, groups=groups, num_deformable_group=num_deformable_group)
        check_sizes(0, in_channels=in_channels)
        super().__init__(prefix=prefix, params=params)
        self._channels, self._in_channels = channels, in_channels
        if op_name is not None:
            self._op_name = op_name
        kernel = per_axis("kernel_size", kernel_size, 2)
        common: dict[str, Any] = {
            "kernel": kernel,
            "stride": per_axis("strides", strides, 2),
            "dilate": per_axis("dilation", dilation, 2),
            "pad": per_axis("padding", padding, 2),
            "num_group": groups,
            "layout": layout,
        }
        offsets = self._per_point * prod(kernel) * num_deformable_group
        self._kwargs_offset = common | {"num_filter": offsets, "no_bias": not offset_use_bias, "cudnn_off": True}
        self._kwargs_deformable_conv = common | {
            "num_filter": channels,
            "num_deformable_group": num_deformable_group,
            "no_bias": not use_bias,
        }
        offset_shape = weight_shape(layout, offsets, in_channels // groups, kernel)
        offset = "offset", offset_shape, offset_weight_initializer, offset_use_bias, offset_bias_initializer
        # As in MXNet, the input channels are inferred at the first forward even if `in_channels` is given.
        convolution = "deformable_conv", (channels, 0, *kernel), weight_initializer, use_bias, bias_initializer
        with self.name_scope():
            for part in (offset, convolution) if self._offset_first else (convolution, offset):
                self._add_parameters(*part)
            self.act = activation_layer(activation)

    def _add_parameters(self, part: str, shape: tuple[int, ...], init: Any, use_bias: bool, bias_init: Any) -> None:
        weight = self.params.get(part + "_weight", shape=shape, init=init, allow_deferred_init=True)
        setattr(self, part + "_weight", weight)
        bias = None
        if use_bias:
            bias = self.params.get(part + "_bias", shape=shape[:1], init=bias_init, allow_deferred_init=True)
        setattr(self, part + "_bias", bias)

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        inputs = [x, offset_weight] if offset_bias is None else [x, offset_weight, offset_bias]
        offset = F.Convolution(*inputs, **self._kwargs_offset)
        inputs = [x, *self._split(F, offset), deformable_conv_weight]
        if deformable_conv_bias is not None:
            inputs.append(deformable_conv_bias)
        out = getattr(F.contrib, self._op_name)(*inputs, name="fwd", **self._kwargs_deformable_conv)
        return out if self.act is None else self.act(out)

    def _split(self, F: Any, offset: Any) -> tuple[Any, ...]:
        """Split the output of the first convolution into the inputs of the deformable op."""
        return (offset,)


class DeformableConvolution(_Deformable):
    """Convolution with learned offsets of the kernel points at each position."""

    _op_name, _per_point, _offset_first = "DeformableConvolution", 2, True

    def _alias(self) -> str:
        return "deformable_conv"

    def __repr__(self) -> str:
        bias = self.deformable_conv_bias is not None
        return describe(self, self.deformable_conv_weight.shape, self._kwargs_deformable_conv, bias)


class ModulatedDeformableConvolution(_Deformable):
    """DeformableConvolution with learned masks between 0 and 2, which weight the kernel points at each position."""

    _op_name, _per_point, _offset_first = "ModulatedDeformableConvolution", 3, False

    def _split(self, F: Any, offset: Any) -> tuple[Any, ...]:
        end = self._kwargs_offset["num_filter"] // 3 * 2
        moves = F.slice_axis(offset, axis=1, begin=0, end=end)
        return moves, F.sigmoid(F.slice_axis(offset, axis=1, begin=end, end=None)) * 2

    def _alias(self) -> str:
        return "modulated_deformable_conv"
