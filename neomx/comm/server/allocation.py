"""Which server keeps which elements of an array."""

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
    """Assigns arrays to servers: large ones in equal segments to all, others to the server that keeps least.

    Segments are whole rows, whatever the array: a gradient may come by rows, and what it lacks of a row must not count
    as zeros. Every worker that allocates the same arrays in the same order gets the same segments.
    """

    def __init__(self, servers: int, bound: int | None = None):
        self.bound = big_array_bound() if bound is None else bound
        self.loads = [0] * servers

    def allocate(self, shape: tuple[int, ...], itemsize: int, whole: bool = False) -> tuple[Segment, ...]:
        """The segments of an array; one segment if it must stay whole."""
        size, rows = math.prod(shape), shape[0] if shape else 1
        split = not whole and size > max(self.bound, 0)
        count = min(rows, len(self.loads)) if split else 1
        emptiest = sorted(range(len(self.loads)), key=self.loads.__getitem__)[:count]
        cuts = [rows * i // count * (size // rows) if rows else 0 for i in range(count + 1)]
        segments = tuple(Segment(*each) for each in zip(sorted(emptiest), cuts[:-1], cuts[1:], strict=True))
        self.add(segments, itemsize)
        return segments

    def add(self, segments: tuple[Segment, ...], itemsize: int, sign: int = 1) -> None:
        """Count the bytes of segments; with `sign` -1, that they are no longer kept."""
        for segment in segments:
            self.loads[segment.server] += sign * (segment.stop - segment.start) * itemsize
