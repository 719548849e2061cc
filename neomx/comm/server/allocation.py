"""Allocation of the elements of arrays to servers."""

from __future__ import annotations

import math
import os

from .messages import Segment


def big_array_bound() -> int:
    """The number of elements above which an array is split over all servers."""
    text = os.environ.get("MXNET_KVSTORE_BIGARRAY_BOUND", "1000000")
    try:
        return int(float(text))
    except ValueError:
        raise ValueError(f"MXNET_KVSTORE_BIGARRAY_BOUND must be a number of elements, received {text!r}") from None


class KeyAllocator:
    """Assigns arrays to servers: large arrays in equal segments to all servers, others to the least loaded server.

    Segments are always whole rows, because a gradient may be row-sparse and missing parts of a row must not count as
    zeros. Workers that allocate the same arrays in the same order get the same segments.
    """

    def __init__(self, servers: int, bound: int | None = None):
        self.bound = big_array_bound() if bound is None else bound
        self.loads = [0] * servers

    def allocate(self, shape: tuple[int, ...], itemsize: int, whole: bool = False) -> tuple[Segment, ...]:
        """Return the segments of an array; a single one if `whole`."""
        size, rows = math.prod(shape), shape[0] if shape else 1
        split = not whole and size > max(self.bound, 0)
        count = min(rows, len(self.loads)) if split else 1
        emptiest = sorted(range(len(self.loads)), key=self.loads.__getitem__)[:count]
        cuts = [rows * i // count * (size // rows) if rows else 0 for i in range(count + 1)]
        segments = tuple(Segment(*each) for each in zip(sorted(emptiest), cuts[:-1], cuts[1:], strict=True))
        self.add(segments, itemsize)
        return segments

    def add(self, segments: tuple[Segment, ...], itemsize: int, sign: int = 1) -> None:
        """Add the bytes of segments to the loads of their servers, or subtract them if `sign` is -1."""
        for segment in segments:
            self.loads[segment.server] += sign * (segment.stop - segment.start) * itemsize
