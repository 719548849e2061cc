"""safetensors files: reading, writing, and rejected files."""

import json
import pathlib
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx.formats import safetensors

RECORDED = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "transformers" / "gpt2_lm" / "model.safetensors"


def stored(header, data=b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def test_round_trip(tmp_path):
    tensors = {
        "weight": torch.randn(3, 4),
        "a.number": torch.tensor(5),
        "nothing": torch.empty(0, 3),
        "half": torch.randn(3).bfloat16(),
        "eight": torch.randn(4).to(torch.float8_e4m3fn),
        "flags": torch.tensor([True, False, True]),
        "turned, ü": torch.arange(6.0).reshape(2, 3).t(),
    }
    safetensors.write(tmp_path / "x", tensors, {"format": "pt"})
    archive = safetensors.Archive(tmp_path / "x")
    assert archive.metadata == {"format": "pt"} and set(archive) == set(tensors) and len(archive) == 7
    for name, tensor in tensors.items():
        assert archive[name].dtype == tensor.dtype and archive[name].shape == tensor.shape
        assert torch.equal(archive[name].float(), tensor.float())
    assert safetensors.read(tmp_path / "x").keys() == tensors.keys()


def test_written_bytes_equal_those_of_the_library(tmp_path):
    archive = safetensors.Archive(RECORDED)
    safetensors.write(tmp_path / "x", archive, archive.metadata)
    assert (tmp_path / "x").read_bytes() == RECORDED.read_bytes()


def test_file_without_arrays(tmp_path):
    safetensors.write(tmp_path / "x", {})
    assert safetensors.read(tmp_path / "x") == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"abc", "it has 3 bytes"),
        (struct.pack("<Q", 2**63), "the header would take 9223372036854775808 bytes"),
        (struct.pack("<Q", 9) + b"{}", "the header would take 9 bytes; the file has 2"),
        (stored(b"{"), "not JSON"),
        (stored(b"\xff\xfe"), "not JSON"),
        (stored(b"[" * 100_000), "not JSON"),
        (stored(b"[]"), "a list, expected an object"),
        (stored(b'{"a": 1, "a": 2}'), "the name 'a' occurs twice"),
        (stored({"__metadata__": {"a": 1}}), "must map strings to strings"),
        (stored({"a": {"dtype": "F32"}}), "'a' must have dtype, shape and data_offsets"),
        (stored({"a": one(more=1)}), "'a' must have dtype, shape and data_offsets"),
        (stored({"a": one(shape=(-2,))}, bytes(8)), "'a' has shape \\[-2\\]"),
        (stored({"a": one(shape=(2.0,))}, bytes(8)), "'a' has shape \\[2.0\\]"),
        (stored({"a": one(shape=(True, 2))}, bytes(8)), "expected lists of integers >= 0"),
        (stored({"a": one(offsets=(0, 8, 9))}, bytes(8)), "expected lists of integers >= 0"),
        (stored({"a": one("F3")}, bytes(8)), "'a' has dtype 'F3', expected one of BOOL"),
        (stored({"a": one(["F32"])}, bytes(8)), "'a' has dtype"),
        (stored({"a": one()}, bytes(7)), "'a' would end at byte"),
        (stored({"a": one(offsets=(8, 0))}, bytes(8)), "takes 8 bytes, but its data_offsets span -8"),
        (stored({"a": one(shape=(2**40, 2**40))}, bytes(8)), "bytes, but its data_offsets span 8"),
        (stored({"a": one(), "b": one(offsets=(4, 12))}, bytes(12)), "'b' overlaps with 'a'"),
        (stored({"a": one(), "b": one(offsets=(0, 8))}, bytes(8)), "overlaps"),
        (stored({"a": one(offsets=(4, 12))}, bytes(12)), "4 bytes before 'a' belong to no array"),
        (stored({"a": one()}, bytes(9)), "1 bytes at the end belong to no array"),
    ],
)
def test_invalid_files_are_rejected(tmp_path, content, said):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(mx.MXNetError, match=said) as error:
        safetensors.Archive(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 500 + len(str(path))


def test_unreadable_files_and_unsupported_arrays_are_rejected(tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot read .*: No such file"):
        safetensors.read(tmp_path / "none")
    with pytest.raises(mx.MXNetError, match="not a regular file"):
        safetensors.read(tmp_path)
    with pytest.raises(mx.MXNetError, match="cannot write 'a' of torch.complex64"):
        safetensors.write(tmp_path / "x", {"a": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(mx.MXNetError, match="cannot write '__metadata__'"):
        safetensors.write(tmp_path / "x", {"__metadata__": torch.zeros(2)})
    assert list(tmp_path.iterdir()) == []


def test_file_that_shrinks_after_opening_is_an_error(tmp_path):
    safetensors.write(tmp_path / "x", {"a": torch.ones(100)})
    archive = safetensors.Archive(tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-50])
    with pytest.raises(mx.MXNetError, match="'a' ends too early: 50 bytes are missing"):
        archive["a"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 160), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 200))
def test_damaged_files_are_read_or_rejected(tmp_path_factory, changes, cut):
    content = bytearray(stored({"a": one(), "bc": one("BF16", (2, 2), (8, 16))}, bytes(16)))
    for at, byte in changes:
        content[at % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content[: max(cut, 1)] if cut < 40 else content)
    try:
        for tensor in safetensors.read(path).values():
            assert tensor.nbytes <= 16
    except mx.MXNetError:
        pass
