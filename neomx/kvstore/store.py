"""KVStore: MXNet's store interface. Implementations are local, by all-reduce, and on servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from .. import optimizer as opt
from ..base import MXNetError
from ..comm import compress
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from . import calls
from .base import KVStoreBase
from .calls import Key, Keys, Pairs, Values

Update = Callable[
    [Key, NDArray, NDArray], object
]  # (key, sum of pushed arrays, stored array); changes the last in place


class KVStore(KVStoreBase, ABC):
    """Arrays by key. A push updates the stored array with the updater, or replaces it if there is none.

    The public methods check their arguments, so that a call that raises changes nothing. Subclasses implement the
    abstract methods, which receive only valid arguments.
    """

    begins_alike = False  # whether all workers start from the weights of the first

    def __init__(self, name: str):
        self._type = name
        self._updater: opt.Updater | Update | None = None
        self._compressor: compress.Compressor | None = None

    @property
    def type(self) -> str:
        """The name with which the store was created."""
        return self._type

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store has the capability, of which there is one: 'optimizer'."""
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise ValueError(f"expected the capability 'optimizer', received {capability!r}")
        return True

    # ---- what a kind of store implements ----

    @abstractmethod
    def _shape(self, name: Key) -> tuple[int, ...] | None:
        """The shape of a stored array, or None if the key does not exist."""

    @abstractmethod
    def _create(self, values: dict[Key, NDArray]) -> None:
        """Create keys with the values of worker 0."""

    @abstractmethod
    def _push(self, pushed: dict[Key, list[NDArray]]) -> None:
        """Sum the arrays of each key over contexts and workers, then update or replace the stored array."""

    @abstractmethod
    def _pull(self, targets: Pairs) -> None:
        """Copy stored arrays into others, dense or sparse."""

    @abstractmethod
    def _rows(self, name: Key, rows: torch.Tensor) -> RowSparseNDArray:
        """Some rows of a stored array, given by indices in ascending order."""

    # ---- push and pull ----

    def init(self, key: Keys, value: Values) -> None:
        """Initialize keys with the values of worker 0. All workers must init the same keys in the same order."""
        self._create(self._new(key, value))

    def push(self, key: Keys, value: Values, priority: int = 0) -> None:
        """Push arrays. The arrays of a key are summed, then stored or passed to the updater."""
        self._push(self._pushed(key, value))

    def pull(self, key: Keys, out: Values | None = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy stored arrays into `out`. Sparse arrays are skipped unless `ignore_sparse=False`."""
        if out is None:
            raise AssertionError("pull: out= must be the arrays to copy into")
        targets = self._targets(key, out)
        if ignore_sparse:
            dense = [(name, [array for array in arrays if array.stype == "default"]) for name, arrays in targets]
            targets = [(name, arrays) for name, arrays in dense if arrays]
        self._pull(targets)

    def pushpull(self, key: Keys, value: Values, out: Values | None = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or back into `value`. Sparse arrays are included."""
        pushed, targets = self._pushed(key, value), self._targets(key, value if out is None else out)
        self._push(pushed)
        self._pull(targets)

    def broadcast(self, key: Keys, value: Values, out: Values, priority: int = 0) -> None:
        """`init`, then `pull` into `out`. Sparse arrays are included."""
        values, targets = self._new(key, value), calls.pairs_of(key, out)
        for name, arrays in targets:
            calls.check_shapes(name, arrays, values[name].shape, "out= has")
        self._create(values)
        self._pull(targets)

    def row_sparse_pull(
        self, key: Keys, out: Values | None = None, priority: int = 0, row_ids: Values | None = None
    ) -> None:
        """Copy the rows `row_ids` of stored arrays into row-sparse `out`.

        `row_ids` has the same nesting as `out`. One array of indices may serve all arrays of a key.
        """
        if out is None or row_ids is None:
            raise AssertionError("row_sparse_pull: out= and row_ids= must be given")
        wanted = calls.rows_wanted(key, out, row_ids)
        for name, array, rows in wanted:
            shape = self._known_shape(name)
            calls.check_shapes(name, [array], shape, "out= has")
            calls.check_rows(name, rows, shape)
        for name, array, rows in wanted:
            self._rows(name, rows).copyto(array)

    # ---- checked arguments ----

    def _known_shape(self, name: Key) -> tuple[int, ...]:
        shape = self._shape(name)
        if shape is None:
            raise MXNetError(f"key {name} has not been initialized. Call init or broadcast with it first")
        return shape

    def _new(self, key: Keys, value: Values) -> dict[Key, NDArray]:
        values = calls.first_values(key, value)
        for name in values:
            if self._shape(name) is not None:
                raise calls.duplicate(name)
        return values

    def _pushed(self, key: Keys, value: Values) -> dict[Key, list[NDArray]]:
        pushed = calls.grouped(calls.pairs_of(key, value))
        for name, arrays in pushed.items():
            calls.check_shapes(name, arrays, self._known_shape(name), "pushed was")
            calls.check_dtypes(name, arrays, calls.dtype_of(arrays[0]))
        return pushed

    def _targets(self, key: Keys, out: Values) -> Pairs:
        targets = calls.pairs_of(key, out)
        for name, arrays in targets:
            calls.check_shapes(name, arrays, self._known_shape(name), "out= has")
        return targets

    # ---- the optimizer ----

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Make `push` update with this optimizer."""
        if not isinstance(optimizer, opt.Optimizer):
            raise TypeError(
                f"set_optimizer expects an Optimizer, as mx.optimizer.create makes it, received {optimizer!r:.80}"
            )
        self._take_optimizer(optimizer)

    @abstractmethod
    def _take_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Update with this optimizer from now on."""

    @abstractmethod
    def _set_updater(self, updater: Update) -> None:
        """Make `push` call a function of (key, sum of pushed arrays, stored array)."""

    def set_updater(self, updater: Update) -> None:
        """Make `push` call a function of (key, sum of pushed arrays, stored array), which changes the last in place."""
        self._set_updater(updater)

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer passed to `set_optimizer`, or read from a file since."""
        return self._with_states("tell").optimizer

    def _with_states(self, what: str) -> opt.Updater:
        """The updater whose states are saved and loaded."""
        if not isinstance(self._updater, opt.Updater):
            raise AssertionError(
                f"cannot {what} optimizer states: the store has no optimizer. Call set_optimizer first"
            )
        return self._updater

    # ---- compression ----

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Compress gradients in transit: `{'type': '2bit', 'threshold': 0.5}`, '1bit' or 'fp16'.

        The quantization error is kept and added to the next gradient. Of the stores of a single process, only 'device'
        compresses, between its contexts.
        """
        if not self._may_compress():
            raise MXNetError(f"gradient compression is for 'device' and stores between workers, not {self._type!r}")
        self._compressor = self._checked_compressor(compress.make(compression_params, self._compressor))

    def _checked_compressor(self, compressor: compress.Compressor) -> compress.Compressor:
        """Return the compressor, or raise if this store does not support it."""
        return compressor

    def _may_compress(self) -> bool:
        return True

    @property
    def compressor(self) -> compress.Compressor | None:
        """The compressor of gradients in transit, if any."""
        return self._compressor

    # ---- the job ----

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all workers reach the barrier."""

    def _barrier(self) -> None:
        self.barrier()

    @abstractmethod
    def get_num_dead_node(self, node_id: int, timeout: float = 60) -> int:
        """The number of lost processes: servers if bit 2 of `node_id` is set, workers if bit 4 is set."""
