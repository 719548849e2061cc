"""What every key-value store is, and the list of those that programs registered."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, TypeVar

from ..optimizer import Optimizer

Store = TypeVar("Store", bound="type[KVStoreBase]")


class KVStoreBase:
    """A store of one's own derives from this, is registered, and is then created by its class's name.

    @mx.kv.KVStoreBase.register
    class Mine(mx.kv.KVStoreBase): ...
    mx.kv.create("mine")
    """

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type[KVStoreBase]]] = {}

    @staticmethod
    def register(klass: Store) -> Store:
        """Let `create` find a class by its name in lower case."""
        if not (isinstance(klass, type) and issubclass(klass, KVStoreBase)):
            raise AssertionError(f"register expects a class derived from KVStoreBase, received {klass!r:.80}")
        name = klass.__name__.lower()
        if name in KVStoreBase.kv_registry:
            warnings.warn(f"the kvstore {name!r} was registered before; {klass!r} takes its place", stacklevel=2)
        KVStoreBase.kv_registry[name] = klass
        return klass

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Set the first value of keys, that of worker 0, and copy it to all workers' `out`."""
        raise self._missing("broadcast")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the values of all contexts and workers into `out`, or back into `value`."""
        raise self._missing("pushpull")

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Have the store update by this optimizer."""
        raise self._missing("set_optimizer")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can do that: 'optimizer'."""
        raise NotImplementedError("a kvstore must say whether it is_capable of 'optimizer'")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        raise self._missing("save_optimizer_states")

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        raise self._missing("load_optimizer_states")

    @property
    def type(self) -> str:
        """The name it was created by."""
        return type(self).__name__.lower()

    @property
    def rank(self) -> int:
        """This worker's number."""
        raise self._missing("rank")

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        raise self._missing("num_workers")

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"the kvstore {self.type!r} has no {what}")
