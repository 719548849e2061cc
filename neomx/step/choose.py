"""Map `kvstore=`, `update_on_kvstore=` and `compression_params=` to a strategy. No other module decides this.

| kvstore=                                   | strategy                                                              |
|--------------------------------------------|-----------------------------------------------------------------------|
| None                                       | OneDevice: contexts update independently                              |
| 'local', 'device', ... on one context      | OneDevice                                                             |
| 'local', 'device', ... on several contexts | Store: sums, and by default updates, happen in a store                |
| 'dist_sync', 'horovod', ...                | Servers if the job has any, else AllReduce; OneDevice for one worker  |
| 'dist_async', 'dist_stale'                 | Servers                                                               |
| a KVStore, or the name of a registered one | the strategy for its kind, also on one context                        |
| a StepStrategy                             | that strategy                                                         |

If a layout (`mx.parallel`) manages the parameters, it determines how gradients are combined and `kvstore` must not.
For a model that `mx.parallel.data_parallel` has prepared, all workers train together unless `kvstore` names a store
that workers share: a Trainer with `DataParallel`, a Module with 'dist_sync'.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import kvstore as kv
from ..comm import compress, session
from ..comm.alike import check_alike, described
from ..kvstore import KVStore, KVStoreBase
from ..kvstore.collective import CollectiveStore
from ..kvstore.remote import RemoteStore
from ..kvstore.shared import SharedStore
from .allreduce import AllReduce
from .data_parallel import DataParallel
from .one_device import OneDevice
from .servers import Servers
from .store import Store
from .strategy import OptimizerWithStrategy, StepStrategy

_log = logging.getLogger("neomx")
VARIABLE = "MXNET_UPDATE_ON_KVSTORE"
_LARGE = 16 * 1024 * 1024  # elements; a larger array is updated on its contexts instead of in a 'local' store


@dataclass
class Asked:
    """The arguments with which a program says how its gradients are combined."""

    kvstore: Any
    update_on_kvstore: bool | None = None
    compression: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        kvstore = self.kvstore
        if isinstance(kvstore, type) and issubclass(kvstore, (StepStrategy, KVStoreBase)):
            raise TypeError(f"kvstore= expects an object, received a class. Pass {kvstore.__name__}(...)")
        if not (kvstore is None or isinstance(kvstore, (str, KVStoreBase, StepStrategy))):
            raise TypeError(
                f"kvstore must be KVStore, str or None, received {kvstore!r:.80}. A StepStrategy of mx.step works too"
            )
        if isinstance(kvstore, str) and "dist" in kvstore.lower() and kvstore.lower() not in kv.names():
            raise kv.unknown(kvstore)  # other names are only looked up for several contexts, as in MXNet

    @property
    def is_between_workers(self) -> bool:
        """Whether the store is shared by workers or is a registered class, and so is needed for one context too."""
        kvstore = self.kvstore
        if isinstance(kvstore, str):
            return kv.is_distributed(kvstore) or kvstore.lower() in KVStoreBase.kv_registry
        return kvstore is not None

    @property
    def steps_together(self) -> bool:
        """Whether workers step in rounds that all of them must join from the start."""
        kvstore = self.kvstore
        if isinstance(kvstore, RemoteStore):
            return kvstore.is_synchronous
        return isinstance(kvstore, AllReduce) or isinstance(kvstore, CollectiveStore) and kvstore.has_others

    def open(self) -> None:
        """Create the named store if workers share it. All workers must call this at the same point."""
        if isinstance(self.kvstore, str) and kv.is_distributed(self.kvstore):
            self.kvstore = kv.create(self.kvstore)

    def join_workers(self) -> None:
        """Combine gradients over all workers of the job, unless the program has named a store that workers share."""
        if self.is_between_workers or not session.world().has_others:
            return
        if self.update_on_kvstore:
            raise ValueError("update_on_kvstore=True: every worker updates a data parallel model itself. Leave it out")
        self.kvstore = DataParallel(None if self.compression is None else compress.make(self.compression))
        self.update_on_kvstore = self.compression = None

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Broadcast the values of these tensors from the first worker, if the workers step together."""
        if isinstance(self.kvstore, StepStrategy):
            self.kvstore.begin_alike(tensors, names)
        elif isinstance(self.kvstore, SharedStore) and self.kvstore.begins_alike:
            check_alike(self.kvstore.group, described(names, tensors), "a model")
            self.kvstore.group.broadcast_all_(list(tensors))


def refuse_second_exchange(asked: Asked, optimizer: object) -> None:
    """Raise if both a store or strategy and the optimizer would exchange gradients with other workers."""
    kvstore = asked.kvstore
    if isinstance(optimizer, OptimizerWithStrategy) and optimizer.workers > 1:
        named = isinstance(kvstore, str) and kv.is_distributed(kvstore)
        if named or isinstance(kvstore, (SharedStore, StepStrategy)):
            shown = repr(kvstore) if named else type(kvstore).__name__
            raise ValueError(
                f"kvstore={shown} and {type(optimizer).__name__} would both sum the gradients of all workers. Pass "
                "kvstore=None, or the optimizer without its wrapper"
            )


def store_of_workers(kvstore: Any) -> Any:
    """Return the store with which a Module trains on all workers: 'dist_sync', or `kvstore` if workers share it."""
    return kvstore if Asked(kvstore).is_between_workers or not session.world().has_others else "dist_sync"


def take_own_strategy(asked: Asked, optimizer: Any, contexts: int) -> Any:
    """Let an optimizer that has its own strategy combine gradients with it. Return the optimizer for the updates."""
    if isinstance(optimizer, OptimizerWithStrategy) and contexts == 1 and not asked.is_between_workers:
        own = optimizer.own_strategy()
        if own is not None:
            asked.kvstore, optimizer = own
    return optimizer


def choose(asked: Asked, contexts: int, largest: int, layout: Callable[[], StepStrategy] | None = None) -> StepStrategy:
    """The strategy for parameters on `contexts` contexts, the largest of which has `largest` elements.

    `layout` creates the strategy if a layout manages the parameters.
    """
    if layout is not None:
        refuse_beside_layout(asked)
        return layout()
    if isinstance(asked.kvstore, StepStrategy):
        return _given(asked.kvstore, asked)
    store = kv.create(asked.kvstore) if isinstance(asked.kvstore, str) else asked.kvstore
    if store is None or (contexts == 1 and not asked.is_between_workers):
        return _without_store(asked)
    updates = updates_in(store, asked, largest)
    if isinstance(store, CollectiveStore) and store.has_others:
        compressor = None if asked.compression is None else compress.make(asked.compression)
        return ByStore(store, compressor or store.compressor, updates)
    if asked.compression:
        if not isinstance(store, KVStore):
            raise ValueError(f"compression_params={asked.compression!r}: the kvstore {store.type!r} does not compress")
        store.set_gradient_compression(asked.compression)
    return Servers(store, updates) if isinstance(store, RemoteStore) else Store(store, updates)


def trains_alone(asked: Asked, strategy: StepStrategy, optimizer: object) -> bool:
    """Whether each worker of a multi-worker job trains a separate model. The first worker logs this once."""
    if strategy.exchanges or isinstance(optimizer, OptimizerWithStrategy):
        return False
    world = session.world()
    if world.size > 1 and world.rank == 0:
        named = repr(getattr(asked.kvstore, "type", asked.kvstore))
        named += " (the default)" if asked.kvstore == "device" else ""
        session.warn_once(
            f"each of the {world.size} workers trains a separate model: kvstore={named} does not exchange gradients. "
            "To train one model on all workers, pass kvstore='dist_sync', give each worker its part of the data "
            "(mx.dist.shard, num_parts), and pass the samples of all workers to step(). Ignore this if the program "
            "sums gradients itself with mx.dist"
        )
    return world.size > 1


def updates_in(store: KVStoreBase, asked: Asked, largest: int) -> bool:
    """Whether the optimizer runs in the store, given that the largest parameter has `largest` elements."""
    capable = store.is_capable(KVStoreBase.OPTIMIZER)
    if asked.update_on_kvstore is not None:
        if asked.update_on_kvstore and not capable:
            raise ValueError(f"update_on_kvstore=True: the kvstore {store.type!r} cannot run an optimizer")
        if not asked.update_on_kvstore and isinstance(store, RemoteStore) and not store.is_synchronous:
            raise ValueError(f"Please set update_on_kvstore=True when training in async mode: {store.type!r}")
        return asked.update_on_kvstore
    wanted = bool(int(os.environ.get(VARIABLE, "1")))
    if asked.kvstore == "local" and largest > _LARGE:
        wanted = False
    return wanted and capable


def _without_store(asked: Asked) -> StepStrategy:
    if asked.update_on_kvstore:
        raise ValueError("Cannot set update_on_kvstore=True when no kvstore is in use")
    if asked.compression:
        compress.make(asked.compression)  # raises if invalid
        _log.info("compression_params=%s has no effect: gradients do not leave their context", asked.compression)
    return OneDevice()


def _given(strategy: StepStrategy, asked: Asked) -> StepStrategy:
    for name, value in (("update_on_kvstore", asked.update_on_kvstore), ("compression_params", asked.compression)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} has no effect with kvstore={type(strategy).__name__}(): the strategy decides. "
                "Pass the setting to the constructor of the strategy"
            )
    return strategy


def refuse_beside_layout(asked: Asked) -> None:
    """Raise if a program says how gradients are combined although a layout already does."""
    given: dict[str, str] = {}
    if asked.kvstore is not None and (asked.is_between_workers or not isinstance(asked.kvstore, str)):
        given["kvstore"] = repr(getattr(asked.kvstore, "type", asked.kvstore))
    if asked.compression:
        given["compression_params"] = repr(asked.compression)
    if asked.update_on_kvstore:
        given["update_on_kvstore"] = "True"
    if given:
        raise ValueError(
            f"{', '.join(f'{name}={value}' for name, value in given.items())}: the layout already decides how the "
            f"gradients of these parameters are summed. Leave {' and '.join(given)} out"
        )


class ByStore(AllReduce):
    """All-reduce among the workers of a store that the program created or named."""

    def __init__(self, store: CollectiveStore, compressor: compress.Compressor | None, updates: bool):
        super().__init__(store.group, store.rounds, compressor, shows_sums=not updates)
        self.store = store
        self.splits = not updates  # programs are told that the store updates, as MXNet's does
