"""Starting, watching and ending the processes of a job on this node: the core of `neomx run` and `mx.dist.launch`."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import fcntl
import os
import pathlib
import pty
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from . import guard
from .output import TAIL, Screen, Sink, close_log, open_log, prefix_of
from .store import Member
from .world import DEFAULT_TIMEOUT

STARTUP = pathlib.Path(__file__).parents[1] / "compat" / "startup"  # on PYTHONPATH it makes `import mxnet` mean neomx
FAREWELL = 5.0  # seconds that the others have to say what they lost when one has failed
PATIENCE = 5.0  # seconds from a first SIGINT or SIGTERM to the next stronger signal
TOLERATES = "tolerates-loss"  # the store's key that says: the job goes on without a worker that died
OF_A_JOB = frozenset(
    ("NEOMX_ROLE", "NEOMX_NODE", "NEOMX_NODES", "NEOMX_SERVERS", "NEOMX_SERVER_ID", "NEOMX_STORE", "NEOMX_JOB")
    + ("NEOMX_SECRET", "NEOMX_TLS", "NEOMX_TIMEOUT", "NEOMX_HOST")
    + ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
)
DEATHS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a job's processes on one node are told about it, through their environment."""

    job: str
    secret: str
    store: str
    size: int
    first_rank: int = 0
    local_size: int = 1
    node: int = 0
    nodes: int = 1
    servers: int = 0
    host: str = "127.0.0.1"
    timeout: float = DEFAULT_TIMEOUT
    tls: str | None = None
    extra: tuple[tuple[str, str], ...] = ()

    def worker(self, local_rank: int) -> dict[str, str]:
        """The environment of a worker."""
        rank = self.first_rank + local_rank
        return self._environ("worker", RANK=rank, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=self.local_size)

    def server(self, number: int) -> dict[str, str]:
        """The environment of a parameter server."""
        return self._environ("server", NEOMX_SERVER_ID=number)

    def local_servers(self) -> list[int]:
        """The servers that run on this node: they are dealt out to the nodes in turn."""
        return list(range(self.node, self.servers, self.nodes))

    def _environ(self, role: str, **own: Any) -> dict[str, str]:
        told = {
            "NEOMX_ROLE": role,
            "WORLD_SIZE": self.size,
            "NEOMX_NODE": self.node,
            "NEOMX_NODES": self.nodes,
            "NEOMX_SERVERS": self.servers,
            "NEOMX_STORE": self.store,
            "NEOMX_JOB": self.job,
            "NEOMX_SECRET": self.secret,
            "NEOMX_TIMEOUT": f"{self.timeout:g}",
            "NEOMX_HOST": self.host,
            **({"NEOMX_TLS": self.tls} if self.tls else {}),
            **own,
        }
        return _inherited() | {key: str(value) for key, value in told.items()} | dict(self.extra)


def _inherited() -> dict[str, str]:
    """Our own environment without another job's, with what every process of a job should have."""
    ours = {key: value for key, value in os.environ.items() if key not in OF_A_JOB and not key.startswith("DMLC_")}
    ours.setdefault("OMP_NUM_THREADS", "1")
    # glibc gives large blocks back to the system at every step, and takes them again page by page: a seventh of a step.
    ours.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 30))
    ours.setdefault("MALLOC_TRIM_THRESHOLD_", str((1 << 31) - 1))
    ours.setdefault("PYTHONUNBUFFERED", "1")  # lines are shown when they are printed
    ours.setdefault("PYTHONFAULTHANDLER", "1")  # a crash in native code says where
    ours["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *filter(None, [ours.get("PYTHONPATH")])])
    return ours


@dataclasses.dataclass
class Task:
    """A process to start. `plain`: shown as it is, with a terminal of its own where we have one."""

    name: str
    command: list[str]
    environ: dict[str, str]
    plain: bool = False
    stdin: int = subprocess.DEVNULL
    pass_fds: tuple[int, ...] = ()
    lines: bool = False  # shown line by line without a name


@dataclasses.dataclass(frozen=True)
class Failure:
    """A process that ended otherwise than by success. `code` is negative for a signal."""

    name: str
    code: int
    host: str
    lines: list[str]

    @property
    def why(self) -> str:
        """The exit code or the signal in words."""
        return describe(self.code)

    @property
    def exit_code(self) -> int:
        """What a shell would make of it: 128 + the signal."""
        return 128 - self.code if self.code < 0 else self.code

    @property
    def is_consequence(self) -> bool:
        """Whether it ended because another was gone, by its own words."""
        return any("PeerError" in line for line in self.lines)

    def report(self) -> str:
        """Who failed, how, and the last that it said."""
        said = "".join(f"\n  | {line}" for line in self.lines) or "\n  (it printed nothing)"
        return f"{self.name} on {self.host} failed first, by {self.why}. Its last lines:{said}"


def describe(code: int) -> str:
    """'exit code 3', or 'signal SIGKILL' for a negative one."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def say(text: str) -> None:
    """A word of the launcher's own, while no process runs."""
    print(f"neomx: {text}", file=sys.stderr, flush=True)


class Child:
    """One process with its own session: everything it starts can be ended with it."""

    def __init__(self, task: Task, logs: str | None, screens: tuple[Screen, Screen]):
        self.name = task.name
        self.code: int | None = None
        self.tail: collections.deque[bytes] = collections.deque(maxlen=TAIL)
        self.sinks: dict[int, Sink] = {}
        self._log = open_log(logs, task.name)
        channels = _channels(task, screens)
        try:
            self.process = subprocess.Popen(
                task.command,
                env=task.environ,
                stdin=task.stdin,
                stdout=channels[0][1],
                stderr=channels[1][1],
                start_new_session=True,
                pass_fds=task.pass_fds,
            )
        except BaseException:
            for fd in {channels[0][0], channels[1][0]}:
                os.close(fd)
            raise
        finally:
            for fd in {channels[0][1], channels[1][1]}:
                os.close(fd)
        self.group = self.process.pid
        for screen, (reader, _) in zip(screens, channels, strict=True):
            if reader not in self.sinks:
                os.set_blocking(reader, False)
                self.sinks[reader] = Sink(screen, _prefix(task, screen), self.tail, self._log)

    def poll(self) -> int | None:
        """The exit code once it has ended. It stays a zombie until `reap`, so that its number is nobody else's."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            self.code = self.process.poll()
        elif self.code is None:
            ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self.code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self.code

    def read(self, fd: int) -> bool:
        """Pass on what the process has written. False at the end of the stream."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        except OSError as error:  # a terminal whose last writer is gone
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            self.sinks[fd].feed(data)
        return bool(data)

    def close(self, fd: int) -> None:
        """The stream has ended."""
        self.sinks.pop(fd).close()
        os.close(fd)

    def reap(self) -> None:
        """Let go of the process, which has ended."""
        self.poll()
        self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        close_log(self._log)

    def failure(self) -> Failure:
        """Its end, as a failure."""
        assert self.code
        return Failure(
            self.name, self.code, socket.gethostname(), [line.decode(errors="replace") for line in self.tail]
        )


def _prefix(task: Task, screen: Screen) -> str | None:
    if task.plain:
        return None
    return "" if task.lines else prefix_of(task.name, screen)


def _channels(task: Task, screens: tuple[Screen, Screen]) -> list[tuple[int, int]]:
    """Reading and writing ends for stdout and stderr: terminals for the plain process where ours are, else pipes."""
    terminals = [task.plain and screen.terminal for screen in screens]
    if all(terminals):
        return [_terminal(screens[0])] * 2
    return [_terminal(screen) if t else os.pipe() for t, screen in zip(terminals, screens, strict=True)]


def _terminal(screen: Screen) -> tuple[int, int]:
    """A terminal of the size of ours that hands through what is written to it."""
    reader, writer = pty.openpty()
    settings = termios.tcgetattr(writer)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(writer, termios.TCSANOW, settings)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(screen.stream.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
    return reader, writer


class Tree:
    """The processes of a job on this node. Leaving the `with` block ends all of them and all that they started."""

    def __init__(self, job: str, node: int = 0, logs: str | None = None):
        self.job, self.node, self.logs = job, node, logs
        self.children: list[Child] = []
        self.screens = _screens()
        self._selector = selectors.DefaultSelector()
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tree:
        command = [sys.executable, "-I", "-S", guard.__file__, self.job, str(self.node)]
        self._guard = subprocess.Popen(
            command,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # who reads ours need not wait for it
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()
        self._selector.close()
        assert self._guard is not None and self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def start(self, task: Task) -> Child:
        """Start a process."""
        child = Child(task, self.logs, self.screens)
        self.children.append(child)
        assert self._guard is not None and self._guard.stdin is not None
        self._guard.stdin.write(b"%d\n" % child.group)
        for fd in child.sinks:
            self.listen(fd, lambda fd=fd: self._pass_on(child, fd))  # type: ignore[misc]
        return child

    def listen(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back from `watch` when there is something to read."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def forget(self, fd: int) -> None:
        """No longer listen to it."""
        self._selector.unregister(fd)

    def _pass_on(self, child: Child, fd: int) -> None:
        if not child.read(fd):
            self.forget(fd)
            child.close(fd)

    def watch(self, seconds: float) -> list[Child]:
        """Pass on output for at most so long; returns those that have ended since the last call."""
        running = self.running()
        for key, _ in self._selector.select(seconds):
            key.data()
        for screen in set(self.screens):
            screen.tick()
        ended = [child for child in running if child.poll() is not None]
        if ended:
            self._drain(0.2)
        return ended

    def running(self, role: str = "") -> list[Child]:
        """Those of a role that have not ended."""
        return [child for child in self.children if child.code is None and child.name.startswith(role)]

    def _drain(self, seconds: float) -> None:
        """Pass on what is left in the pipes; a process that outlives its parent may keep them open."""
        limit = time.monotonic() + seconds
        while (ready := self._selector.select(0)) and time.monotonic() < limit:
            for key, _ in ready:
                key.data()

    def say(self, text: str) -> None:
        """A word of the launcher's own, among what the processes print."""
        with contextlib.suppress(BrokenPipeError):
            self.screens[1].line(f"neomx: {text}".encode())

    def signal(self, signum: int) -> None:
        """Send a signal to every process and what it started."""
        for child in self.children:
            guard.signal_group(child.group, signum)

    def interrupt(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ask everybody to stop as Ctrl-C does, and wait a little for that."""
        self.signal(signal.SIGINT)
        self.wait(PATIENCE, hurry)

    def end(self, patience: float = 2.0, hurry: Callable[[], bool] = lambda: False) -> None:
        """End all processes and all that they started: first by asking, then by force. Returns when none is left."""
        if not self.children:
            return
        if self.running():
            self.signal(signal.SIGTERM)
            self.wait(patience, hurry)
        self.signal(signal.SIGKILL)
        self.wait(1.0)
        guard.sweep(self.job, self.node)
        with contextlib.suppress(BrokenPipeError):
            self._drain(1.0)
        self._let_go()

    def _let_go(self) -> None:
        for child in self.children:
            for fd in list(child.sinks):
                with contextlib.suppress(KeyError):
                    self.forget(fd)
                child.close(fd)
            child.reap()
        for screen in set(self.screens):
            with contextlib.suppress(BrokenPipeError):
                screen.close()
        self.children = []

    def wait(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Pass on output until all have ended, for at most so long."""
        limit = time.monotonic() + seconds
        while self.running() and time.monotonic() < limit and not hurry():
            with contextlib.suppress(BrokenPipeError):
                self.watch(0.02)


def _screens() -> tuple[Screen, Screen]:
    """Our stdout and stderr: one screen if both are the same terminal."""
    out, err = Screen(sys.stdout), Screen(sys.stderr)
    return (out, out) if out.terminal and err.terminal else (out, err)


class Interrupts:
    """Ctrl-C and its kin, remembered instead of raised, for the time of a `with` block in the main thread."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {signum: signal.signal(signum, self._note) for signum in DEATHS}
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received.append(signum)

    def again(self) -> bool:
        """Whether the user asked twice."""
        return len(self.received) > 1


class Blackboard(Protocol):
    """What the launcher of this node needs of the job's store."""

    def get(self, key: str) -> Any: ...

    def mark_gone(self, name: str, code: int, why: str) -> None: ...

    def roster(self) -> dict[str, Member]: ...


class Verdict:
    """Decides from the ends of processes when a job is over and how it went: one node's, or told of other nodes'."""

    def __init__(self, store: Blackboard):
        self._store = store
        self._news: list[str] = []
        self.failures: list[Failure] = []
        self.lost: list[Failure] = []
        self.successes = 0
        self._since = 0.0

    def ended(self, child: Child) -> None:
        """A process of this node has ended."""
        if child.code == 0:
            self.successes += child.name.startswith("worker")
        else:
            self.failed(child.failure())

    def failed(self, failure: Failure) -> None:
        """A process has failed: the others are told who is gone."""
        self._store.mark_gone(failure.name, failure.code, failure.why)
        if failure.name.startswith("worker") and self._store.get(TOLERATES) is not None:
            self._news.append(f"{failure.name} on {failure.host} is lost ({failure.why}); the job goes on without it")
            self.lost.append(failure)
            return
        if not self.failures:
            self._news.append(f"{failure.name} on {failure.host} failed: {failure.why}")
            self._since = time.monotonic()
        self.failures.append(failure)

    def news(self) -> list[str]:
        """What the user should hear at once, each only once."""
        news, self._news = self._news, []
        return news

    def over(self, running: bool) -> bool:
        """Whether it is time to end: nobody works any more, or somebody failed and the others had time to say so."""
        return not running or bool(self.failures) and time.monotonic() - self._since > FAREWELL

    def is_forsaken(self, child: Child) -> bool:
        """Whether nothing is heard from a worker that runs, and the others have taken leave, as far as they live."""
        members = self._members()
        others = {m.state for name, m in members.items() if name.startswith("worker") and name != child.name}
        mine = members.get(child.name)
        return mine is not None and mine.is_silent and "left" in others and "here" not in others

    def _members(self) -> dict[str, Member]:
        return self._store.roster()

    def announce(self, interrupted: int | None) -> None:
        """The job ends now, perhaps by a signal to us. Here nobody else needs to be told."""

    def part(self) -> None:
        """All processes of this node have ended. Here there is no other node to wait for."""

    def failure(self) -> Failure | None:
        """What the job failed of, if it did: who went first and not for the loss of another."""
        if self.failures:
            causes = [failure for failure in self.failures if not failure.is_consequence] or self.failures
            members = self._members()
            return min(causes, key=lambda failure: members[failure.name].since)
        return self.lost[0] if self.lost and not self.successes else None


def supervise(tree: Tree, verdict: Verdict, interrupts: Interrupts, parting: float = 0.0) -> None:
    """Watch until the job is over or interrupted, then end all. `parting`: seconds for those that end by themselves."""
    given_up: list[Child] = []
    while not interrupts.received and not verdict.over(bool(tree.running("worker"))):
        for child in tree.watch(0.05):
            verdict.ended(child)
        for text in verdict.news():
            tree.say(text)
        for child in tree.running("worker"):
            if child not in given_up and verdict.is_forsaken(child):
                given_up.append(child)
                tree.say(f"{child.name} is silent and all other workers have ended: it is killed")
                guard.signal_group(child.group, signal.SIGKILL)
    interrupted = interrupts.received[0] if interrupts.received else None
    verdict.announce(interrupted)
    if interrupted is not None:
        tree.say(f"{signal.Signals(interrupted).name} received: ending all processes (once more: at once)")
    if parting:
        tree.wait(parting, interrupts.again)
    elif interrupted == signal.SIGINT:
        tree.interrupt(interrupts.again)
    tree.end(hurry=interrupts.again)


def start_servers(tree: Tree, plan: Plan) -> None:
    """Start this node's parameter servers."""
    for number in plan.local_servers():
        command = [sys.executable, "-m", "neomx.kvstore.server"]
        tree.start(Task(f"server {number}", command, plan.server(number)))


def start_workers(tree: Tree, plan: Plan, command: list[str]) -> None:
    """Start this node's workers, all with one command."""
    for local_rank in range(plan.local_size):
        environ = plan.worker(local_rank)
        rank = plan.first_rank + local_rank
        tree.start(Task(f"worker {rank}", command, environ, plain=rank == 0))


def new_job() -> str:
    """A name for a job, unlike all others."""
    return secrets.token_hex(4)
