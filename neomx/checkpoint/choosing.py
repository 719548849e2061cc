"""The workers choose together which checkpoint to restore: the newest one that is whole for all of them."""

from __future__ import annotations

import logging

from ..base import MXNetError
from . import folder, manifest, reading
from .copies import Copies
from .manifest import CheckpointError, DamagedError, Manifest
from .state import Content, Training
from .storage import Storage
from .workers import Workers

_log = logging.getLogger("neomx")
_WHOLE, _DAMAGED, _FAILED = 0, 1, 2  # what workers tell each other


def newest(storage: Storage, training: Training, workers: Workers, copies: Copies | None) -> Content | None:
    """Return the newest whole checkpoint, whose tensors for this worker are read and verified; None if there is none.

    A checkpoint in the memory of the workers is used if it is as new. Raises CheckpointError if there are checkpoints
    and all are damaged, or if the newest whole one belongs to another model.
    """
    steps = _finished(storage, workers)
    copied = copies.newest() if copies is not None and training.subject.is_ready else None
    problems: list[str] = []
    for at in range(workers.from_first(len(steps), "how many checkpoints there are")):
        step = workers.from_first(steps[-1 - at] if workers.rank == 0 else -1, "which checkpoint to restore")
        if copied is not None and copied >= step:
            break
        content = _content(storage, step, training, workers, problems)
        if content is not None:
            return content
    if copies is not None and copied is not None:
        copies.hand_back(copied)
        content = copies.content(copied, training.layout)
        content.fetch_for(workers.rank, training.wanted(content, workers.rank, workers.size))
        if workers.rank == 0:
            _log.info("step %d is in the memory of the workers", copied)
        return content
    if problems:
        raise CheckpointError(
            f"none of the {len(problems)} checkpoints in {storage.url} is whole: {'; '.join(problems[:3])}. To start "
            "again from the beginning, use an empty directory"
        )
    return None


def _finished(storage: Storage, workers: Workers) -> list[int]:
    """Return the steps of the checkpoints with a manifest, on worker 0."""
    steps: list[int] = []
    problem: MXNetError | None = None
    if workers.rank == 0:
        try:
            for step in folder.steps(storage):
                if folder.is_finished(storage, step):
                    steps.append(step)
                else:
                    _tell_unused(step, f"it has no {manifest.NAME}: its writer was killed, or is still writing")
        except MXNetError as error:
            problem = error
    if workers.any(problem is not None, "whether the directory is readable"):
        raise problem or CheckpointError(f"worker 0 cannot read {storage.url}: see its error")
    return steps


def _content(storage: Storage, step: int, training: Training, workers: Workers, problems: list[str]) -> Content | None:
    """Return the content of a checkpoint, or None if it is damaged for any worker."""
    content, why = None, ""
    problem: MXNetError | None = None
    try:
        found = manifest.read(storage, folder.name_of(step))
        content = reading.read(storage, found)
        _prepare(storage, found, content, training, workers)
    except DamagedError as error:
        why = str(error)
    except MXNetError as error:
        problem = error
    told = workers.all(_FAILED if problem else _DAMAGED if why else _WHOLE, "whether a checkpoint is whole")
    if problem is not None:
        raise problem
    if _FAILED in told:
        raise CheckpointError(f"worker {told.index(_FAILED)} cannot restore step {step}: see its error")
    if _DAMAGED not in told:
        return content
    problems.append(why or f"worker {told.index(_DAMAGED)} cannot read step {step}")
    if workers.rank == 0:
        _tell_unused(step, problems[-1])
    return None


def _prepare(storage: Storage, of: Manifest, content: Content, training: Training, workers: Workers) -> None:
    """Read and verify what this worker needs, before anything is changed."""
    rank, size = workers.rank, workers.size
    source = training.source(content, rank, size)
    if training.subject.is_ready:
        content.fetch_for(source, training.wanted(content, rank, size))
    elif training.subject.needs_all:
        own = [name for name in content.forms if not name.startswith("worker/") or name.startswith(f"worker/{source}/")]
        content.fetch_for(source, dict.fromkeys(own))
    else:  # which slices this worker needs is known after the layout is applied
        of.verify(storage, folder.name_of(of.step), rank, size)
        content.fetch_for(source, {})


def _tell_unused(step: int, why: object) -> None:
    _log.warning("the checkpoint of step %d is not used: %s", step, why)
