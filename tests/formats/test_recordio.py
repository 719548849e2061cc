"""RecordIO files: files of MXNet, damage, other processes."""

import gc
import multiprocessing
import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neomx as mx
import parity
from neomx.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, unpack
from parity import record_pack_img
from parity.pictures import pixels

MAGIC = struct.pack("<I", 0xCED7230A)


def written(tmp_path, *records):
    path = tmp_path / "a.rec"
    writer = MXRecordIO(path, "w")
    for record in records:
        writer.write(record)
    writer.close()
    return path


def all_of(path):
    reader = MXRecordIO(path, "r")
    return list(iter(reader.read, None))


@given(st.lists(st.lists(st.sampled_from([MAGIC, b"a", b"bcd", b"\n#\xd7", b"\xce", b"1234"]), max_size=6)))
def test_round_trip(tmp_path_factory, records):
    records = [b"".join(parts) for parts in records]
    path = written(tmp_path_factory.mktemp("rec"), *records)
    assert all_of(path) == records
    assert os.path.getsize(path) % 4 == 0


@pytest.mark.parametrize(
    ("change", "place", "told"),
    [
        (lambda d: b"abcd" + d[4:], 0, "no record"),
        (lambda d: d[:16] + b"ab", 16, "no record"),
        (lambda d: d[:16] + d[24:], 16, "middle of a record"),
        (lambda d: d[:24] + d[:16], 24, "a new record within another"),
    ],
)
def test_damage_is_an_error(tmp_path, change, place, told):
    path = written(tmp_path, b"hello", MAGIC + b"1234")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(mx.MXNetError, match=f"a.rec is damaged: at byte {place} there is .*{told}"):
        all_of(path)


@pytest.mark.parametrize(
    ("length", "place"), [(2, 0), (6, 0), (10, 0), (12, 0), (18, 16), (23, 16), (24, 24), (28, 24), (35, 24)]
)
def test_truncated_file_is_read_up_to_the_damage(tmp_path, length, place):
    path = written(tmp_path, b"hello", MAGIC + b"1234")  # the second one has two pieces, at 16 and 24
    path.write_bytes(path.read_bytes()[:length])
    reader = MXRecordIO(path, "r")
    whole = int(length > 16)
    assert [reader.read() for _ in range(whole)] == [b"hello"] * whole
    told = f"a.rec is truncated: the record at byte {place} .*; reading stops there, after {whole} complete records"
    with pytest.warns(RuntimeWarning, match=told):
        assert reader.read() is None
    assert reader.read() is None and reader.read() is None
    reader.reset()
    assert reader.tell() == 0


def test_missing_padding_at_the_end_is_accepted(tmp_path):
    path = written(tmp_path, b"hello")
    path.write_bytes(path.read_bytes()[:13])
    assert all_of(path) == [b"hello"]


def test_truncated_record_cannot_be_read_by_key(tmp_path):
    indexed(tmp_path).close()
    (tmp_path / "a.rec").write_bytes((tmp_path / "a.rec").read_bytes()[:40])
    reader = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")
    assert reader.read_idx(2) == b"2"
    for key, place in ((3, 36), (4, 48)):
        with pytest.raises(
            mx.MXNetError, match=f"record {key!r} by .*a.idx.*a.rec is truncated.* record at byte {place}"
        ):
            reader.read_idx(key)
    with pytest.raises(KeyError, match="a.idx has no record 9 among its 5 records"):
        reader.read_idx(9)


def test_context_manager_closes_the_file(tmp_path):
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as writer:
        assert writer.tell() == 0
        writer.write_idx(7, b"abc")
        assert writer.tell() == 12
    assert not writer.is_open
    with MXRecordIO(tmp_path / "a.rec", "r") as reader:
        assert reader.read() == b"abc" and reader.tell() == 12


def test_missing_and_invalid_files_are_errors(tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot open the record file"):
        MXRecordIO(tmp_path / "none.rec", "r")
    path = written(tmp_path, b"x")
    with pytest.raises(mx.MXNetError, match=r"cannot open the index .*none.idx of .*a.rec: No such file"):
        MXIndexedRecordIO(tmp_path / "none.idx", path, "r")
    (tmp_path / "bad.idx").write_text("0\t0\nnonsense\n")
    with pytest.raises(mx.MXNetError, match=r"bad.idx, line 2"):
        MXIndexedRecordIO(tmp_path / "bad.idx", path, "r")
    (tmp_path / "wrong.idx").write_text("0\t3\n")
    with pytest.raises(mx.MXNetError, match="its index the right one"):
        MXIndexedRecordIO(tmp_path / "wrong.idx", path, "r").read_idx(0)
    with pytest.raises(TypeError, match="a record must be bytes, received str"):
        MXRecordIO(path, "w").write("text")


def test_unwritable_index_is_reported_once(tmp_path):
    """Deleting the incomplete writer must not warn: warnings are errors here."""
    with pytest.raises(mx.MXNetError, match="cannot write .*nowhere.*No such file"):
        MXIndexedRecordIO(tmp_path / "nowhere" / "a.idx", tmp_path / "a.rec", "w")
    gc.collect()


def test_truncated_headers_are_errors():
    packed = pack(IRHeader(0, [1, 2, 3], 5, 7), b"")
    with pytest.raises(mx.MXNetError, match="declares 3 labels, but there are 1"):
        unpack(packed[:-6])
    with pytest.raises(mx.MXNetError, match="at least 24 bytes, received 3"):
        unpack(b"abc")


def indexed(tmp_path):
    writer = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    for i in range(5):
        writer.write_idx(i, str(i).encode())
    writer.close()
    return MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")


def test_forked_reader_has_its_own_position(tmp_path):
    reader = indexed(tmp_path)
    assert [reader.read(), reader.read()] == [b"0", b"1"]
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=lambda: theirs.send([reader.read_idx(3), reader.read(), reader.read()]))
    child.start()
    assert ours.recv() == [b"3", b"4", None]
    child.join()
    assert reader.read() == b"2"


def test_writer_belongs_to_its_process(tmp_path):
    writer = MXRecordIO(tmp_path / "b.rec", "w")
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()

    def write():
        try:
            writer.write(b"x")
        except mx.MXNetError as error:
            theirs.send(str(error))

    child = fork.Process(target=write)
    child.start()
    assert "another process" in ours.recv()
    child.join()
    writer.write(b"mine")
    with pytest.raises(mx.MXNetError, match="a copy cannot write"):
        pickle.loads(pickle.dumps(writer))
    writer.close()
    assert all_of(tmp_path / "b.rec") == [b"mine"]


def test_closed_readers_copies_and_datasets(tmp_path):
    reader = indexed(tmp_path)
    reader.close()
    reader.close()
    with pytest.raises(mx.MXNetError, match="is closed"):
        reader.read()
    assert not pickle.loads(pickle.dumps(reader)).is_open
    reader.reset()
    assert reader.read_idx(2) == b"2" and reader.tell() > 0
    dataset = mx.gluon.data.RecordFileDataset(tmp_path / "a.rec")
    loader = mx.gluon.data.DataLoader(dataset, 2, num_workers=2, batchify_fn=b"".join)
    assert list(loader) == [b"01", b"23", b"4"]


# ---- images in records ----


def test_pack_img_and_unpack_img_equal_mxnet():
    with np.load(parity.__path__[0] + "/recorded/pack_img.npz") as kept:
        for name, record in record_pack_img.records(mx.recordio, pixels).items():
            assert record == kept["record " + name].tobytes(), name
            for number, value in enumerate(record_pack_img.unpacked(mx.recordio, record)):
                assert value.dtype == kept[f"{number} {name}"].dtype
                np.testing.assert_array_equal(value, kept[f"{number} {name}"])


def test_unpack_img_rejects_bytes_that_are_not_an_image():
    with pytest.raises(mx.MXNetError, match="cannot decode 9 bytes"):
        mx.recordio.unpack_img(pack(IRHeader(0, 1, 5, 0), b"not image"))
