"""What learns in an elastic training: a Trainer with its Parameters, or a Module. The other files see them the same."""

from __future__ import annotations

from typing import Protocol

from ..checkpoint.state import Training
from ..gluon import Trainer
from ..optimizer import Optimizer
from ..step import StepStrategy


class Optimizing(Protocol):
    """An optimizer and what it trains."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer."""


class Learner(Protocol):
    """A Trainer, or a Module with an optimizer."""

    @property
    def strategy(self) -> StepStrategy:
        """The strategy of its steps."""

    @property
    def training(self) -> Optimizing:
        """Its optimizer and parameters, as strategies see them."""


def training_of(learner: Learner) -> Training:
    """Return the whole state of a learner: values, running averages, optimizer and loss scale."""
    return Training(None, learner) if isinstance(learner, Trainer) else Training(module=learner)
