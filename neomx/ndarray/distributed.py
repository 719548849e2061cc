"""Tensors of which each worker holds a part, such as torch's DTensor: all that arrays need to know of them."""

from __future__ import annotations

from functools import cache
from typing import Protocol, TypeGuard

import torch


class Distributed(Protocol):
    """A tensor whose shape is that of the whole, and whose memory is this worker's part."""

    _local_tensor: torch.Tensor

    def full_tensor(self) -> torch.Tensor:
        """The whole, gathered: all workers that hold parts call it."""


@cache
def _is_distributed(kind: type) -> bool:
    return hasattr(kind, "full_tensor")


def is_distributed(tensor: torch.Tensor) -> TypeGuard[Distributed]:
    """Whether this worker holds a part of it; asked of its class once, for every call of an op asks."""
    return _is_distributed(type(tensor))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor. All workers that hold parts of it call this."""
    return tensor.full_tensor() if is_distributed(tensor) else tensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this worker has of a tensor, without a trace in the autograd graph."""
    return tensor._local_tensor if is_distributed(tensor) else tensor


def explained(message: str) -> str:
    """An error of torch about arrays of both kinds in one op, as what to do about it; any other as it is."""
    if "mixed torch.Tensor and DTensor" not in message:
        return message
    return (
        "cannot mix an array that workers hold in parts with one that each has whole. Gather it first, with "
        "nd.array(x.asnumpy()) on all workers; for scores in training use SoftmaxCrossEntropyLoss, which takes parts"
    )
