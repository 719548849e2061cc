"""Changes of sounds (..., samples) and spectrograms (..., frequencies, frames): resampling, and random augmentation.

An attribute with two numbers is a range from which each call draws a value. Random numbers come from `mx.random.rng()`,
so those of a sample in a DataLoader do not depend on the number of workers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from ..base import MXNetError
from .audio import Frames, constant, like, rows_of
from .random import rng
from .table import FILLED_IN, Ctx, Floats, Shape, op

Tensor = torch.Tensor

_LARGEST_FILTER = 1 << 24  # elements
_DENOMINATOR = 100  # of the ratio by which a sound is resampled: within 0.005 % of factors near 1


def _ends(name: str, values: Floats) -> tuple[float, float]:
    """Return the ends of a range that is given as one number or two."""
    if len(values) not in (1, 2) or values[0] > values[-1] or not all(map(math.isfinite, values)):
        raise MXNetError(f"{name}={values}: expected a number, or a range (low, high)")
    return values[0], values[-1]


def _one(name: str, values: Floats, data: Tensor) -> float:
    """Return a number from a range. Only a range draws, and only if there is data."""
    low, high = _ends(name, values)
    return low if low == high or data.is_meta else rng().uniform(low, high)


def _each(name: str, values: Floats, rows: Tensor) -> Tensor:
    """Return numbers from a range, (rows, 1)."""
    low, high = _ends(name, values)
    if low == high or rows.is_meta:
        return rows.new_full((rows.shape[0], 1), low)
    return constant(rng().uniform(low, high, (rows.shape[0], 1)), rows)


# ---- resampling ----


@lru_cache(maxsize=32)
def _filters(up: int, down: int) -> tuple[np.ndarray, int]:
    """Return the phases (up, 1, taps) of a low-pass filter, and the number of taps before the current sample.

    The filter is a sinc with a Kaiser window, as that of scipy.signal.resample_poly. Output `j * up + i` is the product
    of row i with the samples around `j * down`.
    """
    half = 10 * max(up, down)
    first, last = -(half // up), ((up - 1) * down + half) // up
    if up * (last - first + 1) > _LARGEST_FILTER:
        raise MXNetError(f"cannot resample by {up}/{down}: choose rates with a larger common divisor")
    at = np.arange(-half, half + 1)
    lowpass = np.sinc(at / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
    lowpass *= up / lowpass.sum()
    place = np.arange(up)[:, None] * down - np.arange(first, last + 1) * up + half
    inside = (place >= 0) & (place <= 2 * half)
    return np.where(inside, lowpass[place.clip(0, 2 * half)], 0)[:, None], -first


def _resampled(rows: Tensor, ratio: Fraction) -> Tensor:
    """Return sounds (rows, samples) with `ratio` times as many samples, rounded up."""
    up, down = ratio.as_integer_ratio()
    if up < 1:
        raise MXNetError(f"cannot resample by {up}/{down}: expected a positive ratio")
    if up == down:
        return rows.clone()
    filters, before = _filters(up, down)
    samples = rows.shape[1]
    length = -(-samples * up // down)
    blocks = -(-length // up)
    after = max((blocks - 1) * down + filters.shape[2] - before - samples, 0)
    phases = F.conv1d(F.pad(rows[:, None], (before, after)), constant(filters, rows), stride=down)
    return phases.transpose(1, 2).flatten(1)[:, :length]


@op("_contrib_audio_resample")
def resample(data: Tensor, *, rate: int, new_rate: int) -> Tensor:
    """Sounds of `rate` samples per second at `new_rate`, as by scipy.signal.resample_poly."""
    if rate < 1 or new_rate < 1:
        raise MXNetError(f"expected rates of at least 1, received {rate} and {new_rate}")
    return like(_resampled(rows_of(data), Fraction(new_rate, rate)), data)


def _near(ratio: float, name: str, value: float) -> Fraction:
    if not 0.01 < ratio < 100:
        raise MXNetError(f"{name}={value} is out of range")
    return Fraction(ratio).limit_denominator(_DENOMINATOR)


@op("_contrib_audio_speed")
def speed(data: Tensor, *, factor: Floats, ctx: Ctx = FILLED_IN) -> Tensor:
    """Sounds played `factor` times as fast: shorter and higher for a factor above 1."""
    drawn = _one("factor", factor, data)
    return like(_resampled(rows_of(data), _near(1 / drawn if drawn else 0, "factor", drawn)), data)


# ---- stretching ----


def _stretched(rows: Tensor, factor: float, frames: Frames) -> Tensor:
    """Return sounds that last `1 / factor` times as long at the same pitch, by a phase vocoder."""
    length = round(rows.shape[1] / factor)
    if length < 1:
        raise MXNetError(f"factor={factor} is too large for {rows.shape[1]} samples")
    spectra = F.pad(frames.transform(rows), (0, 2))
    steps = np.arange(0, spectra.shape[2] - 2, factor)
    left = torch.from_numpy(steps.astype(np.int64)).to(rows.device)
    share = constant(steps % 1, rows)
    angles, sizes = spectra.angle(), spectra.abs()
    sizes = (1 - share) * sizes[..., left] + share * sizes[..., left + 1]
    # What each frequency advances in a hop: the expected angle, plus the difference to it within half a turn.
    turn = 2 * math.pi
    hop = torch.linspace(0, math.pi * frames.hop_length, spectra.shape[1], dtype=rows.dtype, device=rows.device)[
        :, None
    ]
    more = angles[..., left + 1] - angles[..., left] - hop
    advance = hop % turn + more - turn * torch.round(more / turn)
    start = angles[..., :1]
    phases = torch.cat((start, start + advance[..., :-1].cumsum(2)), 2)
    stretched = torch.polar(sizes, phases)
    room = frames.hop_length * (stretched.shape[2] - 1) + frames.n_fft // 2
    return F.pad(frames.inverse(stretched, min(length, room)), (0, max(length - room, 0)))


@op("_contrib_audio_time_stretch")
def time_stretch(
    data: Tensor, *, factor: Floats, n_fft: int = 2048, hop_length: int | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Sounds played `factor` times as fast at the same pitch."""
    drawn = _one("factor", factor, data)
    if drawn <= 0:
        raise MXNetError(f"factor={drawn}: expected a positive number")
    return like(_stretched(rows_of(data), drawn, Frames(n_fft, hop_length, None, "hann")), data)


@op("_contrib_audio_pitch_shift")
def pitch_shift(
    data: Tensor, *, steps: Floats, n_fft: int = 2048, hop_length: int | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Sounds of the same duration that are `steps` semitones higher."""
    drawn = _one("steps", steps, data)
    rows = rows_of(data)
    ratio = _near(2 ** (-drawn / 12) if abs(drawn) < 100 else 0, "steps", drawn)
    if ratio == 1:
        return data.clone()
    shifted = _resampled(_stretched(rows, float(ratio), Frames(n_fft, hop_length, None, "hann")), ratio)
    missing = rows.shape[1] - shifted.shape[1]
    return like(F.pad(shifted, (0, missing)) if missing > 0 else shifted[:, : rows.shape[1]], data)


# ---- shift, noise, echo ----


@op("_contrib_audio_time_shift")
def time_shift(data: Tensor, *, shift: Floats, fill: Literal["zero", "wrap"] = "zero", ctx: Ctx = FILLED_IN) -> Tensor:
    """Sounds delayed by `shift` times their length. Each sound of a batch has its own shift."""
    rows = rows_of(data)
    samples = rows.shape[1]
    by = (_each("shift", shift, rows) * samples).round().long()
    source = torch.arange(samples, device=rows.device) - by
    moved = rows.gather(1, source % samples)
    if fill == "zero":
        moved = torch.where((source >= 0) & (source < samples), moved, 0)
    return like(moved, data)


@op("_contrib_audio_add_noise")
def add_noise(data: Tensor, *, snr: Floats, ctx: Ctx = FILLED_IN) -> Tensor:
    """Sounds with white noise. `snr` is the ratio of the power of the sound to that of the noise, in decibels.

    Each sound of a batch has its own ratio and noise.
    """
    rows = rows_of(data)
    ratio = _each("snr", snr, rows)
    if rows.is_meta:
        return like(rows.clone(), data)
    noise = constant(rng().standard_normal(tuple(rows.shape), np.float32), rows)
    power, strength = (values.square().mean(1, keepdim=True) for values in (rows.detach(), noise))
    return like(rows + noise * torch.sqrt(power / strength * 10 ** (-ratio / 10)), data)


def _convolved(rows: Tensor, kernels: Tensor) -> Tensor:
    """Return the beginning of the convolution, as long as the sounds (rows, samples)."""
    samples = rows.shape[1]
    size = 1 << (samples + kernels.shape[-1] - 2).bit_length()
    product = torch.fft.rfft(rows, size) * torch.fft.rfft(kernels, size)
    return torch.fft.irfft(product, size)[:, :samples]


@op("_contrib_audio_convolve")
def convolve(data: Tensor, kernel: Tensor) -> Tensor:
    """The beginning of the convolution of sounds with a kernel (taps,), as long as the sounds."""
    if kernel.dim() != 1 or not kernel.numel():
        raise MXNetError(f"expected a kernel (taps,), received shape {tuple(kernel.shape)}")
    rows = rows_of(data)
    return like(_convolved(rows, kernel.to(rows.dtype)), data)


@op("_contrib_audio_reverberate")
def reverberate(data: Tensor, *, seconds: Floats, rate: int, wet: float = 0.3, ctx: Ctx = FILLED_IN) -> Tensor:
    """Sounds in a room: with an echo that decays by 60 decibels in `seconds` and has the fraction `wet` of the power.

    The echo is decaying noise. Each sound of a batch is in a room of its own.
    """
    rows = rows_of(data)
    durations = _each("seconds", seconds, rows)
    if not 0 <= wet <= 1 or rate < 1 or _ends("seconds", seconds)[0] <= 0:
        raise MXNetError(
            f"expected seconds above 0, wet from 0 to 1 and rate of at least 1, received {seconds}, {wet} and {rate}"
        )
    if rows.is_meta:
        return like(rows.clone(), data)
    taps = max(2, min(rows.shape[1], math.ceil(_ends("seconds", seconds)[1] * rate)))
    noise = constant(rng().standard_normal((rows.shape[0], taps), np.float32), rows)
    times = torch.arange(taps, dtype=rows.dtype, device=rows.device) / rate
    echo = noise * 10 ** (-3 * times / durations)
    echo[:, 0] = 0  # the sound itself
    echo = echo * torch.sqrt(wet / echo.square().sum(1, keepdim=True))
    echo[:, 0] = math.sqrt(1 - wet)
    return like(_convolved(rows, echo), data)


# ---- masks ----


@op("_contrib_audio_mask")
def mask(
    data: Tensor, *, frequency: Shape = (0, 0), time: Shape = (0, 0), value: float | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Spectrograms (..., frequencies, frames) with random bands of frequencies and of frames set to `value`.

    `frequency` and `time` are the number of bands and their largest width. Each spectrogram of a batch has its own
    bands. Without a value, they are set to the mean of the spectrogram.
    """
    rows = rows_of(data, 2)
    hidden = torch.zeros(rows.shape, dtype=torch.bool, device=rows.device)
    for name, bands, axis in (("frequency", frequency, 1), ("time", time, 2)):
        if len(bands) != 2 or min(bands) < 0:
            raise MXNetError(f"{name}={bands}: expected the number of bands and their largest width")
        if not rows.is_meta and min(bands) > 0:
            drawn = _bands(rows.shape[0], *bands, rows.shape[axis])
            hidden |= torch.from_numpy(drawn).to(rows.device).unsqueeze(3 - axis)
    fill = rows.detach().mean((1, 2), keepdim=True) if value is None else rows.new_tensor(value)
    return like(torch.where(hidden, fill, rows), data, 2)


def _bands(rows: int, count: int, width: int, size: int) -> np.ndarray:
    """Return which of `size` positions are in one of `count` random bands of 0 to `width` positions: (rows, size)."""
    draw = rng()
    widths = draw.integers(0, min(width, size), (rows, count, 1), endpoint=True)
    starts = draw.integers(0, size - widths, endpoint=True)
    at = np.arange(size)
    return np.logical_or.reduce((at >= starts) & (at < starts + widths), axis=1)
