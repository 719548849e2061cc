"""`mx.parallel.data_parallel`: make a model train on all workers."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from .. import dist
from ..gluon import Block, Trainer
from ..gluon.distributed import DDP
from ..optimizer import Optimizer
from .apply import apply
from .layout import Layout
from .module import workers_of

Trained = TypeVar("Trained")


def data_parallel(model: Trained, shard: str | None = None) -> Trained:
    """Make a model train on all workers, each with its own samples, and return it. All workers must call it.

    - A gluon Block: its Trainer sums the gradients of all workers and divides them by the numbers of samples that the
      workers pass to `step`. All start with the values of worker 0. No `kvstore` has to be named. A Trainer or an
      Optimizer is accepted as well, as in `gluon.distributed.DDP`.
    - A Module or a FeedForward: `fit` and `init_optimizer` use the store 'dist_sync' unless they are given another one
      that workers share.
    - A torch module: its parameters are those of worker 0, and backward averages the gradients, as with DDP. All
      workers must have the same number of batches.

    With `shard`, a Block or a torch module is laid out by `mx.parallel.apply` over all workers.
    """
    from ..module import BaseModule
    from ..module.feedforward import FeedForward

    given: Any = model
    if isinstance(given, torch.nn.Module) or (shard is not None and isinstance(given, Block)):
        if workers_of(given) is None:
            apply(given, Layout(data=dist.size()), shard)
        return model
    if shard is not None:
        raise ValueError(f"shard={shard!r} needs a gluon Block or a torch module, received {type(model).__name__}")
    if isinstance(given, (Block, Trainer, Optimizer)):
        return DDP(given)  # type: ignore[type-var, return-value]
    if isinstance(given, (BaseModule, FeedForward)):
        given.joins_workers = True
        return model
    raise TypeError(
        "data_parallel expects a gluon Block, a Trainer, an Optimizer, a Module, a FeedForward or a torch module, "
        f"received {type(model).__name__}"
    )
