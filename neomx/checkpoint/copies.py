"""Copies in memory: each worker keeps its last two parts, and those of its neighbor on another host if possible.

After the loss of a host, the living workers have all parts of the last checkpoint, and the one that takes the place of
the lost worker gets its part back, without a disk. Parts are exchanged in the background, by messages of the group.

                     worker 0        worker 1        worker 2
    own part            0               1               2
    copy of             2               0               1
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import MXNetError
from ..comm import session
from ..comm.group import Group
from ..formats import safetensors
from . import manifest, regions
from .manifest import Stored
from .snapshot import Snapshot, views
from .state import Content, Wanted
from .subjects import Form
from .writer import joined, merged_facts

_log = logging.getLogger("neomx")
_KEPT = 2  # the last two steps: a worker may be lost while the newest is exchanged
_PATH = "a part in memory"


@dataclass
class Copied:
    """The bytes of the file of a worker."""

    step: int
    rank: int
    content: torch.Tensor  # bytes
    _header: tuple[dict[str, str], dict[str, safetensors.Location]] | None = None

    @property
    def header(self) -> tuple[dict[str, str], dict[str, safetensors.Location]]:
        """The metadata, and the arrays by name."""
        if self._header is None:
            memory = safetensors.bytes_of(self.content)

            def read(begin: int, size: int) -> bytes:
                return bytes(memory[begin : begin + size])

            self._header = safetensors.read_header(read, len(memory), _PATH)
        return self._header


@dataclass
class Copies:
    """The parts that this worker keeps for a directory of checkpoints."""

    group: Group
    own: dict[int, Copied] = field(default_factory=dict)  # by step
    neighbors: dict[int, Copied] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._distance = distance(self.group.hosts)

    def make_room(self) -> None:
        """Forget all but the newest part of this worker: the memory of the others is used for the next snapshot."""
        for step in sorted(self.own)[:-1]:
            del self.own[step]

    def exchange(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and give a copy of it to the neighbor. Called in the background, on all workers."""
        _keep(self.own, Copied(snapshot.step, snapshot.rank, snapshot.content))
        group = self.group
        splits = [0] * group.size
        splits[(group.rank + self._distance) % group.size] = snapshot.size
        try:
            received, sizes = group.all_to_all(snapshot.content, splits, "copies of checkpoints")
        except MXNetError as error:
            _log.warning("the copies in memory of step %d are not complete: %s", snapshot.step, error)
            return
        source = next(rank for rank, size in enumerate(sizes) if size)
        _keep(self.neighbors, Copied(snapshot.step, source, received))

    # ---- handing back ----

    def newest(self) -> int | None:
        """Return the newest step of which the living workers have all parts. All of them must call it."""
        rank = self.group.rank
        held = [[part.step, part.rank] for part in (*self.own.values(), *self.neighbors.values())]
        steps: dict[int, set[int]] = {}
        self._listed = everything(self.group, {"rank": rank, "held": held})
        for said in self._listed:
            for step, owner in said["held"]:
                steps.setdefault(step, set()).add(owner)
        whole = [step for step, owners in steps.items() if owners == set(range(self.group.size))]
        return max(whole, default=None)

    def hand_back(self, step: int) -> None:
        """Give the parts of a step back to workers that have lost theirs. All workers must call it after `newest`."""
        group = self.group
        has = [{owner for at, owner in said["held"] if at == step} for said in self._listed]
        for owner in range(group.size):
            if owner in has[owner]:
                continue
            source = next(rank for rank in range(group.size) if owner in has[rank])
            mine = self.neighbors.get(step)
            sent = mine.content if group.rank == source and mine is not None else torch.empty(0, dtype=torch.uint8)
            splits = [0] * group.size
            splits[owner] = sent.numel()
            received, _ = group.all_to_all(sent, splits, f"the part of worker {owner}")
            if group.rank == owner:
                _keep(self.own, Copied(step, owner, received))
                _log.info("worker %d got its part of step %d back from worker %d", owner, step, source)

    def content(self, step: int, layout: str) -> Content:
        """Return the checkpoint of a step of which each worker has its part. All workers must call its `fetch`."""
        group, mine = self.group, self.own[step]
        metadata = mine.header[0]
        told = {name: json.loads(metadata[name]) for name in ("worker", "tensors", "facts", "shared")}
        all_told = everything(group, told)
        tables = joined([each["tensors"] for each in all_told])
        stored = {name: manifest.stored(name, each, group.size) for name, each in tables.items()}
        alike = {name for each in all_told for name in each["shared"]}
        forms = {name: Form(each.shape, each.dtype) for name, each in stored.items()}

        def read(wanted: Wanted) -> dict[str, torch.Tensor]:
            return self._fill(mine, stored, alike, wanted)

        facts = merged_facts([each["facts"] for each in (all_told if layout else all_told[:1])])
        return Content(step, group.size, facts, forms, lambda rank: all_told[rank]["worker"], read, layout)

    def _fill(
        self, mine: Copied, stored: dict[str, Stored], alike: set[str], wanted: Wanted
    ) -> dict[str, torch.Tensor]:
        """Return tensors: from this worker's part, or from that of another one if several workers need them."""
        group, here = self.group, views(mine.content, mine.header[1])
        places = {
            name: regions.whole(stored[name].shape) if region is None else region for name, region in wanted.items()
        }
        found = {name: torch.empty(regions.shape_of(place), dtype=stored[name].dtype) for name, place in places.items()}
        for name, each in stored.items():
            for cut in each.slices:
                source = here[name] if cut.rank == group.rank else torch.empty(0)
                if name in alike:
                    source = source.clone() if cut.rank == group.rank else _empty(cut.region, each.dtype)
                    group.broadcast_(source, cut.rank, name)
                elif cut.rank != group.rank:
                    continue
                if name in found and (both := regions.overlap(places[name], cut.region)) is not None:
                    found[name][regions.within(both, places[name])] = source[regions.within(both, cut.region)]
        return found


def _empty(region: regions.Region, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(regions.shape_of(region), dtype=dtype)


def distance(hosts: Sequence[int]) -> int:
    """Return the distance between a worker's rank and that of its neighbor: on another host for as many as possible."""
    size = len(hosts)

    def apart(d: int) -> int:
        return sum(hosts[rank] != hosts[(rank + d) % size] for rank in range(size))

    return max(range(1, size), key=lambda d: (apart(d), -d))


def everything(group: Group, value: Any) -> list[Any]:
    """Return the JSON values of all workers."""
    mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(each.numpy().tobytes()) for each in group.all_gather(mine, "what workers keep in memory")]


def copies_of(url: str) -> Copies:
    """Return the copies for a directory. They stay while the session of this process does."""
    kept = session.session().kept
    name = f"copies of {url}"
    if name not in kept:
        kept[name] = Copies(session.session().group.clone("copies"))
    found: Copies = kept[name]
    return found


def _keep(parts: dict[int, Copied], part: Copied) -> None:
    parts[part.step] = part
    for step in sorted(parts)[:-_KEPT]:
        del parts[step]
