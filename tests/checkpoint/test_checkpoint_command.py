"""`neomx checkpoint`: list, verify, prune and export."""

import datetime
import json
import os
import shutil

import numpy as np
import pytest
from test_checkpoint_modules import Training as ModuleTraining
from test_checkpointer import run
from training import fit, loader_of, network, trainer_of

import neomx as mx
from neomx.checkpoint import Checkpointer
from neomx.launch.cli import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    run(path, every=4, keep=None)
    return path


@pytest.fixture
def checkpoints(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def call(capsys, *words):
    code = main(["checkpoint", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def part_of(path, step):
    (part,) = (path / f"step-{step:08d}").glob("part-*")
    return part


def test_list(checkpoints, capsys):
    os.truncate(part_of(checkpoints, 8), 100)
    (checkpoints / "step-00000012" / "manifest.json").unlink()
    path = checkpoints / "step-00000016" / "manifest.json"
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=2)
    path.write_text(json.dumps({**json.loads(path.read_text()), "created": later.isoformat(), "metric": 0.5}))
    code, said = call(capsys, "list", checkpoints)
    assert code == 0
    rows = [line.split() for line in said.splitlines()]
    assert [row[0] for row in rows] == ["step", "4", "8", "12", "16"]
    assert rows[1][2] in ("s", "min") and rows[1][-1] == "whole"
    assert "has 100 bytes, expected" in said.splitlines()[2]
    assert rows[3][-1] == "unfinished"
    assert rows[4][1] == "-"  # the clock of its writer was wrong
    assert "0.5" in rows[4]


def test_verify(checkpoints, capsys):
    assert call(capsys, "verify", checkpoints) == (0, "".join(f"step {n}: whole\n" for n in (4, 8, 12, 16)))
    content = bytearray(part_of(checkpoints, 8).read_bytes())
    content[-3] ^= 1
    part_of(checkpoints, 8).write_bytes(content)
    code, said = call(capsys, "verify", checkpoints)
    assert code == 1 and "step 8: damaged:" in said and "step 12: whole" in said
    assert call(capsys, "verify", checkpoints, "--step", 12) == (0, "step 12: whole\n")
    code, said = call(capsys, "verify", checkpoints, "--step", 5)
    assert code == 2 and "there is no checkpoint of step 5" in said


def test_prune(checkpoints, capsys):
    path = checkpoints / "step-00000004" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "metric": 0.9}))
    before = sorted(os.listdir(checkpoints))
    code, said = call(capsys, "prune", checkpoints, "--keep", 1, "--best", "max", "--dry-run")
    assert code == 0 and sorted(os.listdir(checkpoints)) == before
    assert said == "step 8: would be deleted\nstep 12: would be deleted\n2 checkpoints kept\n"
    code, said = call(capsys, "prune", checkpoints, "--keep", 1, "--best", "max")
    assert code == 0 and said.endswith("2 checkpoints kept\n")
    assert sorted(name for name in os.listdir(checkpoints) if "step" in name) == ["step-00000004", "step-00000016"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "nothing here"], "there are no checkpoints in"),
        (["prune", "x", "--keep", "0"], "expected an integer of at least 1"),
        (["verify", "unknown://x"], "cannot open unknown://x"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    try:
        code, said = call(capsys, *words)
    except SystemExit as exit:
        code, said = exit.code, capsys.readouterr().err
    assert code == 2 and message in said


# ---- export ----


def trained(directory, steps=7):
    net = network()
    trainer = trainer_of(net)
    loader = loader_of("shard")
    ckpt = Checkpointer(directory, net=net, trainer=trainer, loader=loader, signals=False)
    batches = (batch for _ in range(3) for batch in loader)
    for _ in range(steps):
        fit(net, trainer, next(batches), 4)
        ckpt.step()
    ckpt.save()
    ckpt.close()
    return net, trainer


def test_export_writes_the_files_of_the_program(tmp_path, capsys):
    net, trainer = trained(tmp_path / "run")
    code, said = call(capsys, "export", tmp_path / "run", "-o", tmp_path / "out")
    assert code == 0, said
    net.save_parameters(str(tmp_path / "own.params"))
    own, exported = (mx.nd.load(str(tmp_path / f"{name}.params")) for name in ("own", "out"))
    assert own.keys() == exported.keys()
    for name, array in own.items():
        assert np.array_equal(array.asnumpy(), exported[name].asnumpy()), name
    other = network(seed=2)
    other.load_parameters(str(tmp_path / "out.params"))
    again = trainer_of(other)
    again.load_states(str(tmp_path / "out.states"))
    batch = next(iter(loader_of("shard")))
    mx.random.seed(8)
    fit(net, trainer, batch, 4)
    mx.random.seed(8)
    fit(other, again, batch, 4)
    for name, param in net._collect_params_with_prefix().items():
        assert np.array_equal(param.data().asnumpy(), other._collect_params_with_prefix()[name].data().asnumpy())
    assert again.learning_rate == trainer.learning_rate


def test_export_for_mxnet_has_no_optimizer(tmp_path, capsys):
    _, trainer = trained(tmp_path / "run")
    code, said = call(capsys, "export", tmp_path / "run", "-o", tmp_path / "out", "--mxnet")
    assert code == 0, said
    trainer._updaters[0].get_states()
    with open(tmp_path / "out.states", "rb") as file:
        assert file.read() == trainer._updaters[0].get_states()


def test_export_of_a_module(tmp_path, capsys):
    training = ModuleTraining("arrays", tmp_path, tmp_path / "run")
    training.fit(epochs=1)
    prefix = str(tmp_path / "digits")
    training.module.save_checkpoint(prefix, 7, save_optimizer_states=True)
    code, said = call(capsys, "export", tmp_path / "run", "-o", f"{prefix}-0008")
    assert code == 0, said
    for ending in ("params", "states"):
        with open(f"{prefix}-0007.{ending}", "rb") as own, open(f"{prefix}-0008.{ending}", "rb") as exported:
            assert own.read() == exported.read()
    module = mx.mod.Module.load(prefix, 8, load_optimizer_states=True)
    assert module._preload_opt_states == f"{prefix}-0008.states"


def test_the_newest_whole_checkpoint_is_exported(checkpoints, tmp_path, capsys):
    os.truncate(part_of(checkpoints, 16), 100)
    code, said = call(capsys, "export", checkpoints, "-o", tmp_path / "out")
    assert code == 0
    assert "step 16 is not used: " in said and "arrays of step 12" in said
    code, said = call(capsys, "export", checkpoints, "-o", tmp_path / "out", "--step", 16)
    assert code == 2 and "has 100 bytes" in said
