"""What a step changes besides weights, so that a dropped step leaves no trace: random generators, running averages."""

from __future__ import annotations

import random

import numpy as np
import torch

from ..gluon import Trainer
from ..ops import random as own


class Undo:
    """The state before a step."""

    def __init__(self, trainer: Trainer | None):
        self._torch = torch.get_rng_state()
        self._numpy = np.random.get_state()
        self._python = random.getstate()
        self._own = own.states()
        self._averages = [(tensor, tensor.clone()) for tensor in _averages(trainer)]

    def restore(self) -> None:
        """Restore the state. It stays the one before the next step."""
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        own.set_states(self._own)
        for tensor, before in self._averages:
            tensor.copy_(before)


def _averages(trainer: Trainer | None) -> list[torch.Tensor]:
    """The values that the forward pass of a layer changes, such as the running averages of BatchNorm."""
    params = [] if trainer is None else trainer.parameters
    return [
        array._data
        for param in params
        if not param._differentiable and param._arrays is not None
        for array in param.list_data()
    ]
