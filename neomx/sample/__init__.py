"""Six thousand MNIST digits included in neomx, so that examples and tests need no download.

The digits are from the MNIST database of Yann LeCun, Corinna Cortes and Christopher J.C. Burges.
"""

from __future__ import annotations

import pathlib

import numpy as np

from ..formats import idx

_HERE = pathlib.Path(__file__).resolve().parent


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return uint8 training images (5000, 28, 28) and labels (5000,), test images (1000, 28, 28) and labels (1000,)."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    train_images, train_labels, test_images, test_labels = (idx.read(_HERE / f"{name}-ubyte.gz") for name in names)
    return train_images, train_labels, test_images, test_labels
