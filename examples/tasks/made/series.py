"""Hourly series with a daily and a weekly rhythm, as the demand for electricity has, and noise."""

from __future__ import annotations

import numpy as np


def series(count, hours, seed):
    """Return `count` series of this many hours, an array (count, hours)."""
    rng = np.random.default_rng(seed)
    time = np.arange(hours)
    size, phase = rng.uniform(0.5, 2, (count, 1)), rng.uniform(0, 24, (count, 1))
    day = np.sin(2 * np.pi * (time + phase) / 24) + 0.4 * np.sin(4 * np.pi * (time + 2 * phase) / 24)
    weekend = np.where((time + 24 * rng.integers(0, 7, (count, 1))) % 168 < 48, rng.uniform(0.2, 0.7, (count, 1)), 1.0)
    drift = np.cumsum(rng.normal(0, 0.02, (count, hours)), axis=1)  # a random walk
    return (size * (day * weekend + drift) + 0.1 * rng.normal(size=(count, hours))).astype("float32")
