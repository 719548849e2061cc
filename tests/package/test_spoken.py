"""The sounds of the speech tasks: made ones, recordings in files, and both tasks with each kind."""

import importlib
import pathlib
import shutil
import sys

import numpy as np
import pytest
from launching import neomx_run

from neomx.gluon.data import audio

TASKS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tasks"


@pytest.fixture
def spoken(monkeypatch):
    monkeypatch.syspath_prepend(str(TASKS))
    yield importlib.import_module("made.spoken")
    for name in ("made", "made.spoken"):
        sys.modules.pop(name, None)


@pytest.fixture
def recordings(spoken, tmp_path):
    """Return a directory with the layout of the Free Spoken Digit Dataset, at another rate than that of the tasks."""
    for digit in range(10):
        for speaker, at in (("ann", 0), ("bob", 1)):
            for number in (0, 4, 5, 6, 7):
                sound = spoken.say(digit, spoken.VOICES[at]._replace(pitch=40 + number), "tones")
                audio.save(tmp_path / f"{digit}_{speaker}_{number}.wav", sound, 16000)
    return tmp_path


def test_tones_differ_by_digit_and_voice(spoken):
    sounds = [spoken.say(digit, voice, "tones") for digit in range(10) for voice in spoken.VOICES]
    assert all(abs(np.abs(sound).max() - 0.5) < 1e-6 and sound.dtype == np.float32 for sound in sounds)
    assert len({sound.tobytes() for sound in sounds}) == len(sounds)


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_words_are_spoken_and_cached(spoken, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seven = spoken.say(7, spoken.VOICES[1], "espeak")
    assert 0.2 < seven.size / spoken.RATE < 1 and len(list(tmp_path.rglob("seven_*.wav"))) == 1
    monkeypatch.setenv("PATH", "")  # no espeak-ng
    np.testing.assert_array_equal(spoken.say(7, spoken.VOICES[1], "espeak"), seven)


def test_recordings_are_found_by_speaker(spoken, recordings):
    assert len(spoken.recordings(recordings)) == 100
    found = spoken.recordings(recordings, "bob")
    assert len(found) == 50 and found[0][:3] == (0, "bob", 0)
    sound = spoken.read(found[0][3])
    assert abs(sound.size / spoken.RATE - 0.15) < 0.03  # half of 0.3 s without its quiet ends
    with pytest.raises(SystemExit, match="--voice eve: expected a speaker of .*: ann, bob"):
        spoken.recordings(recordings, "eve")
    with pytest.raises(SystemExit, match="must have files"):
        spoken.recordings(recordings / "none")
    with pytest.raises(SystemExit, match="--sounds x: expected one of auto, espeak, tones"):
        spoken.chosen("x")


def test_edit_distance_counts_changes(spoken):
    for found, wanted, count in (
        ((), (), 0),
        ((1, 2, 3), (1, 3), 1),
        ((), (4, 5), 2),
        ((1, 2), (2, 1), 2),
        ((7,), (8,), 1),
    ):
        assert spoken.edit_distance(found, wanted) == count


@pytest.mark.skipif(
    not shutil.which("espeak-ng"), reason="test_task_programs.py uses tones if espeak-ng is not installed"
)
@pytest.mark.parametrize("program", ["speech_recognition", "speech_synthesis"])
def test_short_run_with_tones_reaches_its_target(program):
    run = neomx_run("-n", 2, TASKS / f"{program}.py", "--short", "--sounds", "tones")
    assert run.returncode == 0, run.stdout + run.stderr


def test_task_reads_recordings(recordings, tmp_path):
    arguments = "--short", "--data", recordings, "--voice", "ann", "--epochs", 1, "--samples", 32
    run = neomx_run("-n", 1, TASKS / "speech_synthesis.py", *arguments, "--wav", tmp_path / "said.wav")
    assert "mel error" in run.stdout, run.stdout + run.stderr
    assert audio.load(tmp_path / "said.wav")[0].shape[1] > 1000
    run = neomx_run("-n", 1, TASKS / "speech_recognition.py", "--short", "--data", recordings, "--epochs", 1)
    assert "word error rate" in run.stdout, run.stdout + run.stderr
