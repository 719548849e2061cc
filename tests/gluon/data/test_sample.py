"""The digits included in the package, and the IDX reader."""

import gzip

import numpy as np
import pytest

import neomx as mx
from neomx.formats import idx
from neomx.sample import digits


def test_digits_are_balanced():
    train_images, train_labels, test_images, test_labels = digits()
    assert train_images.shape == (5000, 28, 28) and test_images.shape == (1000, 28, 28)
    assert train_images.dtype == np.uint8 and 30 < train_images.mean() < 36
    assert np.bincount(train_labels).tolist() == [500] * 10
    assert np.bincount(test_labels).tolist() == [100] * 10


def test_idx_of_every_dtype(tmp_path):
    file = tmp_path / "x"
    for code, dtype in {8: ">u1", 9: ">i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}.items():
        values = np.arange(6).reshape(2, 3).astype(dtype)
        file.write_bytes(bytes([0, 0, code, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + values.tobytes())
        np.testing.assert_array_equal(idx.read(file), values)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file"),
        (b"\1\2\3\4", "not an IDX file"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 9, 1]), "truncated or damaged"),
        (bytes([0, 0, 8, 200, 1]), "truncated or damaged"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9]) * 9, mtime=0)[:19], "cannot read|truncated or damaged"),
    ],
)
def test_damaged_idx(tmp_path, data, message):
    file = tmp_path / "x"
    file.write_bytes(data)
    with pytest.raises(mx.MXNetError, match=message):
        idx.read(file)


def test_missing_idx(tmp_path):
    with pytest.raises(mx.MXNetError, match="nowhere"):
        idx.read(tmp_path / "nowhere")
