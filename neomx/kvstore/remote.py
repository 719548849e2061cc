"""The store of workers with servers: servers hold arrays in segments and update them."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from .. import optimizer as opt
from ..base import MXNetError
from ..comm import compress
from ..comm.generations import Generation
from ..comm.server import Client, Directory, KeyAllocator, KeySpec, Segment, Settings, SparseRows, open_client
from ..comm.server import Generation as Members
from ..comm.server.messages import LOAD_STATES, SET_OPTIMIZER
from ..comm.session import Session
from ..comm.store import THE_STORE, TOLERATES_LOSS, PeerError
from ..comm.transaction import transaction
from ..context import cpu
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..ndarray.sparse import BaseSparseNDArray, RowSparseNDArray
from ..optimizer import states
from ..optimizer.part import Part
from ..optimizer.remote import RemoteOptimizer
from ..optimizer.whole import cut_state, join_state
from . import calls
from .calls import Key, Keys, Pairs, Values
from .local import summed
from .shared import SharedStore
from .store import Update

_numbers = itertools.count()


class RemoteStore(SharedStore):
    """Arrays on the servers of the job. With an optimizer, servers update; without one, sums replace the values.

    'dist_sync' and its aliases proceed in rounds that include all workers. 'dist_async' applies each push when it
    arrives. So does 'dist_stale', but a worker that is more than `staleness` steps ahead of the slowest waits.
    """

    def __init__(self, name: str, staleness: int | None = None, opened: Session | None = None):
        super().__init__(name, opened)
        self._world = self._session.world
        self._staleness = _staleness_of(name, staleness)
        self.begins_alike = self.is_synchronous  # an asynchronous worker may join late
        if self._world.is_elastic and not self.is_synchronous:
            raise MXNetError(
                f"{name!r} does not support elastic jobs. Use 'dist_sync', or start without --elastic, where "
                f"{name!r} continues without lost workers"
            )
        assert self._session.store is not None
        self._store = self._session.store
        if self._staleness != 0:
            self._store.set(TOLERATES_LOSS, "1")
        self._number = next(_numbers)
        self._allocator = KeyAllocator(self._world.servers)
        directory = Directory(self._world, self._store, self._number, self._staleness)
        self._generations = self._session.generations
        self._followed = 0  # the generation as whose member this worker is connected
        self._have_optimizer = False  # whether all servers had an optimizer when it began
        timeout, rank = self._world.timeout, self._world.rank
        self._connection = open_client(directory, timeout, self._world.servers, rank, self._watch())
        leave = weakref.finalize(self, self._connection.close)
        leave.atexit = False  # the session ends its last round first
        self._session.at_close.append(leave)
        self._specs: dict[Key, KeySpec] = {}
        self._told: dict[Key, KeySpec] = {}  # keys that the other workers have declared, in an elastic job
        self._optimizers = self._loads = self._barriers = 0
        self._remote: RemoteOptimizer | None = None
        self._settled: tuple[int, Settings] | None = None  # the last step of an elastic job, and its settings

    @property
    def runs_optimizer(self) -> bool:
        """Whether the servers have the optimizer of this worker."""
        return self._remote is not None

    @property
    def is_synchronous(self) -> bool:
        """Whether every update includes all workers."""
        return self._staleness == 0

    # ---- the workers ----

    @property
    def _client(self) -> Client:
        """The connections to the servers, as a member of the current generation if the job is elastic."""
        self._follow_workers()
        return self._connection

    def _follow_workers(self) -> None:
        generations = self._generations
        if generations is not None and generations.admitted and self._followed != generations.number:
            self._follow(generations.current)

    def _follow(self, now: Generation) -> None:
        """Go on with the workers of a new generation: the servers drop what was not decided to count."""
        is_first = now.members[0] == self._world.number
        told = self._connection.regroup(Members(now.number, now.members, now.steps), is_first)
        specs = [KeySpec.heard(each, self._world.servers) for each in told[0]["keys"]]
        self._told = {spec.key: spec for spec in specs}
        counts = [dict(each["actions"]) for each in told]
        self._optimizers, self._loads = (max(e.get(act, 0) for e in counts) for act in (SET_OPTIMIZER, LOAD_STATES))
        self._have_optimizer = all(each.get(SET_OPTIMIZER) for each in counts)
        self._followed = now.number

    def _watch(self) -> Callable[[int], None]:
        """Return a function that raises if workers of a generation are lost, or one of them has noticed it."""
        generations, store = self._generations, self._store

        def watch(number: int) -> None:
            if generations is None or not generations.admitted:
                return
            if THE_STORE in store.gone:  # after a cut, or because this worker was stopped
                raise PeerError(store.gone[THE_STORE])
            lost = [f"worker {member}" for member in generations.gone()]
            if lost or generations.is_called() or generations.number != number:
                raise PeerError(f"the servers cannot complete the step. {store.missing(lost)}")

        return watch

    # ---- keys ----

    def _shape(self, name: Key) -> tuple[int, ...] | None:
        return self._specs[name].shape if name in self._specs else None

    def _create(self, values: dict[Key, NDArray]) -> None:
        self._follow_workers()
        tensors = [value._data.detach().cpu() for value in values.values()]
        specs = [self._spec(name, value) for name, value in values.items()]
        try:
            self._declare(specs, tensors)
        except MXNetError:
            for spec in specs:
                self._allocator.add(spec.segments, spec.dtype.itemsize, -1)
            raise

    def _spec(self, name: Key, value: NDArray) -> KeySpec:
        """Return the spec of a new key: that of the other workers, if they have it already."""
        if (known := self._told.get(name)) is not None:
            self._allocator.add(known.segments, known.dtype.itemsize)
            return known
        shape, dtype = tuple(value.shape), value._data.dtype
        return KeySpec(name, shape, dtype, self._allocate(shape, dtype), 0, _is_sparse(value))

    def assign(self, key: Keys, value: Values) -> None:
        """Overwrite keys with the values of worker 0. All workers must call it."""
        arrays = {name: arrays[0] for name, arrays in self._targets(key, value)}
        specs = [replace(self._specs[name], generation=self._specs[name].generation + 1) for name in arrays]
        self._declare(specs, [array._data.detach().cpu() for array in arrays.values()])

    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Segment, ...]:
        return self._allocator.allocate(shape, dtype.itemsize, self._keeps_whole())

    def _declare(self, specs: list[KeySpec], tensors: Sequence[torch.Tensor]) -> None:
        self._client.declare(specs, [tensor.contiguous().view(-1) for tensor in tensors])
        self._specs.update({spec.key: spec for spec in specs})

    # ---- push and pull ----

    def _push(self, pushed: dict[Key, list[NDArray]]) -> None:
        """Send the sums over contexts; the servers sum over workers."""
        if self._generations is not None:
            raise MXNetError(
                "push() does not support elastic jobs, in which workers come and go. Train with a Trainer or a Module, "
                "or start the job without --elastic"
            )
        self._check_updates()
        for name, arrays in pushed.items():
            calls.check_dtypes(name, arrays, self._specs[name].dtype)
        totals = {name: summed(arrays) for name, arrays in pushed.items()}
        settings = self._settings(list(totals))
        dense: dict[Key, torch.Tensor] = {}
        for name, total in totals.items():
            if isinstance(total, RowSparseNDArray) and total.size:
                self._client.push_rows(name, _rows_of(total), True, settings)
            elif self._compressor is not None:
                self._push_compressed(name, total._data.detach().cpu(), settings)
            else:
                dense[name] = total._data.detach()
        if dense:
            self._client.push(list(dense), list(dense.values()), True, settings)

    def _check_updates(self) -> None:
        if self._staleness != 0 and self._updater is None:
            raise MXNetError(
                f"{self._type!r} needs an optimizer to apply each push, and none was set. Call set_optimizer first, or "
                "use 'dist_sync'"
            )

    def _push_compressed(self, name: Key, tensor: torch.Tensor, settings: Settings, commit: bool = True) -> None:
        compressor = self._compressor
        assert compressor is not None
        flat = tensor.reshape(-1)
        segments = [
            (compressor.params, compressor.encode((name, segment.start), flat[segment.start : segment.stop]))
            for segment in self._specs[name].segments
        ]
        self._client.push_coded(name, segments, commit, settings)

    def _pull(self, targets: Pairs) -> None:
        """Copy stored arrays after the round of this worker's last push has ended."""
        found = calls.grouped(targets)
        tensors = [[_target(array) for array in arrays] for arrays in found.values()]
        self._client.pull(list(found), tensors)
        for arrays, filled in zip(found.values(), tensors, strict=True):
            for array, tensor in zip(arrays, filled, strict=True):
                if isinstance(array, BaseSparseNDArray):
                    NDArray(tensor, cpu()).tostype(array.stype).copyto(array)

    def _rows(self, name: Key, rows: torch.Tensor) -> RowSparseNDArray:
        """Some rows of a stored array. Only these rows are transferred."""
        spec, rows = self._specs[name], rows.cpu()
        return RowSparseNDArray((self._client.pull_rows(name, rows), rows), spec.shape, cpu())

    # ---- for Trainer and Module ----

    def exchange_push(self, keys: Sequence[Key], tensors: Sequence[torch.Tensor]) -> None:
        """Send gradients as they become ready, in the shape of their keys or flat. They take effect at the commit."""
        if self._compressor is None:
            self._client.push(keys, tensors, False)
            return
        for key, tensor in zip(keys, tensors, strict=True):
            self._push_compressed(key, tensor.detach().cpu(), {}, commit=False)

    def exchange_push_rows(self, key: Key, values: torch.Tensor, numbers: torch.Tensor) -> None:
        """Send a row-sparse gradient: the values of its rows and their indices in ascending order."""
        self._client.push_rows(key, SparseRows(numbers.cpu(), values.cpu()), commit=False)

    def _checked_compressor(self, compressor: compress.Compressor) -> compress.Compressor:
        if type(compressor) not in compress.BUILT_IN:
            known = ", ".join(kind.kind for kind in compress.BUILT_IN)
            raise MXNetError(
                f"parameter servers can decode only {known}, because they do not run code of the program; received "
                f"{compressor.kind!r}. Use one of those, or run without servers"
            )
        return compressor

    def take_back(self, key: Key) -> None:
        """Discard the compressor's residual of the last `exchange_push` of a key, which another push will replace."""
        if self._compressor is not None:
            for segment in self._specs[key].segments:
                self._compressor.take_back((key, segment.start))

    def exchange_commit(self, keys: Sequence[Key], follows: bool = False) -> None:
        """Mark this worker's step as complete for these keys, without waiting. Keys that it did not push count as zero.

        The servers update with the optimizer's current settings (rates, decays, rescale_grad), or with those of another
        worker if this one only `follows`.
        """
        self._check_updates()
        if self._generations is None:
            self._client.commit(keys, self._settings(keys), follows)
        else:
            self._settled = None
            self._client.commit(keys, follows=True, step=transaction().steps + 1)

    def exchange_await(self, keys: Sequence[Key]) -> None:
        """In an elastic job, wait until all servers have what all workers have committed for these keys."""
        if self._generations is not None:
            self._client.await_offers(keys)

    def exchange_settle(self, keys: Sequence[Key]) -> None:
        """In an elastic job, update these keys: all workers know that the current step counts."""
        if self._generations is None:
            return
        step = transaction().steps + 1
        if self._settled is None or self._settled[0] != step:  # otherwise this repeats it, after a loss
            self._settled = step, self._settings(keys)
        self._client.settle(keys, *self._settled)

    def exchange_pull(self, keys: Sequence[Key], outs: Sequence[torch.Tensor]) -> None:
        """Copy the arrays of keys into tensors, in the shape of the keys or flat, as soon as each is ready."""
        self._client.pull(keys, [[out] for out in outs])

    # ---- the optimizer ----

    def _take_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Run this optimizer on the servers. Later changes to its settings apply there too."""
        before = self._updater, self._remote
        self._updater, self._remote = opt.get_updater(optimizer), RemoteOptimizer(optimizer)
        if self._keeps_whole():
            self._gather_keys()
        self._follow_workers()
        if before[1] is None and self._have_optimizer:
            return  # other workers of an elastic job have set it
        self._optimizers += 1
        try:
            self._client.set_optimizer(states.dumps({}, self._remote.description()), self._optimizers)
        except MXNetError:  # the servers continue with the previous optimizer
            self._updater, self._remote = before
            raise

    def _keeps_whole(self) -> bool:
        return self._remote is not None and self._remote.optimizer.needs_whole_weights

    def _gather_keys(self) -> None:
        """Move each array that was split onto a single server."""
        split = [spec for spec in self._specs.values() if len(spec.segments) > 1]
        if not split:
            return
        values = [torch.empty(spec.shape, dtype=spec.dtype) for spec in split]
        if self.rank == 0:
            self._client.pull([spec.key for spec in split], [[value] for value in values])
        specs = []
        for spec in split:
            self._allocator.add(spec.segments, spec.dtype.itemsize, -1)
            segments = self._allocate(spec.shape, spec.dtype)
            specs.append(KeySpec(spec.key, spec.shape, spec.dtype, segments, spec.generation + 1, spec.row_sparse))
        self._declare(specs, values)

    def _settings(self, keys: Sequence[Key]) -> Settings:
        """Count an update of these keys, and return the optimizer settings that the servers need for it."""
        return {} if self._remote is None else self._remote.begin_updates(keys, list(self._specs))

    def _set_updater(self, updater: Update) -> None:
        """Raise, because a function cannot be sent to servers."""
        raise MXNetError(
            f"a function cannot be sent to the servers of {self._type!r}. Use set_optimizer, or update on the workers: "
            "Trainer(..., update_on_kvstore=False)"
        )

    # ---- the optimizer's states ----

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer states to a file, in the form that a single process would write."""
        self._with_states("save")
        assert self._remote is not None
        held = [states.loads(data) for data in self._client.states()]
        segments = {key: [each[key] for each, _ in held if key in each] for key in self._specs}
        joined = {
            key: join_state(found, _parts(self._specs[key]))
            for key, found in segments.items()
            if len(found) == len(self._specs[key].segments)  # otherwise its first update is in progress on some servers
        }
        whole = self._remote.combined([each for _, each in held if each is not None]) if dump_optimizer else None
        with replacing(fname) as file:
            file.write(states.dumps(joined, whole))

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer states from a file. Every worker calls it; worker 0 sends the states to the servers."""
        weights: dict[Key, NDArray | None] = dict.fromkeys(self._specs)
        updater = self._with_states("load").restored(fname, weights)
        cut: list[dict[Key, object]] = [{} for _ in range(self._world.servers)]
        for key, state in updater.states.items():
            spec = self._specs[key]
            for segment, part in zip(spec.segments, _parts(spec), strict=True):
                cut[segment.server][key] = cut_state(state, part)
        self._updater, self._remote = opt.get_updater(updater.optimizer), RemoteOptimizer(updater.optimizer)
        self._loads += 1
        bare = self._remote.description()
        self._client.restore([states.dumps(each, bare) for each in cut], self._loads)

    # ---- the job ----

    def barrier(self) -> None:
        """Wait for all live workers."""
        if self.is_synchronous:
            self.rounds.barrier()  # joins the steps of workers that still train
            return
        self._barriers += 1
        mine = f"kvstore/{self._number}/barrier"
        self._store.set(f"{mine}/{self._barriers}/{self.rank}", b"")
        if self._barriers > 2:  # all workers have left the barrier before the previous one
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
        """Disconnect from the servers."""
        self._connection.close()


def _staleness_of(name: str, staleness: int | None) -> int | None:
    """The number of steps that a worker may be ahead: 0 for rounds, None for no bound."""
    if "stale" in name:
        steps = 1 if staleness is None else staleness
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise ValueError(f"staleness= must be a number of steps, an int of at least 0, received {staleness!r}")
        return steps
    return None if "async" in name else 0


def _target(array: NDArray) -> torch.Tensor:
    """The tensor to copy into, without changing torch's version counter; a dense buffer for a sparse array."""
    if isinstance(array, BaseSparseNDArray):
        return torch.empty(array.shape, dtype=calls.dtype_of(array))
    return array._data.data


def _is_sparse(array: NDArray) -> bool:
    return isinstance(array, RowSparseNDArray)


def _rows_of(array: RowSparseNDArray) -> SparseRows:
    values, indices = (part.detach().cpu() for part in array._parts)
    if bool((indices[1:] <= indices[:-1]).any()):
        order = torch.argsort(indices)
        values, indices = values[order], indices[order]
    return SparseRows(indices.long(), values)


def _parts(spec: KeySpec) -> list[Part | None]:
    """The segments of a weight, by rows, as its states are split. None for a weight that is not split."""
    if len(spec.segments) == 1:
        return [None]
    others = [slice(None)] * (len(spec.shape) - 1)
    nothing = torch.empty(spec.shape, device="meta")  # only the shape is needed
    return [
        Part(nothing[spec.rows_of(segment)], cpu(), spec.shape, [spec.rows_of(segment), *others], lambda share: share)
        for segment in spec.segments
    ]
