"""Packing: sequences of different lengths in rows of one length, with little or no padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...nn.basic_layers import check_sizes


def cut_blocks(sequences: Iterable[Sequence[int]], length: int, end: int | None = None) -> np.ndarray:
    """Concatenate the sequences and return blocks of `length` tokens: (blocks, length), int32.

    Each sequence is followed by the token `end`, if given. Tokens that do not fill a block are dropped.
    """
    check_sizes(1, length=length)
    after = () if end is None else (end,)
    row = np.array([token for sequence in sequences for token in (*sequence, *after)], np.int32)
    return row[: len(row) - len(row) % length].reshape(-1, length)


class Packed(NamedTuple):
    """Rows that contain one or several sequences each: three arrays of shape (rows, length), int32."""

    tokens: np.ndarray
    segments: np.ndarray  # the number of the sequence in its row, from 1; 0 for padding
    positions: np.ndarray  # of a token in its sequence


def pack_rows(sequences: Sequence[Sequence[int]], length: int, pad_val: int = 0) -> Packed:
    """Pack whole sequences into as few rows of `length` tokens as a simple rule finds: the longest first.

    Each sequence goes into the first row with enough space. A token may attend to the tokens of its own segment only:
    `segments[:, :, None] == segments[:, None, :]`. No sequence may be longer than `length`.
    """
    check_sizes(1, length=length)
    sizes = [len(sequence) for sequence in sequences]
    if max(sizes, default=0) > length:
        raise ValueError(f"a sequence has {max(sizes)} tokens, but a row has {length}. Truncate it, or use longer rows")
    rows: list[list[int]] = []
    spaces: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        at = next((row for row, space in enumerate(spaces) if space >= sizes[number]), len(rows))
        if at == len(rows):
            rows.append([])
            spaces.append(length)
        rows[at].append(number)
        spaces[at] -= sizes[number]
    made = Packed(*(np.full((len(rows), length), value, np.int32) for value in (pad_val, 0, 0)))
    for at, numbers in enumerate(rows):
        start = 0
        for segment, number in enumerate(numbers, 1):
            place = at, slice(start, start := start + sizes[number])
            made.tokens[place], made.segments[place] = sequences[number], segment
            made.positions[place] = np.arange(sizes[number])
    return made
