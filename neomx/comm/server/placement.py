"""Which server keeps which elements of an array."""

from __future__ import annotations

import math
import os

from .messages import Piece


def big_array_bound() -> int:
    """The number of elements above which an array is split over all servers."""
    text = os.environ.get("MXNET_KVSTORE_BIGARRAY_BOUND", "1000000")
    try:
        return int(float(text))
    except ValueError:
        raise ValueError(f"MXNET_KVSTORE_BIGARRAY_BOUND must be a number of elements, received {text!r}") from None


class Placement:
    """Puts one array after the other: large ones in even parts on all servers, others where least is kept.

    Parts are whole rows, whatever the array: a gradient may come by rows, and what it does not have of a row must not
    count as zeros. Every worker that places the same arrays in the same order finds the same places.
    """

    def __init__(self, servers: int, bound: int | None = None):
        self.bound = big_array_bound() if bound is None else bound
        self.loads = [0] * servers

    def place(self, shape: tuple[int, ...], itemsize: int, whole: bool = False) -> tuple[Piece, ...]:
        """Where the elements of an array go; to one server if it must stay whole."""
        size, rows = math.prod(shape), shape[0] if shape else 1
        split = not whole and size > max(self.bound, 0)
        count = min(rows, len(self.loads)) if split else 1
        emptiest = sorted(range(len(self.loads)), key=self.loads.__getitem__)[:count]
        cuts = [rows * i // count * (size // rows) if rows else 0 for i in range(count + 1)]
        pieces = tuple(Piece(*each) for each in zip(sorted(emptiest), cuts[:-1], cuts[1:], strict=True))
        self.add(pieces, itemsize)
        return pieces

    def add(self, pieces: tuple[Piece, ...], itemsize: int, sign: int = 1) -> None:
        """Count what pieces weigh; with `sign` -1, that they are no more."""
        for piece in pieces:
            self.loads[piece.server] += sign * (piece.stop - piece.start) * itemsize
