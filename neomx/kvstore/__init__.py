"""`mx.kv`: key-value stores, to which workers and contexts push arrays and from which they pull them."""

from __future__ import annotations

from ..base import MXNetError, suggest
from ..comm.session import session
from . import teststore as teststore  # imported to register its store
from .base import KVStoreBase
from .local import LocalStore
from .roles import take_role
from .store import KVStore

__all__ = ["KVStore", "KVStoreBase", "create", "is_distributed"]

_IN_PROCESS = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")
_SYNCHRONOUS = (
    *("dist", "dist_sync", "dist_device_sync", "dist_sync_device"),
    *("p3store_dist", "p3store_dist_sync", "p3store_dist_device_sync", "p3store_dist_sync_device"),
    *("horovod", "byteps"),
)
_ASYNCHRONOUS = ("dist_async", "dist_device_async", "dist_async_device", "p3store_dist_async", "dist_stale")
_BY_ALL_REDUCE = ("horovod", "byteps")  # even if the job has servers


def create(name: str = "local", *, staleness: int | None = None) -> KVStoreBase:
    """Create a key-value store.

    'local', 'device' and 'nccl' sum over the contexts of this process. 'dist_sync' and its aliases sum over all
    workers: through the servers of the job if it has any, otherwise by all-reduce. They also work with a single worker.
    'dist_async' and 'dist_stale' require servers. With 'dist_stale', a worker is at most `staleness` steps (default 1)
    ahead of the slowest. Classes registered with `KVStoreBase.register` are created by their name.
    """
    if not isinstance(name, str):
        raise TypeError(f"a kvstore's name must be a string, received {name!r}")
    name = name.lower()
    if staleness is not None and name != "dist_stale":
        raise ValueError(f"staleness= is for 'dist_stale', not for {name!r}")
    if name in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[name]()
    if name in _IN_PROCESS:
        return LocalStore(name)
    if name in _SYNCHRONOUS or name in _ASYNCHRONOUS:
        return _between_workers(name, staleness)
    raise unknown(name)


def unknown(name: str) -> MXNetError:
    """Return the error for a name that `create` does not know."""
    return MXNetError(
        f"unknown kvstore {name!r}.{suggest(name, names())} Expected 'local' or 'device' for one process, 'dist_sync' "
        "(all-reduce, or servers), 'dist_async' or 'dist_stale' (servers) for several workers, or another name of "
        "mx.kv.names()"
    )


def names() -> tuple[str, ...]:
    """The names of all stores that `create` knows."""
    return (*_IN_PROCESS, *_SYNCHRONOUS, *_ASYNCHRONOUS, *KVStoreBase.kv_registry)


def is_distributed(name: str) -> bool:
    """Whether stores of that name are shared by workers."""
    return name.lower() in (*_SYNCHRONOUS, *_ASYNCHRONOUS)


def needs_servers(name: str) -> bool:
    """Whether stores of that name exist only in jobs with parameter servers."""
    return name.lower() in _ASYNCHRONOUS


def _between_workers(name: str, staleness: int | None) -> KVStore:
    take_role()
    if session().world.servers and name not in _BY_ALL_REDUCE:
        from .remote import RemoteStore

        return RemoteStore(name, staleness)
    if needs_servers(name):
        raise MXNetError(
            f"the kvstore {name!r} needs parameter servers, and this job has none. Start servers, as in "
            "`neomx run -n 2 -s 1 train.py`, or use 'dist_sync', which works without them"
        )
    from .collective import CollectiveStore

    return CollectiveStore(name)
