"""Writes checkpoints in a background thread. Every worker writes its part, and worker 0 publishes the manifest.

A worker tells worker 0 when its part is durable. When all have, worker 0 writes the manifest, which makes the
checkpoint whole: a folder without one does not count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

import torch

from ..base import MXNetError
from ..optimizer.states import merge
from . import folder, manifest
from .manifest import BlockThreads, CheckpointError, File, Manifest, part_name
from .snapshot import Snapshot
from .storage import Storage

_log = logging.getLogger("neomx")
_LATE = 20.0  # seconds after which a part that another host has written must be visible


class Notices(Protocol):
    """How the workers tell worker 0 that their parts are written."""

    def tell(self, key: str, text: bytes) -> None:
        """Send a message of this worker under a key."""

    def hear(self, key: str, rank: int, is_over: Callable[[], bool]) -> bytes:
        """Wait for the message of a worker. Raises MXNetError if it does not arrive, or `is_over`."""


@dataclass(frozen=True)
class Target:
    """Where checkpoints go, who writes them, and which of them are kept."""

    storage: Storage
    rank: int
    workers: int
    token: str  # the same on all workers of a run, and different for each run
    messages: Notices
    keep: int | None
    best: str | None


class Writer:
    """Writes one snapshot at a time. An error is raised by the next call."""

    def __init__(self, target: Target, after: Callable[[Snapshot], None] | None = None, buffers: int = 1):
        """`after` is called with each snapshot in the background; `buffers` snapshots stay valid."""
        self._target, self._after = target, after
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._number = 0  # of the snapshot
        self._memory: list[torch.Tensor] = [torch.empty(0, dtype=torch.uint8)] * buffers
        self._ends = threading.Event()

    def memory(self, size: int) -> torch.Tensor:
        """Return memory for the next snapshot, after the previous one is written. It is used again: new pages cost."""
        self.wait()
        oldest = self._memory.pop(0)
        if oldest.numel() < size:
            del oldest
            oldest = torch.empty(size, dtype=torch.uint8)
        self._memory.append(oldest)
        return oldest[:size]

    def write(self, snapshot: Snapshot, layout: str) -> None:
        """Start writing a snapshot, after the previous one is written."""
        self.wait()
        self._number += 1
        arguments = snapshot, f"{self._target.token}-{self._number}", layout
        self._thread = threading.Thread(target=self._run, args=arguments, name="checkpoint")
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

    def end(self, seconds: float) -> None:
        """Stop waiting for other workers, because this process ends."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(seconds)

    # ---- in the background ----

    def _run(self, snapshot: Snapshot, token: str, layout: str) -> None:
        try:
            snapshot.finish()
            self._write(snapshot, token, layout)
        except (MXNetError, OSError) as error:
            self._error = error
        except BaseException as error:
            self._error = error
            raise
        if self._after is not None:
            self._after(snapshot)

    def _write(self, snapshot: Snapshot, token: str, layout: str) -> None:
        target, name = self._target, folder.name_of(snapshot.step)
        path = f"{name}/{part_name(target.rank, target.workers, token)}"
        try:
            target.storage.make(name)
            note = {**_described(write_part(target.storage, path, snapshot)), "tensors": snapshot.table}
        except (MXNetError, OSError) as error:
            self._discard(snapshot, path)
            if target.rank:
                target.messages.tell(token, json.dumps({"error": str(error)}).encode())
            raise
        if target.rank:
            facts = {"facts": snapshot.facts} if layout else {}
            target.messages.tell(token, json.dumps({**note, **facts}).encode())
            return
        notes = [note, *self._collect(token)]
        if len(notes) == target.workers:
            try:
                publish(target, snapshot, token, layout, notes)
            except (MXNetError, OSError):
                self._discard(snapshot, path)
                raise
        else:
            self._discard(snapshot, path)

    def _discard(self, snapshot: Snapshot, path: str) -> None:
        """Delete what was written of a checkpoint that is not published."""
        storage = self._target.storage
        with suppress(MXNetError, OSError):
            storage.remove(path)
            if self._target.rank == 0 and not folder.is_finished(storage, snapshot.step):
                storage.remove_folder(folder.name_of(snapshot.step))

    def _collect(self, token: str) -> list[dict[str, Any]]:
        """Return what the other workers tell about their parts, as far as it arrives."""
        target, notes = self._target, []
        for rank in range(1, target.workers):
            try:
                note = json.loads(target.messages.hear(token, rank, self._ends.is_set))
                if "error" not in note:
                    notes.append(note)
                    continue
                why = note["error"]
            except MXNetError as error:
                why = str(error)
            _log.warning(
                "a checkpoint is dropped: the part of worker %d is missing: %s. All workers must be able to write to "
                "%s and save at the same steps",
                *(rank, why, target.storage.url),
            )
            break
        return notes


def write_part(storage: Storage, path: str, snapshot: Snapshot) -> File:
    """Write the part of a worker. Checksums are computed by other threads from the same memory."""
    with BlockThreads() as pool, storage.create(path) as sink:
        sums = []
        for block in snapshot.blocks():
            sums.append(pool.submit(_checksum, block))
            left = block
            while left:
                count = sink.write(left)
                left = left[count:] if isinstance(count, int) else left[:0]
    return File(snapshot.size, tuple(each.result() for each in sums))


def _checksum(block: memoryview) -> str:
    return hashlib.sha256(block).hexdigest()


def _described(file: File) -> dict[str, Any]:
    return {"bytes": file.bytes, "sha256": file.sha256}


def publish(target: Target, snapshot: Snapshot, token: str, layout: str, notes: list[dict[str, Any]]) -> None:
    """Write the manifest of a checkpoint whose parts are all written, and delete old checkpoints."""
    storage, name = target.storage, folder.name_of(snapshot.step)
    files = {
        part_name(rank, target.workers, token): File(note["bytes"], tuple(note["sha256"]))
        for rank, note in enumerate(notes)
    }
    for path, file in files.items():
        _await(storage, f"{name}/{path}", file)
    told = [snapshot.facts, *(note["facts"] for note in notes if "facts" in note)]
    facts = merged_facts([json.loads(each) for each in told])
    tables = joined([note["tensors"] for note in notes])
    tensors = {key: manifest.stored(key, each, target.workers) for key, each in tables.items()}
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    done = Manifest(snapshot.step, target.workers, token, files, tensors, facts, snapshot.metric, made, layout)
    storage.check_claim()
    storage.put(f"{name}/{manifest.NAME}", done.encoded())
    folder.remove_strangers(storage, done)
    if target.keep is not None:
        for step in folder.old(storage, target.keep, target.best, snapshot.step):
            folder.remove(storage, step)


def merged_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts about a training from those of workers, each of which may have other optimizer states."""
    if len(facts) > 1 and "optimizer" in facts[0]:
        facts[0]["optimizer"] = merge([each["optimizer"] for each in facts])
    return facts[0]


def _await(storage: Storage, path: str, file: File) -> None:
    """Wait until a part is visible here: file systems of several hosts may show it late."""
    limit = time.monotonic() + _LATE
    while True:
        try:
            return manifest.check_size(storage, path, file)
        except MXNetError as error:
            if time.monotonic() > limit:
                raise CheckpointError(f"{error}. All workers must be able to write to one directory") from error
            time.sleep(0.1)


def joined(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the tensors of all workers, with the slices that each of them has."""
    found: dict[str, Any] = {}
    for table in tables:
        for name, each in table.items():
            if name in found:
                found[name] = {**found[name], "slices": [*found[name]["slices"], *each["slices"]]}
            else:
                found[name] = each
    return found
