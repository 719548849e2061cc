"""Which server keeps which elements of an array."""

from __future__ import annotations

import math
import os

from .messages import Piece

_ROWS_ENOUGH = 8  # rows for each server from which on a split by rows is even enough


def big_array_bound() -> int:
    """The number of elements above which an array is split over all servers."""
    text = os.environ.get("MXNET_KVSTORE_BIGARRAY_BOUND", "1000000")
    try:
        return int(float(text))
    except ValueError:
        raise ValueError(f"MXNET_KVSTORE_BIGARRAY_BOUND must be a number of elements, received {text!r}") from None


class Placement:
    """Puts one array after the other: large ones in even parts on all servers, others where least is kept.

    Every worker that places the same arrays in the same order finds the same places.
    """

    def __init__(self, servers: int, bound: int | None = None):
        self.bound = big_array_bound() if bound is None else bound
        self.loads = [0] * servers

    def place(self, shape: tuple[int, ...], itemsize: int, whole: bool = False) -> tuple[Piece, ...]:
        """Where the elements of an array go; to one server if it must stay whole."""
        size, servers = math.prod(shape), len(self.loads)
        if whole or size <= self.bound or size < servers or servers == 1:
            ends = {self.loads.index(min(self.loads)): (0, size)}
        else:
            ends = dict(enumerate(_even(size, shape[0] if shape else 1, servers)))
        pieces = tuple(Piece(server, start, stop) for server, (start, stop) in ends.items())
        self.add(pieces, itemsize)
        return pieces

    def add(self, pieces: tuple[Piece, ...], itemsize: int, sign: int = 1) -> None:
        """Count what pieces weigh; with `sign` -1, that they are no more."""
        for piece in pieces:
            self.loads[piece.server] += sign * (piece.stop - piece.start) * itemsize


def _even(size: int, rows: int, servers: int) -> list[tuple[int, int]]:
    """Even parts: of whole rows where there are many, so that rows can be pushed and pulled by themselves."""
    count, unit = (rows, size // rows) if rows >= _ROWS_ENOUGH * servers else (size, 1)
    cuts = [count * i // servers * unit for i in range(servers + 1)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))
