"""WAV files as arrays."""

from __future__ import annotations

import os
from typing import Any

from ....base import MXNetError
from ....formats import wav
from ....ndarray import NDArray, array
from ...kinds import of_kind


def load(
    source: str | os.PathLike[str] | bytes, start: int = 0, count: int | None = None, dtype: Any = "float32"
) -> tuple[NDArray, int]:
    """Return the sound of a WAV file, or of its content as bytes, as (channels, samples), and its sampling rate.

    PCM of 8 to 32 bits is scaled to the range from -1 to 1. `start` and `count` select samples of each channel.
    """
    samples, rate = wav.read(source, start, count, dtype)
    return of_kind(array(samples.T, dtype=dtype)), rate


def save(path: str | os.PathLike[str], data: Any, rate: int, encoding: str = "int16") -> None:
    """Write a sound, (samples,) or (channels, samples) with values from -1 to 1, to a WAV file, atomically.

    `encoding` is uint8, int16, int24, int32, float32 or float64. PCM clips values beyond the range.
    """
    values = data.asnumpy() if isinstance(data, NDArray) else data
    if values.ndim not in (1, 2) or not values.size:
        raise MXNetError(
            f"cannot write {os.fspath(path)}: expected (samples,) or (channels, samples) with at least one sample, "
            f"received shape {values.shape}"
        )
    if values.ndim == 2 and values.shape[0] > max(32, values.shape[1]):
        raise MXNetError(
            f"cannot write {os.fspath(path)}: expected (channels, samples), received shape {values.shape}. "
            "Transpose it: data.T"
        )
    wav.write(path, values.reshape(-1, values.shape[-1]).T, rate, encoding)
