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
from ..gluon.data import DataLoader
from ..ops import random as own


class Undo:
    """The state before a batch of `loader`, after `steps` committed steps."""

    def __init__(self, trainings: Sequence[Training], loader: DataLoader, steps: int):
        self.loader, self.steps = loader, steps
        self._torch = torch.get_rng_state()
        self._numpy = np.random.get_state()
        self._python = random.getstate()
        self._own = own.states()
        averages = [tensor for training in trainings for tensor in training.subject.averages()]
        self._averages = [(tensor, tensor.clone()) for tensor in averages]

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

    def __init__(self, trainings: Sequence[Training], steps: int):
        self.steps = steps
        self._kept = [(each, *each.copy()) for each in trainings]

    def restore(self) -> None:
        """Restore them."""
        for training, tensors, facts in self._kept:
            training.restore(content_of(tensors, facts))
