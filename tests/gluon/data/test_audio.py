"""Transforms of sounds, compared with recordings of librosa, with scipy, and between arrays and graphs.

In float64 the formulas agree to rounding, 1e-9 of the largest value. float32 keeps about 1e-6 of the largest value of a
spectrum.
"""

import pathlib

import numpy as np
import pytest
from scipy import fft, signal

import neomx as mx
from neomx.base import MXNetError
from neomx.gluon.data import DataLoader, ShardedDataset, SimpleDataset
from neomx.gluon.data.audio import transforms as T

RECORDED = np.load(pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "librosa.npz")
FRAMES = {"hop_length": 40, "win_length": 100}
MELS = {"n_fft": 128, **FRAMES, "n_mels": 20}


def array(values, dtype="float64"):
    return mx.nd.array(values, dtype=dtype)


SOUND = RECORDED["sound"]
BATCH = np.random.default_rng(3).standard_normal((2, 3, 1000)).astype(np.float32)


def assert_near(found, expected, share=1e-9):
    """Compare with a tolerance that is a share of the largest value."""
    found = found.asnumpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * np.abs(expected).max())


# ---- librosa ----


@pytest.mark.parametrize(
    ("transform", "source", "name"),
    [
        (T.STFT(128, **FRAMES), "sound", "stft"),
        (T.Spectrogram(128, window="hamming", pad_mode="reflect", power=1), "sound", "stft_reflect"),
        (T.Spectrogram(128, window="blackman", center=False, power=1), "sound", "stft_not_centered"),
        (T.ISTFT(**FRAMES, length=1190), "stft", "istft"),
        (T.MelSpectrogram(8000, **MELS), "sound", "mel"),
        (T.MelSpectrogram(8000, **MELS, log="db"), "sound", "decibels"),
        (T.PowerToDB(), "mel", "decibels"),
        (T.PowerToDB(0.5, 1e-3, 30), "mel", "decibels_of_half"),
        (T.MFCC(8000, 13, **MELS), "sound", "mfcc"),
        (T.TimeStretch(1.3, 128), "sound", "faster"),
        (T.TimeStretch(0.8, 128, 32), "sound", "slower"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_transforms_equal_librosa(transform, source, name):
    assert_near(transform(array(RECORDED[source])), RECORDED[name])
    transform.hybridize()
    assert_near(transform(array(RECORDED[source])), RECORDED[name])


def test_griffin_lim_equals_librosa():
    magnitudes = np.hypot(*np.moveaxis(RECORDED["stft"], -1, 0))
    # Eight iterations divide by magnitudes that may be near 0, which enlarges rounding errors.
    assert_near(T.GriffinLim(**FRAMES, iterations=8)(array(magnitudes)), RECORDED["griffin_lim"], 1e-7)


def test_mel_filters_equal_librosa():
    identity = array(np.eye(65))
    assert_near(T.MelScale(8000, 20)(identity), RECORDED["filters_slaney"])
    assert_near(T.MelScale(8000, 20, 50, 3500, "htk", "none")(identity), RECORDED["filters_htk"])
    assert_near(T.MelScale(8000, 20, 1200, norm="none")(identity), RECORDED["filters_slaney_high"])


def test_float32_is_near_float64():
    assert_near(T.MelSpectrogram(8000, **MELS)(array(SOUND, "float32")), RECORDED["mel"], 1e-6)
    assert_near(T.MFCC(8000, 13, **MELS)(array(SOUND, "float32")), RECORDED["mfcc"], 1e-5)
    assert_near(T.TimeStretch(1.3, 128)(array(SOUND, "float32")), RECORDED["faster"], 1e-4)  # phases of many turns
    half = T.MelSpectrogram(8000, **MELS)(array(SOUND, "float16"))
    assert half.dtype == np.float16
    assert_near(half, RECORDED["mel"], 2e-3)


# ---- scipy ----


@pytest.mark.parametrize(
    ("rate", "new_rate"), [(2, 3), (441, 160), (2, 1), (1, 2), (160, 147), (11, 7), (5, 5), (3, 300)]
)
def test_resample_equals_scipy(rate, new_rate):
    expected = signal.resample_poly(BATCH.astype(np.float64), new_rate, rate, axis=-1)
    assert_near(T.Resample(rate, new_rate)(array(BATCH)), expected)
    assert_near(T.Resample(rate, new_rate)(array(BATCH, "float32")), expected, 2e-6)
    one = signal.resample_poly(np.ones(1), new_rate, rate)
    assert_near(T.Resample(rate, new_rate)(array([1.0])), one)


def test_stft_equals_scipy():
    _, _, expected = signal.stft(SOUND, window="hann", nperseg=128, noverlap=96, boundary="zeros", padded=False)
    found = T.STFT(128)(array(SOUND)).asnumpy()[:, : expected.shape[1]]
    window_sum = signal.get_window("hann", 128).sum()  # scipy divides by it
    assert_near(mx.nd.array(found, dtype="float64"), np.stack((expected.real, expected.imag), -1) * window_sum)


def test_cosine_transform_equals_scipy():
    found = mx.nd.contrib.audio_dct(array(BATCH), n=2)
    assert_near(found, fft.dct(BATCH.astype(np.float64), axis=1, norm="ortho")[:, :2])


def test_reverberation_equals_scipy():
    impulse = np.exp(-np.arange(300) / 50) * np.cos(np.arange(300))
    expected = signal.convolve(BATCH, (impulse / np.linalg.norm(impulse))[None, None])[..., :1000]
    assert_near(T.Reverberation(impulse)(array(BATCH, "float32")), expected, 2e-6)
    assert_near(T.Reverberation(mx.nd.array(impulse[:1]))(array(BATCH, "float32")), BATCH, 2e-6)


# ---- other properties ----


def peak(sound, rate):
    """Return the frequency with the largest magnitude."""
    return np.abs(np.fft.rfft(sound * np.hanning(sound.size), 1 << 16)).argmax() * rate / (1 << 16)


def test_speed_and_pitch_change_the_frequency():
    tone = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    faster = T.Speed(1.25)(array(tone)).asnumpy()
    assert faster.shape == (6400,) and abs(peak(faster, 8000) - 550) < 1
    higher = T.PitchShift(3, 512)(array(tone)).asnumpy()
    assert higher.shape == (8000,) and abs(peak(higher, 8000) - 440 * 2 ** (3 / 12)) < 2
    lower = T.PitchShift(-3, 512)(array(tone)).asnumpy()
    assert lower.shape == (8000,) and abs(peak(lower, 8000) - 440 * 2 ** (-3 / 12)) < 2
    stretched = T.TimeStretch(0.5, 512)(array(tone)).asnumpy()
    assert stretched.shape == (16000,) and abs(peak(stretched, 8000) - 440) < 1
    assert np.array_equal(T.PitchShift(0)(array(tone)).asnumpy(), tone)


def test_time_shift_moves_samples():
    ramp = array(np.arange(1, 11))
    assert T.TimeShift(0.2)(ramp).asnumpy().tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert T.TimeShift(-0.3)(ramp).asnumpy().tolist() == [4, 5, 6, 7, 8, 9, 10, 0, 0, 0]
    assert T.TimeShift(0.2, "wrap")(ramp).asnumpy().tolist() == [9, 10, 1, 2, 3, 4, 5, 6, 7, 8]
    shifted = T.TimeShift((-0.5, 0.5))(mx.nd.ones((50, 40))).asnumpy().sum(1)
    assert len(set(shifted)) > 10 and shifted.min() >= 20 and shifted.max() <= 40


def test_noise_has_the_requested_ratio():
    for snr in (20, -5, (3, 9)):
        noise = T.AddNoise(snr)(array(BATCH)).asnumpy() - BATCH
        ratio = 10 * np.log10(np.square(BATCH, dtype=np.float64).mean(-1) / np.square(noise).mean(-1))
        low, high = snr if isinstance(snr, tuple) else (snr, snr)
        assert ((ratio > low - 1e-3) & (ratio < high + 1e-3)).all()
        assert (np.ptp(ratio) > 0.1) == isinstance(snr, tuple)  # each sound has its own
        assert abs(noise.mean()) < 0.1 * noise.std()
    assert not T.AddNoise(0)(mx.nd.zeros((2, 50))).asnumpy().any()


def test_random_rooms_decay_and_keep_the_power():
    click = np.zeros((20, 8000), np.float32)
    click[:, 0] = 1
    rooms = T.Reverberation(seconds=0.5, wet=0.4, rate=8000)(mx.nd.array(click)).asnumpy()
    power = np.square(rooms)
    np.testing.assert_allclose(power.sum(1), 1, rtol=1e-4)
    np.testing.assert_allclose(power[:, 0], 0.6, rtol=1e-4)
    first, second = power[:, 100:500].mean(), power[:, 2100:2500].mean()  # 0.25 s apart: half of 60 dB
    assert 27 < 10 * np.log10(first / second) < 33
    assert not np.array_equal(rooms[0], rooms[1])


def test_spec_augment_hides_bands():
    spectrograms = mx.nd.random.uniform(1, 2, shape=(30, 16, 50))
    hidden = T.SpecAugment((1, 6), (2, 10), value=0)(spectrograms).asnumpy() == 0
    rows, columns = hidden.all(2), hidden.all(1)
    np.testing.assert_array_equal(hidden, rows[:, :, None] | columns[:, None])
    assert rows.sum(1).max() <= 6 and columns.sum(1).max() <= 20
    assert rows.sum(1).max() > 3 and columns.sum(1).max() > 8 and len({row.tobytes() for row in rows}) > 15
    assert (np.abs(np.diff(rows.astype(int), axis=1)).sum(1) <= 2).all()  # one band
    mean = T.SpecAugment((0, 0), (1, 10))(spectrograms)
    changed = mean.asnumpy() != spectrograms.asnumpy()
    expected = np.broadcast_to(spectrograms.asnumpy().mean((1, 2), keepdims=True), changed.shape)
    np.testing.assert_allclose(mean.asnumpy()[changed], expected[changed], rtol=1e-5)
    assert np.array_equal(T.SpecAugment((0, 3), (2, 0))(spectrograms).asnumpy(), spectrograms.asnumpy())


def test_sounds_return_from_spectra():
    spectra = T.STFT(128)(array(BATCH))
    assert_near(T.ISTFT(length=1000)(spectra), BATCH.astype(np.float64), 1e-12)
    magnitudes = T.Spectrogram(128, power=1)(array(SOUND))
    rebuilt = T.GriffinLim(iterations=60)(magnitudes)
    error = T.Spectrogram(128, power=1)(rebuilt).asnumpy() - magnitudes.asnumpy()
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(magnitudes.asnumpy())
    mel = T.MelScale(8000, 20)(magnitudes)
    linear = T.InverseMelScale(128, 8000)(mel)
    assert linear.asnumpy().min() >= 0
    again = T.MelScale(8000, 20)(linear).asnumpy()
    assert np.linalg.norm(again - mel.asnumpy()) < 0.05 * np.linalg.norm(mel.asnumpy())


DETERMINISTIC = [
    T.STFT(64),
    T.Spectrogram(64, power=1.5),
    T.MelSpectrogram(8000, 64, n_mels=10, log="natural"),
    T.MFCC(8000, 5, n_fft=64, n_mels=10),
    T.Resample(8000, 6000),
    T.Speed(1.1),
    T.TimeStretch(1.2, 64),
    T.PitchShift(1, 64),
    T.TimeShift(0.1),
    T.Reverberation([1, 0.5, 0.2]),
]


@pytest.mark.parametrize("transform", DETERMINISTIC, ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize("np_mode", [False, True], ids=["nd", "np"])
def test_arrays_and_graphs_agree(transform, np_mode):
    if np_mode:
        mx.npx.set_np()
    try:
        make = mx.np.array if np_mode else mx.nd.array
        x = make(BATCH[:, :, :400])
        x.attach_grad()
        results = []
        for active in (False, True):
            transform.hybridize(active)
            with mx.autograd.record():
                y = transform(x)
                loss = (y * y).sum()
            loss.backward()
            results.append((y.asnumpy(), x.grad.asnumpy()))
            assert type(y) is type(x)
        transform.hybridize(False)
        (eager, gradient), (graph, other) = results
        np.testing.assert_array_equal(eager, graph)
        # The order in which a graph adds gradients may differ.
        np.testing.assert_allclose(gradient, other, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())
        assert np.isfinite(gradient).all() and gradient.any()
        alone = transform(make(BATCH[1, 2, :400]))
        np.testing.assert_allclose(alone.asnumpy(), eager[1, 2], rtol=1e-4, atol=1e-5 * np.abs(eager).max())
        assert np.shape(eager)[:2] == (2, 3)
    finally:
        if np_mode:
            mx.npx.reset_np()


@pytest.mark.parametrize("transform", DETERMINISTIC, ids=lambda transform: type(transform).__name__)
def test_graphs_infer_shapes(transform):
    shape = transform(mx.nd.array(BATCH)).shape
    assert transform(mx.sym.var("data")).infer_shape_partial(data=BATCH.shape)[1] == [shape]


@pytest.mark.parametrize(
    "transform",
    [T.STFT(16), T.Spectrogram(16, power=1), T.Resample(3, 2), T.TimeStretch(1.2, 16), T.Reverberation([1, 0.5])],
    ids=lambda transform: type(transform).__name__,
)
def test_gradients_equal_differences(transform):
    x = array(BATCH[0, 0, :60])
    weight = array(np.random.default_rng(1).standard_normal(transform(x).shape))
    x.attach_grad()
    with mx.autograd.record():
        loss = (transform(x) * weight).sum()
    loss.backward()
    for i in (0, 7, 31):
        step = np.zeros(60)
        step[i] = 1e-6
        up, down = ((transform(x + array(sign * step)) * weight).sum().asscalar() for sign in (1, -1))
        np.testing.assert_allclose(x.grad[i].asscalar(), (up - down) / 2e-6, rtol=1e-4, atol=1e-4)


def test_gradient_reaches_magnitudes():
    magnitudes = T.Spectrogram(64, power=1)(mx.nd.array(BATCH[0, 0]))
    magnitudes.attach_grad()
    with mx.autograd.record():
        loss = (T.GriffinLim(iterations=2)(magnitudes) ** 2).sum()
    loss.backward()
    assert np.isfinite(magnitudes.grad.asnumpy()).all() and magnitudes.grad.asnumpy().any()


RANDOM = [
    T.Speed(),
    T.TimeStretch(n_fft=64),
    T.PitchShift(n_fft=64),
    T.TimeShift(),
    T.AddNoise(),
    T.Reverberation(rate=2000),
    T.SpecAugment((1, 2), (1, 50)),
]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda transform: type(transform).__name__)
def test_random_transforms_follow_the_seed_in_graphs_too(transform):
    def drawn():
        mx.random.seed(5)
        return [transform(x).asnumpy() for _ in range(2)]

    x = mx.nd.array(BATCH[0])
    first, second = drawn()
    assert first.shape != second.shape or not np.array_equal(first, second)
    transform.hybridize()
    transform(x)
    for found, expected in zip(drawn(), (first, second), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_equal_random_nodes_are_not_merged():
    class Twice(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.contrib.audio_add_noise(x, snr=(0, 1)) - F.contrib.audio_add_noise(x, snr=(0, 1))

    twice = Twice()
    twice.hybridize()
    assert twice(mx.nd.array(BATCH[0])).asnumpy().any()


AUGMENT = T.Compose(
    [
        T.RandomApply(T.Speed(), 0.5),
        T.PitchShift(n_fft=64),
        T.TimeShift(),
        T.AddNoise(),
        T.Reverberation(rate=2000),
        T.MelSpectrogram(8000, 64, n_mels=10, log="db"),
        T.SpecAugment((1, 3), (1, 4)),
    ]
)
COUNT = 10


def augmented(rank=0, size=1, batch=4, **options):
    def sample(index):
        mel = AUGMENT(mx.nd.array(BATCH[0, 0, :300] * (1 + index))).asnumpy()
        return np.concatenate(([index], mel[:, :16].ravel()))

    shard = ShardedDataset(SimpleDataset(list(range(COUNT))).transform(sample), True, 5, rank, size)
    loader = DataLoader(shard, batch, **options)
    return [np.concatenate([each.asnumpy() for each in loader]) for _ in range(2)]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "thread_pool": True}, {"num_workers": 2}])
@pytest.mark.parametrize("size", [1, 3])
def test_samples_do_not_depend_on_workers(options, size):
    alone = augmented(batch=8)
    parts = [augmented(rank, size, **options) for rank in range(size)]
    for epoch in range(2):
        found, expected = (
            rows[rows[:, 0].argsort()] for rows in (np.concatenate([part[epoch] for part in parts]), alone[epoch])
        )
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(alone[0], alone[1])


# ---- wrong arguments ----


@pytest.mark.parametrize(
    ("transform", "shape", "said"),
    [
        (T.STFT(63), (100,), "n_fft=63: expected an even number"),
        (T.STFT(64, win_length=80), (100,), "win_length=80: expected 1 to n_fft=64"),
        (T.STFT(64, hop_length=0), (100,), "hop_length=0: expected at least 1"),
        (T.STFT(64, window="hat"), (100,), "window: expected one of 'hann'"),
        (T.STFT(64, center=False), (60,), "a sound of 60 samples is shorter than a frame of 64"),
        (T.STFT(64, pad_mode="reflect"), (32,), "more than 32 samples, received 32"),
        (T.STFT(64), (3, 0), r"at least one element, received shape \(3, 0\)"),
        (T.ISTFT(), (33, 4), r"expected \(\.\.\., frequencies, frames, 2\), received shape \(33, 4\)"),
        (T.ISTFT(length=500), (33, 4, 2), "length=500: 4 frames have 48 samples"),
        (T.ISTFT(), (33, 1, 2), "at least two frames"),
        (T.ISTFT(), (1, 4, 2), "n_fft=0: expected an even number"),
        (T.MelScale(8000), (33,), r"expected \(\.\.\., frequencies, frames\)"),
        (T.MelScale(8000, f_min=5000), (33, 3), "0 <= f_min < f_max"),
        (T.MFCC(8000, 50, n_mels=40), (1000,), "n=50: expected 1 to 40"),
        (T.InverseMelScale(63, 8000), (20, 3), "n_fft=63"),
        (T.GriffinLim(momentum=-1), (33, 3), "momentum and iterations"),
        (T.Resample(0, 8000), (100,), "rates of at least 1"),
        (T.Resample(44101, 44100), (100,), "cannot resample by 44100/44101: choose rates with a larger common divisor"),
        (T.Speed(0), (100,), "factor=0.0 is out of range"),
        (T.Speed((1.1, 0.9)), (100,), "expected a number, or a range"),
        (T.TimeStretch(-1), (100,), "factor=-1.0: expected a positive number"),
        (T.TimeStretch(500), (100,), "factor=500.0 is too large for 100 samples"),
        (T.PitchShift(200), (100,), "steps=200.0 is out of range"),
        (T.AddNoise((1, 2, 3)), (100,), "expected a number, or a range"),
        (T.TimeShift(0.1, "gap"), (100,), "fill: expected one of 'zero', 'wrap'"),
        (T.Reverberation(wet=2), (100,), "wet from 0 to 1"),
        (T.SpecAugment((1, 2, 3)), (10, 10), "expected the number of bands and their largest width"),
    ],
)
def test_wrong_arguments_are_explained(transform, shape, said):
    with pytest.raises(MXNetError, match=said):
        transform(mx.nd.ones(shape))


def test_wrong_arguments_of_constructors_are_explained():
    with pytest.raises(MXNetError, match="log='x': expected None, 'db' or 'natural'"):
        T.MelSpectrogram(8000, log="x")
    with pytest.raises(MXNetError, match="ref and floor above 0"):
        T.PowerToDB(0)
    with pytest.raises(MXNetError, match=r"impulse response \(taps,\)"):
        T.Reverberation(np.zeros(3))
    with pytest.raises(MXNetError, match="expected floating-point data"):
        T.STFT(64)(mx.nd.ones(100, dtype="int32"))
