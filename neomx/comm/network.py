"""Collectives through the backends of torch.distributed: gloo for CPU tensors, NCCL for GPU tensors.

Used by ranks that do not share memory. Backends are created directly, with their own store, instead of through torch's
list of groups, so that a failed backend can be abandoned and replaced.
"""

from __future__ import annotations

import ctypes
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..base import MXNetError
from .transport import NOTE, Absent, Check, StagingArea, Transport, divide_, same_notes

GLANCE = 0.2  # seconds between two checks for lost members
_MESSAGE_GLANCE = 0.1  # the same while waiting for a message
_NO_TAG = 1 << 30  # of a message that nobody sends
SMALL = 1024  # bytes sent along with the note
_OPS = {"sum": "SUM", "mean": "SUM", "min": "MIN", "max": "MAX", "prod": "PRODUCT"}
_CARRIED_AS = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}


class Broken(MXNetError):
    """A connection to another rank broke."""


@contextmanager
def translated(timeout: float, *late: int) -> Iterator[None]:
    """Translate gloo's errors about a lost rank. `late` are the only ranks that can be missing, if known."""
    begun = time.monotonic()
    try:
        yield
    except MXNetError:  # from the store through which gloo finds the other ranks: it already names the cause
        raise
    except RuntimeError as error:
        raise _failure(error, begun, timeout, *late) from error


def _failure(error: RuntimeError, begun: float, timeout: float, *late: int) -> MXNetError:
    """Translate an error of gloo: a timeout or a broken connection."""
    if time.monotonic() - begun > 0.95 * timeout:
        return Absent(list(late), timeout)  # gloo does not report which rank
    return Broken(re.sub(r"^\[[^]]*\] ", "", str(error)).partition(". ")[0])


class Network(Transport):
    """Collectives on flat, contiguous tensors among the ranks that share `store`. Use it in one thread at a time.

    With `watches_messages`, a wait for a message also ends if the other rank goes on without closing the connection.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        device: object,
        timeout: float,
        check: Check,
        watches_messages: bool = False,
    ) -> None:
        self.watches_messages = watches_messages
        self.rank, self.size, self.timeout, self.check = rank, size, timeout, check
        self._store = store
        with translated(timeout):
            self._backends = {"cpu": gloo(dist.PrefixStore("gloo", store), rank, size, device, timeout)}

    def _backend(self, tensor: torch.Tensor) -> Any:
        kind = tensor.device.type
        if kind == "cuda" and kind not in self._backends:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timedelta(seconds=self.timeout)
            store = dist.PrefixStore("nccl", self._store)
            self._backends[kind] = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        if kind not in self._backends:
            raise MXNetError(f"workers can exchange tensors on CPUs and CUDA devices, received one on {tensor.device}")
        return self._backends[kind]

    def _finish(self, work: dist.Work) -> None:
        """Wait for completion, checking regularly whether a member is gone."""
        begun = time.monotonic()
        while True:
            try:
                work.wait(timedelta(seconds=GLANCE))
                return
            except RuntimeError as error:
                if work.is_completed():
                    raise _failure(error, begun, self.timeout) from error
            self.check(self._others)
            if time.monotonic() - begun > self.timeout:
                raise Absent([], self.timeout)  # gloo does not report which rank

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def barrier(self, note: bytes = b"") -> None:
        """Wait for all ranks."""
        self.all_gather_small(torch.empty(0), note)

    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        """Stack the tensors of all ranks, which have one shape.

        The first message has a fixed size and contains the note, which must be the same on all ranks: gloo aborts the
        process if it receives more bytes than expected.
        """
        mine = tensor.numpy().tobytes()
        rows = self._gather_bytes((note[:NOTE].ljust(NOTE) + mine[:SMALL]).ljust(NOTE + SMALL))
        same_notes([row[:NOTE] for row in rows])
        rows = [row[NOTE : NOTE + len(mine)] for row in rows]
        if len(mine) > SMALL:
            rows = [row + more for row, more in zip(rows, self._gather_bytes(mine[SMALL:]), strict=True)]
        if not mine:
            return tensor.new_empty(self.size, *tensor.shape)
        return torch.frombuffer(bytearray().join(rows), dtype=tensor.dtype).view(self.size, *tensor.shape)

    def _gather_bytes(self, mine: bytes) -> list[bytes]:
        sent = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        outs = [torch.empty_like(sent) for _ in range(self.size)]
        self._finish(self._backend(sent).allgather([outs], [sent]))
        return [out.numpy().tobytes() for out in outs]

    def _agree(self, note: bytes) -> None:
        if note:
            self.barrier(note)

    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        """Reduce over all ranks (sum, mean, min, max, prod), in place."""
        self._agree(note)
        carried = _carried(flat, op)
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, _OPS[op])
        self._finish(self._backend(carried).allreduce([carried], options))
        if op == "mean":
            divide_(carried, self.size)
        if carried.dtype != flat.dtype and not flat.is_complex():
            flat.copy_(carried)

    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        """Copy the values of `root` to all ranks, in place."""
        self._agree(note)
        options = dist.BroadcastOptions()
        options.rootRank = root
        self._finish(self._backend(flat).broadcast([flat.view(torch.uint8)], options))

    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        """Send each rank's `outs[rank]` to all others. Sizes may differ; all ranks know them."""
        self._agree(note)
        pieces = [out.view(torch.uint8) for out in outs]
        longest = max(piece.numel() for piece in pieces)
        if all(piece.numel() == longest for piece in pieces):
            self._gather(pieces)
            return
        padded = [piece.new_empty(longest) for piece in pieces]  # neither backend supports different sizes
        padded[self.rank][: pieces[self.rank].numel()].copy_(pieces[self.rank])
        self._gather(padded)
        for piece, whole in zip(pieces, padded, strict=True):
            piece.copy_(whole[: piece.numel()])

    def _gather(self, pieces: list[torch.Tensor]) -> None:
        mine = pieces[self.rank]
        if mine.numel():
            self._finish(self._backend(mine).allgather([pieces], [mine.clone()]))

    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        """Reduce over all ranks their part for this rank, and write it to `out`. All parts have one size."""
        self._agree(note)
        carried, inputs = _carried(out, op), [_carried(part, op) for part in parts]
        options = dist.ReduceScatterOptions()
        options.reduceOp = getattr(dist.ReduceOp, _OPS[op])
        self._finish(self._backend(out).reduce_scatter([carried], [inputs], options))
        if op == "mean":
            divide_(carried, self.size)
        if carried.dtype != out.dtype and not out.is_complex():
            out.copy_(carried)

    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        """Send `parts[q]` to rank q and receive `outs[p]` from rank p."""
        self._agree(note)
        sent = torch.cat([part.view(torch.uint8) for part in parts])
        pieces = [out.view(torch.uint8) for out in outs]
        received = sent.new_empty(sum(piece.numel() for piece in pieces))
        lengths = [piece.numel() for piece in pieces]
        sizes = [part.numel() * part.itemsize for part in parts]
        self._finish(self._backend(sent).alltoall_base(received, sent, lengths, sizes))
        for piece, part in zip(pieces, received.split_with_sizes(lengths), strict=True):
            piece.copy_(part)

    def send(self, flat: torch.Tensor, to: int, tag: int) -> Callable[[], None]:
        """Start sending to one rank, which must receive the same number of bytes. Return a function that waits."""
        return self._direct(lambda: self._backend(flat).send([flat.view(torch.uint8)], to, tag), to)

    def recv(self, flat: torch.Tensor, source: int, tag: int) -> Callable[[], None]:
        """Start receiving from one rank, in place. Return a function that waits."""
        return self._direct(lambda: self._backend(flat).recv([flat.view(torch.uint8)], source, tag), source)

    def _direct(self, start: Callable[[], dist.Work], other: int) -> Callable[[], None]:
        """Start a message and return a function that waits once with the full timeout: gloo cannot wait for one twice.

        `start` fails if gloo already knows that the connection broke, possibly before the roll call does.
        """
        with translated(self.timeout, other):
            work = start()

        def finish() -> None:
            with translated(self.timeout, other):
                if self.watches_messages:
                    self._wait_and_check(work, other)
                else:
                    work.wait(timedelta(seconds=self.timeout))

        return finish

    def _wait_and_check(self, work: dist.Work, other: int) -> None:
        """Wait for a message in a thread, and check regularly whether the other rank still takes part."""
        future: futures.Future[None] = futures.Future()

        def wait() -> None:
            try:
                work.wait(timedelta(seconds=self.timeout))
                future.set_result(None)
            except RuntimeError as error:
                future.set_exception(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        try:
            while not futures.wait([future], _MESSAGE_GLANCE).done:
                self.check(lambda: [other])
        except MXNetError:
            self._close_connections(other)
            thread.join()
            raise
        future.result()

    def _close_connections(self, other: int) -> None:
        """End all messages with errors: gloo closes all connections when it waits for one in vain."""
        nothing = torch.empty(1, dtype=torch.uint8)
        with suppress(RuntimeError):
            self._backend(nothing).recv([nothing], other, _NO_TAG).wait(timedelta(milliseconds=1))

    def close(self) -> None:
        """Close the connections."""
        self._backends.clear()

    def abandon(self) -> None:
        """Leak the backends: freeing them would block on the operations that were pending when a rank was lost."""
        for backend in self._backends.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))
        self._backends.clear()


class NetworkArea(StagingArea):
    """Memory for one bucket of gradients, summed in place."""

    def __init__(self, network: Network | None, count: int, dtype: torch.dtype, device: str | torch.device) -> None:
        self.local = self.result = torch.zeros(count, dtype=dtype, device=device)
        self._network = network

    def reduce(self) -> torch.Tensor:
        """Sum the `local` of all ranks; without a network there is only this one."""
        if self._network is not None:
            self._network.all_reduce_(self.local, "sum")
        return self.result


def _carried(flat: torch.Tensor, op: str) -> torch.Tensor:
    """Convert to a dtype that backends can reduce."""
    if flat.is_complex():
        if op not in ("sum", "mean"):
            raise MXNetError(f"complex tensors support only sum and mean between hosts, received op {op!r}")
        return torch.view_as_real(flat).view(-1)
    return flat.to(_CARRIED_AS.get(flat.dtype, flat.dtype))


def gloo(store: dist.Store, rank: int, size: int, device: object, timeout: float) -> Any:
    """Create torch's gloo backend among the ranks that share `store`."""
    made: Any = dist.ProcessGroupGloo
    options = made._Options()
    options._timeout = timedelta(seconds=timeout)
    options._devices = [device]
    return made(store, rank, size, options)


def interface_of(host: str) -> str | None:
    """Return the network interface with this IPv4 address, or None."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                asked = fcntl.ioctl(sock, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(asked[20:24]) == socket.gethostbyname(host):
                return name
    return None
