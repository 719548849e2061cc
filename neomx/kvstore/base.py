"""The base class of key-value stores, and the registry of user-defined ones."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, TypeVar

from ..optimizer import Optimizer

Store = TypeVar("Store", bound="type[KVStoreBase]")


class KVStoreBase:
    """Base class of user-defined stores. A registered class is created by its name in lower case.

    @mx.kv.KVStoreBase.register
    class Mine(mx.kv.KVStoreBase): ...
    mx.kv.create("mine")
    """

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type[KVStoreBase]]] = {}

    @staticmethod
    def register(klass: Store) -> Store:
        """Register a class, so that `create` finds it by its name in lower case."""
        if not (isinstance(klass, type) and issubclass(klass, KVStoreBase)):
            raise AssertionError(f"register expects a class derived from KVStoreBase, received {klass!r:.80}")
        name = klass.__name__.lower()
        if name in KVStoreBase.kv_registry:
            warnings.warn(f"the kvstore {name!r} is already registered; {klass!r} replaces it", stacklevel=2)
        KVStoreBase.kv_registry[name] = klass
        return klass

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Initialize keys with the values of worker 0, and copy them to `out` on all workers."""
        raise self._missing("broadcast")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the values of all contexts and workers into `out`, or back into `value`."""
        raise self._missing("pushpull")

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Run this optimizer in the store."""
        raise self._missing("set_optimizer")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store has the capability, of which there is one: 'optimizer'."""
        raise NotImplementedError("a kvstore must implement is_capable('optimizer')")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        raise self._missing("save_optimizer_states")

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        raise self._missing("load_optimizer_states")

    @property
    def type(self) -> str:
        """The name with which the store was created."""
        return type(self).__name__.lower()

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        raise self._missing("rank")

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        raise self._missing("num_workers")

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"the kvstore {self.type!r} does not implement {what}")
