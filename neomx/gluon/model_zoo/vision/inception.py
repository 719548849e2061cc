"""Inception v3: https://arxiv.org/abs/1512.00567."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...block import HybridBlock
from ...contrib.nn import HybridConcurrent
from ..model_store import ROOT
from .parts import CPU, Classifier, row, side_by_side, with_weights

__all__ = ["Inception3", "inception_v3"]


class Inception3(Classifier):
    """Inception v3, for images of 299 x 299 pixels."""

    def __init__(self, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = row(
                _conv(32, 3, strides=2),
                _conv(32, 3),
                _conv(64, 3, padding=1),
                _max_pool(),
                _conv(80, 1),
                _conv(192, 3),
                _max_pool(),
                _mixed_a("A1_", 32),
                _mixed_a("A2_", 64),
                _mixed_a("A3_", 64),
                _mixed_b("B_"),
                _mixed_c("C1_", 128),
                _mixed_c("C2_", 160),
                _mixed_c("C3_", 160),
                _mixed_c("C4_", 192),
                _mixed_d("D_"),
                _mixed_e("E1_"),
                _mixed_e("E2_"),
                nn.AvgPool2D(pool_size=8),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)


def _conv(channels: int, kernel_size: Any, **kwargs: Any) -> HybridBlock:
    conv = nn.Conv2D(channels, kernel_size, use_bias=False, **kwargs)
    return row(conv, nn.BatchNorm(epsilon=0.001), nn.Activation("relu"))


def _wide(channels: int, size: int) -> HybridBlock:
    return _conv(channels, (1, size), padding=(0, size // 2))


def _tall(channels: int, size: int) -> HybridBlock:
    return _conv(channels, (size, 1), padding=(size // 2, 0))


def _max_pool() -> HybridBlock:
    return nn.MaxPool2D(pool_size=3, strides=2)


def _avg_pool() -> HybridBlock:
    return nn.AvgPool2D(pool_size=3, strides=1, padding=1)


# The mixed layers, named as in the paper's code. Each concatenates the channels of its branches.


def _mixed_a(prefix: str, pooled: int) -> HybridBlock:
    mixed = HybridConcurrent(axis=1, prefix=prefix)
    with mixed.name_scope():
        mixed.add(
            row(_conv(64, 1)),
            row(_conv(48, 1), _conv(64, 5, padding=2)),
            row(_conv(64, 1), _conv(96, 3, padding=1), _conv(96, 3, padding=1)),
            row(_avg_pool(), _conv(pooled, 1)),
        )
    return mixed


def _mixed_b(prefix: str) -> HybridBlock:
    mixed = HybridConcurrent(axis=1, prefix=prefix)
    with mixed.name_scope():
        mixed.add(
            row(_conv(384, 3, strides=2)),
            row(_conv(64, 1), _conv(96, 3, padding=1), _conv(96, 3, strides=2)),
            row(_max_pool()),
        )
    return mixed


def _mixed_c(prefix: str, narrow: int) -> HybridBlock:
    mixed = HybridConcurrent(axis=1, prefix=prefix)
    with mixed.name_scope():
        mixed.add(
            row(_conv(192, 1)),
            row(_conv(narrow, 1), _wide(narrow, 7), _tall(192, 7)),
            row(_conv(narrow, 1), _tall(narrow, 7), _wide(narrow, 7), _tall(narrow, 7), _wide(192, 7)),
            row(_avg_pool(), _conv(192, 1)),
        )
    return mixed


def _mixed_d(prefix: str) -> HybridBlock:
    mixed = HybridConcurrent(axis=1, prefix=prefix)
    with mixed.name_scope():
        mixed.add(
            row(_conv(192, 1), _conv(320, 3, strides=2)),
            row(_conv(192, 1), _wide(192, 7), _tall(192, 7), _conv(192, 3, strides=2)),
            row(_max_pool()),
        )
    return mixed


def _mixed_e(prefix: str) -> HybridBlock:
    mixed = HybridConcurrent(axis=1, prefix=prefix)
    with mixed.name_scope():
        mixed.add(
            row(_conv(320, 1)),
            row(row(_conv(384, 1)), side_by_side(row(_wide(384, 3)), row(_tall(384, 3)))),
            row(
                row(_conv(448, 1), _conv(384, 3, padding=1)),
                side_by_side(row(_wide(384, 3)), row(_tall(384, 3))),
            ),
            row(_avg_pool(), _conv(192, 1)),
        )
    return mixed


def inception_v3(pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any) -> Inception3:
    """Return Inception v3, on `ctx` with weights trained on ImageNet if `pretrained`."""
    return with_weights(Inception3(**kwargs), pretrained, "inceptionv3", ctx, root)
