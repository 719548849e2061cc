"""Frames and Fourier transforms of signals."""

from __future__ import annotations

import math

from ..symbol import Symbol
from .common import check_counts, check_symbols, finished, named, sym

Fft, Ifft = sym.contrib.fft, sym.contrib.ifft


def HammingWindow(data: Symbol, length: int, hop: int | None = None, name: str | None = None) -> Symbol:
    """Return frames of signals, weighted by a Hamming window: (batch, samples) to (batch, frames, length).

    A frame begins every `hop` samples, by default length / 2. Samples after the last whole frame are dropped.
    """
    check_symbols("HammingWindow", data=data)
    check_counts("HammingWindow", least=2, length=length)
    hop = length // 2 if hop is None else hop
    check_counts("HammingWindow", hop=hop)
    with named(name, "hammingwindow") as whole:
        columns = sym.im2col(sym.reshape(data, shape=(0, 1, 1, -1)), kernel=(1, length), stride=(1, hop))
        angles = sym.arange(0, length) * (2 * math.pi / (length - 1))
        window = sym.reshape(0.54 - 0.46 * sym.cos(angles), shape=(1, 1, -1))
        return finished(sym.broadcast_mul(sym.transpose(columns, axes=(0, 2, 1)), window), whole)
