"""Gradient accumulation over micro-batches, and clipping by the norm of the gradients of all workers."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ..base import Backward, MXNetError
from ..gluon import Parameter, Trainer
from ..gluon.placement import part_of
from ..ndarray.freshness import is_fresh, is_fresh_gradient, leaf_of
from ..step import AllReduce, Servers


def micro_batches(trainer: Trainer, count: int, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Split the arrays of a batch into `count` parts of nearly equal size, and iterate over tuples of parts.

    The gradients of the backward passes on the parts add up, and the next step applies their sum: the gradient of the
    whole batch, for a loss that is computed for each sample. Workers communicate only in that step. A batch with fewer
    samples than `count` has fewer parts.

        for x, y in data:
            for part_x, part_y in learn.micro_batches(trainer, 4, x, y):
                with autograd.record():
                    loss = loss_of(net(part_x), part_y)
                loss.backward()
            trainer.step(samples_of_all_workers)

    Gradients are set to zero first. The `grad_req` of trained parameters becomes 'add'. A loop without micro-batches
    still works afterwards: the first backward after a step replaces the gradients that the step has used.
    """
    _check_trainer(trainer)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"count must be a positive integer, received {count!r}")
    if not arrays or any(not hasattr(array, "shape") or not len(array.shape) for array in arrays):
        raise TypeError(f"expected the arrays of a batch, received {', '.join(type(a).__name__ for a in arrays)}")
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1 or not lengths[0]:
        raise ValueError(f"arrays must have the same number of samples, at least 1, received {lengths}")
    return _parts(trainer, min(count, lengths[0]), lengths[0], arrays)


def _parts(trainer: Trainer, count: int, samples: int, arrays: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for param in trainer._params:
        if param.grad_req == "write":
            param.grad_req = "add"
            for array in param.list_data():
                _DropUsed.watch(leaf_of(array))
        param.zero_grad()
    ends = [samples * (number + 1) // count for number in range(count)]
    for begin, end in zip([0, *ends], ends, strict=False):
        yield tuple(array[begin:end] for array in arrays)


class _DropUsed:
    """A hook that drops a gradient that a step has used, before the next backward would add to it."""

    __torch_unserializable__ = True  # `watch` adds it again

    def __init__(self, leaf: torch.Tensor) -> None:
        self._leaf = weakref.ref(leaf)

    def __call__(self, _: torch.Tensor) -> None:
        leaf = self._leaf()
        if Backward.accumulating and leaf is not None and not is_fresh_gradient(leaf.grad):
            leaf.grad = None

    @staticmethod
    def watch(leaf: torch.Tensor) -> None:
        """Run this hook when a gradient of `leaf` is ready."""
        if not any(isinstance(hook, _DropUsed) for hook in (leaf._backward_hooks or {}).values()):
            leaf.register_hook(_DropUsed(leaf))


def clipped_step(trainer: Trainer, batch_size: float, max_norm: float, ignore_stale_grad: bool = False) -> float:
    """Like `trainer.step(batch_size)`, but first scale the gradients so that their norm is at most `max_norm`.

    The norm is that of all parameters together, of the gradient that the optimizer receives: summed over all workers
    and divided by the agreed number of samples. It is returned as it was before scaling, and is equal on all workers.
    The Trainer of several workers needs update_on_kvstore=False.
    """
    _check_trainer(trainer)
    if not isinstance(max_norm, int | float) or isinstance(max_norm, bool) or not max_norm > 0:
        raise ValueError(f"max_norm must be a number above 0, received {max_norm!r}")
    trainer._training.rescale(batch_size)  # raises if it is not a number
    _check_sums(trainer)
    from ..parallel import clip_global_norm  # takes a second to import, which other ways to learn do not need

    trainer.allreduce_grads()
    strategy = trainer.strategy
    divisor = strategy.agree(batch_size) if isinstance(strategy, AllReduce) else batch_size
    scale = trainer._scale / divisor
    norm = clip_global_norm(_fresh(trainer), max_norm / scale)
    trainer.update(batch_size, ignore_stale_grad)
    return float(norm) * scale


def _check_trainer(trainer: Any) -> None:
    if not isinstance(trainer, Trainer):
        raise TypeError(f"expected a gluon.Trainer, received {trainer!r:.80}")


def _check_sums(trainer: Trainer) -> None:
    """Raise if this process does not have the sums of all gradients before the update."""
    if len(trainer._contexts) > 1:
        raise MXNetError(
            f"clipped_step supports one context per process, but the parameters are on {len(trainer._contexts)}. Start "
            "one process for each device"
        )
    if isinstance(trainer.strategy, Servers):
        raise MXNetError("clipped_step cannot clip gradients that parameter servers sum. Start the job without servers")
    if not trainer.strategy.splits:
        raise MXNetError("clipped_step clips before the update: create the Trainer with update_on_kvstore=False")
    sparse = next((param.name for param in trainer._params if param.grad_stype != "default"), None)
    if sparse is not None:
        raise MXNetError(f"clipped_step needs dense gradients, but that of Parameter {sparse!r} is row-sparse")


def _fresh(trainer: Trainer) -> list[Parameter]:
    """Return the parameters that the update will change."""
    trained = [param for param in trainer._params if param.grad_req != "null" and param.placement.is_here]
    return [param for param in trained if is_fresh(part_of(param))]
