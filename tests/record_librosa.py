"""Records results of librosa for tests/gluon/data/test_audio.py: `python tests/record_librosa.py`.

Needs `pip install librosa`, best in an environment of its own. The file states the version.
"""

import pathlib

import librosa
import numpy as np

FIXTURE = pathlib.Path(__file__).parent / "fixtures" / "librosa.npz"
RATE = 8000


def main():
    times = np.arange(1200) / RATE
    noise = np.random.default_rng(0).standard_normal(times.size)
    sound = (
        0.5 * np.sin(2 * np.pi * (300 + 1500 * times) * times) + 0.2 * np.sin(2 * np.pi * 440 * times) + 0.01 * noise
    )
    frames = {"n_fft": 128, "hop_length": 40, "win_length": 100}
    mels = {"sr": RATE, "n_mels": 20, "dtype": np.float64}
    spectra = librosa.stft(sound, **frames)
    mel = librosa.feature.melspectrogram(y=sound, **frames, **mels)
    decibels = librosa.power_to_db(mel)
    found = {
        "version": librosa.__version__,
        "sound": sound,
        "stft": np.stack((spectra.real, spectra.imag), -1),
        "stft_reflect": np.abs(librosa.stft(sound, n_fft=128, window="hamming", pad_mode="reflect")),
        "stft_not_centered": np.abs(librosa.stft(sound, n_fft=128, window="blackman", center=False)),
        "istft": librosa.istft(spectra, hop_length=40, win_length=100, length=1190),
        "filters_slaney": librosa.filters.mel(n_fft=128, **mels),
        "filters_htk": librosa.filters.mel(n_fft=128, **mels, htk=True, norm=None, fmin=50.0, fmax=3500.0),
        "filters_slaney_high": librosa.filters.mel(n_fft=128, **mels, norm=None, fmin=1200.0),
        "mel": mel,
        "decibels": decibels,
        "decibels_of_half": librosa.power_to_db(mel, ref=0.5, amin=1e-3, top_db=30),
        "mfcc": librosa.feature.mfcc(S=decibels, n_mfcc=13),
        "griffin_lim": librosa.griffinlim(np.abs(spectra), n_iter=8, hop_length=40, win_length=100, init=None),
        "faster": librosa.effects.time_stretch(sound, rate=1.3, n_fft=128),
        "slower": librosa.effects.time_stretch(sound, rate=0.8, n_fft=128, hop_length=32),
    }
    np.savez_compressed(FIXTURE, **{name: np.asarray(values) for name, values in found.items()})
    print(f"{FIXTURE}: librosa {librosa.__version__}, {FIXTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
