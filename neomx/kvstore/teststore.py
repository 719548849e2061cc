"""TestStore: MXNet's smallest store, which also shows how to write your own.

A store derives from `KVStoreBase` and is registered under its class name in lower case: `mx.kv.create("teststore")`,
`gluon.Trainer(..., kvstore="teststore")`. A Trainer calls `broadcast` to give all replicas the same initial values and
`pushpull` to sum their gradients. It reads `is_capable`, `rank` and `num_workers`. A store that is capable of
'optimizer' updates in `pushpull` with the optimizer passed to `set_optimizer`, and implements `save_optimizer_states`
and `load_optimizer_states`.
"""

from __future__ import annotations

from ..ndarray import NDArray
from .base import KVStoreBase
from .calls import Arrays
from .local import summed


@KVStoreBase.register
class TestStore(KVStoreBase):
    """A store without state: it sums over the contexts of this process, one key per call."""

    __test__ = False  # keeps pytest from collecting the class as tests

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
