"""Transforms of sounds as HybridBlocks, which `Compose` combines, for use with `dataset.transform_first`.

A sound is a floating-point array (..., samples), a spectrogram (..., frequencies, frames). The leading dimensions are
any batch or channels. Formulas and defaults are those of librosa, unless stated otherwise.

A transform that takes a number or a range (low, high) draws a value from the range in each call. Random numbers come
from `mx.random.rng()`: those of a sample in a DataLoader do not depend on the number of workers or loader processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base import MXNetError
from ...block import HybridBlock
from ..vision.transforms import Compose, RandomApply

__all__ = [
    "AddNoise",
    "Compose",
    "GriffinLim",
    "ISTFT",
    "InverseMelScale",
    "MFCC",
    "MelScale",
    "MelSpectrogram",
    "PitchShift",
    "PowerToDB",
    "RandomApply",
    "Resample",
    "Reverberation",
    "STFT",
    "SpecAugment",
    "Spectrogram",
    "Speed",
    "TimeShift",
    "TimeStretch",
]

Range = float | tuple[float, float]


class _Op(HybridBlock):
    """Calls the op `F.contrib.audio_<_op>` with fixed attributes."""

    _op = ""

    def __init__(self, **attributes: Any):
        super().__init__()
        self._attributes = attributes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Transform `x`."""
        return getattr(F.contrib, f"audio_{self._op}")(x, **self._attributes)


# ---- spectra ----


class STFT(_Op):
    """The short-time Fourier transform (..., n_fft / 2 + 1, frames, 2), with real and imaginary parts at the end.

    A frame begins every `hop_length` samples (by default a quarter of `win_length`). Its `window` ("hann", "hamming",
    "blackman" or "rectangular") has `win_length` samples (by default `n_fft`, which must be even). With `center`, frame
    i is centered at sample i * hop_length, and the ends are padded with zeros (`pad_mode="constant"`) or by reflection.
    """

    _op = "stft"

    def __init__(
        self,
        n_fft: int = 512,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str = "hann",
        center: bool = True,
        pad_mode: str = "constant",
    ):
        super().__init__(
            n_fft=n_fft,
            hop_length=hop_length,
            win_length=win_length,
            window=window,
            center=center,
            pad_mode=pad_mode,
        )


class Spectrogram(_Op):
    """The magnitudes of `STFT` to the power of `power`: (..., n_fft / 2 + 1, frames)."""

    _op = "spectrogram"

    def __init__(
        self,
        n_fft: int = 512,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str = "hann",
        center: bool = True,
        pad_mode: str = "constant",
        power: float = 2.0,
    ):
        super().__init__(
            n_fft=n_fft,
            hop_length=hop_length,
            win_length=win_length,
            window=window,
            center=center,
            pad_mode=pad_mode,
            power=power,
        )


class MelScale(_Op):
    """Spectrograms on the mel scale: (..., n_mels, frames).

    `scale` is "slaney" or "htk". With `norm="slaney"` all filters have the same area, with "none" the same height.
    """

    _op = "mel_scale"

    def __init__(
        self,
        sample_rate: int,
        n_mels: int = 80,
        f_min: float = 0.0,
        f_max: float | None = None,
        scale: str = "slaney",
        norm: str = "slaney",
    ):
        super().__init__(sample_rate=sample_rate, n_mels=n_mels, f_min=f_min, f_max=f_max, scale=scale, norm=norm)


class PowerToDB(HybridBlock):
    """10 log10(x / `ref`) of power spectrograms. Values below `floor`, or `top_db` below the largest, are raised.

    The largest value is that of each spectrogram (librosa: of the whole array). `top_db=None` sets no limit.
    """

    def __init__(self, ref: float = 1.0, floor: float = 1e-10, top_db: float | None = 80.0):
        super().__init__()
        if ref <= 0 or floor <= 0 or (top_db is not None and top_db < 0):
            raise MXNetError(
                f"expected ref and floor above 0 and top_db of at least 0, received {ref}, {floor}, {top_db}"
            )
        self._ref, self._floor, self._top_db = ref, floor, top_db

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Convert `x`."""
        decibels = 10 * F.log10(F.maximum(x, self._floor)) - 10 * float(np.log10(max(self._ref, self._floor)))
        if self._top_db is None:
            return decibels
        largest = F.max(decibels, axis=(-2, -1), keepdims=True)
        return F.broadcast_maximum(decibels, largest - self._top_db)


class MelSpectrogram(HybridBlock):
    """The `Spectrogram` of a sound on the `MelScale`: (..., n_mels, frames).

    `log="db"` converts it with `PowerToDB()`, and `log="natural"` to log(max(x, 1e-5)), as speech synthesis does.
    """

    def __init__(
        self,
        sample_rate: int,
        n_fft: int = 512,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str = "hann",
        center: bool = True,
        pad_mode: str = "constant",
        power: float = 2.0,
        n_mels: int = 80,
        f_min: float = 0.0,
        f_max: float | None = None,
        scale: str = "slaney",
        norm: str = "slaney",
        log: str | None = None,
    ):
        super().__init__()
        if log not in (None, "db", "natural"):
            raise MXNetError(f"log={log!r}: expected None, 'db' or 'natural'")
        self._log = log
        with self.name_scope():
            self.spectrogram = Spectrogram(n_fft, hop_length, win_length, window, center, pad_mode, power)
            self.mel_scale = MelScale(sample_rate, n_mels, f_min, f_max, scale, norm)
            self.to_db = PowerToDB() if log == "db" else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the mel spectrogram of `x`."""
        mel = self.mel_scale(self.spectrogram(x))
        if self.to_db is not None:
            return self.to_db(mel)
        return F.log(F.maximum(mel, 1e-5)) if self._log == "natural" else mel


class MFCC(HybridBlock):
    """Mel-frequency cepstral coefficients (..., n_mfcc, frames): the cosine transform of `MelSpectrogram(log="db")`.

    `mel` are further arguments of MelSpectrogram.
    """

    def __init__(self, sample_rate: int, n_mfcc: int = 20, **mel: Any):
        super().__init__()
        self._count = n_mfcc
        with self.name_scope():
            self.mel = MelSpectrogram(sample_rate, log="db", **mel)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the coefficients of `x`."""
        return F.contrib.audio_dct(self.mel(x), n=self._count)


# ---- back to sounds ----


class ISTFT(_Op):
    """The inverse of `STFT` with `center=True`, whose arguments it takes. `length` is the number of samples."""

    _op = "istft"

    def __init__(
        self,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str = "hann",
        length: int | None = None,
    ):
        super().__init__(hop_length=hop_length, win_length=win_length, window=window, length=length)


class InverseMelScale(_Op):
    """Spectrograms (..., n_fft / 2 + 1, frames) from the result of `MelScale`, whose arguments it takes.

    It is the least squares solution with negative values replaced by 0.
    """

    _op = "inverse_mel_scale"

    def __init__(
        self,
        n_fft: int,
        sample_rate: int,
        f_min: float = 0.0,
        f_max: float | None = None,
        scale: str = "slaney",
        norm: str = "slaney",
    ):
        super().__init__(n_fft=n_fft, sample_rate=sample_rate, f_min=f_min, f_max=f_max, scale=scale, norm=norm)


class GriffinLim(_Op):
    """Sounds from the magnitudes of their spectra, `Spectrogram(power=1)`.

    The fast Griffin-Lim algorithm estimates the phases in `iterations`, beginning with 0, so that equal spectrograms
    give equal sounds. The other arguments are those of `ISTFT`. The gradient takes the phases as constants.
    """

    _op = "griffin_lim"

    def __init__(
        self,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str = "hann",
        iterations: int = 32,
        momentum: float = 0.99,
        length: int | None = None,
    ):
        super().__init__(
            hop_length=hop_length,
            win_length=win_length,
            window=window,
            iterations=iterations,
            momentum=momentum,
            length=length,
        )


# ---- changes of sounds ----


class Resample(_Op):
    """Sounds of `rate` samples per second at `new_rate`, as by `scipy.signal.resample_poly`."""

    _op = "resample"

    def __init__(self, rate: int, new_rate: int):
        super().__init__(rate=rate, new_rate=new_rate)


class Speed(_Op):
    """Plays sounds `factor` (a number or a range) times as fast, which changes duration and pitch.

    All sounds of a batch have the same factor. It is rounded to a fraction with a denominator of at most 100.
    """

    _op = "speed"

    def __init__(self, factor: Range = (0.9, 1.1)):
        super().__init__(factor=factor)


class TimeStretch(_Op):
    """Plays sounds `factor` (a number or a range) times as fast at the same pitch, by a phase vocoder.

    All sounds of a batch have the same factor. `n_fft` and `hop_length` are those of `STFT`.
    """

    _op = "time_stretch"

    def __init__(self, factor: Range = (0.9, 1.1), n_fft: int = 2048, hop_length: int | None = None):
        super().__init__(factor=factor, n_fft=n_fft, hop_length=hop_length)


class PitchShift(_Op):
    """Raises the pitch by `steps` semitones (a number or a range) and keeps the duration.

    All sounds of a batch are shifted equally. `n_fft` and `hop_length` are those of `STFT`.
    """

    _op = "pitch_shift"

    def __init__(self, steps: Range = (-2.0, 2.0), n_fft: int = 2048, hop_length: int | None = None):
        super().__init__(steps=steps, n_fft=n_fft, hop_length=hop_length)


class TimeShift(_Op):
    """Delays sounds by `shift` (a number or a range) times their length; negative numbers move them forward.

    The gap is silent (`fill="zero"`) or has the other end of the sound ("wrap"). Each sound of a batch has its own
    shift.
    """

    _op = "time_shift"

    def __init__(self, shift: Range = (-0.1, 0.1), fill: str = "zero"):
        super().__init__(shift=shift, fill=fill)


class AddNoise(_Op):
    """Adds white noise. The ratio of the power of the sound to that of the noise is `snr` decibels.

    `snr` is a number or a range. Each sound of a batch has its own ratio and noise.
    """

    _op = "add_noise"

    def __init__(self, snr: Range = (10.0, 30.0)):
        super().__init__(snr=snr)


class Reverberation(HybridBlock):
    """Convolves sounds with the impulse response of a room, (taps,), scaled to an energy of 1. The length is kept.

    Without `impulse`, each sound of a batch has a random one: the sound itself, and noise that decays by 60 decibels in
    `seconds` (a number or a range) and has the fraction `wet` of the power. `rate` is the sampling rate.
    """

    def __init__(self, impulse: Any = None, seconds: Range = (0.2, 0.6), wet: float = 0.3, rate: int = 16000):
        super().__init__()
        self._room = {"seconds": seconds, "wet": wet, "rate": rate}
        if impulse is not None:
            values = np.asarray(impulse.asnumpy() if hasattr(impulse, "asnumpy") else impulse, np.float32)
            energy = float(np.square(values, dtype=np.float64).sum())
            if values.ndim != 1 or not 0 < energy < np.inf:
                raise MXNetError(f"expected an impulse response (taps,) that is not 0, received shape {values.shape}")
            with self.name_scope():
                self.impulse = self.params.get_constant("impulse", values / np.float32(energy**0.5))
            self.impulse.initialize()

    def hybrid_forward(self, F: Any, x: Any, impulse: Any = None) -> Any:
        """Reverberate `x`."""
        if impulse is None:
            return F.contrib.audio_reverberate(x, **self._room)
        return F.contrib.audio_convolve(x, impulse)


class SpecAugment(_Op):
    """Hides random bands of spectrograms (..., frequencies, frames): SpecAugment without time warping.

    `frequency` and `time` are the number of bands and the largest width of one, in rows and in frames. Widths and
    positions are uniform. Hidden values become `value`, or the mean of the spectrogram if `value` is None. Each
    spectrogram of a batch has its own bands.
    """

    _op = "mask"

    def __init__(
        self, frequency: tuple[int, int] = (2, 10), time: tuple[int, int] = (2, 20), value: float | None = None
    ):
        super().__init__(frequency=frequency, time=time, value=value)
