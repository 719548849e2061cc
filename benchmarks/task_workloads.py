"""Tasks of examples/tasks for `tasks.py`: one entry builds the task's own network and data, with the loss of a batch.

An entry returns a `Workload`. Its arrays are those of the task's samples in form; their values are random, because
values do not change the speed.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

TASKS = pathlib.Path(__file__).resolve().parents[1] / "examples" / "tasks"


class Workload(NamedTuple):
    """What a training step needs."""

    arrays: list[np.ndarray]  # of all samples
    batch: int  # on each worker
    net: Any
    loss: Callable[..., Any]  # of a batch's arrays


def random_words(rng: np.random.Generator, samples: int, length: int, words: int) -> np.ndarray:
    """Return sentences of random words."""
    return rng.integers(1, words, (samples, length)).astype("int32")


def translation_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 11, 2048).astype("float32")
    return [random_words(rng, 2048, 11, 33), lengths, random_words(rng, 2048, 15, 37)]


def tagging_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (2048, 20)
    words, tags = rng.integers(1, 120, shape), rng.integers(0, 7, shape)
    mask = np.arange(20) < rng.integers(5, 21, (2048, 1))
    return [array.astype("float32") for array in (words, rng.random((*shape, 2)), tags, mask)]


def translation() -> Workload:
    from translation import Translator

    from neomx import gluon

    net = Translator(33, 37)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    def loss(x: Any, lengths: Any, y: Any) -> Any:
        return loss_of(net(x, lengths, y[:, :-1]), y[:, 1:])

    return Workload(translation_arrays(), 32, net, loss)


def tagging() -> Workload:
    from tagging import CRF, Tagger

    from neomx import gluon

    net = gluon.nn.HybridSequential()
    net.add(Tagger(120, 7), CRF(7, 20))
    return Workload(tagging_arrays(), 32, net, lambda x, spelling, y, mask: net[1](net[0](x, spelling), y, mask))


BATCHES = {"translation": 32, "tagging": 32}
OURS = {"translation": translation, "tagging": tagging}
sys.path.append(str(TASKS))
