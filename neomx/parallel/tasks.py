"""Task parallelism: independent tasks, each on some of the workers, with their results on all of them."""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from ..base import MXNetError
from ..comm.group import Group
from ..comm.session import Session, session, within
from ..comm.store import PeerError
from ..comm.torch_store import TorchStore
from .values import decode, encode

Work = Callable[[], Any]


def tasks(tasks: Mapping[str, Work | tuple[Work, float]], workers: int = 1) -> dict[str, Any]:
    """Run independent tasks on groups of at least `workers` workers each. Every worker returns {name: result}.

    A task is a function without arguments, or a pair of such a function and its weight: {'a': (train_a, 2), 'b':
    train_b}. All workers must call this with the same tasks.

    - If there are enough workers, all tasks run concurrently. Each gets a number of adjacent ranks in proportion to its
      weight (default 1).
    - If there are more tasks than groups, a group takes the next task when it has finished one: heavier tasks first,
    then
      in the given order.

    Within a task, `mx.dist`, `mx.dist.shard` and a Trainer with kvstore='dist_sync' see only the workers of the task,
    with ranks from 0. Objects created before (a Trainer, a group of `mx.dist.new_group`) still span their original
    workers, so tasks that run concurrently may share parameters.

    The result of a task is the return value of its first worker: arrays, tensors, numbers, strings, None, and lists,
    tuples and dictionaries of these. If a task raises, tasks that have started are finished, no other starts, and every
    worker raises one MXNetError that names the task, the worker and the exception.
    """
    listed = [_Task.of(name, work) for name, work in _checked(tasks).items()]
    return _Run(listed, workers, session()).results()


@dataclass(frozen=True)
class _Task:
    name: str
    work: Work
    weight: float

    @staticmethod
    def of(name: Any, given: Any) -> _Task:
        work, weight = given if isinstance(given, tuple) and len(given) == 2 else (given, 1.0)
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not isinstance(name, str) or not callable(work) or not number or not 0 < weight < float("inf"):
            raise TypeError(
                "expected {name: function} or {name: (function, weight)}, with a weight greater than 0, received "
                f"{name!r}: {given!r:.80}"
            )
        return _Task(name, work, float(weight))


def _checked(tasks: Any) -> Mapping[str, Any]:
    if not isinstance(tasks, Mapping) or not tasks:
        raise TypeError(f"expected a dictionary of tasks, {{name: function}}, received {tasks!r:.80}")
    return tasks


def shares(weights: Sequence[float], workers: int, least: int = 1) -> list[int]:
    """Return the number of workers of each task: at least `least`, minimizing the largest weight per worker."""
    counts = [least] * len(weights)
    for _ in range(workers - sum(counts)):
        neediest = max(range(len(counts)), key=lambda i: (weights[i] / counts[i], -i))
        counts[neediest] += 1
    return counts


class _Run:
    """One call of `tasks` on this worker.

    Workers communicate in a separate group, the board, and in the group of their team. Both remain usable when groups
    that a task created have failed.
    """

    def __init__(self, listed: list[_Task], workers: int, opened: Session):
        self._opened = opened
        self._teams = _teams([task.weight for task in listed], workers, opened.world.size)
        waiting = len(listed) > len(self._teams)
        self._tasks = sorted(listed, key=lambda task: -task.weight) if waiting else listed
        self._order = [task.name for task in listed]
        self._board: Group = opened.group.clone("tasks")
        self._board.tasks = list(opened.group.tasks)
        self._check_alike()
        self._at, self._team = self._join_team()
        self._results: dict[str, torch.Tensor] = {}
        self._error: Exception | None = None
        self._failed: str | None = None

    def _check_alike(self) -> None:
        said = repr([(task.name, task.weight) for task in self._tasks] + [len(self._teams)])
        numbers = self._board.all_gather_small(torch.tensor([zlib.crc32(said.encode())])).flatten().tolist()
        other = next((rank for rank, number in enumerate(numbers) if number != numbers[0]), None)
        if other is not None:
            mine = ", ".join(task.name for task in self._tasks)
            raise MXNetError(
                f"all workers must pass the same tasks, but workers {self._board.ranks[0]} and "
                f"{self._board.ranks[other]} differ. This worker has {mine}"
            )

    def _join_team(self) -> tuple[int, Group]:
        made = [self._board.subgroup(ranks) for ranks in self._teams]
        return next((at, team) for at, team in enumerate(made) if team is not None)

    def results(self) -> dict[str, Any]:
        """Run tasks until all are done; return their results in the order of the tasks."""
        mine = self._opened.group.tasks  # a worker that fails in a task does not join the collectives of the others
        mine.append(self._board.name)
        try:
            self._work()
            self._board.wait_for_all("all tasks")
        finally:
            mine.remove(self._board.name)
        report = {"results": self._results, "failed": self._failed, "why": _said(self._error)}
        told = [decode(each) for each in self._board.all_gather(encode(report), what="the results of tasks")]
        self._team.close()
        self._board.close()
        self._refuse_failures(told)
        found = {name: result for each in told for name, result in each["results"].items()}
        return {name: decode(found[name]) for name in self._order}

    def _work(self) -> None:
        at = self._at
        while at < len(self._tasks):
            self._do(self._tasks[at])
            at = self._next(at)

    def _do(self, task: _Task) -> None:
        """Run a task with the workers of this team."""
        group = self._team.clone("task")
        group.tasks = [*self._board.tasks, self._board.name]
        try:
            with within(group):
                result = task.work()
                if group.rank == 0:
                    self._results[task.name] = encode(result)
        except Exception as error:
            self._error, self._failed = error, task.name
            self._board.leave_task(self._board.name, f"its task {task.name!r} raised {_said(error)[0]}")

    def _next(self, at: int) -> int:
        """Return the number of the next task for this team; beyond the last if there is none, or if one has failed."""
        if len(self._tasks) == len(self._teams):
            return len(self._tasks)
        self._team.wait_for_all(f"the task {self._tasks[at].name!r}")
        failed = bool(self._team.all_gather_small(torch.tensor([self._error is not None])).any())
        store = self._opened.store
        following = torch.tensor([len(self._tasks)])
        if failed and store is not None:
            store.set(f"{self._board.name}/failed", b"")
        elif not failed and self._team.rank == 0:
            following[0] = at + 1 if store is None else self._taken(store)
        return int(self._team.broadcast_(following))

    def _taken(self, store: TorchStore) -> int:
        if store.check([f"{self._board.name}/failed"]):
            return len(self._tasks)
        return len(self._teams) - 1 + store.add(f"{self._board.name}/taken", 1)

    def _refuse_failures(self, told: list[dict[str, Any]]) -> None:
        """Raise if a task failed, with its cause rather than the resulting failures of other workers."""
        failed = [(rank, each["failed"], *each["why"]) for rank, each in enumerate(told) if each["failed"] is not None]
        if not failed:
            return
        causes = [each for each in failed if not each[3]] or failed
        lines = []
        for rank, name, why, _ in causes:
            team = next(team for team in self._teams if rank in team)
            lines.append(
                f"task {name!r}, on {_listed(self._board, team)}, failed on {_listed(self._board, [rank])}: {why}"
            )
        ended = {name for each in told for name in each["results"]} | {each[1] for each in failed}
        left = [name for name in self._order if name not in ended]
        lines += [f"not started: {', '.join(map(repr, left))}"] if left else []
        raise MXNetError("; ".join(lines)) from self._error


def _teams(weights: list[float], least: int, size: int) -> list[list[int]]:
    """Return the ranks of each team: one team per task, or as many teams of `least` workers as possible."""
    if not isinstance(least, int) or not 1 <= least <= size:
        raise ValueError(f"workers must be from 1 to {size}, the number of workers, received {least!r}")
    count = size // least
    counts = shares(weights if len(weights) <= count else [1.0] * count, size, least)
    ends = list(accumulate(counts))
    return [list(range(end - count, end)) for end, count in zip(ends, counts, strict=True)]


def _said(error: Exception | None) -> Any:
    """Return an error's message, its location, and whether it was caused by the loss of another worker."""
    if error is None:
        return None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})", isinstance(error, PeerError)


def _listed(group: Group, members: Sequence[int]) -> str:
    ranks = [group.ranks[member] for member in members]
    return f"worker{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
