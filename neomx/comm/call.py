"""Runs a function on several workers, from a program or a notebook: the core of `mx.dist.launch`."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import pickle
import secrets
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from typing import IO, Any

from ..base import MXNetError
from . import byvalue
from .child import Child, Command
from .descriptors import most_processes
from .jobspec import JobSpec, new_job
from .store import StoreServer
from .supervision import Interrupts, Verdict, supervise
from .tree import Tree


class WorkerError(MXNetError):
    """A worker of `launch` failed. The message includes its traceback."""


def launch(
    fn: Callable[..., Any],
    n: int,
    args: Sequence[Any],
    servers: int,
    timeout: float | None,
    server_argv: list[str],
    startup: str,
) -> list[Any]:
    """Run `fn(*args)` on `n` new workers and return the results in rank order. See `mx.dist.launch`.

    `server_argv` is the command of a parameter server. `startup` is a directory to put first on PYTHONPATH.
    """
    if n < 1 or servers < 0:
        raise ValueError(f"launch expects n >= 1 workers and servers >= 0; received n={n}, servers={servers}")
    if n + servers > (most := most_processes()):
        raise ValueError(f"launch starts at most {most} processes on this machine; received n={n}, servers={servers}")
    secret = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        payload = stack.enter_context(_payload(fn, args))
        store = stack.enter_context(contextlib.closing(StoreServer("127.0.0.1", 0, secret.encode())))
        store.start()
        interrupts = stack.enter_context(Interrupts())
        spec = JobSpec(new_job(), secret, store.address, size=n, local_size=n, servers=servers, startup=startup)
        spec = spec if timeout is None else dataclasses.replace(spec, timeout=timeout)
        tree = stack.enter_context(Tree(spec.job))
        for command in spec.server_commands(server_argv):
            tree.start(command)
        answers = [_start(tree, spec, rank, payload.fileno()) for rank in range(n)]
        verdict = Verdict(store)
        supervise(tree, verdict, interrupts)
    if interrupts.received:
        raise KeyboardInterrupt
    return _results(answers, verdict)


def _payload(fn: Callable[..., Any], args: Sequence[Any]) -> IO[bytes]:
    """Return an unnamed file with the pickled call, which the workers inherit."""
    try:
        call = byvalue.dumps((fn, tuple(args)))
    except Exception as error:
        culprits = ", ".join(f"{name} ({why})" for name, why in byvalue.unsendable(fn).items()) or error
        raise TypeError(
            f"launch cannot send {getattr(fn, '__qualname__', fn)!r} to new processes because of what it uses: "
            f"{culprits}. Create such objects inside the function"
        ) from error
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the caller
    file.write(pickle.dumps((sys.path, call)))
    file.flush()
    return file


class _Answer:
    """Collects what one worker sends back."""

    def __init__(self, tree: Tree, child: Child, fd: int):
        self.name, self._tree, self._fd = child.name, tree, fd
        self.data = bytearray()
        tree.listen(fd, self._read)

    def _read(self) -> None:
        piece = os.read(self._fd, 1 << 20)
        self.data += piece
        if not piece:
            self._tree.forget(self._fd)
            os.close(self._fd)


def _start(tree: Tree, spec: JobSpec, rank: int, payload: int) -> _Answer:
    reader, writer = os.pipe()
    argv = [sys.executable, "-c", f"from neomx.comm.call import answer; answer({payload}, {writer})"]
    try:
        child = tree.start(
            Command(f"worker {rank}", argv, spec.worker_environ(rank), plain=rank == 0, pass_fds=(payload, writer))
        )
    finally:
        os.close(writer)
    return _Answer(tree, child, reader)


def _results(answers: list[_Answer], verdict: Verdict) -> list[Any]:
    said = {answer.name: pickle.loads(answer.data) for answer in answers if answer.data}
    if verdict.failure() is None:
        return [said.get(answer.name, (None, None))[0] for answer in answers]
    for failure in verdict.failures:  # a traceback is sent back, not printed
        failure.lines.extend((said.get(failure.name, (None, ""))[1] or "").splitlines())
    first = verdict.failure()
    assert first is not None
    raise WorkerError(first.report())


def answer(payload: int, writer: int) -> None:
    """In a worker: make the pickled call and send back its result or the traceback."""
    with mmap.mmap(payload, 0, access=mmap.ACCESS_READ) as call:
        path, call_itself = pickle.loads(call)
    sys.path[:] = path
    try:
        fn, args = pickle.loads(call_itself)
        said = pickle.dumps((fn(*args), None))
    except Exception:
        from . import session

        session.fail()
        _write(writer, pickle.dumps((None, traceback.format_exc())))
        sys.exit(1)
    _write(writer, said)


def _write(fd: int, data: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(data)
