"""Canvases with several handwritten digits, for detection, segmentation and the recognition of several labels.

A canvas depends only on the seed and on its number, so every worker creates the same ones.
"""

import functools
from typing import NamedTuple

import numpy as np

SIZE, MOST = 48, 3  # pixels on each side of a canvas, and the most digits on it
SMALLEST, LARGEST = 20, 30  # pixels on each side of a digit, with the border that all digits of MNIST have
INK = 64  # pixels with more ink than this belong to the digit


class Canvases(NamedTuple):
    """Canvases, and their labels in the form that each task needs."""

    pixels: np.ndarray  # (n, 1, SIZE, SIZE), from 0 to 1
    boxes: np.ndarray  # (n, MOST, 5): digit, left, top, right, bottom as fractions of SIZE; unused rows are -1
    masks: np.ndarray  # (n, SIZE, SIZE): the digit of each pixel plus 1; 0 is the background
    present: np.ndarray  # (n, 10): 1 for each digit on the canvas


def canvases(pictures, labels, count, seed):
    """Return `count` canvases, each with 1 to MOST digits of random sizes at random places that do not overlap."""
    pixels, boxes = np.zeros((count, 1, SIZE, SIZE), "float32"), np.full((count, MOST, 5), -1, "float32")
    masks, present = np.zeros((count, SIZE, SIZE), "float32"), np.zeros((count, 10), "float32")
    for number in range(count):
        random, taken = np.random.default_rng([seed, number]), np.zeros((SIZE, SIZE), bool)
        for row in range(random.integers(1, MOST + 1)):
            chosen = random.integers(len(pictures))
            digit, label = trimmed(resized(pictures[chosen], random.integers(SMALLEST, LARGEST + 1))), labels[chosen]
            place = _free_place(random, taken, *digit.shape)
            if place is None:
                break
            taken[place] = True
            pixels[number, 0][place] = digit / 255
            masks[number][place] = np.where(digit > INK, label + 1, 0)
            down, across = place
            boxes[number, row] = label, *np.array([across.start, down.start, across.stop, down.stop]) / SIZE
            present[number, label] = 1
    return Canvases(pixels, boxes, masks, present)


def _free_place(random, taken, height, width):
    """Return slices of a random rectangle that is not taken, or None if no attempt finds one."""
    for _ in range(20):
        top, left = random.integers(SIZE - height + 1), random.integers(SIZE - width + 1)
        place = slice(top, top + height), slice(left, left + width)
        if not taken[place].any():
            return place
    return None


def trimmed(digit):
    """Return the smallest rectangle with all of a digit's ink."""
    down, across = (np.flatnonzero((digit > INK).any(axis=axis)) for axis in (1, 0))
    return digit[down[0] : down[-1] + 1, across[0] : across[-1] + 1]


def resized(picture, side):
    """Return a square picture with this many pixels on each side, by linear interpolation."""
    weights = _interpolation(len(picture), int(side))
    return weights @ picture @ weights.T


@functools.cache
def _interpolation(old, new):
    """Return the matrix (new, old) that interpolates a line of pixels."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(old)))
