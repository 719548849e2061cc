"""Augmentation inside a graph: random for each sample in training, the identity otherwise.

A graph knows that it trains from Dropout, which changes ones only then. These are MXNet's ops alone, so MXNet runs the
same graphs.
"""

from __future__ import annotations

import math

from ..symbol import Symbol
from .common import check_counts, check_number, check_symbols, finished, named, sym


def _ones(data: Symbol) -> Symbol:
    """A one for each sample, (batch,)."""
    return sym.ones_like(sym.reshape(sym.slice_axis(sym.Flatten(data), axis=1, begin=0, end=1), shape=(-1,)))


def _training(ones: Symbol) -> Symbol:
    """Whether the graph trains, as a number for each sample: Dropout then makes 0 or 2 of a one."""
    return sym.Dropout(ones, p=0.5) != 1


def RandomFlip(data: Symbol, prob: float = 0.5, axis: int = 3, name: str | None = None) -> Symbol:
    """Return samples of which each is reversed along `axis` with probability `prob`, by default left to right."""
    check_symbols("RandomFlip", data=data)
    check_number("RandomFlip", "prob", prob, 0, 1)
    check_counts("RandomFlip", axis=axis)
    with named(name, "randomflip") as whole:
        kept = sym.Dropout(_ones(data), p=prob) > 0
        return finished(sym.where(kept, data, sym.reverse(data, axis=axis)), whole)


def RandomRotation(data: Symbol, angle: float, name: str | None = None) -> Symbol:
    """Return images (batch, channels, height, width), each rotated about its center by up to `angle` degrees.

    The angle of an image is uniform between -angle and angle. Pixels are interpolated, and are 0 outside of the image.
    """
    check_symbols("RandomRotation", data=data)
    check_number("RandomRotation", "angle", angle, 0, 180)
    with named(name, "randomrotation") as whole:
        ones, most = _ones(data), math.radians(angle)
        drawn = sym.reshape(sym.random.uniform_like(ones, low=-most, high=most), shape=(-1, 1, 1))
        sine, cosine = sym.sin(drawn), sym.cos(drawn)
        y, x = _centered(data, 2, (1, -1, 1)), _centered(data, 3, (1, 1, -1))
        across = sym.broadcast_sub(sym.broadcast_mul(cosine, x), sym.broadcast_mul(sine, y))
        down = sym.broadcast_add(sym.broadcast_mul(sine, x), sym.broadcast_mul(cosine, y))
        grid = sym.stack(_relative(across, x), _relative(down, y), axis=1)
        rotated = sym.BilinearSampler(data, grid)
        return finished(sym.where(_training(ones), rotated, data), whole)


def _centered(data: Symbol, axis: int, shape: tuple[int, ...]) -> Symbol:
    """The positions along an axis in pixels, measured from the center."""
    steps = sym.contrib.arange_like(data, axis=axis)
    return sym.reshape(sym.broadcast_sub(steps, sym.mean(steps, keepdims=True)), shape=shape)


def _relative(position: Symbol, along: Symbol) -> Symbol:
    """A position in units of half the image, as BilinearSampler expects it."""
    half = sym.maximum(sym.max(along, axis=(0, 1, 2), keepdims=True), 0.5)  # not 0 for an image of one pixel
    return sym.broadcast_div(position, half)


def Mixup(
    data: Symbol, label: Symbol, alpha: float = 0.2, num_classes: int | None = None, name: str | None = None
) -> Symbol:
    """Return a group of samples and labels, each mixed with another one of the batch in a random proportion.

    The proportion has the distribution Beta(alpha, alpha). With `num_classes`, labels are class numbers (batch,), and
    the result has their probabilities (batch, num_classes). Other labels are mixed as they are.
    """
    check_symbols("Mixup", data=data, label=label)
    check_number("Mixup", "alpha", alpha, 1e-3, 1e3)
    if num_classes is not None:
        check_counts("Mixup", num_classes=num_classes)
    with named(name, "mixup"):
        if num_classes is not None:
            label = sym.one_hot(label, depth=num_classes)
        ones = _ones(data)
        one, other = (sym.random.gamma_like(ones, alpha=alpha, beta=1.0) for _ in range(2))
        kept = sym.reshape(one / (one + other + 1e-30), shape=(-1, 1))
        order = sym.BlockGrad(sym.random.shuffle(sym.contrib.arange_like(ones, axis=0)))  # MXNet needs BlockGrad
        training = _training(ones)
        return sym.Group([_mixed(each, kept, order, training) for each in (data, label)])


def _mixed(data: Symbol, kept: Symbol, order: Symbol, training: Symbol) -> Symbol:
    rows = sym.reshape(data, shape=(0, -1))
    others = sym.take(rows, order)
    mixed = sym.broadcast_mul(rows, kept) + sym.broadcast_mul(others, 1 - kept)
    return sym.where(training, sym.reshape_like(mixed, data), data)
