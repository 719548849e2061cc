"""Checkpoints at URLs, through fsspec: the same promises as on a disk."""

import json
import logging
import sys

import fsspec
import numpy as np
import pytest
from test_checkpointer import assert_same, run

import neomx as mx
from neomx.checkpoint import Checkpointer, CheckpointError, folder, manifest, storage
from neomx.checkpoint.storage import Remote, open_storage

FILES = fsspec.filesystem("memory")


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    if request.param == "file":
        yield f"file://{tmp_path}/remote"
        return
    FILES.store.clear()
    yield "memory://bucket/run"
    FILES.store.clear()


def test_resume_is_exact(url, tmp_path):
    expected = run(tmp_path / "whole")
    for stop in (1, 7, 18):
        run(f"{url}/{stop}", stop=stop, every=3)
        assert_same(run(f"{url}/{stop}", resume=True), expected)


def test_every_keep_and_files(url):
    run(url, every=4, keep=2)
    where = open_storage(url)
    assert isinstance(where, Remote)
    assert folder.steps(where) == [12, 16]
    assert [name for name in where.names() if name.startswith("step-")] == ["step-00000012", "step-00000016"]
    found = manifest.read(where, "step-00000016")
    found.verify(where, "step-00000016")
    assert where.names("step-00000016") == ["manifest.json", found.part(0)]


def test_options_are_those_of_the_file_system(tmp_path):
    with pytest.raises(CheckpointError, match="cannot open unknown"):
        open_storage("unknown://bucket/run")
    options = {"auto_mkdir": False}
    assert open_storage(f"file://{tmp_path}", options)._fs.auto_mkdir is False


def test_fsspec_is_asked_for_only_by_urls(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(mx.MXNetError, match=r'require fsspec: pip install "neomx\[remote\]"'):
        open_storage("s3://bucket/run")
    open_storage(str(tmp_path))


class Failing(Exception):
    """An error of a file system, which may have any type."""


def test_a_truncated_manifest_does_not_look_whole(url, caplog):
    """File systems without atomic writes may leave one when the writer is killed."""
    expected = run(f"{url}/whole")
    run(url, every=5, stop=9)
    where = open_storage(url)
    path = f"step-00000009/{manifest.NAME}"
    content = where.get(path, 1 << 30)
    where.put(path, content[:-1])
    with caplog.at_level(logging.WARNING, "neomx"):
        assert_same(run(url, resume=True), expected)
    assert "the checkpoint of step 9 is not used" in caplog.text


def test_an_error_of_the_file_system_is_reported_with_its_url(monkeypatch):
    FILES.store.clear()

    def fails(*args, **kwargs):
        raise Failing("access denied")

    ckpt = Checkpointer("memory://bucket/run", net=small(), signals=False)
    monkeypatch.setattr(type(FILES), "_open", fails)
    ckpt.step()
    ckpt.save()
    with pytest.raises(CheckpointError, match=r"cannot write memory://bucket/run/step-00000001/part-.*access denied"):
        ckpt.wait()
    ckpt.close()


def small():
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    return net


def test_the_last_job_owns_the_directory(url, monkeypatch):
    """There are no locks to leave behind: the earlier job is refused at its next checkpoint."""
    net = small()
    first = Checkpointer(url, net=net, signals=False, keep=1)
    first.step()
    first.save()
    first.wait()
    other = open_storage(url)
    other.claim("0123456789ab")
    first.step()
    first.save()
    with pytest.raises(CheckpointError, match="another job writes checkpoints to .*: process"):
        first.wait()
    assert folder.steps(other) == [1]  # and it has deleted nothing
    first.close()


def test_a_changed_byte_is_found(url, tmp_path, caplog):
    expected = run(tmp_path / "whole")
    run(url, every=5, stop=11)
    where = open_storage(url)
    found = manifest.read(where, "step-00000011")
    path = f"step-00000011/{found.part(0)}"
    content = bytearray(where.get(path, 1 << 30))
    content[-5] ^= 1
    where.put(path, bytes(content))
    with caplog.at_level(logging.WARNING, "neomx"):
        assert_same(run(url, resume=True), expected)
    assert "step 11 is not used" in caplog.text


def test_only_the_blocks_with_the_needed_slices_are_read(url, monkeypatch):
    monkeypatch.setattr(manifest, "BLOCK", 1 << 12)
    for module in ("snapshot", "reading"):
        monkeypatch.setattr(sys.modules[f"neomx.checkpoint.{module}"], "BLOCK", 1 << 12)
    net = mx.gluon.nn.Dense(64, in_units=256)
    net.initialize()
    ckpt = Checkpointer(url, net=net, signals=False)
    ckpt.step()
    ckpt.save()
    ckpt.close()
    where = open_storage(url)
    content = storage_content(where)
    begun = []
    read = Remote.read

    def noted(self, path, begin, into):
        begun.append(begin)
        read(self, path, begin, into)

    monkeypatch.setattr(Remote, "read", noted)
    rows = content.read({"param/weight": ((8, 16), (10, 200))})["param/weight"]
    assert np.array_equal(rows, net.weight.data()[8:16, 10:200].asnumpy())
    assert len(begun) <= 6  # of 17: the header, and 8 KB that may begin within a block


def storage_content(where):
    from neomx.checkpoint import reading

    return reading.read_step(where, 1)


def test_the_owner_is_plain_json(url):
    where = open_storage(url)
    where.make()
    where.claim("0123456789ab")
    assert json.loads(where.get(".owner.json", 1000))["token"] == "0123456789ab"
    where.put(".owner.json", b"not JSON")
    where.check_claim()
    assert storage.Remote is type(where)
