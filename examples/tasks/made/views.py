"""Random views of pictures (1, height, width) with values from 0 to 1, for programs that learn from unlabeled ones.

They draw from `mx.random.rng()`. In a DataLoader, the views of a sample therefore do not depend on the number of
workers.
"""

import numpy as np

import neomx as mx


def warped(x, angle, scale, shift):
    """Return a picture turned by an angle (radians), enlarged in both directions, and shifted by pixels."""
    height, width = x.shape[1:]
    rows, columns = np.mgrid[:height, :width].astype("float32")
    rows, columns = rows - (height - 1) / 2 - shift[0], columns - (width - 1) / 2 - shift[1]
    cos, sin = np.cos(angle), np.sin(angle)
    source_rows = (cos * rows + sin * columns) / scale[0] + (height + 1) / 2  # in a picture with a border of 1 pixel
    source_columns = (cos * columns - sin * rows) / scale[1] + (width + 1) / 2
    source_rows, source_columns = source_rows.clip(0, height + 0.99), source_columns.clip(0, width + 0.99)
    top, left = source_rows.astype(int), source_columns.astype(int)
    down, right = source_rows - top, source_columns - left
    padded = np.pad(x[0], 1).ravel()
    at = top * (width + 2) + left
    upper = padded[at] * (1 - right) + padded[at + 1] * right
    lower = padded[at + width + 2] * (1 - right) + padded[at + width + 3] * right
    return (upper * (1 - down) + lower * down).astype("float32")[None]


def weak(x):
    """Return a picture shifted by up to 2 pixels, with zeros at the border."""
    height, width = x.shape[1:]
    row, column = mx.random.rng().integers(0, 5, 2)
    return np.pad(x, ((0, 0), (2, 2), (2, 2)))[:, row : row + height, column : column + width]


def strong(x):
    """Return a picture that is turned, enlarged and shifted, with one square of 7 pixels hidden."""
    rng = mx.random.rng()
    angle, scale, shift = rng.uniform(-0.5, 0.5), rng.uniform(0.75, 1.25, 2), rng.uniform(-3, 3, 2)
    view = warped(x, angle, scale, shift)
    row, column = rng.integers(0, x.shape[1] - 6), rng.integers(0, x.shape[2] - 6)
    view[:, row : row + 7, column : column + 7] = 0
    return view
