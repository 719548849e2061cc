"""A directory of checkpoints: one folder `step-00000500` for each. A folder without a manifest is unfinished."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress

from . import manifest
from .manifest import CheckpointError, Manifest
from .storage import Storage

_log = logging.getLogger("neomx")
_STEP = re.compile(r"step-([0-9]{8,18})")


def name_of(step: int) -> str:
    """Return the folder of the checkpoint of a step."""
    return f"step-{step:08d}"


def steps(storage: Storage) -> list[int]:
    """Return the steps of all checkpoints, whole, damaged or unfinished, in ascending order."""
    found = [_STEP.fullmatch(name) for name in storage.names()]
    return sorted(int(match[1]) for match in found if match and name_of(int(match[1])) == match[0])


def is_finished(storage: Storage, step: int) -> bool:
    """Whether the folder of a checkpoint has a manifest."""
    return storage.size(f"{name_of(step)}/{manifest.NAME}") is not None


def readable(storage: Storage) -> list[Manifest]:
    """Return the manifests of all checkpoints that have a valid one, in ascending order of steps."""
    found = []
    for step in steps(storage):
        with suppress(CheckpointError):
            found.append(manifest.read(storage, name_of(step)))
    return found


def best_of(found: Iterable[Manifest], best: str | None) -> Manifest | None:
    """Return the checkpoint with the largest or the smallest metric, the newest of equal ones."""
    rated = [each for each in found if each.metric is not None]
    if best is None or not rated:
        return None
    sign = 1 if best == "max" else -1
    return max(rated, key=lambda each: (sign * (each.metric or 0.0), each.step))


def old(storage: Storage, keep: int, best: str | None, newest: int | None = None) -> list[int]:
    """Return the steps of all checkpoints but the newest `keep` and the best one.

    Those after the step `newest` are left out: they are of a run that was resumed before them.
    """
    found = [each for each in readable(storage) if newest is None or each.step <= newest]
    kept = {each.step for each in found[-keep:]} if keep else set()
    if (top := best_of(found, best)) is not None:
        kept.add(top.step)
    return [each.step for each in found if each.step not in kept]


def remove(storage: Storage, step: int) -> None:
    """Delete a checkpoint: first its manifest, so that it never looks whole while files are missing."""
    storage.remove(f"{name_of(step)}/{manifest.NAME}")
    storage.remove_folder(name_of(step))


def remove_unfinished(storage: Storage) -> None:
    """Delete what killed writers have left. No other job may write to the directory."""
    for step in steps(storage):
        names = storage.names(name_of(step))
        if manifest.NAME in names:
            with suppress(CheckpointError):
                remove_strangers(storage, manifest.read(storage, name_of(step)))
        elif all(manifest.is_part(name) or name.startswith(manifest.NAME) for name in names):
            _log.warning("the checkpoint of step %d was not finished, and is deleted: its writer was killed", step)
            storage.remove_folder(name_of(step))


def remove_strangers(storage: Storage, of: Manifest) -> None:
    """Delete the parts in the folder of a checkpoint that belong to another attempt to write it."""
    for name in storage.names(name_of(of.step)):
        if manifest.is_part(name) and name not in of.files:
            storage.remove(f"{name_of(of.step)}/{name}")
