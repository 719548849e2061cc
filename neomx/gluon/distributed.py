"""`gluon.distributed`: train a Block on all workers of the job. The training loop is that of one process."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeVar

from ..optimizer import Optimizer
from .block import Block
from .parameter import Parameter
from .placement import Replicated, place
from .trainer import Trainer

__all__ = ["DDP"]

Trained = TypeVar("Trained", Block, Trainer, Optimizer)


def DDP(model: Trained) -> Trained:
    """Make a Block, a Trainer or an optimizer train one model on all workers, and return it.

    All workers must call it. They start with the values of worker 0, as soon as a Trainer for them exists. Each worker
    passes its own number of samples to `Trainer.step`, and the gradients are divided by the sum of these numbers. For
    an Optimizer, the result is that of `hvd.DistributedOptimizer`, which averages every gradient over the workers.
    """
    if isinstance(model, Block):
        train_on_all_workers(model.collect_params().values())
    elif isinstance(model, Trainer):
        train_on_all_workers(model._params)
    elif isinstance(model, Optimizer):
        horovod: Any = import_module("neomx.horovod")  # imported lazily, because it imports this package
        horovod.init()
        distributed: Trained = horovod.DistributedOptimizer(model)
        return distributed
    else:
        raise TypeError(f"DDP expects a gluon Block, a Trainer or an Optimizer, received {type(model).__name__}")
    return model


def train_on_all_workers(params: Iterable[Parameter]) -> None:
    """Make the Trainers of these Parameters, present and future, combine gradients over all workers."""
    listed = list(params)
    for param in listed:
        if param.placement.holders is None:  # a layout already combines gradients
            place(param, Replicated())
    for trainer in dict.fromkeys(param._trainer for param in listed):
        if trainer is not None:
            trainer.join_workers()
