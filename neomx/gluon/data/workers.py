"""Worker processes that create batches for a DataLoader.

Each worker has its own socket. A thread in this process reads from it, so finished batches wait here and the worker
can continue. When the socket closes, the worker has died, and pending batches fail immediately. Batches are sent
through the socket instead of shared memory: this is equally fast, does not hold a file descriptor per array, and works
where shared memory is small, as in containers.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import queue
import random
import signal
import socket
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import torch

from ...base import MXNetError, modes
from ...ops.random import SampleRandom, drawing_from
from .place import Seeds

_BATCH = 1  # after the key of a sample: the numbers of the batch that begins with it


def make_batch(dataset: Any, batchify_fn: Callable[[Any], Any], indices: Any, seeds: Seeds) -> Any:
    """Return `batchify_fn` applied to the items with these indices. Each item draws its own random numbers.

    `batchify_fn` draws numbers that depend on the first item, and not those of the item.
    """
    items, first = [], None
    for key, index in seeds.keyed(indices):
        first = first or key
        with drawing_from(SampleRandom(key)):
            items.append(dataset[index])
    with drawing_from(SampleRandom((*(first or seeds.base), _BATCH))):
        return batchify_fn(items)


class WorkerPool:
    """A pool of processes. Each has a copy of the dataset and creates batches of its items."""

    def __init__(self, dataset: Any, batchify_fn: Callable[[Any], Any], num_workers: int):
        self._workers: list[_Worker] = []
        self._tickets = itertools.count()
        self._owner = os.getpid()
        try:
            for number in range(num_workers):
                self._workers.append(_Worker(number, dataset, batchify_fn))
        except BaseException:
            self.close()
            raise

    @property
    def broken(self) -> bool:
        """Whether any worker has died."""
        return any(worker.dead for worker in self._workers)

    def submit(self, batch: int, indices: Any, seeds: Seeds) -> Future[Any]:
        """Submit batch number `batch` to the worker with the fewest pending batches. Return its future."""
        worker = min(self._workers, key=lambda worker: len(worker.pending))
        return worker.submit(next(self._tickets), batch, indices, seeds)

    def who_makes(self, future: Future[Any]) -> str:
        """Return a phrase that names the worker of a pending batch, for an error message."""
        for worker in self._workers:
            if any(future is pending for _, pending in list(worker.pending.values())):
                return f", assigned to {worker.name}"
        return ""

    def close(self) -> None:
        """Stop all workers, even if they are busy."""
        if os.getpid() != self._owner:  # a forked copy of the program must not stop its parent's workers
            return
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.wait()


class _Worker:
    """A worker process, as seen from the parent."""

    def __init__(self, number: int, dataset: Any, batchify_fn: Callable[[Any], Any]):
        self.pending: dict[int, tuple[int, Future[Any]]] = {}  # ticket -> batch number and future
        self.dead = ""  # the cause of death
        self._lock = threading.Lock()  # protects the two above
        self._stopped = False
        self._socket, theirs = socket.socketpair()
        context = multiprocessing.get_context("fork" if sys.platform.startswith("linux") else None)
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(theirs, self._socket, dataset, batchify_fn), name=f"DataLoader-{number}", daemon=True
        )
        with theirs, warnings.catch_warnings():
            # Python warns about a fork in a process with threads. It is safe here: the child does not run code whose
            # locks they may hold, and torch uses one thread there. Programs need fork: their transforms may be lambdas.
            warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
            self._process.start()
        self.name = f"worker {number} (pid {self._process.pid})"
        threading.Thread(target=self._listen, name=f"reads {self.name}", daemon=True).start()

    def submit(self, ticket: int, batch: int, indices: Any, seeds: Seeds) -> Future[Any]:
        """Submit a batch. The worker processes batches in order."""
        future: Future[Any] = Future()
        with self._lock:
            if self.dead:
                future.set_exception(MXNetError(self.dead))
                return future
            self.pending[ticket] = batch, future
        with contextlib.suppress(OSError):  # the worker has just died, and `_listen` fails the future
            _send(self._socket, ticket, (indices, seeds))
        return future

    def _listen(self) -> None:
        """Resolve futures as batches arrive. When the worker dies, fail the pending ones."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                ticket, pickled, buffers = _receive(self._socket)
                with self._lock:
                    _, future = self.pending.pop(ticket)
                _settle(future, pickled, buffers)
        self._process.join(5)
        with self._lock:
            self.dead = f"DataLoader {self.name} {self._end()}"
            waiting, self.pending = self.pending, {}
        for batch, future in waiting.values():
            future.set_exception(MXNetError(f"{self.dead}. Batch {batch} is lost"))

    def _end(self) -> str:
        code = self._process.exitcode
        if self._stopped:
            return "was stopped with its loader"
        if code is None:
            return "closed its connection"
        if code >= 0:
            return f"died with exit code {code}"
        name = signal.Signals(-code).name
        return f"was killed by signal {-code} ({name})" + (
            ", possibly because the system ran out of memory" if name == "SIGKILL" else ""
        )

    def stop(self) -> None:
        """Request the worker to exit."""
        self._stopped = True
        with contextlib.suppress(OSError):  # the worker may have exited already
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Wait until the process has exited. Kill it if it does not exit."""
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._socket.close()


def _settle(future: Future[Any], pickled: bytes, buffers: list[Any]) -> None:
    try:
        ok, result = pickle.loads(pickled, buffers=buffers)
    except Exception as error:
        ok, result = False, error
    if ok:
        future.set_result(result)
    else:
        future.set_exception(result)


# ---- in the worker process ----


def _work(ours: socket.socket, theirs: socket.socket, dataset: Any, batchify_fn: Callable[[Any], Any]) -> None:
    """Create the requested batches until the parent closes the connection."""
    theirs.close()  # the fork inherits it, and would never see the connection close
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and stops the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_take_tasks, args=(ours, tasks), daemon=True).start()
    while True:
        ticket, (indices, seeds) = tasks.get()
        try:
            reply = True, make_batch(_SeedsGlobals(dataset), batchify_fn, indices, seeds)
        except Exception as error:
            reply = False, _portable(error)
        try:
            _send(ours, ticket, reply)
        except OSError:
            os._exit(0)  # the parent is gone
        except Exception as error:  # the batch cannot be pickled
            _send(ours, ticket, (False, _portable(error)))


def _take_tasks(ours: socket.socket, tasks: queue.SimpleQueue[Any]) -> None:
    """Read tasks ahead, so that the parent never waits for a busy worker. Exit when the parent is gone."""
    with contextlib.suppress(OSError, EOFError):
        while True:
            ticket, pickled, buffers = _receive(ours)
            tasks.put((ticket, pickle.loads(pickled, buffers=buffers)))
    os._exit(0)


class _SeedsGlobals:
    """A dataset in a worker process: each sample seeds the process's generators of Python, NumPy and torch too."""

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        value = modes.sample.seed
        random.seed(value)
        np.random.seed(value)
        torch.default_generator.manual_seed(value)  # torch.manual_seed seeds all devices: a hundred times slower
        return self._dataset[index]


def _portable(error: Exception) -> Any:
    """Wrap an exception so that it keeps the worker's traceback. If it cannot be pickled, only its text is kept."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = MXNetError("".join(traceback.format_exception(error)))
    return ExceptionWithTraceback(error, error.__traceback__)


# ---- wire format: ticket, number of parts, size of each part, then a pickle and the buffers of its arrays ----


def _send(to: socket.socket, ticket: int, value: Any) -> None:
    parts: list[Any] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=lambda buffer: parts.append(buffer.raw()))
    parts.insert(0, memoryview(pickled))
    to.sendall(struct.pack(f"<QQ{len(parts)}Q", ticket, len(parts), *(part.nbytes for part in parts)))
    for part in parts:
        to.sendall(part)


def _receive(source: socket.socket) -> tuple[int, bytes, list[Any]]:
    ticket, count = struct.unpack("<QQ", _read(source, 16))
    sizes = struct.unpack(f"<{count}Q", _read(source, 8 * count))
    pickled, *buffers = (_read(source, size) for size in sizes)
    return ticket, pickled, buffers


def _read(source: socket.socket, size: int) -> Any:
    memory = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
    done = 0
    while done < size:
        received = source.recv_into(memory[done:], size - done, socket.MSG_WAITALL)
        if not received:
            raise EOFError
        done += received
    return memory
