"""The job's store as a torch.distributed Store, for process groups."""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist

from .store import StoreClient, Value
from .waiting import Waits


class TorchStore(StoreClient, dist.Store):
    """A process's connection to the store that torch can use too."""

    def __init__(self, address: str, secret: bytes, timeout: float = 300.0, tls: str | None = None):
        dist.Store.__init__(self)
        StoreClient.__init__(self, address, secret, timeout, tls)
        self._waits: Waits | None = None

    def waits(self, rank: int) -> Waits:
        """Return the tracker of what this process, the worker `rank`, waits for."""
        if self._waits is None:
            self._waits = Waits(self, rank)
        return self._waits

    def append(self, key: str, value: Value) -> None:
        """Not implemented: process groups do not use it."""
        raise NotImplementedError("append")

    def multi_get(self, keys: Iterable[str]) -> list[bytes]:
        """Return the values of several keys."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Iterable[str], values: Iterable[Value]) -> None:
        """Set several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Whether torch may use append and the multi_ methods."""
        return False
