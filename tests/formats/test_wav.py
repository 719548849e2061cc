"""WAV files: all encodings, compared with Python's `wave` and scipy; and damaged files."""

import io
import os
import re
import struct
import tracemalloc
import wave

import numpy as np
import pytest
from scipy.io import wavfile

import neomx as mx
from neomx.base import MXNetError
from neomx.formats import wav
from neomx.gluon.data import audio

# The largest error of rounding to each encoding: half a step.
HALF_STEPS = {"uint8": 1 / 256, "int16": 1 / 65536, "int24": 2**-24, "int32": 2**-32, "float32": 2**-25, "float64": 0}
SAMPLES = np.random.default_rng(0).uniform(-0.99, 0.99, (501, 3))


def form(tag=1, channels=1, rate=8000, frame=2, bits=16):
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits)


def file_of(*chunks):
    content = b"WAVE" + b"".join(kind + struct.pack("<I", size) + data for kind, size, data in chunks)
    return b"RIFF" + struct.pack("<I", len(content)) + content


def chunk(kind, data):
    return kind, len(data), data + bytes(len(data) % 2)


GOOD = file_of(chunk(b"fmt ", form()), chunk(b"data", bytes(8)))


@pytest.mark.parametrize("encoding", wav.ENCODINGS)
def test_samples_survive_each_encoding(tmp_path, encoding):
    path = tmp_path / "a.wav"
    wav.write(path, SAMPLES, 44100, encoding)
    found, rate = wav.read(path, dtype="float64")
    assert rate == 44100 and found.shape == SAMPLES.shape and found.dtype == np.float64
    np.testing.assert_allclose(found, SAMPLES, rtol=0, atol=HALF_STEPS[encoding])
    part, _ = wav.read(path.read_bytes(), 100, 50, "float64")
    np.testing.assert_array_equal(part, found[100:150])
    assert wav.read(path, 490, 50)[0].shape == (11, 3) and wav.read(path, 10**30)[0].shape == (0, 3)
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize("encoding", wav.ENCODINGS)
def test_scipy_reads_the_same(tmp_path, encoding):
    path = tmp_path / "a.wav"
    wav.write(path, SAMPLES, 8000, encoding)
    rate, values = wavfile.read(path)
    shift, scale = {"uint8": (128, 128), "int16": (0, 2**15), "int24": (0, 2**31), "int32": (0, 2**31)}.get(
        encoding, (0, 1)
    )
    assert rate == 8000
    np.testing.assert_array_equal((values - np.float64(shift)) / scale, wav.read(path, dtype="float64")[0])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
def test_files_of_scipy_are_read(tmp_path, dtype):
    path = tmp_path / "a.wav"
    values = (SAMPLES * np.iinfo(dtype).max).astype(dtype) if "int" in dtype else SAMPLES.astype(dtype)
    wavfile.write(path, 22050, values)
    found, rate = wav.read(path, dtype="float64")
    scale = {"uint8": 128, "int16": 2**15, "int32": 2**31}.get(dtype, 1)
    np.testing.assert_array_equal(found, (values - (128.0 if dtype == "uint8" else 0)) / scale)
    assert rate == 22050


def test_files_of_the_standard_library_are_read(tmp_path):
    path = str(tmp_path / "a.wav")
    with wave.open(path, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(3)
        writer.setframerate(16000)
        writer.writeframes(bytes([0, 0, 64, 0, 0, 192, 1, 0, 0, 255, 255, 255]))
    found, rate = wav.read(path, dtype="float64")
    assert rate == 16000 and found.tolist() == [[0.5, -0.5], [2**-23, -(2**-23)]]
    audio.save(path, mx.nd.array([[0.5, -0.5, 2.0], [0, -1, -2]]), 100)
    with wave.open(path) as reader:
        assert reader.getparams()[:4] == (2, 2, 100, 3)
        assert np.frombuffer(reader.readframes(3), "<i2").tolist() == [16384, 0, -16384, -32768, 32767, -32768]


def test_other_chunks_and_forms_are_accepted():
    extensible = form(0xFFFE, 2, frame=4) + struct.pack("<HHIH14s", 22, 16, 3, 1, b"\0" * 14)
    more = [chunk(b"LIST", b"odd"), chunk(b"fmt ", extensible), chunk(b"fact", bytes(4))]
    data = struct.pack("<4h", 1, 2, 3, 4)
    samples, _ = wav.read(file_of(*more, chunk(b"data", data), chunk(b"id3 ", b"tag")))
    assert (samples * 2**15).tolist() == [[1, 2], [3, 4]]
    streamed = file_of(chunk(b"fmt ", form()), (b"data", 0xFFFFFFFF, data))
    assert wav.read(streamed)[0].shape == (4, 1)
    assert wav.read(file_of(chunk(b"fmt ", form()), chunk(b"data", data[:3])))[0].shape == (1, 1)  # half a sample


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a WAV file"),
        (b"RIFF", "is not a WAV file"),
        (b"RF64" + GOOD[4:], "RF64 files are not supported"),
        (b"RIFF\0\0\0\0AVI " + bytes(40), "is not a WAV file"),
        (GOOD[:12], "has no samples"),
        (GOOD[:30], r"chunk b'fmt ' at byte 12 declares 16 bytes, but 10 follow"),
        (GOOD[:36], "has no samples"),
        (GOOD[:-2], "declares 8 bytes of samples, but 6 follow"),
        (file_of(chunk(b"data", bytes(8))), "has no format before its samples"),
        (file_of(chunk(b"fmt ", form()[:14])), "format of 14 bytes, expected 16 or more"),
        (file_of((b"LIST", 0xFFFFFFF0, b"")), "declares 4294967280 bytes, but 0 follow"),
        (file_of(chunk(b"fmt ", form(channels=0, frame=0))), "declares 0 channels"),
        (file_of(chunk(b"fmt ", form(rate=0))), "at 0 samples per second"),
        (file_of(chunk(b"fmt ", form(channels=65535, frame=2))), "in frames of 2 bytes"),
        (file_of(chunk(b"fmt ", form(2, bits=4))), "has format 2 with 4 bits per sample.*convert the file"),
        (file_of(chunk(b"fmt ", form(3, bits=16))), "has format 3 with 16 bits"),
        (file_of(chunk(b"fmt ", form(bits=0))), "has format 1 with 0 bits"),
        (file_of(chunk(b"fmt ", form(bits=64))), "has format 1 with 64 bits"),
        (file_of(chunk(b"fmt ", form()), *[(b"junk", 0, b"")] * 100_000), "has no samples"),
        (file_of(chunk(b"fmt ", form()), (b"data", 0xFFFFFF00, bytes(8))), "declares 4294967040 bytes of samples"),
    ],
)
def test_damaged_files_are_explained(tmp_path, data, said):
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(MXNetError, match=rf"a\.wav.*{said}"):
            audio.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(MXNetError, match=f"WAV data.*{said}"):
        wav.read(data)


def test_unreadable_paths_are_explained(tmp_path):
    with pytest.raises(MXNetError, match=r"cannot read .*none\.wav: No such file"):
        wav.read(tmp_path / "none.wav")
    with pytest.raises(MXNetError, match="cannot read .*: Is a directory"):
        wav.read(tmp_path)
    with pytest.raises(MXNetError, match="not a regular file"):
        wav.read("/dev/null")
    with pytest.raises(MXNetError, match="start and count of at least 0"):
        wav.read(GOOD, -1)
    with pytest.raises(MXNetError, match=r"cannot write .*none/a\.wav: No such file"):
        wav.write(tmp_path / "none" / "a.wav", SAMPLES, 8000)


@pytest.mark.parametrize(
    ("samples", "rate", "encoding", "said"),
    [
        (SAMPLES, 8000, "mp3", "encoding 'mp3' is not one of uint8"),
        (SAMPLES[0], 8000, "int16", r"expected floating-point samples of shape \(frames, channels\)"),
        (np.ones((3, 1), np.int16), 8000, "int16", "received int16"),
        (SAMPLES, 0, "int16", "3 channels at 0 samples"),
        (np.zeros((1, 70_000)), 8000, "int16", "70000 channels"),
        (np.full((2, 1), np.nan), 8000, "int16", "a sample is not finite"),
    ],
)
def test_wrong_samples_are_not_written(tmp_path, samples, rate, encoding, said):
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")
    with pytest.raises(MXNetError, match=rf"cannot write .*a\.wav: .*{said}"):
        wav.write(path, samples, rate, encoding)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.wav"]


def test_header_is_read_alone(tmp_path):
    path = tmp_path / "a.wav"
    wav.write(path, SAMPLES, 8000, "int24")
    assert wav.header(path) == ("int24", 3, 8000, 501, 44)


def test_reading_needs_memory_for_the_result_only(tmp_path):
    path = tmp_path / "a.wav"
    wav.write(path, np.zeros((4 << 20, 1), np.float32), 8000, "float64")
    tracemalloc.start()
    try:
        samples, _ = wav.read(path)
        assert tracemalloc.get_traced_memory()[1] < samples.nbytes + (32 << 20)
        del samples
        tracemalloc.reset_peak()
        wav.read(path, 1000, 1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_arrays_of_both_kinds_are_saved_and_loaded(tmp_path):
    path = tmp_path / "a.wav"
    sound = mx.nd.array(SAMPLES.T)
    audio.save(path, sound, 8000, "float32")
    found, rate = audio.load(path)
    assert rate == 8000 and type(found) is mx.nd.NDArray
    np.testing.assert_array_equal(found.asnumpy(), sound.asnumpy())
    audio.save(path, SAMPLES[:, 0], 8000)
    assert audio.load(io.BytesIO(path.read_bytes()).getvalue())[0].shape == (1, 501)
    mx.npx.set_np()
    try:
        found, _ = audio.load(path, 1, 5, dtype="float64")
        assert type(found) is mx.np.ndarray and found.shape == (1, 5) and found.dtype == np.float64
        audio.save(path, found, 8000)
    finally:
        mx.npx.reset_np()
    for wrong in (mx.nd.ones((1, 2, 3)), np.zeros(0), np.zeros((2, 0))):
        with pytest.raises(MXNetError, match=re.escape(f"at least one sample, received shape {wrong.shape}")):
            audio.save(path, wrong, 8000)


def test_folders_are_classes(tmp_path):
    for folder, rate in (("no", 8000), ("yes", 4000)):
        (tmp_path / folder).mkdir()
        for number in range(2):
            values = np.full((400, 2), 0.1 * (number + 1))
            values[:, 1] = 0
            wav.write(tmp_path / folder / f"{number}.wav", values, rate, "float32")
    data = audio.AudioFolderDataset(str(tmp_path))
    assert data.synsets == ["no", "yes"] and len(data) == 4 and [label for _, label in data.items] == [0, 0, 1, 1]
    sound, label = data[3]
    assert label == 1 and sound.shape == (400,)
    np.testing.assert_allclose(sound.asnumpy(), 0.1, rtol=1e-6)
    sound, _ = audio.AudioFolderDataset(str(tmp_path), 8000, lambda x, y: (2 * x, y))[3]
    assert sound.shape == (800,)
    np.testing.assert_allclose(sound.asnumpy()[100:700], 0.2, rtol=1e-3)  # away from the ends
    (tmp_path / "no" / "x.txt").touch()
    with pytest.warns(UserWarning, match=r"Ignoring x\.txt"):
        audio.AudioFolderDataset(str(tmp_path))
    with pytest.raises(MXNetError, match="cannot list .*none: No such file"):
        audio.AudioFolderDataset(str(tmp_path / "none"))
