"""The processes of a job on one node, started, monitored and ended together."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from . import guard
from .child import Child, Command
from .descriptors import raise_limit
from .output import Screen

PATIENCE = 5.0  # seconds between SIGINT or SIGTERM and the next stronger signal


class Tree:
    """The processes of a job on this node. Leaving the `with` block ends them and all their descendants.

    If this process is killed, they are ended with SIGTERM and soon SIGKILL, or if `abrupt`, with SIGKILL immediately.
    """

    def __init__(self, job: str, node: int = 0, logs: str | None = None, abrupt: bool = False):
        self.job, self.node, self.logs = job, node, logs
        self._grace = 0.0 if abrupt else guard.GRACE
        self.children: list[Child] = []
        self.screens = _screens()
        self._selector = selectors.DefaultSelector()
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tree:
        raise_limit()
        command = [sys.executable, "-I", "-S", guard.__file__, self.job, str(self.node), str(self._grace)]
        self._guard = subprocess.Popen(
            command,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # so that readers of our output do not wait for it
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

    def start(self, command: Command) -> Child:
        """Start a process."""
        child = Child(command, self.logs, self.screens)
        self.children.append(child)
        self._tell_guard(child.group)
        for fd in child.sinks:
            self.listen(fd, lambda fd=fd: self._pass_on(child, fd))  # type: ignore[misc]
        return child

    def bury(self, child: Child) -> None:
        """Release a process that has ended while the job continues, and kill its descendants."""
        guard.signal_group(child.group, signal.SIGKILL)
        role, _, rank = child.name.partition(" ")
        if role == "worker":
            guard.sweep(self.job, self.node, int(rank))
        with contextlib.suppress(BrokenPipeError):
            self._drain(0.2)
        self._release(child)
        self._tell_guard(-child.group)
        self.children.remove(child)

    def _tell_guard(self, group: int) -> None:
        assert self._guard is not None and self._guard.stdin is not None
        self._guard.stdin.write(b"%d\n" % group)

    def listen(self, fd: int, callback: Callable[[], None]) -> None:
        """Call `callback` from `watch` when the descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def forget(self, fd: int) -> None:
        """Stop listening to a descriptor."""
        self._selector.unregister(fd)

    def _pass_on(self, child: Child, fd: int) -> None:
        if not child.read(fd):
            self.forget(fd)
            child.close(fd)

    def watch(self, seconds: float) -> list[Child]:
        """Forward output for up to `seconds`. Return the processes that have ended since the last call."""
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
        """Return the processes of a role that have not ended."""
        return [child for child in self.children if child.code is None and child.name.startswith(role)]

    def _drain(self, seconds: float) -> None:
        """Forward what is left in the pipes. A process that outlives its parent may keep them open."""
        limit = time.monotonic() + seconds
        while (ready := self._selector.select(0)) and time.monotonic() < limit:
            for key, _ in ready:
                key.data()

    def say(self, text: str) -> None:
        """Show a message of the launcher between the output of the processes."""
        with contextlib.suppress(BrokenPipeError):
            self.screens[1].line(f"neomx: {text}".encode())

    def signal(self, signum: int) -> None:
        """Send a signal to all processes and their descendants."""
        for child in self.children:
            guard.signal_group(child.group, signum)

    def tell_workers(self, signum: int) -> None:
        """Send a signal to all workers, but not to their descendants, which they may need to end properly."""
        for child in self.running("worker"):
            os.kill(child.process.pid, signum)  # until it is reaped, its ID belongs to no other process

    def interrupt(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Interrupt all processes like Ctrl-C, and wait for them with a timeout."""
        self.signal(signal.SIGINT)
        self.wait(PATIENCE, hurry)

    def end(self, patience: float = 2.0, hurry: Callable[[], bool] = lambda: False) -> None:
        """End all processes and their descendants, first with SIGTERM, then with SIGKILL. Returns when none is left."""
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
            self._release(child)
        for screen in set(self.screens):
            with contextlib.suppress(BrokenPipeError):
                screen.close()
        self.children = []

    def _release(self, child: Child) -> None:
        for fd in list(child.sinks):
            with contextlib.suppress(KeyError):
                self.forget(fd)
            child.close(fd)
        child.reap()

    def wait(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Forward output until all processes have ended, for up to `seconds`."""
        limit = time.monotonic() + seconds
        while self.running() and time.monotonic() < limit and not hurry():
            with contextlib.suppress(BrokenPipeError):
                self.watch(0.02)


def _screens() -> tuple[Screen, Screen]:
    """Return our stdout and stderr, as one screen if both are the same terminal."""
    err = Screen(sys.stderr)
    out = Screen(sys.stdout, err)
    return (out, out) if out.terminal and err.terminal else (out, err)
