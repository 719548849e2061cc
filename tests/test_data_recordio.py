"""RecordIO files: what MXNet wrote, damage, other processes."""

import multiprocessing
import os
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import neomx as mx
from neomx.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, unpack

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
def test_what_is_written_is_read(tmp_path_factory, records):
    records = [b"".join(parts) for parts in records]
    path = written(tmp_path_factory.mktemp("rec"), *records)
    assert all_of(path) == records
    assert os.path.getsize(path) % 4 == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d[:6], "cut short"),
        (lambda d: d[:10], "cut short"),
        (lambda d: d[:13], "cut short"),
        (lambda d: b"abcd" + d[4:], "no record"),
        (lambda d: d[:16] + d[24:], "middle of a record"),
        (lambda d: d[:24] + d[:16], "new record within"),
        (lambda d: d[:24], "cut short"),
    ],
)
def test_damage_is_told(tmp_path, change, told):
    path = written(tmp_path, b"hello", MAGIC + b"1234")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(mx.MXNetError, match=f"a.rec is damaged: at byte .*{told}"):
        all_of(path)


def test_files_that_are_not_there_or_not_right(tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot open the record file"):
        MXRecordIO(tmp_path / "none.rec", "r")
    path = written(tmp_path, b"x")
    with pytest.raises(FileNotFoundError):
        MXIndexedRecordIO(tmp_path / "none.idx", path, "r")
    (tmp_path / "bad.idx").write_text("0\t0\nnonsense\n")
    with pytest.raises(mx.MXNetError, match=r"bad.idx, line 2"):
        MXIndexedRecordIO(tmp_path / "bad.idx", path, "r")
    (tmp_path / "wrong.idx").write_text("0\t3\n")
    with pytest.raises(mx.MXNetError, match="right index"):
        MXIndexedRecordIO(tmp_path / "wrong.idx", path, "r").read_idx(0)
    with pytest.raises(TypeError, match="a record is bytes, received str"):
        MXRecordIO(path, "w").write("text")


def test_headers_cut_short():
    packed = pack(IRHeader(0, [1, 2, 3], 5, 7), b"")
    with pytest.raises(mx.MXNetError, match="promises 3 labels, there are 1"):
        unpack(packed[:-6])
    with pytest.raises(mx.MXNetError, match="at least 24 bytes, received 3"):
        unpack(b"abc")


def indexed(tmp_path):
    writer = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    for i in range(5):
        writer.write_idx(i, str(i).encode())
    writer.close()
    return MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")


def test_a_forked_reader_has_a_position_of_its_own(tmp_path):
    reader = indexed(tmp_path)
    assert [reader.read(), reader.read()] == [b"0", b"1"]
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=lambda: theirs.send([reader.read_idx(3), reader.read(), reader.read()]))
    child.start()
    assert ours.recv() == [b"3", b"4", None]
    child.join()
    assert reader.read() == b"2"


def test_a_writer_belongs_to_its_process(tmp_path):
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
    with pytest.raises(mx.MXNetError, match="its copy cannot write"):
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
