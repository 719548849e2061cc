"""Checkpointer in one process: exact resume, what it keeps, and what it refuses."""

import errno
import json
import logging
import os
import pathlib
import signal
import sys

import numpy as np
import pytest

import neomx as mx
from neomx import gluon, process
from neomx.checkpoint import Checkpointer, CheckpointError, folder, manifest
from neomx.checkpoint.storage import Local
from neomx.formats import safetensors

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from training import data, fit, loader_of, network, trainer_of, weights

LOADERS = {
    "shard": {},
    "shard ahead": {"num_workers": 2, "thread_pool": True},
    "sequential": {},
    "shuffle": {},
    "shuffle ahead": {"num_workers": 1, "thread_pool": True, "auto_reload": True},
    "rollover": {"last_batch": "rollover"},
}


def run(directory, kind="shard", stop=None, epochs=3, resume=False, **options):
    """Train, up to `stop` steps, and return the weights."""
    net = network()
    trainer = trainer_of(net)
    loader = loader_of("shuffle" if kind == "rollover" else kind.split()[0], **LOADERS[kind])
    seen = {"batches": []}
    with_defaults = {"every": 1000, **options}
    ckpt = Checkpointer(directory, net=net, trainer=trainer, loader=loader, extra=seen, **with_defaults)
    if resume:
        assert ckpt.restore()
    for _ in ckpt.epochs(epochs):
        for batch in loader:
            fit(net, trainer, batch, len(batch[0]))
            seen["batches"].append(float(batch[0].sum().asscalar()))
            ckpt.step()
            if ckpt.steps == stop:
                ckpt.save()
                ckpt.close()
                return {}
    ckpt.close()
    return {**weights(net, trainer), "batches": np.array(seen["batches"])}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("kind", LOADERS)
def test_resume_is_exact_at_every_kind_of_step(tmp_path, kind):
    expected = run(tmp_path / "whole", kind)
    last = len(expected["batches"])
    for stop in (1, 5, 6, 7, last - 1, last):
        run(tmp_path / str(stop), kind, stop)
        assert_same(run(tmp_path / str(stop), kind, resume=True), expected)


def test_every_and_keep(tmp_path):
    run(tmp_path, every=4, keep=2)
    assert folder.steps(Local(str(tmp_path))) == [12, 16]
    assert sorted(os.listdir(tmp_path)) == [".lock", "step-00000012", "step-00000016"]


def test_files_have_no_pickle_and_match_the_manifest(tmp_path):
    run(tmp_path, stop=3)
    storage, step = Local(str(tmp_path)), "step-00000003"
    found = manifest.read(storage, step)
    found.verify(storage, step)
    assert sorted(os.listdir(tmp_path / step)) == ["manifest.json", found.part(0)]
    names = safetensors.read(tmp_path / step / found.part(0))
    assert "param/1.running_mean" in names and "worker/0/random/numpy" in names
    assert {name: tuple(each.shape) for name, each in names.items()} == {n: t.shape for n, t in found.tensors.items()}
    assert found.facts["extra"]["batches"] and found.facts["counters"] == {"steps": 3}


def test_best_is_kept(tmp_path):
    net = network()
    net(mx.nd.ones((1, 4)))
    ckpt = Checkpointer(tmp_path, net=net, keep=1, best="max")
    for value, better in ((1.0, True), (3.0, True), (2.0, False), (3.0, False)):
        ckpt.step()
        assert ckpt.report(value) is better
        ckpt.save()
        ckpt.wait()
    ckpt.step()
    ckpt.save()
    ckpt.close()
    assert [each.metric for each in folder.readable(Local(str(tmp_path)))] == [3.0, None]
    with pytest.raises(mx.MXNetError, match="best='max'"):
        Checkpointer(tmp_path, net=net, signals=False).report(1)


def damage(path, kind):
    (part,) = path.glob("part-*")
    if kind == "changed":
        content = bytearray(part.read_bytes())
        content[-5] ^= 1
        part.write_bytes(content)
    elif kind == "truncated":
        os.truncate(part, 100)
    elif kind == "missing":
        part.unlink()
    elif kind == "no manifest":
        (path / "manifest.json").unlink()
    else:
        (path / "manifest.json").write_text("{")


@pytest.mark.parametrize("kind", ["changed", "truncated", "missing", "no manifest", "not JSON"])
def test_a_damaged_checkpoint_is_skipped(tmp_path, kind, caplog):
    expected = run(tmp_path / "whole")
    run(tmp_path, every=5, stop=11)
    damage(tmp_path / "step-00000011", kind)
    with caplog.at_level(logging.WARNING, "neomx"):
        assert_same(run(tmp_path, resume=True), expected)
    said = "step 11 was not finished, and is deleted" if kind == "no manifest" else "step 11 is not used"
    assert said in caplog.text


def test_if_all_are_damaged_it_raises(tmp_path):
    run(tmp_path, stop=2)
    damage(tmp_path / "step-00000002", "changed")
    with pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
        run(tmp_path, resume=True)


def test_a_full_disk_raises_at_the_next_step_and_keeps_older_checkpoints(tmp_path, monkeypatch):
    net = network()
    net(mx.nd.ones((1, 4)))
    ckpt = Checkpointer(tmp_path, net=net)
    ckpt.step()
    ckpt.save()
    ckpt.wait()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    ckpt.step()
    ckpt.save()
    ckpt._writer._thread.join()
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="No space left on device. Older checkpoints are unchanged"):
        ckpt.step()
    assert sorted(os.listdir(tmp_path)) == [".lock", "step-00000001"]
    assert ckpt.restore() and ckpt.steps == 1
    ckpt.close()


def change(path, **values):
    content = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**content, **values}))


@pytest.mark.parametrize(
    "values",
    [
        {"files": {"../../secret": {"bytes": 1, "sha256": ""}}},
        {"files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}},
        {"files": {"PART": {"bytes": 2**80, "sha256": []}}},
        {"files": {"PART": {"bytes": 2**60, "sha256": []}}},
        {"files": {"PART": {"bytes": 10, "sha256": ["0" * 63]}}},
        {"files": {"PART": {"bytes": 10, "sha256": ["0" * 64]}}},
        {"tensors": None},
        {"tensors": {"param/3.weight": {"dtype": "F32", "shape": [2**40, 2**40], "slices": []}}},
        {"tensors": {"param/3.weight": {"dtype": "F32", "shape": [2, 8], "slices": [[7, [[0, 2], [0, 8]]]]}}},
        {"tensors": {"param/3.weight": {"dtype": "F32", "shape": [2, 8], "slices": [[0, [[0, 1], [0, 8]]]]}}},
        {"tensors": {"param/3.weight": {"dtype": "F32", "shape": [2, 8], "slices": [[0, [[0, 2], [0, 9]]]]}}},
        {"tensors": {"param/3.weight": {"dtype": "F32", "shape": [2, 8], "slices": [[0, [[0, 2]]]]}}},
        {"tensors": {"param/3.weight": {"dtype": "pickle", "shape": [2, 8], "slices": [[0, [[0, 2], [0, 8]]]]}}},
        {"token": "../x"},
        {"block": 1},
        {"files": []},
        {"workers": 10**9},
        {"workers": -1},
        {"step": "x"},
        {"facts": None},
        {"metric": "x"},
        {"version": "1"},
        {"format": "other"},
    ],
)
def test_a_hostile_manifest_is_refused(tmp_path, values):
    run(tmp_path, stop=2)
    (part,) = (tmp_path / "step-00000002").glob("part-*")
    values = {name: json.loads(json.dumps(value).replace("PART", part.name)) for name, value in values.items()}
    change(tmp_path / "step-00000002", **values)
    with pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
        run(tmp_path, resume=True)


def test_a_newer_version_is_refused(tmp_path):
    run(tmp_path, stop=2)
    change(tmp_path / "step-00000002", version=2)
    with pytest.raises(CheckpointError, match="version 2 of the format, but this version of neomx reads up to 1"):
        run(tmp_path, resume=True)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    run(tmp_path, stop=2)
    other = gluon.nn.Dense(3, in_units=2)
    other.initialize()
    ckpt = Checkpointer(tmp_path, net=other)
    with pytest.raises(CheckpointError, match="belongs to another model: the model has 'weight'"):
        ckpt.restore()
    wider = network(units=9)
    wider(mx.nd.ones((1, 4)))
    with pytest.raises(CheckpointError, match="0.weight: shape incompatible"):
        Checkpointer(tmp_path, net=wider, trainer=trainer_of(wider)).restore()


def test_other_data_is_refused(tmp_path):
    run(tmp_path, stop=2)
    net = network()
    loader = gluon.data.DataLoader(mx.dist.shard(data(30), shuffle=True, seed=7), 4)
    with pytest.raises(mx.MXNetError, match="number of samples is 22, but that of this loader is 30"):
        Checkpointer(tmp_path, net=net, trainer=trainer_of(net), loader=loader).restore()


def test_an_unknown_sampler_is_refused():
    loader = gluon.data.DataLoader(data(), batch_sampler=[[0, 1], [2]])
    with pytest.raises(mx.MXNetError, match="cannot be saved: its order may depend on anything"):
        loader.state()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass net=, trainer= or both"),
        ({"net": 1}, "net must be a gluon Block, received a int"),
        ({"trainer": 1}, "trainer must be a gluon.Trainer, received a int"),
        ({"module": 1}, "module must be a Module, received a int"),
        ({"module": 1, "net": 1}, "pass module= alone"),
        ({"net": network(), "loader": [[1]]}, "loader must be a DataLoader or an iterator"),
        ({"net": network(), "storage_options": {"a": 1}}, "storage_options are for a URL"),
        ({"net": 1, "every": 0}, "every must be an int of at least 1"),
        ({"net": 1, "keep": 1.5}, "keep must be an int of at least 1"),
        ({"net": 1, "best": "loss"}, "best must be 'max', 'min' or None"),
        ({"net": 1, "peer_copies": 2}, "peer_copies must be 0 or 1"),
        ({"net": 1, "extra": {"a": np.ones(2)}}, "extra\\['a'\\] is a ndarray"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(mx.MXNetError, match=message):
        Checkpointer(tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_nothing_to_restore(tmp_path):
    assert Checkpointer(tmp_path / "new", net=network()).restore() is False


def test_a_directory_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot use .*file for checkpoints"):
        Checkpointer(tmp_path / "file", net=network())


def test_replicas_that_do_not_stay_equal_are_refused_before_they_are_saved(tmp_path):
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = gluon.nn.Dense(2, in_units=4)
    net.initialize(ctx=contexts)
    for optimizer in ("nadam", "sgld"):
        apart = gluon.Trainer(net.collect_params(), optimizer, update_on_kvstore=False)
        with pytest.raises(CheckpointError, match="2 contexts do not stay equal with (Nadam|SGLD)"):
            Checkpointer(tmp_path, net=net, trainer=apart)
        Checkpointer(tmp_path, net=net, trainer=gluon.Trainer(net.collect_params(), optimizer)).close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_after_a_signal_all_checkpointers_save_and_the_last_one_exits(tmp_path, signum):
    """One that does not step any more delays the exit by a step of the others."""
    process.stop_all()  # the Checkpointers of other tests
    made = [Checkpointer(tmp_path / name, net=gluon.nn.Dense(2, in_units=4)) for name in "abc"]
    for ckpt in made:
        ckpt._training.subject.net.initialize()
        ckpt.step()
    signal.raise_signal(signum)
    made[0].step()
    made[1].step()
    with pytest.raises(SystemExit) as exit:
        made[0].step()
    assert exit.value.code == 75
    made[1].close()
    assert signal.getsignal(signum) is not signal.SIG_DFL
    with pytest.raises(SystemExit) as exit:
        made[2].step()
    assert signal.getsignal(signum) is signal.SIG_DFL
    for name in "abc":
        assert folder.steps(Local(str(tmp_path / name))) == [2]
