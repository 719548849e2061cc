"""Elementwise activation functions."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F

from ..base import MXNetError, modes
from .random import generator
from .table import FILLED_IN, Ctx, by_data, op

Tensor = torch.Tensor

_ACTIVATIONS = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softrelu": lambda x: F.softplus(x, threshold=40),
    "softsign": F.softsign,
    "tanh": torch.tanh,
}


@op("Activation", "_npx_activation", infer="same")
def activation(data: Tensor, *, act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"]) -> Tensor:
    """Elementwise max(x, 0), 1 / (1 + exp(-x)), log(1 + exp(x)), x / (1 + |x|) or tanh(x)."""
    if not data.is_floating_point():
        raise MXNetError("expected an array of floats. Use astype")
    return _ACTIVATIONS[act_type](data)


class _Selu(torch.autograd.Function):
    """selu with MXNet's gradient below zero, scale * (output + alpha). The derivative is output + scale * alpha."""

    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

    @staticmethod
    def forward(ctx, data):
        out = F.selu(data)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return grad * torch.where(out > 0, _Selu.scale, _Selu.scale * (out + _Selu.alpha))


def _prelu(data: Tensor, gamma: Tensor | None) -> Tensor:
    if gamma is None:
        raise MXNetError("expected gamma, the slope of prelu")
    channels = data.shape[1] if data.dim() > 1 else data.shape[0]
    if gamma.dim() == 2 and gamma.shape == data.shape[:2]:  # one slope for each sample and channel
        return torch.where(data > 0, data, data * gamma.reshape(*gamma.shape, *[1] * (data.dim() - 2)))
    if gamma.numel() not in (1, channels) or gamma.shape[-1] != gamma.numel():
        raise MXNetError(f"expected gamma of shape (1,) or ({channels},), got {tuple(gamma.shape)}")
    gamma = gamma.reshape(-1)
    return F.prelu(data, gamma) if data.dim() > 1 else F.prelu(data.unsqueeze(0), gamma).squeeze(0)


@by_data
def _gamma_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(data[1] if len(data) > 1 else 1,)]


@op(
    "LeakyReLU",
    "_npx_leaky_relu",
    takes={"gamma": lambda a: a["act_type"] == "prelu"},
    starts={"gamma": '["Constant", {"value": 0.25}]'},
    outputs=lambda a: ("output", "mask") if a["act_type"] == "rrelu" else ("output",),
    infer=_gamma_shape,
)
def leaky_relu(
    data: Tensor,
    gamma: Tensor | None = None,
    *,
    act_type: Literal["elu", "gelu", "leaky", "prelu", "rrelu", "selu"] = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    ctx: Ctx = FILLED_IN,
) -> Any:
    """x above zero; below zero, a fixed (leaky), learned (prelu) or random (rrelu) slope, or elu, selu or gelu.

    rrelu also returns the slopes. Outside training, they are the mean of the bounds.
    """
    if act_type == "prelu":
        return _prelu(data, gamma)
    if gamma is not None:
        raise MXNetError(f"act_type={act_type!r} does not accept gamma; only 'prelu' does")
    if act_type == "leaky":
        return F.leaky_relu(data, slope)
    if act_type == "elu":
        return F.elu(data, slope)
    if act_type == "gelu":
        return F.gelu(data)
    if act_type == "selu":
        return _Selu.apply(data)
    if not modes.training:
        slope = (lower_bound + upper_bound) / 2
        return F.leaky_relu(data, slope), torch.where(data > 0, 1.0, slope).to(data.dtype)
    slopes = torch.empty_like(data)
    out = torch.ops.aten.rrelu_with_noise(data, slopes, lower_bound, upper_bound, True, generator(ctx))
    return out, slopes


@op("_contrib_gelu_tanh", infer="same")
def gelu_tanh(data: Tensor) -> Tensor:
    """GELU with the tanh approximation, as used by GPT-2. MXNet 1.9 does not have it."""
    return F.gelu(data, approximate="tanh")
