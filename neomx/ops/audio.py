"""Spectra of sounds: short-time Fourier transform, mel scale, cosine transform, and their inverses.

Sounds are (..., samples) and spectrograms (..., frequencies, frames). MXNet has none of these ops. Their formulas and
defaults are those of librosa.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from ..base import MXNetError
from .table import op

Tensor = torch.Tensor
Window = Literal["hann", "hamming", "blackman", "rectangular"]
Padding = Literal["constant", "reflect"]
MelScale = Literal["slaney", "htk"]
MelNorm = Literal["slaney", "none"]

_WINDOWS: dict[str, Callable[..., Tensor]] = {
    "hann": torch.hann_window,
    "hamming": torch.hamming_window,
    "blackman": torch.blackman_window,
    "rectangular": torch.ones,
}


def rows_of(data: Tensor, dims: int = 1) -> Tensor:
    """Return sounds (dims=1) or spectrograms (dims=2) as one batch, in a dtype for computation."""
    expected = "(..., samples)" if dims == 1 else "(..., frequencies, frames)"
    if not data.is_floating_point():
        raise MXNetError(f"expected floating-point data {expected}, received {data.dtype}")
    if data.dim() < dims or not all(data.shape[-dims:]):
        raise MXNetError(f"expected {expected} with at least one element, received shape {tuple(data.shape)}")
    work = data.to(torch.promote_types(data.dtype, torch.float32))
    return work.reshape(math.prod(data.shape[:-dims]), *data.shape[-dims:])


def like(rows: Tensor, data: Tensor, dims: int = 1) -> Tensor:
    """Return results for `rows_of(data, dims)` with the leading dimensions and the dtype of `data`."""
    return rows.reshape(*data.shape[:-dims], *rows.shape[1:]).to(data.dtype)


def constant(values: np.ndarray, data: Tensor) -> Tensor:
    """Return a fixed array with the dtype and the device of `data`."""
    return torch.from_numpy(values).to(data)


# ---- short-time Fourier transform ----


class Frames:
    """The windowed frames of a short-time Fourier transform."""

    def __init__(self, n_fft: int, hop_length: int | None, win_length: int | None, window: str):
        self.n_fft = n_fft
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = max(self.win_length // 4, 1) if hop_length is None else hop_length
        self.window = window
        if n_fft < 2 or n_fft % 2:
            raise MXNetError(f"n_fft={n_fft}: expected an even number of at least 2")
        if not 1 <= self.win_length <= n_fft:
            raise MXNetError(f"win_length={win_length}: expected 1 to n_fft={n_fft}")
        if self.hop_length < 1:
            raise MXNetError(f"hop_length={hop_length}: expected at least 1")

    def _arguments(self, like: Tensor) -> tuple[int, int, int, Tensor]:
        window = _WINDOWS[self.window](self.win_length, dtype=like.dtype, device=like.device)
        return self.n_fft, self.hop_length, self.win_length, window

    def transform(self, rows: Tensor, center: bool = True, pad_mode: str = "constant") -> Tensor:
        """Return the complex spectra (rows, frequencies, frames) of sounds (rows, samples)."""
        samples = rows.shape[1]
        if center and pad_mode == "reflect" and samples <= self.n_fft // 2:
            raise MXNetError(f"reflection at the ends needs more than {self.n_fft // 2} samples, received {samples}")
        if not center and samples < self.n_fft:
            raise MXNetError(f"a sound of {samples} samples is shorter than a frame of {self.n_fft}")
        return torch.stft(
            rows, *self._arguments(rows), center=center, pad_mode=pad_mode, onesided=True, return_complex=True
        )

    def inverse(self, spectra: Tensor, length: int | None) -> Tensor:
        """Return the sounds (rows, samples) of complex spectra (rows, frequencies, frames)."""
        if spectra.shape[1] != self.n_fft // 2 + 1:
            raise MXNetError(f"expected {self.n_fft // 2 + 1} frequencies for n_fft={self.n_fft}")
        samples = self.hop_length * (spectra.shape[2] - 1)
        if samples < 1:
            raise MXNetError("expected at least two frames")
        if length is not None and not 1 <= length <= samples + self.n_fft // 2:
            raise MXNetError(f"length={length}: {spectra.shape[2]} frames have {samples} samples")
        if spectra.is_meta:  # istft checks the values of the window, which are unknown
            return spectra.real.new_empty(spectra.shape[0], samples if length is None else length)
        return torch.istft(spectra, *self._arguments(spectra.real), center=True, onesided=True, length=length)


@op("_contrib_audio_stft")
def stft(
    data: Tensor,
    *,
    n_fft: int = 512,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Window = "hann",
    center: bool = True,
    pad_mode: Padding = "constant",
) -> Tensor:
    """The short-time Fourier transform (..., n_fft / 2 + 1, frames, 2), with real and imaginary parts at the end."""
    spectra = Frames(n_fft, hop_length, win_length, window).transform(rows_of(data), center, pad_mode)
    return like(torch.view_as_real(spectra), data)


@op("_contrib_audio_istft")
def istft(
    data: Tensor,
    *,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Window = "hann",
    length: int | None = None,
) -> Tensor:
    """The sounds (..., samples) of centered short-time Fourier transforms (..., frequencies, frames, 2)."""
    rows = rows_of(data, 3) if data.dim() >= 3 else data
    if rows.dim() != 4 or rows.shape[3] != 2:
        raise MXNetError(f"expected (..., frequencies, frames, 2), received shape {tuple(data.shape)}")
    frames = Frames(2 * (rows.shape[1] - 1), hop_length, win_length, window)
    return like(frames.inverse(torch.view_as_complex(rows.contiguous()), length), data, 3)


@op("_contrib_audio_spectrogram")
def spectrogram(
    data: Tensor,
    *,
    n_fft: int = 512,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Window = "hann",
    center: bool = True,
    pad_mode: Padding = "constant",
    power: float = 2.0,
) -> Tensor:
    """The magnitudes of the short-time Fourier transform to the power of `power`: (..., n_fft / 2 + 1, frames)."""
    spectra = Frames(n_fft, hop_length, win_length, window).transform(rows_of(data), center, pad_mode)
    if power == 2:
        return like(spectra.real.square() + spectra.imag.square(), data)
    return like(spectra.abs() if power == 1 else spectra.abs() ** power, data)


@op("_contrib_audio_griffin_lim")
def griffin_lim(
    data: Tensor,
    *,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Window = "hann",
    iterations: int = 32,
    momentum: float = 0.99,
    length: int | None = None,
) -> Tensor:
    """Sounds (..., samples) whose short-time Fourier transforms have the magnitudes (..., frequencies, frames).

    The fast Griffin-Lim algorithm estimates the phases, beginning with 0. The gradient takes them as constants.
    """
    magnitudes = rows_of(data, 2)
    if momentum < 0 or iterations < 0:
        raise MXNetError(f"expected momentum and iterations of at least 0, received {momentum} and {iterations}")
    frames = Frames(2 * (magnitudes.shape[1] - 1), hop_length, win_length, window)
    with torch.no_grad():
        phases = torch.ones_like(magnitudes, dtype=magnitudes.dtype.to_complex())
        before = torch.zeros_like(phases)
        for _ in range(0 if data.is_meta else iterations):
            rebuilt = frames.transform(frames.inverse(magnitudes * phases, None))
            phases = rebuilt - momentum / (1 + momentum) * before
            phases = phases / (phases.abs() + torch.finfo(magnitudes.dtype).tiny)
            before = rebuilt
    return like(frames.inverse(magnitudes * phases, length), data, 2)


# ---- the mel scale ----

_LINEAR_BELOW = 1000.0  # Hz: the mel scale of Slaney's Auditory Toolbox is linear below and logarithmic above
_MEL_PER_HZ, _LOG_STEP = 3 / 200, math.log(6.4) / 27


def _to_mel(hertz: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * math.log10(1 + hertz / 700)
    if hertz < _LINEAR_BELOW:
        return hertz * _MEL_PER_HZ
    return _LINEAR_BELOW * _MEL_PER_HZ + math.log(hertz / _LINEAR_BELOW) / _LOG_STEP


def _to_hertz(mels: np.ndarray, scale: str) -> np.ndarray:
    if scale == "htk":
        return 700 * (10 ** (mels / 2595) - 1)
    corner = _LINEAR_BELOW * _MEL_PER_HZ
    return np.where(mels < corner, mels / _MEL_PER_HZ, _LINEAR_BELOW * np.exp(_LOG_STEP * (mels - corner)))


@lru_cache(maxsize=32)
def mel_filters(
    sample_rate: int, frequencies: int, n_mels: int, f_min: float, f_max: float | None, scale: str, norm: str
) -> np.ndarray:
    """Return the triangular filters (n_mels, frequencies) of float64. `norm="slaney"` gives each the same area."""
    highest = sample_rate / 2 if f_max is None else f_max
    if sample_rate < 1 or n_mels < 1 or not 0 <= f_min < highest:
        raise MXNetError(
            f"expected sample_rate and n_mels of at least 1 and 0 <= f_min < f_max, received {sample_rate}, {n_mels}, "
            f"{f_min} and {f_max}"
        )
    ends = _to_hertz(np.linspace(_to_mel(f_min, scale), _to_mel(highest, scale), n_mels + 2), scale)
    bins = np.linspace(0, sample_rate / 2, frequencies)
    widths = np.diff(ends)[:, None]
    rising, falling = (bins - ends[:-2, None]) / widths[:-1], (ends[2:, None] - bins) / widths[1:]
    filters = np.maximum(0, np.minimum(rising, falling))
    if norm == "slaney":
        filters *= 2 / (ends[2:] - ends[:-2])[:, None]
    return filters


@lru_cache(maxsize=32)
def _inverse_mel_filters(*arguments: object) -> np.ndarray:
    return np.linalg.pinv(mel_filters(*arguments))  # type: ignore[arg-type]


def _applied(matrix: np.ndarray, data: Tensor) -> Tensor:
    rows = rows_of(data, 2)
    return constant(matrix, rows) @ rows


@op("_contrib_audio_mel_scale")
def mel_scale(
    data: Tensor,
    *,
    sample_rate: int,
    n_mels: int = 80,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: MelScale = "slaney",
    norm: MelNorm = "slaney",
) -> Tensor:
    """Spectrograms (..., frequencies, frames), with frequencies up to sample_rate / 2, as (..., n_mels, frames)."""
    filters = mel_filters(sample_rate, rows_of(data, 2).shape[1], n_mels, f_min, f_max, scale, norm)
    return like(_applied(filters, data), data, 2)


@op("_contrib_audio_inverse_mel_scale")
def inverse_mel_scale(
    data: Tensor,
    *,
    n_fft: int,
    sample_rate: int,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: MelScale = "slaney",
    norm: MelNorm = "slaney",
) -> Tensor:
    """Spectrograms (..., n_fft / 2 + 1, frames) of mel spectrograms (..., n_mels, frames).

    It is the solution of smallest norm, in which negative values are replaced by 0.
    """
    if n_fft < 2 or n_fft % 2:
        raise MXNetError(f"n_fft={n_fft}: expected an even number of at least 2")
    mels = rows_of(data, 2).shape[1]
    inverse = _inverse_mel_filters(sample_rate, n_fft // 2 + 1, mels, f_min, f_max, scale, norm)
    return like(_applied(inverse, data).clamp(min=0), data, 2)


# ---- the cosine transform ----


@lru_cache(maxsize=32)
def _cosines(size: int, count: int) -> np.ndarray:
    """Return the first `count` rows of the orthonormal DCT-II of `size` values."""
    angles = np.pi / size * np.arange(count)[:, None] * (np.arange(size) + 0.5)
    basis = np.cos(angles) * math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    return basis


@op("_contrib_audio_dct")
def dct(data: Tensor, *, n: int | None = None) -> Tensor:
    """The first `n` coefficients of the orthonormal cosine transform (DCT-II) over the frequencies of a spectrogram."""
    size = rows_of(data, 2).shape[1]
    count = size if n is None else n
    if not 1 <= count <= size:
        raise MXNetError(f"n={n}: expected 1 to {size}, the number of frequencies")
    return like(_applied(_cosines(size, count), data), data, 2)
