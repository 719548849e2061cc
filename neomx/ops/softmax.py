"""Softmax and related ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from ..base import MXNetError
from .table import DType, by_data, op

Tensor = torch.Tensor


def _along(
    compute: Callable[..., Tensor],
    data: Tensor,
    axis: int,
    temperature: float | None,
    dtype: torch.dtype | None,
    beyond: Tensor | None = None,
) -> Tensor:
    """Return `compute` (softmax or log_softmax) of data / temperature in the wider dtype, without elements `beyond`."""
    if not data.is_floating_point():
        raise MXNetError("expected an array of floats. Use astype")
    if temperature is not None and temperature != 1:
        data = data / temperature
    if beyond is not None:
        # Not -inf, which would make the gradient NaN where all elements are masked.
        data = data.masked_fill(beyond, torch.finfo(data.dtype).min)
    if dtype is None or dtype is data.dtype:
        return compute(data, axis)
    return compute(data, axis, dtype=torch.promote_types(dtype, data.dtype)).to(dtype)


def _beyond_length(data: Tensor, length: Tensor, axis: int) -> Tensor:
    """Return True where the index along `axis` is at least the length."""
    axis %= data.dim()
    expected = _lengths(data.shape, axis)
    if length.shape != expected:
        raise MXNetError(f"expected length of shape {expected}, got {tuple(length.shape)}")
    shape = [1] * data.dim()
    shape[axis] = -1
    length = length.reshape((*data.shape[:axis], 1, *data.shape[axis + 1 :]))
    return torch.arange(data.shape[axis], device=data.device).view(shape) >= length


def _lengths(data: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the shape of the lengths along an axis. A vector has one length."""
    return (*data[:axis], *data[axis + 1 :]) or (1,)


@by_data
def _length_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [_lengths(data, attrs["axis"] % len(data))]


@op(
    "softmax",
    "_npx_softmax",
    takes={"length": lambda a: a["use_length"]},
    types=lambda types, a: (types, [a["dtype"] or types[0]]),
    infer=_length_shape,
)
def softmax(
    data: Tensor,
    length: Tensor | None = None,
    *,
    axis: int = -1,
    temperature: float | None = None,
    dtype: DType | None = None,
    use_length: bool | None = False,
) -> Tensor:
    """exp(x / temperature) divided by its sum along an axis, of which only the first `length` elements count."""
    if not use_length:
        if length is not None:
            raise MXNetError("length was given without use_length=True")
        return _along(torch.softmax, data, axis, temperature, dtype)
    if length is None:
        raise MXNetError("use_length=True requires length")
    beyond = _beyond_length(data, length, axis)
    return _along(torch.softmax, data, axis, temperature, dtype, beyond).masked_fill(beyond, 0)


@op("log_softmax", "_npx_log_softmax", infer="same")
def log_softmax(
    data: Tensor,
    *,
    axis: int = -1,
    temperature: float | None = None,
    dtype: DType | None = None,
    use_length: bool | None = False,
) -> Tensor:
    """The logarithm of softmax."""
    _refuse_length(use_length)
    return _along(torch.log_softmax, data, axis, temperature, dtype)


@op("softmin", infer="same")
def softmin(
    data: Tensor,
    *,
    axis: int = -1,
    temperature: float | None = None,
    dtype: DType | None = None,
    use_length: bool | None = False,
) -> Tensor:
    """The softmax of -x."""
    _refuse_length(use_length)
    return _along(torch.softmax, -data, axis, temperature, dtype)


def _refuse_length(use_length: bool | None) -> None:
    if use_length:
        raise MXNetError("expected use_length=False; only softmax supports a length")


@op("SoftmaxActivation", infer="same")
def softmax_activation(data: Tensor, *, mode: Literal["channel", "instance"] = "instance") -> Tensor:
    """Softmax along the last axis, or over the channels at each position."""
    if mode == "instance":
        return torch.softmax(data, -1)
    if data.dim() < 3:
        raise MXNetError(f"expected data of at least 3 dimensions in mode 'channel', got {data.dim()}")
    return torch.softmax(data, 1)


class _SoftmaxCrossEntropy(torch.autograd.Function):
    """Clips probabilities, also the 0 of a label that is no class, to at least 1e-8. Gradients ignore the clipping."""

    @staticmethod
    def forward(ctx, data, label):
        probability = torch.softmax(data, 1)
        index = label.long().unsqueeze(1)
        known = (index >= 0) & (index < data.shape[1])
        index = index.clamp(0, data.shape[1] - 1)
        ctx.save_for_backward(probability, index, known)
        picked = probability.gather(1, index) * known
        return -picked.clamp(min=1e-8).log().sum().reshape(1)

    @staticmethod
    def backward(ctx, grad):
        probability, index, known = ctx.saved_tensors
        return probability.scatter_add(1, index, -known.to(probability.dtype)) * grad, None


@op("softmax_cross_entropy", same_dtype=True)
def softmax_cross_entropy(data: Tensor, label: Tensor) -> Tensor:
    """The cross entropy of softmax(data) with class labels, summed over the batch."""
    if data.dim() != 2 or label.shape != data.shape[:1]:
        raise MXNetError(
            "expected data of shape (N, classes) and label of shape (N,), "
            f"got {tuple(data.shape)} and {tuple(label.shape)}"
        )
    return _SoftmaxCrossEntropy.apply(data, label)
