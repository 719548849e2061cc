"""The job, process sets, and how workers synchronize before collective calls."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .. import events
from ..base import MXNetError
from ..comm.session import Session, close, is_open, session
from ..comm.store import PeerError
from ..comm.world import World
from .exceptions import HorovodInternalError

DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int32, torch.int64
JOINS, SUMS, ELSE = range(3)  # the purpose for which a worker synchronizes

# ---- the job ----


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Connect to the other workers, and create `process_sets`."""
    workers = list(range(session().world.initial))
    if comm is not None and list(comm) != workers:
        raise MXNetError(
            f"hvd.init expects all workers of the job, {workers}, received comm={comm!r:.80}. Start only the workers "
            "that are needed, and use process sets for subsets"
        )
    _meeting()
    for each in [] if process_sets in (None, "dynamic") else process_sets:
        add_process_set(each)


def shutdown() -> None:
    """Disconnect from the other workers once all have called this. `init` connects again."""
    close()


def is_initialized() -> bool:
    """Whether `init` was called."""
    return is_open()


def world() -> World:
    """The place of this worker in its job, after `init`."""
    if not is_open():
        raise ValueError("Horovod is not initialized. Call hvd.init() first")
    return session().world


def rank() -> int:
    """The rank of this worker, from 0."""
    return world().rank


def size() -> int:
    """The number of workers."""
    return world().size


def local_rank() -> int:
    """The rank of this worker on its host."""
    return world().local_rank


def local_size() -> int:
    """The number of workers on this host."""
    return world().local_size


def cross_rank() -> int:
    """The index of this worker's host."""
    return world().node


def cross_size() -> int:
    """The number of hosts."""
    return world().nodes


def mpi_built() -> bool:
    """Whether MPI transfers arrays. Always False: MPI can only start the processes."""
    return False


mpi_enabled = mpi_threads_supported = ddl_built = ccl_built = mpi_built


def gloo_built() -> bool:
    """Whether gloo transfers arrays. Always True: it does so between hosts."""
    return True


gloo_enabled = gloo_built


def cuda_built() -> bool:
    """Whether NVIDIA GPUs are supported."""
    return torch.backends.cuda.is_built()


def rocm_built() -> bool:
    """Whether AMD GPUs are supported."""
    return torch.version.hip is not None


def nccl_built() -> int:
    """The version of NCCL as 10000 * major + 100 * minor + patch, or 0 if it is unavailable."""
    if not cuda_built():
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]  # type: ignore[no-untyped-call]
    return 10000 * major + 100 * minor + patch


# ---- process sets ----


class ProcessSet:
    """A subset of the workers, for calls with `process_set=` that only they make."""

    def __init__(self, ranks: Sequence[int] | None):
        self._ranks = None if ranks is None else sorted(int(each) for each in ranks)
        self.process_set_id: int | None = None
        self._group: Any = None

    @property
    def ranks(self) -> list[int]:
        """The ranks of its workers."""
        return list(range(size())) if self._ranks is None else self._ranks

    def included(self) -> bool:
        """Whether this worker is in the set."""
        return rank() in self.ranks

    def rank(self) -> int:
        """The rank of this worker within the set."""
        if not self.included():
            raise ValueError(f"worker {rank()} is not in the process set of {self.ranks}")
        return self.ranks.index(rank())

    def size(self) -> int:
        """The number of workers in the set."""
        return len(self.ranks)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks or 'all'})"


global_process_set = ProcessSet(None)
global_process_set.process_set_id = 0


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set. All workers of the job must call it, including those outside the set."""
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"{made} is already registered")
    if world().is_elastic:
        raise MXNetError("process sets are not supported in elastic jobs, in which the ranks of workers change")
    meeting = _meeting()
    made._group = meeting.group.subgroup(made.ranks)
    meeting.sets += 1
    made.process_set_id = meeting.sets
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set. Return whether it was registered."""
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    if process_set._group is not None:
        process_set._group.close()
    process_set._group = process_set.process_set_id = None
    return True


# ---- synchronization ----


class _Meeting:
    """Synchronizes the workers of a session for the calls of this module."""

    def __init__(self, here: Session):
        self.session = here
        self.group = here.group.clone("horovod")
        self.sets = 0

    def come(self, call: str, kind: int, counts: Sequence[int] = ()) -> list[list[int]]:
        """Wait for all workers, joining the steps of those that train. Return the kinds and counts of all workers."""
        said = torch.zeros(1 + len(DTYPES), dtype=torch.int64)
        said[: 1 + len(counts)] = torch.tensor([kind, *counts])
        self.session.rounds.pause(lacks=math.inf)
        everyone = self.group.all_gather_small(said, "calls").tolist()
        joined = [place for place, each in enumerate(everyone) if each[0] == JOINS]
        if joined and any(each[0] == ELSE for each in everyone):
            raise MXNetError(
                f"hvd.{call}: only sums and averages are possible while some workers have joined, here {joined}"
            )
        return everyone


def _meeting() -> _Meeting:
    world()
    kept = session().kept
    if "meeting" not in kept:
        kept["meeting"] = _Meeting(session())
    return kept["meeting"]


def is_alone() -> bool:
    """Whether this worker makes calls alone, because there are no others, or they have not admitted it yet."""
    return _meeting().group.size == 1


@contextmanager
def _named(call: str) -> Iterator[None]:
    """Name the call in the error that reports a lost worker."""
    try:
        yield
    except PeerError as error:
        raise HorovodInternalError(f"hvd.{call}: {error}") from None


@contextmanager
def meet(
    call: str, process_set: ProcessSet | None, kind: int, counts: Sequence[int] = ()
) -> Iterator[tuple[Any, bool]]:
    """The group for a call after all its workers have reached the call, and whether some have joined.

    If a worker is lost, this raises HorovodInternalError.
    """
    began = time.perf_counter()
    with _named(call):
        group, joined = _met(call, process_set, kind, counts)
        waiting = time.perf_counter() - began
        yield group, joined
    events.emit("hvd", call=call, waiting=waiting, seconds=time.perf_counter() - began)


def _met(call: str, process_set: ProcessSet | None, kind: int, counts: Sequence[int]) -> tuple[Any, bool]:
    if process_set is not None and process_set is not global_process_set:
        if process_set._group is None:
            why = "this worker is not in it" if process_set.process_set_id else "call hvd.add_process_set first"
            raise ValueError(f"{process_set} cannot be used here: {why}")
        return process_set._group, False
    meeting = _meeting()
    if is_alone():
        return meeting.group, False
    return meeting.group, any(said[0] == JOINS for said in meeting.come(call, kind, counts))


def join() -> int:
    """Announce that this worker has no more data, and wait until all have. Return the rank of the last one.

    Until then, this worker contributes zero to sums and no samples to steps. Afterwards it has the final weights of the
    other workers.
    """
    meeting = _meeting()
    if is_alone():
        return 0
    place = meeting.session.store.add("horovod/joined", 1)  # type: ignore[union-attr]
    with _named("join"):
        while sums := [said[1:] for said in meeting.come("join", JOINS) if said[0] == SUMS]:
            for dtype, count in zip(DTYPES, sums[0], strict=True):
                if count:  # contribute zero to the sum of the others
                    meeting.group.all_reduce_(torch.zeros(count, dtype=dtype), "sum")
        return int(meeting.group.all_gather_small(torch.tensor([place]), "join").argmax())
