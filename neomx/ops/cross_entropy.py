"""The cross-entropy of class numbers as one operation, which front ends put in place of log_softmax, pick and minus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._nn import cross_entropy_loss
from torch.compiler import is_compiling

from ..base import MXNetError
from .indexing import pick
from .table import Op

Tensor = torch.Tensor
_NO_LABEL = -(2**62)  # torch skips one label; not one that a program could have
# Losses of scores that are of another kind of tensor: workers may hold the classes together.
LOSSES_OF: dict[type, Callable[[Tensor, Tensor], Tensor]] = {}
_MANY = 256  # classes; with fewer, torch's two kernels are faster than the six operations below


class _CrossEntropy(torch.autograd.Function):
    """Keeps the probabilities, so that backward takes no exponential again: it is half of the time of many classes."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, label: Tensor) -> Tensor:
        probability = torch.softmax(pred, -1)
        most, at = pred.max(-1, keepdim=True)
        ctx.save_for_backward(pred, label, probability)
        # The greatest probability is exp(most) by the sum: no logarithm of a vanished one is taken.
        return (most - pred.gather(-1, label)).sub_(probability.gather(-1, at).log_())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        pred, label, probability = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            probability = torch.softmax(pred, -1)
        result = probability * grad
        return result.scatter_add_(-1, label, -grad), None


def cross_entropy(pred: Tensor, label: Tensor, *, by_example: bool = False) -> Tensor:
    """-pick(log_softmax(pred), label, keepdims=True), classes being on the last axis; or its mean for each example."""
    losses = LOSSES_OF.get(type(pred), cross_entropy_of_classes)(pred, label)
    if not by_example:
        return losses.view(*pred.shape[:-1], 1)
    return losses if pred.dim() <= 2 else losses.view(pred.shape[0], -1).mean(1)


def cross_entropy_of_classes(pred: Tensor, label: Tensor) -> Tensor:
    """The losses of all labels, in one row."""
    if is_compiling() or pred.dtype not in (torch.float32, torch.float64) or pred.dim() < 2:
        return -pick(torch.log_softmax(pred, -1), label, keepdims=True).reshape(-1)
    shape = tuple(pred.shape[:-1])
    if tuple(label.shape) not in (shape, (*shape, 1)):
        raise MXNetError(f"labels must have shape {shape}, or that and 1, got {tuple(label.shape)}")
    label = label.detach().long().reshape(-1)
    flat = pred if pred.dim() == 2 else pred.flatten(0, -2)
    if pred.shape[-1] < _MANY and pred.is_cpu:
        try:
            # 0: of each by itself. torch declares the C function with the strings of torch.nn.functional.
            return cross_entropy_loss(flat, label, None, 0, _NO_LABEL)  # type: ignore[arg-type]
        except IndexError:
            pass  # a label is out of range: MXNet takes the nearest
    return _CrossEntropy.apply(flat, label.clamp(0, pred.shape[-1] - 1).unsqueeze(1)).squeeze(1)


CROSS_ENTROPY = Op(cross_entropy, ("softmax_cross_entropy_of_classes",), same_dtype=False, may_alias=False, mutates=())
