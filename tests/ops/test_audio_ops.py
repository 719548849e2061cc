"""Ops on sounds in graphs, files and other dtypes. tests/gluon/data/test_audio.py compares their values."""

import numpy as np
import pytest

import neomx as mx
from neomx.ops import OPS

SOUND = np.random.default_rng(2).standard_normal((2, 400)).astype(np.float32)
SPECTROGRAM = np.abs(np.random.default_rng(2).standard_normal((2, 33, 12))).astype(np.float32)
SPECTRA = np.random.default_rng(4).standard_normal((2, 33, 12, 2)).astype(np.float32)
CASES = {
    "audio_stft": (SOUND, {"n_fft": 64, "hop_length": None, "window": "hamming", "center": False}),
    "audio_istft": (SPECTRA, {"length": 170}),
    "audio_spectrogram": (SOUND, {"n_fft": 64, "win_length": 50, "pad_mode": "reflect", "power": 1}),
    "audio_griffin_lim": (SPECTROGRAM, {"iterations": 3, "momentum": 0.5}),
    "audio_mel_scale": (SPECTROGRAM, {"sample_rate": 8000, "n_mels": 10, "f_max": None, "scale": "htk"}),
    "audio_inverse_mel_scale": (SPECTROGRAM[:, :10], {"n_fft": 64, "sample_rate": 8000, "norm": "none"}),
    "audio_dct": (SPECTROGRAM, {"n": 5}),
    "audio_resample": (SOUND, {"rate": 3, "new_rate": 2}),
    "audio_speed": (SOUND, {"factor": (0.8, 1.2)}),
    "audio_time_stretch": (SOUND, {"factor": 1.1, "n_fft": 64}),
    "audio_pitch_shift": (SOUND, {"steps": (1, 2), "n_fft": 64}),
    "audio_time_shift": (SOUND, {"shift": (-0.1, 0.1), "fill": "wrap"}),
    "audio_add_noise": (SOUND, {"snr": (5, 10)}),
    "audio_convolve": (SOUND, {}),
    "audio_reverberate": (SOUND, {"seconds": (0.01, 0.02), "rate": 8000}),
    "audio_mask": (SPECTROGRAM, {"frequency": (1, 5), "time": (2, 3), "value": None}),
}


def test_every_op_is_here():
    assert {f"_contrib_{name}" for name in CASES} == {name for name in OPS if name.startswith("_contrib_audio_")}


@pytest.mark.parametrize("name", CASES)
def test_arrays_graphs_and_files_agree(name):
    data, attributes = CASES[name]
    arrays = {"data": mx.nd.array(data)}
    if name == "audio_convolve":
        arrays["kernel"] = mx.nd.array([1.0, 0.5])
    graph = getattr(mx.sym.contrib, name)(*map(mx.sym.var, arrays), **attributes)
    again = mx.sym.load_json(graph.tojson())
    found = []
    for compute in (
        lambda: getattr(mx.nd.contrib, name)(*arrays.values(), **attributes),
        lambda: graph.bind(mx.cpu(), arrays).forward()[0],
        lambda: again.bind(mx.cpu(), arrays).forward()[0],
    ):
        mx.random.seed(3)
        found.append(compute().asnumpy())
    assert np.isfinite(found[0]).all() and found[0].any()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_dtype_is_kept(name, dtype):
    data, attributes = CASES[name]
    arrays = [mx.nd.array(data, dtype=dtype)]
    if name == "audio_convolve":
        arrays.append(mx.nd.array([1.0, 0.5], dtype=dtype))
    mx.random.seed(3)
    found = getattr(mx.nd.contrib, name)(*arrays, **attributes)
    mx.random.seed(3)
    expected = getattr(mx.nd.contrib, name)(*(each.astype("float32") for each in arrays), **attributes)
    assert found.dtype == np.dtype(dtype)
    scale = np.abs(expected.asnumpy()).max()
    np.testing.assert_allclose(
        found.asnumpy(), expected.asnumpy(), rtol=0, atol=(1e-3 if dtype == "float16" else 1e-4) * scale
    )
