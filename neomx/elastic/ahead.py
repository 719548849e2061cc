"""Sends the state of the training to workers that follow the others, while these train.

After each batch, the members send some parameters with their optimizer states, each of them a part of the bytes. From
then on, the followers update these parameters as the members do, because they receive the same sums. So what they have
is always the state after the last step, and when all has been sent, they can train too.

Followers do not run the program of the members. In the end the state is therefore compared, and what differs is sent
again: running averages, and what the program changes outside of steps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..checkpoint.generators import reseed
from ..checkpoint.state import Content, Training, content_of
from ..comm.generations import Generation
from ..comm.group import Group
from ..comm.session import Session
from ..optimizer.states import owners
from .handover import DTYPES, broadcast_bytes, check_trainers

LEAST = 3  # steps of an epoch in which the state can be sent
FIRST = 4 << 20  # bytes after the first batch
FEWEST = 1 << 16  # bytes after each batch
_SECONDS = 0.05  # that sending should take after a batch
_WHAT = "the state of the training"


class Ahead:
    """The state of a training on its way. All members of a generation have one, and the workers that follow them."""

    def __init__(
        self,
        opened: Session,
        generation: Generation,
        trainings: Mapping[int, Training],
        epoch: int,
        facts: dict[str, Any],
    ) -> None:
        """`facts` are JSON values for the followers; those of the first member count. Raises if a model is another."""
        self._trainings = trainings
        self._group = Group(opened.world, opened.store, generation.everyone, f"ahead in {generation.number}")
        self._givers = len(generation.members)
        self._is_first, self._follows = self._group.rank == 0, self._group.rank >= self._givers
        said = self._told(
            lambda: {"tensors": self._listed(), "trainings": self._known(), "epoch": epoch, "elastic": facts}
        )
        self._said, self.facts = said, said["elastic"]
        self.is_complete = False
        self._forms = {name: (DTYPES[dtype], tuple(shape)) for name, dtype, shape in said["tensors"]}
        self._units = self._together(said["trainings"])
        self._sent, self._pace = 0, FIRST
        if self._follows:
            check_trainers(list(map(int, said["trainings"])), trainings)
            for number, content in self._contents(self._empty("meta"), said):
                self._trainings[number].wanted(content)

    def begin(self) -> None:
        """Prepare for what will be received: all parameters have states now."""
        if self._follows:
            self._restore(self._empty("cpu"), self._said)

    def close(self) -> None:
        """Release memory and connections."""
        self._group.close()

    def go_on(self, epoch: int = 0, left: int = 0, facts: dict[str, Any] | None = None) -> bool:
        """Send or receive more, between two batches of all members. About `left` steps are left in the epoch.

        Return whether this was the end: the followers have all of the state, or the members are in another epoch.
        The arguments are those of the first member.
        """
        before = self._sent
        header = torch.tensor([self._next(left), epoch])
        end, now = self._group.broadcast_(header, 0, _WHAT).tolist()
        if now != self._said["epoch"]:
            return True
        if before == len(self._units):
            self._complete(facts or {})
            return True
        began = time.perf_counter()
        self._pass_on([name for unit in self._units[before:end] for name in unit], self._givers)
        self._sent = end
        took = max(time.perf_counter() - began, 1e-4)
        size = sum(self._size(name) for unit in self._units[before:end] for name in unit)
        self._pace = max(int(size * min(_SECONDS / took, 4.0)), FEWEST)
        return False

    # ---- what is sent ----

    def _tensors(self) -> dict[str, torch.Tensor]:
        found = {}
        for number, training in self._trainings.items():
            for each in training.fragments(0, 1)[0]:
                if not each.name.startswith("worker/"):  # gradients and residuals of compression
                    found[f"{number}/{each.name}"] = each.tensor
        return found

    def _known(self) -> dict[str, Any]:
        return {str(number): training.fragments(0, 1)[1] for number, training in self._trainings.items()}

    def _listed(self) -> list[list[Any]]:
        return [[name, str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in self._tensors().items()]

    def _together(self, known: dict[str, Any]) -> list[list[str]]:
        """Divide the names into units: a parameter and its states, which the next update changes together."""
        units: dict[str, list[str]] = {}
        for number, facts in known.items():
            strategy = self._trainings[int(number)].subject.strategy
            names: dict[Any, str] = {}
            of: dict[str, Any] = {}
            if strategy is not None:
                trained = strategy.training.trained()
                names, of = dict(zip(trained.keys, trained.names, strict=True)), owners(facts["optimizer"])
            for name in self._forms:
                own, _, rest = name.partition("/")
                if own != number:
                    continue
                kind, _, rest = rest.partition("/")
                owner = rest if kind == "param" else names.get(of.get(rest), name)
                units.setdefault(f"{number}/{owner}", []).append(name)
        return list(units.values())

    def _size(self, name: str) -> int:
        dtype, shape = self._forms[name]
        return torch.Size(shape).numel() * dtype.itemsize

    def _next(self, left: int) -> int:
        """Return up to which unit the members send now, so that they have sent all before the epoch ends."""
        rest = sum(self._size(name) for unit in self._units[self._sent :] for name in unit)
        room, end = max(self._pace, -(-rest // max(left - 1, 1))), self._sent
        while end < len(self._units) and room > 0:
            room -= sum(self._size(name) for name in self._units[end])
            end += 1
        return end

    # ---- sending ----

    def _told(self, said: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the JSON values of the first member."""
        content = json.dumps(said()).encode() if self._is_first else b""
        told: dict[str, Any] = json.loads(broadcast_bytes(self._group, content))
        return told

    def _pass_on(self, names: Sequence[str], givers: int) -> None:
        """Send tensors to the followers. Each of the first `givers` members sends a part of the bytes."""
        size, rank, followers = sum(map(self._size, names)), self._group.rank, self._group.size - self._givers
        here = self._tensors()
        if rank < givers:
            mine = _part(here, names, size * rank // givers, size * (rank + 1) // givers)
            splits = [0] * self._givers + [len(mine)] * followers
            self._group.all_to_all(mine.repeat(followers), splits, _WHAT)
            return
        received, _ = self._group.all_to_all(torch.empty(0, dtype=torch.uint8), [0] * self._group.size, _WHAT)
        if self._follows:
            with torch.no_grad():
                for name, part in zip(names, received.split([self._size(name) for name in names]), strict=True):
                    dtype, shape = self._forms[name]
                    here[name].copy_(part.clone().view(dtype).view(shape))

    def _complete(self, facts: dict[str, Any]) -> None:
        """Send what the followers do not have as the first member has it, and all that is no tensor."""
        here = self._tensors()
        compares = self._is_first or self._follows
        sums = torch.tensor([_checksum(here[name]) if compares else 0 for name in self._forms], dtype=torch.int64)
        first, *others = self._group.all_gather(sums, _WHAT)
        differs = torch.stack([first != each for each in others[self._givers - 1 :]]).any(0).tolist()
        self._pass_on([name for name, each in zip(self._forms, differs, strict=True) if each], 1)
        random = self._group.broadcast_(torch.get_rng_state(), 0, _WHAT)
        said = self._told(lambda: {"trainings": self._known(), "elastic": facts})
        if self._follows:
            if self._known() != said["trainings"]:
                self._restore({name: each.detach().cpu().clone() for name, each in self._tensors().items()}, said)
            reseed({"torch": random}, self._group.ranks[self._group.rank])
        self.facts, self.is_complete = said["elastic"], True

    def _restore(self, tensors: Mapping[str, torch.Tensor], said: dict[str, Any]) -> None:
        for number, content in self._contents(tensors, said):
            self._trainings[number].restore(content)

    @staticmethod
    def _contents(tensors: Mapping[str, torch.Tensor], said: dict[str, Any]) -> Iterator[tuple[int, Content]]:
        for number, known in said["trainings"].items():
            own = {name.partition("/")[2]: each for name, each in tensors.items() if name.startswith(f"{number}/")}
            yield int(number), content_of(own, known, int(said["elastic"]["steps"]))

    def _empty(self, device: str) -> dict[str, torch.Tensor]:
        return {name: torch.zeros(shape, dtype=dtype, device=device) for name, (dtype, shape) in self._forms.items()}


def _part(tensors: Mapping[str, torch.Tensor], names: Sequence[str], start: int, stop: int) -> torch.Tensor:
    """Return some of the bytes of tensors, one after the other."""
    parts, at = [torch.empty(0, dtype=torch.uint8)], 0
    for name in names:
        end = at + tensors[name].nbytes
        if at < stop and start < end:
            flat = tensors[name].detach().cpu().contiguous().view(-1).view(torch.uint8)
            parts.append(flat[max(start - at, 0) : stop - at])
        at = end
    return torch.cat(parts)


def _checksum(tensor: torch.Tensor) -> int:
    """The sum of a tensor's bits, read as integers."""
    if not tensor.numel():
        return 0
    width = {1: torch.uint8, 2: torch.int16}.get(tensor.element_size(), torch.int32)
    return int(tensor.detach().cpu().contiguous().view(-1).view(width).sum(dtype=torch.int64))
