"""KVStore: MXNet's interface of a store, of which there are one in a process, one by all-reduce, one on servers."""

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

Update = Callable[[Key, NDArray, NDArray], object]  # (key, sum of what was pushed, stored array), changed in place


class KVStore(KVStoreBase, ABC):
    """Arrays by key. With an updater, what is pushed updates the stored array; without, it replaces it.

    The public methods check what they are given, so that a refused call changes nothing. A kind of store implements the
    abstract ones, which are given only what is valid.
    """

    begins_alike = False  # whether all workers first take the weights of the first

    def __init__(self, name: str):
        self._type = name
        self._updater: opt.Updater | Update | None = None
        self._compressor: compress.Compressor | None = None

    @property
    def type(self) -> str:
        """The name it was created by."""
        return self._type

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can do that: 'optimizer'."""
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise ValueError(f"a kvstore may be capable of 'optimizer', received {capability!r}")
        return True

    # ---- what a kind of store implements ----

    @abstractmethod
    def _shape(self, name: Key) -> tuple[int, ...] | None:
        """The shape of a stored array; None if there is none by that key."""

    @abstractmethod
    def _create(self, values: dict[Key, NDArray]) -> None:
        """Store arrays by new keys, worker 0's values."""

    @abstractmethod
    def _push(self, pushed: dict[Key, list[NDArray]]) -> None:
        """Sum each key's arrays over contexts and workers, then update the stored array or replace it."""

    @abstractmethod
    def _pull(self, targets: Pairs) -> None:
        """Copy stored arrays into others, dense or sparse."""

    @abstractmethod
    def _rows(self, name: Key, rows: torch.Tensor) -> RowSparseNDArray:
        """Some rows of a stored array; their numbers ascend."""

    # ---- push and pull ----

    def init(self, key: Keys, value: Values) -> None:
        """Set the first value of keys: that of worker 0. All workers must init the same keys in the same order."""
        self._create(self._new(key, value))

    def push(self, key: Keys, value: Values, priority: int = 0) -> None:
        """Hand in arrays; those of one key are summed, then stored, or given to the updater."""
        self._push(self._pushed(key, value))

    def pull(self, key: Keys, out: Values | None = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy stored arrays into `out`; sparse arrays among those only with `ignore_sparse=False`."""
        if out is None:
            raise AssertionError("pull: out= must be the arrays to copy into")
        targets = self._targets(key, out)
        if ignore_sparse:
            dense = [(name, [array for array in arrays if array.stype == "default"]) for name, arrays in targets]
            targets = [(name, arrays) for name, arrays in dense if arrays]
        self._pull(targets)

    def pushpull(self, key: Keys, value: Values, out: Values | None = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or back into `value`; into sparse arrays too."""
        pushed, targets = self._pushed(key, value), self._targets(key, value if out is None else out)
        self._push(pushed)
        self._pull(targets)

    def broadcast(self, key: Keys, value: Values, out: Values, priority: int = 0) -> None:
        """`init`, then `pull` into `out`, into sparse arrays too."""
        values, targets = self._new(key, value), calls.pairs_of(key, out)
        for name, arrays in targets:
            calls.check_shapes(name, arrays, values[name].shape, "out= has")
        self._create(values)
        self._pull(targets)

    def row_sparse_pull(
        self, key: Keys, out: Values | None = None, priority: int = 0, row_ids: Values | None = None
    ) -> None:
        """Copy the rows `row_ids` of stored arrays into row-sparse `out`; `row_ids` is nested as `out` is.

        One array of numbers may stand for all arrays of a key.
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

    # ---- what calls are given ----

    def _known_shape(self, name: Key) -> tuple[int, ...]:
        shape = self._shape(name)
        if shape is None:
            raise MXNetError(f"key {name} has not been inited. Call init or broadcast with it first")
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
        """Have `push` update by this optimizer."""
        if not isinstance(optimizer, opt.Optimizer):
            raise TypeError(
                f"set_optimizer expects an Optimizer, as mx.optimizer.create makes it, received {optimizer!r:.80}"
            )
        self._take_optimizer(optimizer)

    @abstractmethod
    def _take_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Update by this optimizer from now on."""

    @abstractmethod
    def _set_updater(self, updater: Update) -> None:
        """Have `push` update by a function of (key, sum of what was pushed, stored array)."""

    def set_updater(self, updater: Update) -> None:
        """Have `push` update by a function of (key, sum of what was pushed, stored array), which it changes."""
        self._set_updater(updater)

    @property
    def optimizer(self) -> opt.Optimizer:
        """What `set_optimizer` was given, or a file had in its place."""
        return self._with_states("tell").optimizer

    def _with_states(self, what: str) -> opt.Updater:
        """The optimizer with its states, of which a file is made or read."""
        if not isinstance(self._updater, opt.Updater):
            raise AssertionError(f"cannot {what} optimizer states: no optimizer was given. Call set_optimizer first")
        return self._updater

    # ---- compression ----

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients in few bits: `{'type': '2bit', 'threshold': 0.5}`, '1bit' or 'fp16'.

        What the bits do not say is kept and added to the next gradient. A store of one process compresses what goes
        between its contexts, and only 'device' does.
        """
        if not self._may_compress():
            raise MXNetError(f"gradient compression is for 'device' and stores between workers, not {self._type!r}")
        self._compressor = self._checked_compressor(compress.make(compression_params, self._compressor))

    def _checked_compressor(self, compressor: compress.Compressor) -> compress.Compressor:
        """Raise if gradients cannot travel that way here."""
        return compressor

    def _may_compress(self) -> bool:
        return True

    @property
    def compressor(self) -> compress.Compressor | None:
        """How gradients travel, if not as they are."""
        return self._compressor

    # ---- the job ----

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all workers are here."""

    def _barrier(self) -> None:
        self.barrier()

    @abstractmethod
    def get_num_dead_node(self, node_id: int, timeout: float = 60) -> int:
        """How many processes of the job are gone, among servers if `node_id` has the bit 2, workers if 4."""
