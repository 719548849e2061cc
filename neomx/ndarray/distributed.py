"""Support for tensors that are sharded between workers, such as torch's DTensor."""

from __future__ import annotations

from functools import cache
from typing import Protocol, TypeGuard

import torch


class Distributed(Protocol):
    """A sharded tensor: its shape is that of the whole tensor, its memory is this worker's shard."""

    _local_tensor: torch.Tensor

    def full_tensor(self) -> torch.Tensor:
        """Gather and return the whole tensor. All workers with a shard must call it."""


@cache
def _is_distributed(kind: type) -> bool:
    return hasattr(kind, "full_tensor")


def is_distributed(tensor: torch.Tensor) -> TypeGuard[Distributed]:
    """Whether a tensor is sharded. The result is cached by class, because every op call checks it."""
    return _is_distributed(type(tensor))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor. All workers with a shard must call it."""
    return tensor.full_tensor() if is_distributed(tensor) else tensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this worker's shard of a tensor, detached from the autograd graph."""
    return tensor._local_tensor if is_distributed(tensor) else tensor


def explained(message: str) -> str:
    """Return a remedy for torch's error about mixed kinds of tensors, and any other message unchanged."""
    if "mixed torch.Tensor and DTensor" not in message:
        return message
    return (
        "cannot mix sharded and replicated arrays. Gather the sharded array first, with nd.array(x.asnumpy()) on all "
        "workers; for scores in training use SoftmaxCrossEntropyLoss, which accepts sharded arrays"
    )
