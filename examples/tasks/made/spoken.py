"""Spoken digits at 8000 samples per second: of the program espeak-ng, of recordings, or tones in their place."""

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import NamedTuple

import numpy as np

from neomx.gluon.data import audio

RATE = 8000
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
KINDS = ("auto", "espeak", "tones")


class Voice(NamedTuple):
    """A voice of espeak-ng, its pitch (0 to 99) and its speed in words per minute."""

    name: str = "en-us"
    pitch: int = 50
    speed: int = 160


_ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp")
_VARIANTS = "m1,f1,m2,f2,m3,f3,m4,f4,m5,f5,m6,m7,m8,Andy,Annie,max,linda,steph,Alicia,paul"
VOICES = [
    Voice(f"{_ACCENTS[at % 4]}+{variant}", 30 + 17 * at % 41, 130 + 31 * at % 67)
    for at, variant in enumerate(_VARIANTS.split(","))
]


def chosen(kind):
    """Return "espeak" or "tones": `kind`, or for "auto" espeak if it is installed."""
    if kind not in KINDS:
        raise SystemExit(f"--sounds {kind}: expected one of {', '.join(KINDS)}")
    if kind == "auto":
        return "espeak" if shutil.which("espeak-ng") else "tones"
    return kind


def say(digit, voice, kind):
    """Return the sound of a digit, (samples,) of float32 with a largest value of 0.5."""
    sound = _spoken(digit, voice) if kind == "espeak" else _tones(digit, voice)
    return 0.5 * sound / np.abs(sound).max()


def _spoken(digit, voice):
    cache = pathlib.Path(tempfile.gettempdir(), f"neomx-spoken-{os.getuid()}")
    path = cache / f"{WORDS[digit]}_{voice.name}_{voice.pitch}_{voice.speed}.wav"
    if not path.exists():
        cache.mkdir(mode=0o700, exist_ok=True)
        made = f"{path}.{os.getpid()}"  # renamed when complete: other workers make the same files
        arguments = ["-v", voice.name, "-p", str(voice.pitch), "-s", str(voice.speed), "-w", made, WORDS[digit]]
        subprocess.run(["espeak-ng", *arguments], check=True)
        os.replace(made, path)
    return read(path)


def _tones(digit, voice):
    """Return the tone of a digit: the harmonics of the voice's pitch around two frequencies, as in a vowel."""
    times = np.arange(int(0.3 * RATE * 160 / voice.speed)) / RATE
    pitch = 90 + 1.5 * voice.pitch
    tones = np.arange(pitch, RATE / 2, pitch)[:, None]
    near = [
        1 / (1 + ((tones - at) / 80) ** 2) for at in ((300, 500, 700, 900)[digit // 3], (1300, 2000, 2900)[digit % 3])
    ]
    sound = ((near[0] + near[1] + 0.01) * np.sin(2 * np.pi * tones * times)).sum(axis=0)
    return (sound * np.hanning(times.size)).astype(np.float32)


def read(path):
    """Return the sound of a file at 8000 samples per second, (samples,), without silence at its ends."""
    samples, rate = audio.load(path)
    sound = samples.mean(axis=0)
    if rate != RATE:
        sound = audio.transforms.Resample(rate, RATE)(sound)
    sound = sound.asnumpy()
    loud = np.flatnonzero(np.abs(sound) > 0.01 * np.abs(sound).max())
    return sound[loud[0] : loud[-1] + 1]


def recordings(directory, voice=None):
    """Return (digit, speaker, number, path) of the files {digit}_{speaker}_{number}.wav, of one speaker or of all."""
    found = [(*path.stem.split("_"), path) for path in sorted(pathlib.Path(directory).rglob("*_*_*.wav"))]
    speakers = sorted({speaker for _, speaker, _, _ in found})
    if voice is not None and voice not in speakers:
        raise SystemExit(f"--voice {voice}: expected a speaker of {directory}: {', '.join(speakers)}")
    found = [(int(digit), speaker, int(n), path) for digit, speaker, n, path in found if voice in (None, speaker)]
    if {digit for digit, *_ in found} != set(range(10)):
        raise SystemExit(f"{directory} must have files {{digit}}_{{speaker}}_{{number}}.wav of all digits")
    return found


def edit_distance(found, wanted):
    """Return the number of insertions, deletions and substitutions between two sequences."""
    row = list(range(len(wanted) + 1))
    for i, one in enumerate(found):
        before, row = row, [i + 1]
        for j, other in enumerate(wanted):
            row.append(min(before[j] + (one != other), before[j + 1] + 1, row[j] + 1))
    return row[-1]
