"""An elastic job on the node with the store: it goes on when workers or hosts are lost, and replaces them.

`crew.py` decides which workers run where. This file starts them, learns of their ends, and decides when the job is
over. Workers and launchers tell each other through the job's store:

- `elastic/failed/<member>`: a worker fails with an exception: {"step": committed steps, "error": "ValueError: ..."}
- `elastic/generation`: the workers that train: {"members": [member numbers], ...}
- `elastic/over`: the program has ended normally on all of them
- `launch/node/<node>`: the launcher of a node can start workers
- `launch/order/<node>/<number>`: what it must do: {"do": "start", ...} or {"do": "leave", ...}
- `launch/ended/<node>/<number>`: one of its workers has ended: a Failure, with code 0 if it did not fail
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from ..comm.child import Child, Command, Failure
from ..comm.jobspec import JobSpec
from ..comm.store import StoreServer
from ..comm.supervision import FAREWELL, SAVED
from ..comm.wire import printable
from ..programs import SERVER
from .council import Council
from .crew import Crew, Host, Limits, Loss, Start
from .errors import ConfigurationError
from .job import Job
from .run import grace_of, start_process

_WORDS = 500  # characters of an error that are shown


class Starter(Protocol):
    """Where workers can be started."""

    def start(self, start: Start, size: int, nodes: int) -> None:
        """Start a worker of a job that began with `size` workers on `nodes` nodes. Raises OSError if it cannot."""

    def exits(self) -> Iterator[Failure]:
        """Return the exits of workers since the last call, with code 0 if they did not fail."""


class Processes(Protocol):
    """The processes of this node."""

    def start(self, command: Command) -> Child:
        """Start a process."""

    def bury(self, child: Child) -> None:
        """Release a process that has ended, and kill its descendants."""


class Here:
    """This machine, where workers are child processes."""

    def __init__(self, tree: Processes, spec: JobSpec, argv: list[str]):
        self._tree, self._spec, self._argv = tree, spec, argv

    def start(self, start: Start, size: int, nodes: int) -> None:
        """Start a worker."""
        spec = dataclasses.replace(self._spec, size=size, local_size=start.host.room, nodes=nodes)
        self._tree.start(spec.worker_command(self._argv, start.member, start.local_rank, start.joins))

    def exits(self) -> Iterator[Failure]:
        """Return nothing: `Elastic.ended` learns of the exits."""
        return iter(())


class There:
    """Another node. Its launcher reads orders from the store, and reports the exits of its workers."""

    def __init__(self, store: StoreServer, node: int):
        self._store, self._node = store, node
        self._orders = self._reports = 0

    def start(self, start: Start, size: int, nodes: int) -> None:
        """Order the launcher to start a worker."""
        job = {"size": size, "nodes": nodes, "room": start.host.room}
        self._order(do="start", member=start.member, local=start.local_rank, joins=start.joins, **job)

    def leave(self, why: str = "", kills: bool = True) -> None:
        """Order the launcher to kill all of its workers, or end them with SIGTERM. It fails if there is a reason."""
        self._order(do="leave", why=why, kills=kills)

    def _order(self, **order: Any) -> None:
        self._store.set(f"launch/order/{self._node}/{self._orders}", json.dumps(order).encode())
        self._orders += 1

    def exits(self) -> Iterator[Failure]:
        """Return the exits that the launcher has reported."""
        while (report := self._store.get(f"launch/ended/{self._node}/{self._reports}")) is not None:
            self._reports += 1
            yield Failure(**json.loads(report))


class Elastic(Council):
    """The verdict of an elastic job."""

    forsaken = "is silent, and the others continue without it"

    def __init__(self, store: StoreServer, crew: Crew, grace: float, timeout: float, saves: bool = False):
        self._remote: set[int] = set()
        super().__init__(store, self._remote, grace)
        self._crew, self._timeout, self._saves = crew, timeout, saves
        self._starters: dict[int, Starter] = {}  # by node
        self._tree: Processes | None = None
        self._nodes = 1  # at the start
        self._joiners: set[int] = set()  # workers that were started after the others
        self._generation: set[int] | None = None  # the current generation, None: the training has not begun
        self._errors: dict[tuple[int | None, str], Failure] = {}
        self._cause: Failure | None = None
        self._is_over = False
        self._idle_since = self._short_since = 0.0

    def add(self, host: Host, starter: Starter) -> None:
        """Add a host whose launcher can start workers."""
        if host not in self._crew.hosts:
            self._crew.hosts.append(host)
        host.is_ready = True
        self._starters[_node(host)] = starter
        if isinstance(starter, There):
            self._remote.add(_node(host))

    def begin(self, tree: Processes) -> None:
        """Start the first workers."""
        self._tree, self._nodes = tree, len(self._starters)
        for start in self._crew.begin():
            try:
                self._starters[_node(start.host)].start(start, self._crew.size, self._nodes)
            except OSError as error:  # no processes, descriptors or memory left
                raise ConfigurationError(
                    f"cannot start worker {start.member}: {error.strerror or error}. Reduce -n or --spares"
                ) from error

    # ---- events ----

    def ended(self, child: Child) -> None:
        """Handle the exit of a worker of this node."""
        assert self._tree is not None
        failure = child.failure() if child.code else Failure(child.name, 0, "", [])
        if child.code:
            self._tree.bury(child)
        if child.name.startswith("server"):
            self._lose_server(failure)
        else:
            self._exit(failure)

    def _lose_server(self, failure: Failure) -> None:
        """Handle the end of a parameter server, without which the job may go on."""
        if not failure.code:
            return
        self.server.mark_gone(failure.name, failure.code, failure.why)
        if how := self.servers.tolerates(failure.name):
            self._news.append(f"{failure.name} on {failure.host} is lost ({failure.why}); {how}")
        else:
            self._fail(failure, "")

    def tick(self) -> None:
        """Learn what happened on other nodes, start workers, and decide whether the job can go on."""
        for starter in self._starters.values():
            for failure in starter.exits():
                self._exit(failure)
        self._look_for_lost_nodes()
        self._read_progress()
        if self._crew.size:
            for start in self._crew.due():
                self._start(start)
            self._judge()

    def request(self, signum: int) -> None:
        """Pass a signal on to other nodes. If the workers save a checkpoint and end, start no others."""
        super().request(signum)
        self._crew.closing |= self._saves

    def _exit(self, failure: Failure) -> None:
        member = int(failure.name.removeprefix("worker "))
        if self._crew.host_of(member) is None:  # it was lost with its host
            return
        self._read_progress()
        if failure.code not in (0, SAVED):
            self.failed(failure)
            return
        self._crew.finish(member)
        self._crew.closing = True  # a worker ends only with the others, so the program is over
        if failure.code == 0:
            self.successes += 1
        else:
            self.note_saved(1)

    def failed(self, failure: Failure) -> None:
        """Handle the loss of a worker: replace it, or end the job if another one failed with the same error."""
        self.server.mark_gone(failure.name, failure.code, failure.why)
        self.lost.append(failure)
        error = self._error_of(failure)
        twin = None if error is None else self._errors.setdefault(error, failure)
        loss = self._crew.lose(int(failure.name.removeprefix("worker ")), hesitates=error is not None)
        if error is not None and twin is not None and twin is not failure:
            when = "before the training began" if error[0] is None else f"at step {error[0]}"
            who = f"{twin.name} on {twin.host} and {failure.name} on {failure.host}"
            what = f"{who} failed {when} with the same error, {failure.why}: {error[1]}"
            self._fail(failure, f"{what}\nThe program would fail there again, so no worker is replaced")
            return
        words = error[1] if error else failure.exception
        why = f"{failure.why}: {words}" if words else failure.why
        self._news.append(f"{failure.name} on {failure.host} is lost ({why}). {self._remaining()}{self._next(loss)}")
        self._note_failure(loss.host)

    def _lose(self, host: Host, why: str) -> None:
        """Record the loss of a host, with all of its workers."""
        starter = self._starters[_node(host)]
        if isinstance(starter, There):
            starter.leave(f"node 0 has given it up: {why}")  # if it can still read that
        with_it = self._give_up(host, f"its host {host.name} is lost")
        for member in with_it:
            self.lost.append(Failure(f"worker {member}", 1, host.name, [why]))
        names = f", and with it worker{'s' * (len(with_it) > 1)} {', '.join(map(str, with_it))}" if with_it else ""
        room = self._crew.could_start(host for host in self._crew.hosts if host.is_ready)
        replaced = "" if not with_it or self._crew.closing else f"; other hosts have room for {room} replacements"
        self._news.append(f"{host.name} is lost ({why}){names}. {self._remaining()}{replaced}")
        self._note_failure(host)

    def _note_failure(self, host: Host) -> None:
        if (seconds := self._crew.fail(host)) > 0:
            self._news.append(
                f"{host.name} failed three times within a minute: no worker starts on it for {seconds:g} s"
            )

    def _give_up(self, host: Host, why: str) -> list[int]:
        """Let a host go. Its workers count as gone from now on."""
        self._starters.pop(_node(host), None)
        self._remote.discard(_node(host))
        members = self._crew.leave(host)
        for member in members:
            self.server.mark_gone(f"worker {member}", None, why)
        return members

    def _look_for_lost_nodes(self) -> None:
        members = self.server.roster()
        for host in list(self._crew.hosts):
            member = members.get(f"node {host.node}")
            if host.node in self._remote and member is not None and member.state != "here":
                self._lose(host, f"its launcher is gone: {member.why}" if member.why else "its launcher has ended")

    def _start(self, start: Start) -> None:
        self._joiners.add(start.member)
        if len(self._crew.hosts) > 1:
            self._news.append(f"worker {start.member} starts on {start.host.name}")
        try:
            self._starters[_node(start.host)].start(start, self._crew.size, self._nodes)
        except OSError as error:
            self.failed(Failure(f"worker {start.member}", 1, start.host.name, [f"it cannot be started: {error}"]))

    # ---- what the workers say ----

    def _read_progress(self) -> None:
        found = _json(self.server.get("elastic/generation")).get("members")
        if isinstance(found, list):
            self._generation = {member for member in found if isinstance(member, int)}
        if not self._is_over and self.server.get("elastic/over") is not None:
            self._is_over = self._crew.closing = True

    def _error_of(self, failure: Failure) -> tuple[int | None, str] | None:
        """Return the step and the exception of a worker that failed, unless another loss was the reason."""
        said = _json(self.server.get(f"elastic/failed/{failure.name.removeprefix('worker ')}"))
        step, error = said.get("step"), said.get("error")
        if failure.code < 0 or failure.is_consequence or isinstance(error, str) and "PeerError" in error:
            return None
        if isinstance(step, int) and isinstance(error, str):
            return step, printable(error[:_WORDS])
        if self._generation is None and failure.exception:  # no worker came as far as to train
            return None, failure.exception[:_WORDS]
        return None

    # ---- the end ----

    def over(self, running: bool) -> bool:
        """Whether the job has failed, or its program has ended or saved."""
        now = time.monotonic()
        if self._cause is not None or self._has_saved(now):
            return True
        left = self._crew.running
        if not left:
            return self._crew.closing
        if not (self._is_over or self.saved) or self._training:
            self._idle_since = now
        return now - self._idle_since > FAREWELL  # workers that never trained did not end by themselves

    def _judge(self) -> None:
        """End the job if there are too few workers, and no others can be started."""
        crew, now = self._crew, time.monotonic()
        if crew.closing:
            return
        if not self._training and (self._generation is not None or self._waits_for_others()):
            again = "Start the job again" + (" with --resume auto" if self._saves else "")
            self._fail_for("every worker that had the state of the training is lost", f". {again}")
            return
        if len(crew.running) >= crew.limits.least:
            self._short_since = 0.0
            return
        if crew.pauses() or not self._short_since:
            self._short_since = now
        lacking = crew.limits.least - len(crew.running)
        if self._could_start() < lacking:
            self._fail_for_lack("")
        elif now - self._short_since > self._timeout:
            self._fail_for_lack(f" for {self._timeout:g} s")

    def _waits_for_others(self) -> bool:
        """Whether a worker has connected to the job. The program of one that joins then waits until it is admitted."""
        members = self._members()
        return any(f"worker {member}" in members for member in self._crew.running)

    def _could_start(self) -> int:
        """Return how many workers can be started, now or later."""
        return self._crew.could_start(host for host in self._crew.hosts if host.is_ready)

    def _fail_for_lack(self, waited: str) -> None:
        left, least = len(self._crew.running), self._crew.limits.least
        said = "no worker is left" if not left else f"it has {left} of at least {least} workers"
        why = f"--restarts {self._crew.limits.restarts} allows no more replacements"
        if not any(host.free and host.is_ready for host in self._crew.hosts):
            why = f"no host has room for more{waited}"
        self._fail_for(f"{said}, and {why}")

    def _fail_for(self, reason: str, advice: str = "") -> None:
        last = self.lost[-1] if self.lost else Failure("", 1, "", [])
        words = last.exception or next(reversed(last.lines), "no output")
        lost = f". Lost last: {last.name} on {last.host}, {last.why}: {words}" if last.name else ""
        self._fail(last, f"the job failed: {reason}{lost}{advice}")

    def _fail(self, cause: Failure, why: str) -> None:
        self._cause, self.why = cause, why
        self._crew.closing = True

    def failure(self) -> Failure | None:
        """Return the cause of the job's failure, if any. Losses are none if other workers ended the program."""
        if self._cause is not None or self.successes or self.saved or self._is_over:
            return self._cause
        return self.lost[-1] if self.lost else None

    def report(self, failure: Failure) -> str:
        """Return why the job failed."""
        return self.why or super().report(failure)

    def is_forsaken(self, child: Child) -> bool:
        """Whether a running worker is silent, so that the others continue without it."""
        mine = self._members().get(child.name)
        return mine is not None and mine.is_silent

    @property
    def _training(self) -> set[int]:
        """The workers that run and train, or did not have to join: the others wait to be admitted by them."""
        running = self._crew.running
        return running - self._joiners if self._generation is None else running & self._generation

    # ---- messages ----

    def _remaining(self) -> str:
        training = len(self._training)
        waiting = len(self._crew.running) - training
        said = (
            "No worker remains"
            if not training
            else "1 worker remains"
            if training == 1
            else f"{training} workers remain"
        )
        return said + (f", {waiting} wait{'s' * (waiting == 1)} to join" if waiting else "")

    def _next(self, loss: Loss) -> str:
        limit = self._crew.limits.restarts
        if loss.successor is None:
            return "" if self._crew.closing else f"; it is not replaced (--restarts {limit})"
        when = f" in {loss.pause:g} s" if loss.pause else ""
        return f"; worker {loss.successor} replaces it{when} (restart {loss.restarts} of {limit})"


def _node(host: Host) -> int:
    assert host.node is not None
    return host.node


def _json(value: bytes | None) -> Mapping[str, Any]:
    """Parse a value that a worker has set. Return {} if it is not a JSON object."""
    try:
        found = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def limits_of(job: Job) -> Limits:
    """Return the limits of an elastic job."""
    assert job.elastic is not None
    return Limits(job.least, job.most, job.elastic.spares, job.elastic.restarts, job.elastic.cooldown)


def verdict_of(job: Job, store: StoreServer) -> Elastic:
    """Return the verdict of an elastic job."""
    return Elastic(store, Crew(limits_of(job)), grace_of(job), job.timeout, job.saving.patience is not None)


def here(job: Job, store: StoreServer, tree: Processes, spec: JobSpec) -> Elastic:
    """Start an elastic job on this machine only, and return its verdict."""
    verdict = verdict_of(job, store)
    verdict.add(Host("this machine", job.local_room, node=0), Here(tree, spec, job.python))
    for command in spec.server_commands(SERVER):
        start_process(tree.start, command)
    verdict.begin(tree)
    return verdict
