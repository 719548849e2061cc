"""Ratings of items by users, from tastes of low rank and from features of both, with noise."""

from __future__ import annotations

import numpy as np

NOISE = 0.4  # standard deviation; no model has a smaller error


def ratings(users, items, count, seed, rank=4, groups=8, genres=12):
    """Return users, items and ratings (count,), the group of each user, and the genre of each item.

    A few users and items have most of the ratings, as in real data.
    """
    rng = np.random.default_rng(seed)
    group, genre = rng.integers(0, groups, users), rng.integers(0, genres, items)
    liked = rng.normal(0, 0.5, (groups, genres))
    user = (users * rng.random(count) ** 1.5).astype(int)
    item = (items * rng.random(count) ** 1.5).astype(int)
    taste, kind = (rng.normal(0, 0.6, (size, rank)) for size in (users, items))
    value = (
        3 + liked[group[user], genre[item]] + (taste[user] * kind[item]).sum(axis=1) + NOISE * rng.normal(size=count)
    )
    return user, item, value.astype("float32"), group, genre
