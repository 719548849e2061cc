"""Tasks of examples/tasks for `tasks.py`: the task's own network, the loss of a batch, and arrays like its samples.

The values of the arrays are random, because values do not change the speed.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "tasks"))

SAMPLES = 2048


class Workload(NamedTuple):
    """What a training step needs."""

    net: Any
    loss: Callable[..., Any]  # of a batch: of its arrays, and first of the network in torch


class Data(NamedTuple):
    """The samples of a task, and how many of them are in a batch of each worker."""

    batch: int
    arrays: Callable[[np.random.Generator], list[np.ndarray]]


def integers(rng: np.random.Generator, most: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return rng.integers(0, most, (SAMPLES, *shape)).astype(dtype)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.random((SAMPLES, *shape), dtype="float32")


def tagged(rng: np.random.Generator) -> list[np.ndarray]:
    mask = np.arange(20) < rng.integers(5, 21, (SAMPLES, 1))
    words, tags = integers(rng, 120, 20, dtype="float32"), integers(rng, 7, 20, dtype="float32")
    return [words, floats(rng, 20, 2), tags, mask.astype("float32")]


def rated(rng: np.random.Generator) -> list[np.ndarray]:
    return [*(integers(rng, most, dtype="float32") for most in (1000, 600, 8, 12)), floats(rng, 1)]


# Sizes are those of the full forms of the tasks, for two workers.
DATA = {
    "several labels": Data(25, lambda rng: [floats(rng, 1, 48, 48), (floats(rng, 10) < 0.2).astype("float32")]),
    "segmentation, U-Net": Data(10, lambda rng: [floats(rng, 1, 48, 48), integers(rng, 11, 48, 48, dtype="float32")]),
    "image generation, VAE": Data(25, lambda rng: [floats(rng, 1, 28, 28), floats(rng, 16)]),
    "text classification, TextCNN": Data(16, lambda rng: [integers(rng, 400, 24), integers(rng, 2, dtype="float32")]),
    "language model, LSTM": Data(16, lambda rng: [integers(rng, 200, 13)]),
    "language model, GPT-2": Data(4, lambda rng: [integers(rng, 200, 65)]),
    "translation": Data(
        32, lambda rng: [integers(rng, 33, 11), 5 + integers(rng, 6, dtype="float32"), integers(rng, 37, 15)]
    ),
    "tagging, BiLSTM-CRF": Data(32, tagged),
    "recommendation, factorization": Data(50, rated),
}


def arrays(name: str) -> list[np.ndarray]:
    """Return the arrays of a task's samples."""
    return DATA[name].arrays(np.random.default_rng(0))


# ---- the networks of examples/tasks ----


def several_labels() -> Workload:
    from several_labels import network

    from neomx import gluon

    net, loss_of = network(), gluon.loss.SigmoidBinaryCrossEntropyLoss()
    return Workload(net, lambda x, y: loss_of(net(x), y))


def segmentation() -> Workload:
    from segmentation import UNet

    from neomx import gluon

    net, loss_of = UNet(), gluon.loss.SoftmaxCrossEntropyLoss(axis=1)
    return Workload(net, lambda x, y: loss_of(net(x), y))


def generation() -> Workload:
    from vae import VAE

    net = VAE()
    return Workload(net, net)


def text_classification() -> Workload:
    from text_classification import TextCNN

    from neomx import gluon, nd

    net, loss_of = TextCNN(400), gluon.loss.SoftmaxCrossEntropyLoss()
    return Workload(net, lambda x, y: loss_of(net(x, None, nd.full(len(x), x.shape[1])), y))


def next_word(net: Any) -> Workload:
    from neomx import gluon

    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    return Workload(net, lambda x: loss_of(net(x[:, :-1]), x[:, 1:]))


def language_lstm() -> Workload:
    from language_model import LSTM

    return next_word(LSTM(200))


def language_gpt2() -> Workload:
    from neomx.gluon.model_zoo import transformer

    return next_word(transformer.gpt2_tiny(200, units=96, dropout=0.0))


def translation() -> Workload:
    from translation import Translator

    from neomx import gluon

    net, loss_of = Translator(33, 37), gluon.loss.SoftmaxCrossEntropyLoss()
    return Workload(net, lambda x, lengths, y: loss_of(net(x, lengths, y[:, :-1]), y[:, 1:]))


def tagging() -> Workload:
    from tagging import CRF, Tagger

    from neomx import gluon

    net = gluon.nn.HybridSequential()
    net.add(Tagger(120, 7), CRF(7, 20))
    return Workload(net, lambda x, spelling, y, mask: net[1](net[0](x, spelling), y, mask))


def recommendation() -> Workload:
    from recommendation import MatrixFactorization

    from neomx import gluon

    net, loss_of = MatrixFactorization(1000, 600, 8, 12, mean=3.0), gluon.loss.L2Loss()
    return Workload(net, lambda *batch: loss_of(net(*batch[:4]), batch[4]))


MAKERS = (several_labels, segmentation, generation, text_classification, language_lstm, language_gpt2)
OURS = dict(zip(DATA, (*MAKERS, translation, tagging, recommendation), strict=True))
