"""The workers that save together: this process alone, or all of a job."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..comm import session
from ..comm.group import Group
from ..comm.rounds import Rounds
from ..step import Servers, StepStrategy
from .manifest import CheckpointError
from .regions import Region
from .snapshot import Fragment
from .subjects import GluonSubject, Subject

_SLICE = 1.0  # seconds of a wait after which the waiting worker looks around
Key = tuple[str, Region | None]


class Workers:
    """This process alone, or all workers of a job, which train one model."""

    def __init__(self, subject: Subject):
        self._session = session.session()
        world = self._session.world
        self.is_elastic = world.is_elastic
        self.timeout = world.timeout
        # In an elastic job the first of the workers, whoever that is, saves everything: others may be lost meanwhile.
        self.size = 1 if world.is_elastic else world.size
        self._subject = subject
        self._stop = False
        self._known: Rounds | None = None  # for the signal handler
        self._told: list[str] = []  # the keys of the last messages
        self._described = b""  # what this worker had when the fragments were assigned
        self._mine: dict[Key, bool] = {}  # what it writes, and whether other workers have it too

    @property
    def rank(self) -> int:
        """The rank of this worker among those that save together."""
        return 0 if self.is_elastic else self._session.world.rank

    @property
    def seat(self) -> int:
        """The rank of this worker in its job, by which its random numbers differ from those of others."""
        return self._session.world.rank

    @property
    def saves(self) -> bool:
        """Whether this worker has a part in saving."""
        return not self.is_elastic or self._session.world.rank == 0

    @property
    def group(self) -> Group:
        """The group of all workers."""
        return self._session.group

    # ---- steps together ----

    @property
    def _strategy(self) -> StepStrategy | None:
        has_others = self.size > 1 or self.is_elastic
        return self._subject.strategy if has_others and self._subject.is_ready else None

    @property
    def _rounds(self) -> Rounds | None:
        strategy = self._strategy
        return None if strategy is None else strategy.rounds

    def check(self) -> None:
        """Raise if the workers do not train one model together, as far as that is known."""
        subject = self._subject
        subject.check()
        if self.is_elastic and subject.is_ready and subject.holders is not None:
            raise CheckpointError(
                f"an elastic job cannot save checkpoints under a layout ({subject.holders.described}): its first "
                "worker has only a part of the model. Call save_parameters and save_states on all workers instead"
            )
        if self.size == 1 or not subject.is_ready:
            return
        holders = subject.holders
        if holders is not None:
            if holders.model_group.size < self.size:
                raise CheckpointError(
                    f"the layout {holders.described} trains separate models, which one checkpoint cannot contain. Use "
                    "a layout of one model, or save each model with save_parameters"
                )
            return
        strategy = subject.strategy
        if strategy is not None and strategy.rounds is None:
            what = "Trainer" if isinstance(subject, GluonSubject) else "Module"
            if isinstance(strategy, Servers):
                raise CheckpointError(
                    "the workers of an asynchronous store take no step together, at which a checkpoint could be saved. "
                    "Use kvstore='dist_sync'"
                )
            raise CheckpointError(
                f"{self.size} workers share the directory, but this {what} does not sum gradients over them. Create "
                "it with kvstore='dist_sync' or mx.parallel.data_parallel(net); with a layout, create the Checkpointer "
                "after mx.parallel.apply or train_step"
            )

    def joined(self) -> int:
        """The number of steps of other workers for which this one had no data."""
        strategy, rounds = self._strategy, self._rounds
        return 0 if rounds is None or strategy is None else rounds.joined[strategy.number]

    def all_have_data(self) -> bool:
        """Whether all workers had a batch in the last step."""
        rounds = self._rounds
        return rounds is None or rounds.is_complete

    def ask_to_stop(self) -> None:
        """Tell all workers to stop, in their next round. Called by a signal handler."""
        if self._known is None:
            self._stop = True
        else:
            self._known.asks_to_stop = True

    def told_to_stop(self) -> bool:
        """Whether a worker was told to stop, as all workers know at the same step."""
        self._known = rounds = self._rounds
        if rounds is None:
            return self.any(self._stop, "whether to stop")
        if self._stop:
            rounds.asks_to_stop = True
        return rounds.stops or (self._stop and self.size == 1)

    # ---- agreement ----

    def from_first(self, value: int, what: str) -> int:
        """Return the value of worker 0."""
        return self.all(value, what)[0]

    def all(self, value: int, what: str) -> list[int]:
        """Return the values of all workers."""
        if self.size == 1:
            return [value]
        mine = torch.tensor([value], dtype=torch.int64)
        return [int(each) for each in self.group.all_gather_small(mine, what=what).flatten()]

    def any(self, flag: bool, what: str) -> bool:
        """Return whether a flag is set on any worker."""
        return any(self.all(int(flag), what))

    def everything(self, value: Any, what: str) -> list[Any]:
        """Return the JSON values of all workers."""
        if self.size == 1:
            return [value]
        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        return [json.loads(each.numpy().tobytes()) for each in self.group.all_gather(mine, what)]

    def meet(self, what: str) -> None:
        """Wait for all workers, however long they take."""
        if self.size > 1:
            self.group.wait_for_all(what)

    # ---- messages to worker 0 ----

    def tell(self, key: str, text: bytes) -> None:
        """Send a message of this worker under a key."""
        store = self._session.store
        assert store is not None
        self._told.append(f"checkpoint/{key}/{self.group.ranks[self.rank]}")
        store.set(self._told[-1], text)
        if len(self._told) > 2:  # worker 0 has heard this one: it has written the checkpoint before the last
            store.delete_key(self._told.pop(0))

    def hear(self, key: str, rank: int, is_over: Callable[[], bool]) -> bytes:
        """Wait for the message of a worker."""
        store, number = self._session.store, self.group.ranks[rank]
        assert store is not None
        limit, name = time.monotonic() + self.timeout, f"worker {number}"
        while True:
            try:
                return store.get(f"checkpoint/{key}/{number}", timeout=min(_SLICE, self.timeout))
            except MXNetError:
                if is_over() or name in store.gone or time.monotonic() > limit:
                    raise CheckpointError(store.missing([name])) from None

    # ---- who writes what ----

    def assign(self, fragments: Sequence[Fragment]) -> tuple[list[Fragment], list[str]]:
        """Return the fragments that this worker writes: its own, and some of those that several workers have.

        Also return the names of those that several workers have. All workers must call it. Without a layout all of them
        have the same shared fragments. Otherwise they exchange what they have, when that changes.
        """
        shared = {(each.name, each.region): each.tensor.nbytes for each in fragments if each.is_shared}
        if self.size == 1:
            return list(fragments), []
        if self._subject.holders is None:
            mine = dict.fromkeys(divide(dict.fromkeys(shared, range(self.size)), shared)[self.rank], True)
        else:
            mine = self._exchanged(shared)
        chosen = [each for each in fragments if not each.is_shared or (each.name, each.region) in mine]
        return chosen, [each.name for each in chosen if mine.get((each.name, each.region))]

    def _exchanged(self, shared: dict[Key, int]) -> dict[Key, bool]:
        """Return what this worker writes, and whether other workers have it too."""
        listed = [[name, region, size] for (name, region), size in shared.items()]
        described = hashlib.sha256(json.dumps(listed).encode()).digest()
        if self.any(described != self._described, "whether the parts of the state have changed"):
            sizes: dict[Key, int] = {}
            holders: dict[Key, list[int]] = defaultdict(list)
            for rank, theirs in enumerate(self.everything(listed, "the parts of the state")):
                for name, region, size in theirs:
                    key = name, None if region is None else tuple((start, stop) for start, stop in region)
                    sizes[key] = size
                    holders[key].append(rank)
            mine = divide(holders, sizes).get(self.rank, ())
            self._described, self._mine = described, {key: len(holders[key]) > 1 for key in mine}
        return self._mine


def divide(holders: Mapping[Key, Sequence[int]], sizes: Mapping[Key, int]) -> dict[int, list[Key]]:
    """Divide fragments over the workers that have them, so that all write about the same number of bytes.

    The result depends on nothing else.
    """
    shares: dict[int, list[Key]] = defaultdict(list)
    load: dict[int, int] = defaultdict(int)
    for key in sorted(holders, key=lambda key: (-sizes[key], key[0], key[1] or ())):
        least = min(holders[key], key=lambda rank: (load[rank], rank))
        shares[least].append(key)
        load[least] += sizes[key]
    return shares
