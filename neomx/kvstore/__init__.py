"""`mx.kv`: arrays by key, pushed by many and pulled by all."""

from __future__ import annotations

from ..base import MXNetError, suggest
from .local import KVStore

__all__ = ["KVStore", "create"]

_IN_PROCESS = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")


def create(name: str = "local") -> KVStore:
    """A store of that kind: 'local', 'device' and 'nccl' sum over the contexts of this process."""
    if not isinstance(name, str):
        raise TypeError(f"a kvstore's name must be a string, received {name!r}")
    if name not in _IN_PROCESS:
        raise MXNetError(
            f"unknown kvstore {name!r}.{suggest(name, _IN_PROCESS)} Expected one of {', '.join(_IN_PROCESS)}"
        )
    return KVStore(name)


def is_distributed(name: str) -> bool:
    """Whether stores of that name are shared by workers."""
    return name.startswith(("dist", "p3")) or name in ("horovod", "byteps")
