"""BYOL: a network predicts what a slowly moving copy of itself computes for another view of the same sample."""

from __future__ import annotations

import copy
from typing import Any

import torch

from .. import autograd, dist
from ..gluon.block import Block
from ..gluon.kinds import front_of
from ..gluon.parameter_dict import ParameterDict
from ..ndarray import NDArray


class BYOL:
    """A network with a predictor, and the target: a copy of the network whose weights are a moving average of it.

    `byol(first, second)` returns one loss per sample for two views. After each step of a Trainer of
    `byol.collect_params()`, call `byol.update()`. It moves the target by the share 1 - `decay` towards the network.
    `decay` is an attribute that a program may change. BYOL needs no negatives, so workers exchange only gradients, and
    the target stays equal on all of them.
    """

    def __init__(self, net: Block, predictor: Block, decay: float = 0.99):
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be from 0 to 1, received {decay!r}")
        self.net, self.predictor, self.decay = net, predictor, decay
        self.target = _copy_of(net)

    def collect_params(self) -> ParameterDict:
        """Return the parameters to train: those of the network and of the predictor."""
        params = ParameterDict()
        params.update(self.net.collect_params())
        params.update(self.predictor.collect_params())
        return params

    def __call__(self, first: NDArray, second: NDArray) -> Any:
        """Return the loss of each sample: the squared distance of predictions and targets on the unit sphere."""
        with autograd.pause(train_mode=autograd.is_training()):
            targets = self.target(second), self.target(first)
        predictions = [self.predictor(self.net(view)) for view in (first, second)]
        one, other = map(_distance, predictions, targets)
        return one + other

    def update(self) -> None:
        """Move the target towards the network. Call it after each step of the Trainer."""
        _average(self.target, self.net, self.decay)


def _distance(x: NDArray, y: NDArray) -> Any:
    F = front_of(x)
    return 2 - 2 * F.sum(F.L2Normalization(x) * F.L2Normalization(y), axis=1)


def _copy_of(net: Block) -> Block:
    """Return a copy that is not trained and equals the network of worker 0, as Trainers make the network itself."""
    target = copy.deepcopy(net)
    for param in target.collect_params().values():
        param.grad_req = "null"
        for array in param.list_data():
            dist.broadcast(array, inplace=True)
    return target


def _average(target: Block, net: Block, decay: float) -> None:
    """Move the parameters of `target` towards those of `net` by the share 1 - decay."""
    pairs = zip(target.collect_params().values(), net.collect_params().values(), strict=True)
    with torch.no_grad():
        for old, new in pairs:
            for mean, value in zip(old.list_data(), new.list_data(), strict=True):
                mean._data.lerp_(value._data, 1 - decay)
