"""Regions of arrays: which elements of a whole array a worker, or a file, has."""

from __future__ import annotations

import math
from collections.abc import Sequence

Region = tuple[tuple[int, int], ...]
"""The elements from `start` to `stop` along each dimension."""


def whole(shape: Sequence[int]) -> Region:
    """Return the region of all elements."""
    return tuple((0, size) for size in shape)


def of_split(split: Sequence[slice], shape: Sequence[int]) -> Region:
    """Return the region of slices of an array of this shape."""
    return tuple(cut.indices(size)[:2] for cut, size in zip(split, shape, strict=True))


def shape_of(region: Region) -> tuple[int, ...]:
    """Return the shape of a region."""
    return tuple(max(stop - start, 0) for start, stop in region)


def overlap(one: Region, other: Region) -> Region | None:
    """Return the elements that both have, or None."""
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return None if any(start >= stop for start, stop in both) else both


def within(region: Region, outer: Region) -> tuple[slice, ...]:
    """Return the slices that select a region in an array with the elements of `outer`."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(region, outer, strict=True))


def gap(shape: Sequence[int], regions: Sequence[Region]) -> str:
    """Return why regions do not divide an array of this shape into a grid without gaps, or ''."""
    if any(len(region) != len(shape) for region in regions):
        return f"it needs slices of {len(shape)} dimensions"
    cells = 1
    for size, *cuts in zip(shape, *regions, strict=True):
        ordered = sorted(set(cuts))
        ends = [stop for _, stop in ordered]
        if [start for start, _ in ordered] != [0, *ends[:-1]] or ends[-1] != size or any(a >= b for a, b in ordered):
            return f"the slices {ordered[:4]} do not divide a dimension of {size} elements"
        cells *= len(ordered)
    if len(set(regions)) != len(regions) or len(regions) != cells:
        return f"it has {len(regions)} parts, expected {cells}"
    return ""


def volume(region: Region) -> int:
    """Return the number of elements in a region."""
    return math.prod(shape_of(region))
