"""The job's store as torch.distributed wants it, so that process groups meet in it."""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist

from .store import StoreClient, Value
from .waiting import Waits


class TorchStore(StoreClient, dist.Store):
    """A process's way to the store, which torch can use as well."""

    def __init__(self, address: str, secret: bytes, timeout: float = 300.0, tls: str | None = None):
        dist.Store.__init__(self)
        StoreClient.__init__(self, address, secret, timeout, tls)
        self._waits: Waits | None = None

    def waits(self, rank: int) -> Waits:
        """What this process, the worker `rank`, waits for."""
        if self._waits is None:
            self._waits = Waits(self, rank)
        return self._waits

    def append(self, key: str, value: Value) -> None:
        """Not used: process groups do without it."""
        raise NotImplementedError("append")

    def multi_get(self, keys: Iterable[str]) -> list[bytes]:
        """Many values."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Iterable[str], values: Iterable[Value]) -> None:
        """Leave many values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Whether torch may use append and the multi_ methods."""
        return False
