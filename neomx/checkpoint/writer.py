"""Writes checkpoints in a background thread. Every worker writes its part, and worker 0 writes the manifest.

Parts are written to a hidden folder. A note beside each says that it is complete. When worker 0 has found the notes of
all workers, it writes the manifest and renames the folder, so a checkpoint is whole or not there.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..base import MXNetError
from ..formats import safetensors
from ..formats.atomic import replacing
from . import folder
from .manifest import CheckpointError, File, Manifest, describe, part_name
from .state import Snapshot

_log = logging.getLogger("neomx")
_POLL = 0.02  # seconds between two looks for the parts of other workers


@dataclass(frozen=True)
class Target:
    """Where checkpoints go, who writes them, and which of them are kept."""

    directory: str
    rank: int
    workers: int
    token: str  # the same on all workers of a run, and different for each run
    timeout: float  # seconds that worker 0 waits for the parts of other workers
    keep: int | None
    best: str | None


class Writer:
    """Writes one snapshot at a time. An error is raised by the next call."""

    def __init__(self, target: Target):
        self._target = target
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._last: tuple[int, int] = (-1, 0)  # the last step, and how often it was saved

    def write(self, snapshot: Snapshot) -> None:
        """Start writing a snapshot, after the previous one is written."""
        self.wait()
        again = self._last[1] + 1 if self._last[0] == snapshot.step else 0
        self._last = snapshot.step, again
        self._thread = threading.Thread(target=self._run, args=(snapshot, again), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until everything is written. Raise if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise the error of the thread, if it failed."""
        error, self._error = self._error, None
        if error is not None:
            raise CheckpointError(f"a checkpoint was not written: {error}. Older checkpoints are unchanged") from error

    def _run(self, snapshot: Snapshot, again: int) -> None:
        target = self._target
        made = folder.unfinished(target.directory, snapshot.step, f"{target.token}.{again}")
        try:
            os.makedirs(made, exist_ok=True)
            write_part(made, snapshot, target.rank, target.workers)
            if target.rank == 0:
                files = _collect(made, target)
                if files is not None:
                    finish(made, snapshot, files, target)
        except (MXNetError, OSError) as error:
            shutil.rmtree(made, ignore_errors=True)
            self._error = error
        except BaseException as error:
            self._error = error
            raise


def write_part(made: str, snapshot: Snapshot, rank: int, workers: int) -> None:
    """Write the part of a worker, and the note that it is complete."""
    path = os.path.join(made, part_name(rank, workers))
    safetensors.write(path, snapshot.tensors, {"worker": json.dumps(snapshot.mine)})
    found = describe(path)
    with replacing(_note(made, rank)) as file:
        file.write(json.dumps({"bytes": found.bytes, "sha256": found.sha256}).encode())


def finish(made: str, snapshot: Snapshot, files: dict[str, File], target: Target) -> None:
    """Write the manifest, give the folder its final name, and delete old checkpoints."""
    for rank in range(target.workers):
        os.unlink(_note(made, rank))
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    facts = snapshot.facts
    Manifest(snapshot.step, target.workers, files, facts, snapshot.metric, created).write(made)
    folder.publish(made, target.directory, snapshot.step)
    if target.keep is not None:
        folder.prune(target.directory, target.keep, target.best)


def _note(made: str, rank: int) -> str:
    return os.path.join(made, f"done-{rank:05d}.json")


def _collect(made: str, target: Target) -> dict[str, File] | None:
    """Wait for the parts of all workers and return their files, or None if a part does not arrive."""
    limit = time.monotonic() + target.timeout
    files: dict[str, File] = {}
    for rank in range(target.workers):
        while not os.path.exists(_note(made, rank)):
            if time.monotonic() > limit:
                _log.warning(
                    "a checkpoint is dropped: worker %d did not write its part within %g seconds. All workers must be "
                    "able to write to %s and save at the same steps",
                    *(rank, target.timeout, target.directory),
                )
                shutil.rmtree(made, ignore_errors=True)
                return None
            time.sleep(_POLL)
        with open(_note(made, rank), "rb") as file:
            said: dict[str, Any] = json.load(file)
        files[part_name(rank, target.workers)] = File(**said)
    return files
