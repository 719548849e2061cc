"""A directory of checkpoints: one folder `step-00000500` for each, and hidden folders of those being written."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress

from . import manifest
from .manifest import CheckpointError, DamagedError, Manifest

_log = logging.getLogger("neomx")
_STEP = re.compile(r"step-([0-9]{8,18})")
_UNFINISHED = re.compile(r"\.step-[0-9]{8,18}\.[0-9a-z.-]+")


def path_of(directory: str, step: int) -> str:
    """Return the folder of the checkpoint of a step."""
    return os.path.join(directory, f"step-{step:08d}")


def unfinished(directory: str, step: int, token: str) -> str:
    """Return the folder in which the checkpoint of a step is written. Its name is hidden."""
    return os.path.join(directory, f".step-{step:08d}.{token}")


def steps(directory: str) -> list[int]:
    """Return the steps of all checkpoints, whole or damaged, in ascending order."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read the directory {directory}: {error.strerror or error}") from error
    found = [_STEP.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in found if match and os.path.isdir(os.path.join(directory, match[0])))


def newest_whole(directory: str) -> Manifest | None:
    """Return the manifest of the newest checkpoint that is whole, or None if there are no checkpoints.

    Logs why newer ones are not used. Raises CheckpointError if there are checkpoints and all are damaged.
    """
    problems = []
    for step in reversed(steps(directory)):
        folder = path_of(directory, step)
        try:
            found = manifest.read(folder)
            found.verify(folder)
        except DamagedError as error:
            _log.warning("the checkpoint of step %d is not used: %s", step, error)
            problems.append(str(error))
        else:
            return found
    if problems:
        raise CheckpointError(
            f"none of the {len(problems)} checkpoints in {directory} is whole: {'; '.join(problems[:3])}. To start "
            "again from the beginning, use an empty directory"
        )
    return None


def readable(directory: str) -> list[Manifest]:
    """Return the manifests of all checkpoints that have a valid one, in ascending order of steps."""
    found = []
    for step in steps(directory):
        with suppress(CheckpointError):
            found.append(manifest.read(path_of(directory, step)))
    return found


def best_of(found: Iterable[Manifest], best: str | None) -> Manifest | None:
    """Return the checkpoint with the largest or the smallest metric, the newest of equal ones."""
    rated = [each for each in found if each.metric is not None]
    if best is None or not rated:
        return None
    sign = 1 if best == "max" else -1
    return max(rated, key=lambda each: (sign * (each.metric or 0.0), each.step))


def prune(directory: str, keep: int, best: str | None) -> list[int]:
    """Delete all but the newest `keep` checkpoints and the best one. Return the deleted steps."""
    found = readable(directory)
    kept = {each.step for each in found[-keep:]} if keep else set()
    if (top := best_of(found, best)) is not None:
        kept.add(top.step)
    gone = [each.step for each in found if each.step not in kept]
    for step in gone:
        remove(path_of(directory, step))
    return gone


def remove(folder: str) -> None:
    """Delete a checkpoint: first its manifest, so that it never looks whole while files are missing."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, manifest.NAME))
    shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(directory: str) -> None:
    """Delete what killed writers have left. No other job may write to the directory."""
    with suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if _UNFINISHED.fullmatch(name):
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def publish(made: str, directory: str, step: int) -> None:
    """Rename a complete folder to its final name, and make the rename durable."""
    final = path_of(directory, step)
    if os.path.lexists(final):  # saved before, for example by a run that was resumed at an earlier step
        before = f"{made}.old"
        os.rename(final, before)
        os.rename(made, final)
        shutil.rmtree(before, ignore_errors=True)
    else:
        os.rename(made, final)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
