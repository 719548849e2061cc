"""Memory of a server in chunks. Each worker keeps its gradients at the same positions of its own chunks.

A slot has the same chunk and offset on both sides. If both are on one host, chunks are shared memory: the worker
writes gradients to its own chunk, which the server has mapped, and reads weights from the server's chunk.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import re
import secrets
import warnings
from collections.abc import Sequence

import torch

from ..wire import Refused

ALIGNMENT = 64
_LARGEST_STEP = 1 << 25  # maximum bytes by which an arena of many small keys grows
_NAME = re.compile(r"(\d+)/(\d+)/([0-9a-f]{32})")


def aligned(size: int) -> int:
    """Round a size up to the alignment of slots."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Chunk:
    """A block of memory, private or shared with processes that know its name.

    It is a memfd, a file without a path: other processes open it through the process that created it, it is freed with
    its last user, and it is not limited by the size of /dev/shm.
    """

    def __init__(self, nbytes: int, shared: bool):
        self.nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.name = ""
        self._fd = -1
        memory = self._share() if shared else None
        self.bytes = torch.zeros(self.nbytes, dtype=torch.uint8) if memory is None else memory

    def _share(self) -> torch.Tensor | None:
        token = secrets.token_hex(16)
        try:
            self._fd = os.memfd_create(f"neomx-{token}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            # Allocate now: accessing memory that turns out not to be available kills the process with SIGBUS.
            os.posix_fallocate(self._fd, 0, self.nbytes)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            memory = _mapped(self._fd, self.nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, AttributeError):  # not enough memory, or not supported: fall back to the network
            self.close()
            return None
        self.name = f"{os.getpid()}/{self._fd}/{token}"
        return memory

    def close(self) -> None:
        """Make it unreachable for other processes. Existing mappings stay valid."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.name = -1, ""


def attach(name: str, nbytes: int, writable: bool = False) -> torch.Tensor | None:
    """Map a chunk that a process of this host shares under a name. Return None if it is not accessible."""
    told = _NAME.fullmatch(name)
    if told is None:
        raise Refused(f"{name!r:.80} is not a valid name of shared memory")
    pid, number, token = told.groups()
    path = f"/proc/{pid}/fd/{number}"
    try:
        if not os.readlink(path).startswith(f"/memfd:neomx-{token}"):
            return None
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != nbytes or not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                return None  # if its owner could shrink it, accessing it could kill this process with SIGBUS
            return _mapped(fd, nbytes, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
        finally:
            os.close(fd)
    except OSError:
        return None


def _mapped(fd: int, nbytes: int, rights: int) -> torch.Tensor:
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)  # fault in all pages now, not in the first step
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # read-only memory is never written to
        return torch.frombuffer(mmap.mmap(fd, nbytes, flags, rights), dtype=torch.uint8)


def view(chunk: torch.Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor at an offset of a chunk."""
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return torch.empty(tuple(shape), dtype=dtype)
    return chunk[offset : offset + nbytes].view(dtype).view(tuple(shape))


class Arena:
    """Memory that grows by chunks, in which blocks are reserved."""

    def __init__(self, shared: bool):
        self.chunks: list[Chunk] = []
        self._shared = shared
        self._free = 0  # the first free byte of the last chunk
        self._total = 0

    def reserve(self, sizes: list[int]) -> list[tuple[int, int]]:
        """Reserve blocks of these sizes in bytes, adjacent if possible. Return (chunk, offset) for each."""
        needed = sum(map(aligned, sizes))
        if not self.chunks or self._free + needed > self.chunks[-1].nbytes:
            step = min(self._total, _LARGEST_STEP)
            self.chunks.append(Chunk(max(needed, step, mmap.PAGESIZE), self._shared))
            self._free = 0
            self._total += self.chunks[-1].nbytes
        places: list[tuple[int, int]] = []
        for size in sizes:
            places.append((len(self.chunks) - 1, self._free))
            self._free += aligned(size)
        return places

    def close(self) -> None:
        """Make its chunks unreachable for other processes."""
        for chunk in self.chunks:
            chunk.close()
