"""Record files are written to temporary files and renamed when the writer is closed."""

import gc
import multiprocessing
import os
import resource

import pytest

import neomx as mx
from neomx.base import MXNetError
from neomx.recordio import MXIndexedRecordIO, MXRecordIO


def all_of(path):
    """Return the records of a file."""
    with MXRecordIO(path, "r") as reader:
        return list(iter(reader.read, None))


def written(folder, *contents):
    """Write the file and its index with these records, with keys 0, 1, ..."""
    with MXIndexedRecordIO(folder / "a.idx", folder / "a.rec", "w") as writer:
        for key, content in enumerate(contents):
            writer.write_idx(key, content)
    return folder / "a.idx", folder / "a.rec"


def test_readers_see_the_old_files_until_the_writer_is_closed(tmp_path):
    index, path = written(tmp_path, b"old")
    writer = MXIndexedRecordIO(index, path, "w")
    writer.write_idx(5, b"new")
    assert all_of(path) == [b"old"]
    assert MXIndexedRecordIO(index, path, "r").read_idx(0) == b"old"
    writer.close()
    assert all_of(path) == [b"new"]
    assert MXIndexedRecordIO(index, path, "r").read_idx(5) == b"new"
    assert sorted(os.listdir(tmp_path)) == ["a.idx", "a.rec"]


def test_error_keeps_the_old_files(tmp_path):
    index, path = written(tmp_path, b"old")
    before = index.read_bytes(), path.read_bytes()
    with pytest.raises(KeyError), MXIndexedRecordIO(index, path, "w") as writer:
        writer.write_idx(0, b"half")
        raise KeyError
    assert (index.read_bytes(), path.read_bytes()) == before
    assert sorted(os.listdir(tmp_path)) == ["a.idx", "a.rec"]


def test_full_disk_keeps_the_old_files(tmp_path):
    index, path = written(tmp_path, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(MXNetError, match=r"cannot write .*a\.rec: File too large"):
            written(tmp_path, b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert all_of(path) == [b"old"]
    assert sorted(os.listdir(tmp_path)) == ["a.idx", "a.rec"]


def test_reading_an_unfinished_file_explains_the_error(tmp_path):
    with MXRecordIO(tmp_path / "a.rec", "w") as writer:
        writer.write(b"x")
        with pytest.raises(MXNetError, match="No such file.*appears under its name when its writer is closed"):
            MXRecordIO(tmp_path / "a.rec", "r")
    assert all_of(tmp_path / "a.rec") == [b"x"]


def test_reset_starts_with_an_empty_file(tmp_path):
    writer = MXRecordIO(tmp_path / "a.rec", "w")
    writer.write(b"first")
    writer.reset()
    assert writer.tell() == 0 and not (tmp_path / "a.rec").exists()
    writer.write(b"second")
    writer.close()
    assert all_of(tmp_path / "a.rec") == [b"second"]


def test_deleted_writer_is_closed(tmp_path):
    writer = MXRecordIO(tmp_path / "a.rec", "w")
    writer.write(b"kept")
    del writer
    gc.collect()
    assert all_of(tmp_path / "a.rec") == [b"kept"]


def _delete(box):
    box.clear()
    gc.collect()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_copy_neither_commits_nor_removes_the_file(tmp_path):
    box = [MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")]
    box[0].write_idx(0, b"x")
    child = multiprocessing.get_context("fork").Process(target=_delete, args=(box,))
    child.start()
    child.join()
    assert child.exitcode == 0 and not (tmp_path / "a.rec").exists()
    box[0].write_idx(1, b"y")
    box[0].close()
    assert all_of(tmp_path / "a.rec") == [b"x", b"y"]


def test_permissions_and_links_are_kept(tmp_path):
    _, path = written(tmp_path, b"old")
    path.chmod(0o640)
    (tmp_path / "link.rec").symlink_to(path)
    with mx.recordio.MXRecordIO(tmp_path / "link.rec", "w") as writer:
        writer.write(b"new")
    assert (tmp_path / "link.rec").is_symlink() and all_of(path) == [b"new"]
    assert path.stat().st_mode & 0o777 == 0o640
