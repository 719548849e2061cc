"""The store of workers that have servers: arrays live there, in pieces, and are updated there."""

from __future__ import annotations

import copy
import itertools
import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from .. import optimizer
from ..base import MXNetError
from ..comm.server import Entry, Placement, Rows, open_client
from ..comm.session import Session
from ..comm.store import THE_STORE, PeerError
from ..context import cpu
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from ..optimizer import states
from ..optimizer.moment import Moment
from .local import Key, Keys, _pairs, _sum
from .shared import SharedStore

_OF_WHOLE_WEIGHTS = (optimizer.LAMB, optimizer.LARS, optimizer.LBSGD, optimizer.contrib.GroupAdaGrad)
_ALWAYS_TOLD = ("wd", "rescale_grad", "clip_gradient")
_COUNTS = ("num_update", "begin_num_update", "lr")
_numbers = itertools.count()


class RemoteStore(SharedStore):
    """Arrays on the job's servers. With an optimizer the servers update; without, sums take the place of values.

    'dist_sync' and its like go in rounds that all workers take part in; 'dist_async' applies each push as it comes;
    'dist_stale' too, but a worker more than `staleness` steps ahead of the slowest waits.
    """

    def __init__(self, name: str, staleness: int | None = None, opened: Session | None = None):
        super().__init__(name, opened)
        self._world = self._session.world
        self._staleness = _staleness_of(name, staleness)
        assert self._session.store is not None
        self._store = self._session.store
        if self._staleness != 0:
            self._store.set("tolerates-loss", "1")
        self._number = next(_numbers)
        self._placement = Placement(self._world.servers)
        self._client = open_client(self._world, self._store, self._number, self._staleness)
        leave = weakref.finalize(self, self._client.close)
        leave.atexit = False  # the session's last round comes first
        self._session.at_close.append(leave)
        self._entries: dict[Key, Entry] = {}
        self._optimizers = self._loads = self._barriers = 0
        self._touched: set[str] = set()
        self._factors: dict[str, tuple[list[float], list[Any]]] = {}
        self._described: dict[str, Any] = {}

    exchanges_by = "servers"

    @property
    def is_synchronous(self) -> bool:
        """Whether all workers take part in every update."""
        return self._staleness == 0

    begins_alike = is_synchronous  # who comes late cannot

    # ---- keys ----

    def init(self, key: Keys, value: Any) -> None:
        """Set the first values of keys: worker 0's count, and all workers must init the same keys in the same order."""
        pairs = _pairs(key, value)
        names = [name for name, _ in pairs]
        kinds = {type(name): name for name in (*self._entries, *names)}
        if len(kinds) > 1:
            raise MXNetError(f"keys must be all ints or all strings, received both: {list(kinds.values())}")
        for name in names:
            if name in self._entries:
                raise MXNetError(f"duplicate init of key {name}: init or broadcast was called with it before")
        tensors = [arrays[0]._data.detach().cpu() for _, arrays in pairs]
        whole = self._keeps_whole()
        entries = [
            Entry(name, tuple(t.shape), t.dtype, self._placement.place(tuple(t.shape), t.element_size(), whole))
            for name, t in zip(names, tensors, strict=True)
        ]
        self._declare(entries, tensors)

    def _declare(self, entries: list[Entry], tensors: Sequence[torch.Tensor]) -> None:
        self._client.declare(entries, [tensor.contiguous().view(-1) for tensor in tensors])
        self._entries.update({entry.key: entry for entry in entries})

    def _entry(self, name: Key) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise MXNetError(f"key {name} has not been inited. Call init or broadcast with it first") from None

    def _fitting_pairs(self, key: Keys, value: Any, what: str) -> list[tuple[Key, list[NDArray]]]:
        pairs = _pairs(key, value)
        for name, arrays in pairs:
            entry = self._entry(name)
            for array in arrays:
                if array.shape != entry.shape:
                    raise MXNetError(f"key {name}: the stored array has shape {entry.shape}, {what} {array.shape}")
        return pairs

    # ---- push and pull ----

    def push(self, key: Keys, value: Any, priority: int = 0) -> None:
        """Hand in arrays; those of one key are summed, over contexts and over workers."""
        self._check_updates()
        pairs = self._fitting_pairs(key, value, "pushed was")
        totals = [(name, _sum(arrays)) for name, arrays in pairs]
        settings = self._settings([name for name, _ in totals])
        dense = []
        for name, total in totals:
            self._check_dtype(name, total)
            if total.stype == "row_sparse" and self._entry(name).by_rows:
                self._client.push_rows(name, _rows_of(total), True, settings)
            elif self._compressor is not None:
                self._push_compressed(name, total._data.detach().cpu(), settings)
            else:
                dense.append((name, total._data.detach()))
        if dense:
            self._client.push([name for name, _ in dense], [tensor for _, tensor in dense], True, settings)

    def _check_updates(self) -> None:
        if self._staleness != 0 and self._updater is None:
            raise MXNetError(
                f"{self._type!r} applies each push by an optimizer, and none was given. Call set_optimizer first, or "
                "use 'dist_sync'"
            )

    def _check_dtype(self, name: Key, total: NDArray) -> None:
        expected = self._entry(name).dtype
        dtype = total._data.dtype if not total._sparse else total._parts[0].dtype  # type: ignore[attr-defined]
        if dtype != expected:
            raise MXNetError(f"key {name}: the stored array is {expected}, pushed was {dtype}. Cast it with astype")

    def _push_compressed(self, name: Key, tensor: torch.Tensor, settings: Any, commit: bool = True) -> None:
        compressor = self._compressor
        assert compressor is not None
        flat = tensor.reshape(-1)
        pieces = [
            (compressor.params, compressor.encode((name, piece.start), flat[piece.start : piece.stop]))
            for piece in self._entry(name).pieces
        ]
        self._client.push_coded(name, pieces, commit, settings)

    def pull(self, key: Keys, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy stored arrays into `out`, once the round of this worker's last push has ended."""
        if out is None:
            raise AssertionError("pull: out= must be the arrays to copy into")
        pairs = self._fitting_pairs(key, out, "out= has")
        targets = [[_target(array) for array in arrays] for _, arrays in pairs]
        self._client.pull([name for name, _ in pairs], targets)
        for (_, arrays), tensors in zip(pairs, targets, strict=True):
            for array, tensor in zip(arrays, tensors, strict=True):
                if array._sparse:
                    NDArray(tensor, array.context).tostype(array.stype).copyto(array)

    def row_sparse_pull(self, key: Keys, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copy the rows `row_ids` of stored arrays into row-sparse `out`: only those rows travel."""
        if out is None or row_ids is None:
            raise AssertionError("row_sparse_pull: out= and row_ids= must be given")
        ids = [row_ids] if isinstance(row_ids, NDArray) else list(row_ids)
        for name, arrays in self._fitting_pairs(key, out, "out= has"):
            for at, array in enumerate(arrays):
                wanted = torch.unique(ids[at if len(ids) > 1 else 0]._data.detach().cpu().reshape(-1).long())
                self._pull_rows(name, wanted).copyto(array)

    def _pull_rows(self, name: Key, wanted: torch.Tensor) -> NDArray:
        entry = self._entry(name)
        if len(wanted) and not (int(wanted[0]) >= 0 and int(wanted[-1]) < entry.shape[0]):
            raise MXNetError(f"key {name} has {entry.shape[0]} rows, row_ids= asks for {int(wanted[-1])}")
        if entry.by_rows:
            values = self._client.pull_rows(name, wanted)
        else:
            whole = torch.empty(entry.shape, dtype=entry.dtype)
            self._client.pull([name], [[whole]])
            values = whole[wanted]
        return RowSparseNDArray((values, wanted), entry.shape, cpu())

    # ---- the way of a Trainer ----

    def exchange_push(self, keys: Sequence[Key], tensors: Sequence[torch.Tensor]) -> None:
        """Hand in gradients as they become ready: tensors of the keys' shapes, or flat. They count at the commit."""
        if self._compressor is None:
            self._client.push(keys, tensors, False)
            return
        for key, tensor in zip(keys, tensors, strict=True):
            self._push_compressed(key, tensor.detach().cpu(), {}, commit=False)

    def exchange_push_rows(self, key: Key, values: torch.Tensor, numbers: torch.Tensor) -> None:
        """The same of a row-sparse gradient: the values of its rows, and their numbers in rising order."""
        entry = self._entry(key)
        if entry.by_rows:
            self._client.push_rows(key, Rows(numbers.cpu(), values.cpu()), commit=False)
            return
        dense = torch.zeros(entry.shape, dtype=entry.dtype).index_copy_(0, numbers.cpu(), values.cpu())
        self.exchange_push([key], [dense])

    def take_back(self, key: Key) -> None:
        """The last `exchange_push` of a key is replaced by another: what its compressor kept does not count."""
        if self._compressor is not None:
            for piece in self._entry(key).pieces:
                self._compressor.take_back((key, piece.start))

    def exchange_commit(self, keys: Sequence[Key], follows: bool = False) -> None:
        """This worker's step is complete for these keys, what it did not push of them is zero; nothing is waited for.

        The servers update with the settings that the optimizer has now: rates, decays, rescale_grad; those of another
        worker if this one only `follows`.
        """
        self._check_updates()
        self._client.commit(keys, self._settings(keys), follows)

    def exchange_pull(self, keys: Sequence[Key], outs: Sequence[torch.Tensor]) -> None:
        """Copy the arrays of keys into tensors of their shapes, or flat, as soon as each is ready."""
        self._client.pull(keys, [[out] for out in outs])

    # ---- the optimizer ----

    def set_optimizer(self, new: optimizer.Optimizer) -> None:
        """Have the servers update by this optimizer; what is changed on it later holds there too."""
        if not isinstance(new, optimizer.Optimizer):
            raise TypeError(
                f"set_optimizer expects an Optimizer, as mx.optimizer.create makes it, received {new!r:.80}"
            )
        before, self._updater = self._updater, optimizer.get_updater(new)
        if self._keeps_whole():
            self._gather_keys()
        self._optimizers += 1
        try:
            self._client.set_optimizer(states.dumps({}, self._bare(new)), self._optimizers)
        except MXNetError:  # the servers go on as they did
            self._updater = before
            raise

    def _bare(self, told: optimizer.Optimizer) -> optimizer.Optimizer:
        """An optimizer as servers need it: rates come from the workers, who may have schedules of their own making."""
        bare = copy.copy(told)
        bare.lr_scheduler, bare.lr, bare.sym_info = None, told.learning_rate, ()
        bare.lr_mult, bare.wd_mult = {}, {}
        self._described = dict(vars(told))
        self._touched = set(_ALWAYS_TOLD)
        return bare

    def _keeps_whole(self) -> bool:
        return isinstance(self._updater, optimizer.Updater) and isinstance(self._updater.optimizer, _OF_WHOLE_WEIGHTS)

    def _gather_keys(self) -> None:
        """Put arrays that were split on one server each: the optimizer needs the norm of whole weights."""
        split = [entry for entry in self._entries.values() if len(entry.pieces) > 1]
        if not split:
            return
        values = [torch.empty(entry.shape, dtype=entry.dtype) for entry in split]
        if self.rank == 0:
            self._client.pull([entry.key for entry in split], [[value] for value in values])
        entries = []
        for entry in split:
            self._placement.add(entry.pieces, entry.dtype.itemsize, -1)
            pieces = self._placement.place(entry.shape, entry.dtype.itemsize, whole=True)
            entries.append(Entry(entry.key, entry.shape, entry.dtype, pieces, entry.generation + 1))
        self._declare(entries, values)

    def _settings(self, keys: Sequence[Key]) -> dict[str, Any]:
        """Count an update of these keys; what the servers need to know of the optimizer for it."""
        if not isinstance(self._updater, optimizer.Updater):
            return {}
        mine = self._updater.optimizer
        mine._update_count(keys)
        for name, value in vars(mine).items():
            if name not in _COUNTS and _is_plain(value) and value != self._described.get(name, value):
                self._touched.add(name)
        told = {name: _number(getattr(mine, name)) for name in self._touched}
        told["lr"] = _number(mine.learning_rate)
        every = list(self._entries)
        for kind in ("lr_mult", "wd_mult"):
            factors = mine._multipliers(every, kind)
            known, pairs = self._factors.get(kind, (None, []))
            if factors != known:
                pairs = [[key, _number(factor)] for key, factor in zip(every, factors, strict=True)]
                self._factors[kind] = factors, pairs
            told[kind] = pairs
        return told

    def _set_updater(self, updater: Any) -> None:
        raise MXNetError(
            f"a function cannot be sent to the servers of {self._type!r}. Use set_optimizer, or update on the workers: "
            "Trainer(..., update_on_kvstore=False)"
        )

    set_updater = _set_updater

    def _may_compress(self) -> bool:
        return True

    # ---- the optimizer's states ----

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file, as one process would have them."""
        mine = self._with_states("save").optimizer
        held = [states.loads(data) for data in self._client.states()]
        joined = {
            key: _joined(entry, [each[key] for each, _ in held if key in each]) for key, entry in self._entries.items()
        }
        known = {key: state for key, state in joined.items() if any(key in each for each, _ in held)}
        whole = _combined(mine, [each for _, each in held if each is not None]) if dump_optimizer else None
        with replacing(fname) as file:
            file.write(states.dumps(known, whole))

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file; every worker calls it, worker 0 sends them to the servers."""
        weights: dict[Key, NDArray | None] = dict.fromkeys(self._entries)
        updater = self._with_states("load").restored(fname, weights)
        pieces = [
            {
                key: _split(self._entries[key], piece, state)
                for key, state in updater.states.items()
                for piece in self._entries[key].pieces
                if piece.server == server
            }
            for server in range(self._world.servers)
        ]
        self._updater = optimizer.get_updater(updater.optimizer)
        bare = self._bare(updater.optimizer)
        self._loads += 1
        self._client.restore([states.dumps(each, bare) for each in pieces], self._loads)

    # ---- the job ----

    def barrier(self) -> None:
        """Wait for all workers that are alive."""
        if self.is_synchronous:
            self.rounds.pause()  # taking part in the steps of those that still have some
            return
        self._barriers += 1
        mine = f"kvstore/{self._number}/barrier"
        self._store.set(f"{mine}/{self._barriers}/{self.rank}", b"")
        if self._barriers > 2:  # all have left the one before the last: they have come to the last
            self._store.delete_key(f"{mine}/{self._barriers - 2}/{self.rank}")
        deadline = time.monotonic() + self._world.timeout
        while True:
            gone = {name: why for name, why in self._store.gone.items() if name.startswith("worker ")}
            awaited = [f"{mine}/{self._barriers}/{r}" for r in range(self.num_workers) if f"worker {r}" not in gone]
            try:
                return self._store.wait(awaited, timeout=1.0)
            except PeerError as error:
                if time.monotonic() > deadline or THE_STORE in self._store.gone:
                    raise PeerError(f"barrier after {self._world.timeout:.0f} s: {error}") from error

    def close(self) -> None:
        """Take leave of the servers."""
        self._client.close()


def _staleness_of(name: str, staleness: int | None) -> int | None:
    """0 for rounds, None for no bound, else by how many steps a worker may be ahead."""
    if "stale" in name:
        steps = 1 if staleness is None else staleness
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise ValueError(f"staleness= is by how many steps a worker may be ahead, received {staleness!r}")
        return steps
    return None if "async" in name else 0


def _target(array: NDArray) -> torch.Tensor:
    """The memory to copy into, past torch's version counter; of a sparse array, a dense one for the way."""
    if array._sparse:
        return torch.empty(array.shape, dtype=array._parts[0].dtype)  # type: ignore[attr-defined]
    return array._data.data


def _rows_of(array: Any) -> Rows:
    values, indices = (part.detach().cpu() for part in array._parts)
    if bool((indices[1:] <= indices[:-1]).any()):
        order = torch.argsort(indices)
        values, indices = values[order], indices[order]
    return Rows(indices.long(), values)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _number(value: Any) -> Any:
    return value if _is_plain(value) else float(value)


def _combined(mine: optimizer.Optimizer, held: list[optimizer.Optimizer]) -> optimizer.Optimizer:
    """The optimizer as one process would have it: what the servers counted and gathered, the schedule of the worker."""
    whole = copy.copy(held[0])
    for name, value in vars(whole).items():
        if isinstance(value, dict):
            setattr(whole, name, {key: each for other in held for key, each in vars(other)[name].items()})
    counts = {key: count for other in held for key, count in other._index_update_count.items()}
    whole._all_index_update_counts = {0: counts}
    whole._set_current_context(0)
    whole.num_update = max(other.num_update for other in held)
    for name in ("lr", "lr_scheduler", "lr_mult", "wd_mult", "sym_info", "idx2name"):
        setattr(whole, name, getattr(mine, name))
    return whole


def _joined(entry: Entry, pieces: list[Any]) -> Any:
    """A weight's state from the states of its pieces."""
    if len(pieces) <= 1:
        return pieces[0] if pieces else None
    first = pieces[0]
    if isinstance(first, (tuple, list)):
        return type(first)(_joined(entry, list(each)) for each in zip(*pieces, strict=True))
    if isinstance(first, Moment) and len({piece._factor for piece in pieces}) == 1:
        kept = torch.cat([piece._kept.reshape(-1) for piece in pieces]).view(entry.shape)
        return Moment.restored(NDArray(kept, first._ctx), first._factor)
    if isinstance(first, NDArray):
        return NDArray(torch.cat([piece._data.reshape(-1) for piece in pieces]).view(entry.shape), first._ctx)
    return first


def _split(entry: Entry, piece: Any, state: Any) -> Any:
    """The part of a weight's state that belongs to a piece of it."""
    if isinstance(state, (tuple, list)):
        return type(state)(_split(entry, piece, each) for each in state)
    if not isinstance(state, NDArray) or state.shape != entry.shape or len(entry.pieces) == 1:
        return state
    if isinstance(state, Moment):
        kept = state._kept.reshape(-1)[piece.start : piece.stop].reshape(entry.shape_of(piece))
        return Moment.restored(NDArray(kept, state._ctx), state._factor)
    return NDArray(state._data.reshape(-1)[piece.start : piece.stop].reshape(entry.shape_of(piece)), state._ctx)
