"""TestStore: MXNet's smallest store, and how to write one of your own.

A store derives from `KVStoreBase` and is registered, which makes it known by its name in lower case:
`mx.kv.create("teststore")`, `gluon.Trainer(..., kvstore="teststore")`. A Trainer needs of it `broadcast`, by which all
replicas begin alike; `pushpull`, which sums their gradients; and what `is_capable`, `rank` and `num_workers` say. A
store that is capable of 'optimizer' updates in `pushpull` by the optimizer that `set_optimizer` gave it, and has
`save_optimizer_states` and `load_optimizer_states`.
"""

from __future__ import annotations

from ..ndarray import NDArray
from .base import KVStoreBase
from .calls import Arrays
from .local import summed


@KVStoreBase.register
class TestStore(KVStoreBase):
    """Keeps nothing: sums over the contexts of this process, one key in each call."""

    __test__ = False  # for pytest, which takes every class of this name for a collection of tests

    def broadcast(self, key: int | str, value: NDArray, out: Arrays, priority: int = 0) -> None:
        """Copy a value to every array of `out`."""
        for array in _listed(out):
            value.copyto(array)

    def pushpull(self, key: int | str, value: Arrays, out: Arrays | None = None, priority: int = 0) -> None:
        """Sum the arrays of `value` into every array of `out`, or back into `value`."""
        total = summed(_listed(value))
        for array in _listed(value if out is None else out):
            if array is not total:
                total.copyto(array)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """False: it runs no optimizer."""
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return False
        raise ValueError(f"a kvstore may be capable of 'optimizer', received {capability!r}")

    @property
    def rank(self) -> int:
        """0: there is one worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """1: there is one worker."""
        return 1


def _listed(arrays: Arrays) -> list[NDArray]:
    return [arrays] if isinstance(arrays, NDArray) else list(arrays)
