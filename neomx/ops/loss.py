"""Output layers for training with Module. Their gradient is that of a loss and ignores the incoming gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch

from ..base import MXNetError
from .shapes import UNKNOWN, is_known
from .table import by_data, op

Tensor = torch.Tensor


class _Defined(torch.autograd.Function):
    """`out`, with a gradient of data that `gradient` computes in the backward pass."""

    @staticmethod
    def forward(ctx, data, out, gradient):
        ctx.gradient = gradient
        return out.view_as(out)

    @staticmethod
    def backward(ctx, _):
        return ctx.gradient(), None, None


def _defined(data: Tensor, out: Tensor, gradient: Callable[[], Tensor]) -> Tensor:
    return _Defined.apply(data, out, gradient) if data.requires_grad and torch.is_grad_enabled() else out


@by_data
def _label_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    if attrs["multi_label"]:
        return [data]
    places = math.prod(data[2:]) if is_known(data[2:]) else UNKNOWN
    return [(data[0], places)] if attrs["multi_output"] else [data[:-1]]


@by_data
def _class_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [data[:-1]]


@by_data
def _like_data(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [data[:1] if data[1:] == (1,) else data]


@by_data
def _average_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(data[1],)]


@op("SoftmaxOutput", "Softmax", same_dtype=True, infer=_label_shape)
def softmax_output(
    data: Tensor,
    label: Tensor,
    *,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: Literal["batch", "null", "valid"] = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    multi_label: bool = False,
) -> Tensor:
    """Softmax, with the gradient of its cross entropy with the label: class ids, or probabilities with data's shape.

    Classes are on axis 1 with `multi_output`, on the last axis with `preserve_shape`, else on all axes but the first.
    `multi_label`, which MXNet does not have, is for samples with several labels: the output is the sigmoid of each
    class, and the label has a 0 or 1 for each of them, in data's shape.
    """
    if multi_label:
        others = {"multi_output": multi_output, "smooth_alpha": smooth_alpha, "out_grad": out_grad}
        if given := [name for name, value in others.items() if value]:
            raise MXNetError(f"multi_label=True cannot be combined with {', '.join(given)}")
        return _several_labels(data, label, grad_scale, ignore_label if use_ignore else None, normalization)
    if not 0 <= smooth_alpha <= 1:
        raise MXNetError("expected smooth_alpha to be between 0 and 1")
    by_class = label.shape != data.shape
    if multi_output:
        view = data.reshape(*data.shape[:2], -1) if data.dim() > 2 else data
        fits = label.numel() * data.shape[1] == data.numel() and label.shape[0] == data.shape[0]
        expected = (data.shape[0], *data.shape[2:])
    else:
        view = data.reshape(-1, data.shape[-1]) if preserve_shape else data.reshape(data.shape[0], -1)
        fits = label.shape == data.shape[:-1]
        expected = data.shape[:-1]
    if by_class and not fits:
        raise MXNetError(
            f"expected a label of shape {tuple(expected)} or {tuple(data.shape)}, got {tuple(label.shape)}"
        )
    with torch.no_grad():
        probability = torch.softmax(view, 1)

    def gradient() -> Tensor:
        if not by_class:
            grad = (probability - label.reshape(probability.shape)) * grad_scale
        else:
            # MXNet does not smooth the labels with multi_output.
            smooth = 0.0 if multi_output else smooth_alpha
            grad = _cross_entropy_gradient(probability, label, smooth, ignore_label if use_ignore else None)
            if normalization == "valid":
                grad.mul_(grad_scale / (label != ignore_label).sum().clamp(min=1))
            elif normalization == "batch":
                grad.mul_(grad_scale / label.numel())
            elif multi_output or grad_scale != 1:
                grad.mul_(grad_scale / probability[0, 0].numel())
        # MXNet 1.9 multiplies by the output here, not by the incoming gradient that the option's name suggests.
        return (grad.mul_(probability) if out_grad else grad).view(data.shape)

    return _defined(data, probability.view(data.shape), gradient)


def _several_labels(
    data: Tensor, label: Tensor, grad_scale: float, ignore_label: float | None, normalization: str
) -> Tensor:
    """Return sigmoid(data), with the gradient of the sum of the binary cross entropies with the labels."""
    if label.shape != data.shape:
        raise MXNetError(
            f"expected a label of shape {tuple(data.shape)} for multi_label, with 0 or 1 for each class, got "
            f"{tuple(label.shape)}"
        )
    with torch.no_grad():
        probability = torch.sigmoid(data)

    def gradient() -> Tensor:
        grad = (probability - label).mul_(grad_scale)
        kept = None if ignore_label is None else label != ignore_label
        if kept is not None:
            grad.mul_(kept)
        if normalization == "valid":
            return grad.div_(label.numel() if kept is None else kept.sum().clamp(min=1))
        return grad.div_(len(label)) if normalization == "batch" else grad

    return _defined(data, probability, gradient)


def _cross_entropy_gradient(
    probability: Tensor, label: Tensor, smooth_alpha: float, ignore_label: float | None
) -> Tensor:
    """Return probability - one_hot(label) with classes on axis 1. one_hot is 0 for a label that is not a class."""
    rows, classes, *places = probability.shape
    index = label.long()
    if index.numel() * classes != probability.numel():
        index = index.reshape(-1)[:rows]  # without preserve_shape, 3-D data has more labels than rows; use the first
    index = index.reshape(rows, 1, *places)
    nearest = index.clamp(0, classes - 1)
    others = smooth_alpha / max(classes - 1, 1)
    grad = probability - others if others else probability.clone()
    grad.scatter_add_(1, nearest, (index == nearest).to(grad.dtype).mul_(smooth_alpha + others - 1))
    return grad if ignore_label is None else grad.mul_(index != int(ignore_label))


def _regression(
    data: Tensor, label: Tensor, out: Tensor, grad_scale: float, slope: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return `out` with the gradient slope(out, label), divided by the number of outputs per example."""
    if label.numel() != data.numel() or label.shape[:1] != data.shape[:1]:
        raise MXNetError(f"expected a label of shape {tuple(data.shape)}, got {tuple(label.shape)}")
    out = out.detach()

    def gradient() -> Tensor:
        return slope(out, label.detach().reshape(out.shape)).mul_(grad_scale * out.shape[0] / out.numel())

    return _defined(data, out, gradient)


@op("LinearRegressionOutput", same_dtype=True, may_alias=True, infer=_like_data)
def linear_regression_output(data: Tensor, label: Tensor, *, grad_scale: float = 1.0) -> Tensor:
    """data, with the gradient of half the squared difference from the label."""
    return _regression(data, label, data, grad_scale, torch.sub)


@op("LogisticRegressionOutput", same_dtype=True, infer=_like_data)
def logistic_regression_output(data: Tensor, label: Tensor, *, grad_scale: float = 1.0) -> Tensor:
    """sigmoid(data), with the gradient of its cross entropy with the label."""
    return _regression(data, label, torch.sigmoid(data.detach()), grad_scale, torch.sub)


@op("MAERegressionOutput", same_dtype=True, may_alias=True, infer=_like_data)
def mae_regression_output(data: Tensor, label: Tensor, *, grad_scale: float = 1.0) -> Tensor:
    """data, with the gradient of the absolute difference from the label, which is -1 where they are equal."""
    return _regression(data, label, data, grad_scale, lambda out, goal: (out > goal).to(out.dtype).mul_(2).sub_(1))


@op("MakeLoss", may_alias=True, infer="same")
def make_loss(
    data: Tensor,
    *,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: Literal["batch", "null", "valid"] = "null",
) -> Tensor:
    """data as a loss. Its gradient is grad_scale, divided by the batch size or the count of values > valid_thresh."""
    out = data.detach()

    def gradient() -> Tensor:
        # MXNet counts all axes but the last as the batch.
        batch = math.prod(out.shape[:-1]) if normalization == "batch" else 1
        grad = torch.full_like(out, grad_scale / batch)
        return grad.div_((out > valid_thresh).sum().clamp(min=1)) if normalization == "valid" else grad

    return _defined(data, out, gradient)


@op("SVMOutput", same_dtype=True, may_alias=True, infer=_class_shape)
def svm_output(
    data: Tensor,
    label: Tensor,
    *,
    margin: float = 1.0,
    regularization_coefficient: float = 1.0,
    use_linear: bool = False,
) -> Tensor:
    """data, with the gradient of the one-vs-rest hinge loss, squared unless `use_linear`."""
    if label.shape != data.shape[:-1]:
        raise MXNetError(f"expected a label of shape {tuple(data.shape[:-1])}, got {tuple(label.shape)}")
    out = data.detach()

    def gradient() -> Tensor:
        classes = torch.arange(out.shape[-1], device=out.device)
        side = (label.long().unsqueeze(-1) != classes).to(out.dtype).mul_(2).sub_(1)  # -1 at the label, else 1
        short = margin + side * out  # the shortfall from the margin
        missed = (short > 0).to(out.dtype) if use_linear else short.clamp_(min=0).mul_(2)
        return missed.mul_(side).mul_(regularization_coefficient)

    return _defined(data, out, gradient)


class _SparsenessPenalty(torch.autograd.Function):
    """The identity. Backward updates the moving average of the activations and adds the gradient of the penalty."""

    @staticmethod
    def forward(ctx, data, moving_avg, target, penalty, momentum):
        ctx.save_for_backward(data)
        ctx.moving_avg, ctx.options = moving_avg.data, (target, penalty, momentum)
        return data.view_as(data)

    @staticmethod
    def backward(ctx, grad):
        (data,) = ctx.saved_tensors
        target, penalty, momentum = ctx.options
        average = ctx.moving_avg.lerp_(data.mean(0), 1 - momentum)
        return grad + penalty * ((1 - target) / (1 - average) - target / average), None, None, None, None


@op(
    "IdentityAttachKLSparseReg",
    same_dtype=True,
    may_alias=True,
    mutates=("moving_avg",),
    starts={"moving_avg": '["zero", {}]'},
    infer=_average_shape,
)
def identity_attach_kl_sparse_reg(
    data: Tensor,
    moving_avg: Tensor,
    *,
    sparseness_target: float = 0.1,
    penalty: float = 0.001,
    momentum: float = 0.9,
) -> Tensor:
    """data, with a gradient that also pulls the moving average of each unit towards `sparseness_target`."""
    if data.dim() != 2 or moving_avg.shape != data.shape[1:]:
        raise MXNetError(
            f"expected data of shape (N, units) and moving_avg of shape (units,), "
            f"got {tuple(data.shape)} and {tuple(moving_avg.shape)}"
        )
    return _SparsenessPenalty.apply(data, moving_avg, sparseness_target, penalty, momentum)
