"""The cross-entropy of class labels as one operation. Front ends use it in place of log_softmax, pick and negation."""

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
_NO_LABEL = -(2**62)  # torch ignores one label; this one cannot occur in a program
# Losses for scores of other tensor types, e.g. with the classes sharded over workers.
LOSSES_OF: dict[type, Callable[[Tensor, Tensor], Tensor]] = {}
_MANY = 256  # classes; with fewer, torch's two kernels are faster than the six operations below


class _CrossEntropy(torch.autograd.Function):
    """Saves the probabilities so that backward needs no exponential, which is half of the time for many classes."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, label: Tensor) -> Tensor:
        probability = torch.softmax(pred, -1)
        most, at = pred.max(-1, keepdim=True)
        ctx.save_for_backward(pred, label, probability)
        # The largest probability is exp(most) / sum, so no logarithm of an underflowed probability is taken.
        return (most - pred.gather(-1, label)).sub_(probability.gather(-1, at).log_())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        pred, label, probability = ctx.saved_tensors
        if torch.is_grad_enabled():  # for higher-order gradients
            probability = torch.softmax(pred, -1)
        result = probability * grad
        return result.scatter_add_(-1, label, -grad), None


def cross_entropy(pred: Tensor, label: Tensor, *, by_example: bool = False) -> Tensor:
    """Return -pick(log_softmax(pred), label, keepdims=True) over the last axis, or its mean for each example."""
    losses = LOSSES_OF.get(type(pred), cross_entropy_of_classes)(pred, label)
    if not by_example:
        return losses.view(*pred.shape[:-1], 1)
    return losses if pred.dim() <= 2 else losses.view(pred.shape[0], -1).mean(1)


def cross_entropy_of_classes(pred: Tensor, label: Tensor) -> Tensor:
    """Return the losses of all labels as a vector."""
    if is_compiling() or pred.dtype not in (torch.float32, torch.float64) or pred.dim() < 2:
        return -pick(torch.log_softmax(pred, -1), label, keepdims=True).reshape(-1)
    shape = tuple(pred.shape[:-1])
    if tuple(label.shape) not in (shape, (*shape, 1)):
        raise MXNetError(f"labels must have shape {shape} or {(*shape, 1)}, got {tuple(label.shape)}")
    label = label.detach().long().reshape(-1)
    flat = pred if pred.dim() == 2 else pred.flatten(0, -2)
    if pred.shape[-1] < _MANY and pred.is_cpu:
        try:
            # reduction 0: none. torch declares this C function with the strings of torch.nn.functional.
            return cross_entropy_loss(flat, label, None, 0, _NO_LABEL)  # type: ignore[arg-type]
        except IndexError:
            pass  # a label is out of range: MXNet clips it
    return _CrossEntropy.apply(flat, label.clamp(0, pred.shape[-1] - 1).unsqueeze(1)).squeeze(1)


CROSS_ENTROPY = Op(cross_entropy, ("softmax_cross_entropy_of_classes",), same_dtype=False, may_alias=False, mutates=())
