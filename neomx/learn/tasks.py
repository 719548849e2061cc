"""Several tasks at once: a trunk with one head per task, and three ways to weigh the losses of the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import autograd
from ..comm.session import session
from ..gluon import Parameter
from ..gluon.nn import HybridBlock
from ..ndarray import NDArray, full


class SharedTrunk(HybridBlock):
    """A trunk whose output is the input of several heads. Returns a list with the output of each head.

    `heads` maps the names of the tasks to Blocks, in the order of the results. A head is a child of this Block under
    the name of its task.
    """

    def __init__(self, trunk: HybridBlock, heads: Mapping[str, HybridBlock], **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(heads, Mapping) or not heads:
            raise TypeError(f"heads must be a dictionary {{name: Block}}, received {heads!r:.80}")
        self.trunk = trunk
        self.tasks = list(heads)
        for name, head in heads.items():
            if not isinstance(name, str) or not name or "." in name or name in self._children:
                raise ValueError(f"the name of a task must be a unique string without '.', not 'trunk': {name!r:.80}")
            self.register_child(head, name)

    def hybrid_forward(self, F: Any, x: Any, *more: Any) -> Any:
        shared = self.trunk(x, *more)
        return [self._children[name](shared) for name in self.tasks]


def weighted_loss(losses: Sequence[NDArray], weights: Sequence[float]) -> NDArray:
    """Return the sum of the losses of all tasks, each multiplied by its fixed weight. Call it while recording."""
    if len(losses) != len(weights) or not len(losses):
        raise ValueError(f"expected a weight for each of {len(losses)} losses, received {len(weights)}")
    first, *others = (loss * float(weight) for loss, weight in zip(losses, weights, strict=True))
    return sum(others, first)


class UncertaintyWeights(HybridBlock):
    """Returns the sum of exp(-s) * loss + s / 2 over all tasks, where s is learned for each task.

    s is the logarithm of the variance of the noise in a task, so noisy tasks get smaller weights (Kendall, Gal and
    Cipolla, 2018). For an L2Loss, which contains a factor 1/2, this is the likelihood of a normal distribution. Pass
    losses with one value per sample, and train the parameter of this Block with those of the network.
    """

    def __init__(self, tasks: int, **kwargs: Any):
        super().__init__(**kwargs)
        _check_tasks(tasks)
        self._tasks = tasks
        self.log_variance = self.params.get("log_variance", shape=(tasks,), init="zeros", wd_mult=0.0)

    def hybrid_forward(self, F: Any, *losses: Any, log_variance: Any) -> Any:
        if len(losses) != self._tasks:
            raise ValueError(f"expected {self._tasks} losses, received {len(losses)}")
        total = None
        for i, loss in enumerate(losses):
            s = F.slice_axis(log_variance, axis=0, begin=i, end=i + 1)
            term = F.broadcast_add(F.broadcast_mul(loss, F.exp(-s)), s / 2)
            total = term if total is None else total + term
        return total


class GradNorm:
    """Weighs losses so that all tasks train at similar rates (Chen et al., 2018).

    `backward` replaces the backward of the weighted loss. It also measures the norm of each task's gradient with
    respect to `shared`, a weight that all tasks use, usually that of the last shared layer. A task whose norm is too
    small for its progress gets a larger weight in the next step. `alpha` is how much slow tasks are favored, and `rate`
    the learning rate of the weights, whose sum is the number of tasks. `weights` are those of the next step.

    Norms and losses are those of the samples of all workers, so all workers need a batch in every step.
    """

    def __init__(self, tasks: int, shared: Parameter, alpha: float = 1.5, rate: float = 0.025):
        _check_tasks(tasks)
        if not isinstance(shared, Parameter) or shared.grad_req == "null":
            raise TypeError(f"shared must be a trained Parameter, received {shared!r:.80}")
        for name, value in (("alpha", alpha), ("rate", rate)):
            if not isinstance(value, int | float) or not value >= 0:
                raise ValueError(f"{name} must be a number of at least 0, received {value!r}")
        self.shared, self.alpha, self.rate = shared, alpha, rate
        self.weights = np.ones(tasks)
        self.initial: np.ndarray | None = None  # the mean loss of each task in the first step

    def backward(self, losses: Sequence[NDArray]) -> None:
        """Compute the gradients of the weighted losses, which have one value per sample. Then update the weights."""
        if len(losses) != len(self.weights):
            raise ValueError(f"expected {len(self.weights)} losses, received {len(losses)}")
        shared = self.shared.data(losses[0].context)
        gradients = [autograd.grad(loss, [shared], retain_graph=True)[0]._data.flatten() for loss in losses]
        factors = [
            full(loss.shape, weight, loss.context, loss.dtype)
            for loss, weight in zip(losses, self.weights, strict=True)
        ]
        autograd.backward(list(losses), factors)
        totals = [loss._data.detach().cpu().double().sum() for loss in losses]
        numbers = torch.stack([*totals, torch.tensor(float(losses[0].size), dtype=torch.float64)])
        sums = torch.cat([numbers, *(gradient.cpu().double() for gradient in gradients)])
        session().group.all_reduce_(sums, what="the gradient norms of tasks")
        self._adjust(*(part.numpy() for part in sums.split([len(losses), 1, len(sums) - len(losses) - 1])))

    def _adjust(self, losses: np.ndarray, count: np.ndarray, gradients: np.ndarray) -> None:
        """Take a step on sum |norm - target| / mean norm. The targets count as constants.

        The step is on the logarithms of the weights, which keeps the weights positive for any ratio of the norms.
        """
        means = losses / count
        if self.initial is None:
            self.initial = means
        norms = self.weights * np.linalg.norm(gradients.reshape(len(means), -1), axis=1) / count
        mean = max(norms.mean(), 1e-12)
        ratios = means / np.maximum(self.initial, 1e-12)
        targets = mean * (ratios / max(ratios.mean(), 1e-12)) ** self.alpha
        changed = self.weights * np.exp(-self.rate * np.sign(norms - targets) * norms / mean)
        self.weights = changed * len(changed) / changed.sum()


def _check_tasks(tasks: Any) -> None:
    if not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 1:
        raise ValueError(f"tasks must be the number of tasks, received {tasks!r:.80}")
