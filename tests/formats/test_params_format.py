"""`.params` files: MXNet's files are read, ours are byte-identical, and damaged ones raise an error."""

import os
import pathlib
import random
import struct
import time
import tracemalloc

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.formats import params
from neomx.formats.atomic import replacing
from parity.params_spec import contents

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "params"
CONTENTS = contents(mx)


def items(saved):
    return saved.items() if isinstance(saved, dict) else enumerate(saved if isinstance(saved, list) else [saved])


@pytest.mark.parametrize("name", CONTENTS)
def test_written_bytes_equal_mxnets(name, tmp_path):
    path = tmp_path / f"{name}.params"
    mx.nd.save(str(path), CONTENTS[name])
    assert path.read_bytes() == (FIXTURES / f"{name}.params").read_bytes()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("from_buffer", [False, True])
def test_mxnets_files_are_read(name, from_buffer):
    path = FIXTURES / f"{name}.params"
    loaded = mx.nd.load_frombuffer(path.read_bytes()) if from_buffer else mx.nd.load(str(path))
    expected = dict(items(CONTENTS[name]))
    received = dict(items(loaded))
    assert list(received) == list(expected)
    for key, array in received.items():
        assert (array.stype, array.dtype, array.shape) == (
            expected[key].stype,
            expected[key].dtype,
            expected[key].shape,
        )
        np.testing.assert_array_equal(array.asnumpy(), expected[key].asnumpy())


def test_numpy_mode_files(tmp_path):
    path = FIXTURES / "np_shape.params"
    records, names = params.read(path)
    assert names == ["scalar", "none", "v"]
    assert [tuple(r.data.shape) for r in records] == [(), (0, 2), (3,)]
    params.write(tmp_path / "x", records, names, np_shape=True)
    assert (tmp_path / "x").read_bytes() == path.read_bytes()
    with mx.np_shape():  # in this mode MXNet only loads such files
        mx.nd.save(str(tmp_path / "y"), mx.nd.load(str(path)))
        with pytest.raises(mx.MXNetError, match="cannot save sparse arrays while np_shape is active"):
            mx.nd.save(str(tmp_path / "y"), [mx.nd.sparse.zeros("csr", (2, 2))])
    assert (tmp_path / "y").read_bytes() == path.read_bytes()


def _list_of(*arrays, names=bytes(8)):
    return struct.pack("<QQQ", 0x112, 0, len(arrays)) + b"".join(arrays) + names


_TAIL = struct.pack("<iiiff", 1, 0, 0, 1, 2)


def test_files_of_older_versions():
    v1 = struct.pack("<IIqq", 0xF993FAC8, 2, 1, 2) + _TAIL
    oldest = struct.pack("<III", 2, 1, 2) + _TAIL
    for array in mx.nd.load_frombuffer(_list_of(v1, oldest)):
        assert array.asnumpy().tolist() == [[1, 2]]


def test_sparse_arrays_saved_by_mxnet_before_they_were_computed():
    row_sparse = (  # of [1, 0, 3]: the stored length is 0, that of the indices 2
        "c9fa93f901000000010000000000000000000000010000000300000000000000010000000000000000000000"
        "060000000100000002000000000000000000803f0000404000000000000000000200000000000000"
    )
    (array,) = mx.nd.load_frombuffer(_list_of(bytes.fromhex(row_sparse)))
    assert (array.stype, array.asnumpy().tolist()) == ("row_sparse", [1, 0, 3])
    csr = struct.pack("<IiIqIqqiii", 0xF993FAC9, 2, 1, 0, 2, 2, 3, 1, 0, 0)
    csr += struct.pack("<iIqiIqff", 6, 1, 3, 6, 1, 2, 5, 7) + struct.pack("<5q", 0, 1, 2, 2, 0)
    (array,) = mx.nd.load_frombuffer(_list_of(csr))
    assert (array.stype, array.asnumpy().tolist()) == ("csr", [[0, 0, 5], [7, 0, 0]])


def test_missing_array_and_nonstandard_booleans():
    nothing = struct.pack("<IiI", 0xF993FAC9, 0, 0)
    booleans = struct.pack("<IiIqiii", 0xF993FAC9, 0, 1, 3, 1, 0, 7) + b"\x00\x01\x05"
    first, second = mx.nd.load_frombuffer(_list_of(nothing, booleans))
    assert first.size == 0
    assert second.asnumpy().tolist() == [False, True, True]


def test_bfloat16_and_duplicate_names(tmp_path):
    x = mx.nd.from_torch(torch.tensor([1.5, -2], dtype=torch.bfloat16))
    mx.nd.save(str(tmp_path / "x"), [x])
    assert torch.equal(mx.nd.load(str(tmp_path / "x"))[0].to_torch(), x.to_torch())
    records = [params.Dense(torch.tensor([1.0])), params.Dense(torch.tensor([2.0]))]
    params.write(tmp_path / "twice", records, ["a", "a"])
    assert mx.nd.load_frombuffer((tmp_path / "twice").read_bytes())["a"].asscalar() == 2


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (5, ValueError),
        (None, ValueError),
        ((mx.nd.array([1]),), ValueError),
        (np.zeros(2), ValueError),
        ([1, 2], TypeError),
        ({"a": 1}, TypeError),
        ({1: mx.nd.array([1])}, TypeError),
    ],
)
def test_save_rejects_invalid_data(data, error, tmp_path):
    with pytest.raises(error):
        mx.nd.save(str(tmp_path / "x"), data)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"", "magic"),
        (b"\x12\x01" + b"\0" * 10, "magic"),
        (struct.pack("<QQQ", 5, 0, 0), r"begins with b'\\x05\\x00"),
        (struct.pack("<QQQ", 0x112, 0, 1 << 60), "a list of"),
        (_list_of(struct.pack("<IiIqq", 0xF993FAC9, 0, 2, 1 << 40, 1 << 20) + _TAIL), "array 0 of 1: the data"),
        (_list_of(struct.pack("<IiI", 0xF993FAC9, 0, 1 << 31) + _TAIL), "dimensions"),
        (_list_of(struct.pack("<IiIqq", 0xF993FAC9, 0, 2, -1, 2) + _TAIL), "negative"),
        (_list_of(struct.pack("<IiIqq", 0xF993FAC9, 9, 2, 1, 2) + _TAIL), "storage type"),
        (_list_of(struct.pack("<IiIqqiii", 0xF993FAC9, 0, 2, 1, 2, 1, 0, 99)), "the dtype is 99"),
        (_list_of(struct.pack("<IiIqqqiii", 0xF993FAC9, 0, 3, 0, 1 << 62, 1 << 62, 1, 0, 0)), "shape"),
        (_list_of(names=struct.pack("<QQ", 1, 1)), "there are 1 names for 0"),
        (_list_of(struct.pack("<III", 2, 1, 2) + _TAIL, names=struct.pack("<QQ", 1, 1 << 50)), "name 0"),
        (_list_of(struct.pack("<III", 2, 1, 2) + _TAIL, names=struct.pack("<QQ", 1, 2) + b"\xff\xfe"), "UTF-8"),
    ],
)
def test_error_describes_the_damage(damaged, message, tmp_path):
    path = tmp_path / "broken.params"
    path.write_bytes(damaged)
    with pytest.raises(mx.MXNetError, match=message) as raised:
        mx.nd.load(str(path))
    assert "broken.params" in str(raised.value)
    with pytest.raises(mx.MXNetError, match=message):
        mx.nd.load_frombuffer(damaged)


def test_missing_file_directory_and_invalid_name_are_errors(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(mx.MXNetError, match=str(path)):
            mx.nd.load(str(path))
    with pytest.raises(mx.MXNetError, match="missing"):
        mx.nd.save(str(tmp_path / "missing" / "x"), [])
    for wrong in (5, None, b"x"):
        with pytest.raises(TypeError):
            mx.nd.load(wrong)
    with pytest.raises(TypeError):
        mx.nd.load_frombuffer(5)


def _try(content):
    """Load damaged bytes: they give an error or arrays, and never need more memory than the file justifies."""
    try:
        for _, array in items(mx.nd.load_frombuffer(bytes(content))):
            parts = array._parts if array._sparse else (array._data,)
            assert sum(part.numel() * part.element_size() for part in parts) <= len(content)
    except mx.MXNetError:
        pass


@pytest.fixture
def limited(monkeypatch):
    """Limit the size of tensors and Python objects to what the fixture files justify, and the time."""
    real = torch.empty

    def empty(shape, **kwargs):
        assert int(np.prod([float(n) for n in shape])) <= 1 << 16
        return real(shape, **kwargs)

    monkeypatch.setattr(torch, "empty", empty)
    tracemalloc.start()
    start = time.process_time()
    yield
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert time.process_time() - start < 60


@pytest.mark.parametrize("name", ["everything", "names", "csr", "row_sparse", "np_shape"])
def test_truncation_at_any_position(name, limited):
    whole = (FIXTURES / f"{name}.params").read_bytes()
    for end in range(0, len(whole), 1 + len(whole) // 400):
        with pytest.raises(mx.MXNetError):
            mx.nd.load_frombuffer(whole[:end])


@pytest.mark.parametrize("name", ["everything", "names", "csr", "row_sparse", "np_shape"])
def test_flipped_bytes_and_extreme_values(name, limited):
    whole = (FIXTURES / f"{name}.params").read_bytes()
    rng = random.Random(name)
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        _try(content)
    for position in rng.sample(range(len(whole) - 8), min(250, len(whole) - 8)):
        for absurd in (-1, 1 << 31, (1 << 63) - 1, 0):
            content = bytearray(whole)
            content[position : position + 8] = struct.pack("<Q", absurd & (1 << 64) - 1)
            _try(content)


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.params"
    mx.nd.save(str(path), [mx.nd.array([1])])
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(mx.MXNetError, match=r"x\.params: No space left"):
        mx.nd.save(str(path), [mx.nd.array([2])])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.params"]


def test_links_and_permissions_are_kept(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_empty_array(tmp_path):
    mx.nd.save(str(tmp_path / "x"), [mx.nd.array([]), mx.nd.array([1, 2])])
    assert [x.shape for x in mx.nd.load(str(tmp_path / "x"))] == [(0,), (2,)]


@pytest.mark.parametrize(
    ("storage", "indices", "message"),
    [
        ("row_sparse", [[5, 7]], r"an index is outside 0 \.\. 3"),
        ("row_sparse", [[-1, 0]], r"an index is outside 0 \.\. 3"),
        ("csr", [[0, 1, 1, 1, 2], [0, 3]], r"an index is outside 0 \.\. 2"),
        ("csr", [[0, 2, 1, 1, 2], [0, 1]], "indptr must increase from 0 to 2"),
        ("csr", [[1, 1, 1, 1, 2], [0, 1]], "indptr must increase from 0 to 2"),
        ("csr", [[0, 1, 1, 1, 9], [0, 1]], "indptr must increase from 0 to 2"),
    ],
)
def test_out_of_range_indices_are_rejected(tmp_path, storage, indices, message):
    data = torch.ones(2, 3) if storage == "row_sparse" else torch.ones(2)
    record = params.Sparse(storage, (4, 3), data, tuple(torch.tensor(index) for index in indices))
    params.write(tmp_path / "x", [record])
    with pytest.raises(mx.MXNetError, match=f"array 0 of 1: {message}"):
        mx.nd.load(str(tmp_path / "x"))
