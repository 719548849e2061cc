"""Programs that do not mention checkpoints: NEOMX_CHECKPOINT saves, NEOMX_RESUME continues, signals end them."""

import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "workers" / "checkpointing_alone.py"
pytestmark = pytest.mark.processes


def run(out, stop=0, signum=signal.SIGKILL, loop="range", **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, str(PROGRAM), str(out), str(stop), str(int(signum)), loop]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def assert_same(one, two):
    one, two = np.load(one), np.load(two)
    assert one.files == two.files
    for name in one.files:
        assert np.array_equal(one[name], two[name]), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "whole.npz"
    code, said = run(out)
    assert code == 0, said
    return out


def test_modules_are_saved_too(tmp_path):
    """Killed in the first and in the second epoch; FeedForward has a loop of its own."""
    for loop, stop in (("fit", 9), ("feedforward", 4)):
        code, said = run(tmp_path / "whole.npz", loop=loop)
        assert code == 0, said
        variables = {"NEOMX_CHECKPOINT": str(tmp_path / loop), "NEOMX_CHECKPOINT_EVERY": "2"}
        code, said = run(tmp_path / "out.npz", stop, loop=loop, **variables)
        assert code == -signal.SIGKILL, said
        code, said = run(tmp_path / "out.npz", loop=loop, NEOMX_RESUME="auto", **variables)
        assert code == 0, said
        assert_same(tmp_path / "whole.npz", tmp_path / "out.npz")


def test_a_signal_ends_fit_after_its_step(tmp_path):
    code, said = run(tmp_path / "out.npz", 9, signal.SIGTERM, "fit", NEOMX_CHECKPOINT=str(tmp_path / "saved"))
    assert code == 75, said
    assert "step-00000010" in os.listdir(tmp_path / "saved")  # it came in the callback after step 9


def test_a_loop_whose_position_is_unknown_is_refused_at_its_first_step(tmp_path):
    code, said = run(tmp_path / "out.npz", loop="iterator", NEOMX_CHECKPOINT=str(tmp_path / "saved"))
    assert code == 1
    assert "NEOMX_CHECKPOINT saves programs that iterate over a DataLoader or call Module.fit" in said


@pytest.mark.parametrize("loop", ["range", "epochs"])
@pytest.mark.parametrize("stop", [3, 8, 13])  # 6 steps in an epoch; a checkpoint every 2
def test_a_killed_program_continues_with_the_weights_of_an_undisturbed_one(undisturbed, tmp_path, stop, loop):
    saved, out = str(tmp_path / "saved"), tmp_path / "resumed.npz"
    code, said = run(out, stop, loop=loop, NEOMX_CHECKPOINT=saved, NEOMX_CHECKPOINT_EVERY="2")
    assert code == -signal.SIGKILL, said
    code, said = run(out, loop=loop, NEOMX_CHECKPOINT=saved, NEOMX_CHECKPOINT_EVERY="2", NEOMX_RESUME="auto")
    assert code == 0, said
    assert_same(undisturbed, out)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_at_the_next_step_and_exits_with_75(undisturbed, tmp_path, signum):
    saved, out = str(tmp_path / "saved"), tmp_path / "resumed.npz"
    code, said = run(out, 9, signum, NEOMX_CHECKPOINT=saved)
    assert code == 75, said
    assert [name for name in os.listdir(saved) if name.startswith("step-")] == ["step-00000009"]
    code, said = run(out, NEOMX_RESUME=saved)
    assert code == 0, said
    assert_same(undisturbed, out)


def test_resuming_without_a_checkpoint_is_an_error(tmp_path):
    code, said = run(tmp_path / "out.npz", NEOMX_RESUME=str(tmp_path))
    assert code == 1
    assert "there is no checkpoint in this directory" in said
