"""What a step changes, so that a dropped step leaves no trace.

A step updates weights only when it counts, so these are random generators and running averages. If a program steps
several Trainers for a batch, and the batch is dropped after the first of them, its weights too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch

from ..checkpoint.state import Training, content_of
from ..gluon import Trainer
from ..gluon.data import DataLoader
from ..ops import random as own


class Undo:
    """The state before a batch of `loader`, after `steps` committed steps."""

    def __init__(self, trainers: Sequence[Trainer], loader: DataLoader, steps: int):
        self.loader, self.steps = loader, steps
        self._torch = torch.get_rng_state()
        self._numpy = np.random.get_state()
        self._python = random.getstate()
        self._own = own.states()
        self._averages = [(tensor, tensor.clone()) for tensor in _averages(trainers)]

    def restore(self) -> None:
        """Restore the state. It stays the one before the next batch."""
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        own.set_states(self._own)
        for tensor, before in self._averages:
            tensor.copy_(before)


class Copy:
    """The weights and optimizer states after `steps` committed steps."""

    def __init__(self, trainers: Sequence[Trainer], steps: int):
        self.steps = steps
        self._kept = [(each, *each.copy()) for each in (Training(None, trainer) for trainer in trainers)]

    def restore(self) -> None:
        """Restore them."""
        for training, tensors, facts in self._kept:
            training.restore(content_of(tensors, facts))


def _averages(trainers: Sequence[Trainer]) -> list[torch.Tensor]:
    """The values that the forward pass of a layer changes, such as the running averages of BatchNorm."""
    return [
        array._data
        for trainer in trainers
        for param in trainer.parameters
        if not param._differentiable and param._arrays is not None and param.placement.is_here
        for array in param.list_data()
    ]
