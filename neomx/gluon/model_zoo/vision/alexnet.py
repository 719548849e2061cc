"""AlexNet: https://arxiv.org/abs/1404.5997."""

from __future__ import annotations

from typing import Any

from ... import nn
from ..model_store import ROOT
from .parts import CPU, Classifier, row, with_weights

__all__ = ["AlexNet", "alexnet"]


class AlexNet(Classifier):
    """AlexNet, in its author's variant for a single GPU."""

    def __init__(self, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = row(
                nn.Conv2D(64, kernel_size=11, strides=4, padding=2, activation="relu"),
                nn.MaxPool2D(pool_size=3, strides=2),
                nn.Conv2D(192, kernel_size=5, padding=2, activation="relu"),
                nn.MaxPool2D(pool_size=3, strides=2),
                nn.Conv2D(384, kernel_size=3, padding=1, activation="relu"),
                nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                nn.MaxPool2D(pool_size=3, strides=2),
                nn.Flatten(),
                nn.Dense(4096, activation="relu"),
                nn.Dropout(0.5),
                nn.Dense(4096, activation="relu"),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)


def alexnet(pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any) -> AlexNet:
    """Return AlexNet, on `ctx` with weights trained on ImageNet if `pretrained`."""
    return with_weights(AlexNet(**kwargs), pretrained, "alexnet", ctx, root)
