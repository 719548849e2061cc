"""DataLoader: batches of a dataset, created in the main thread, in other threads, or in worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import numpy as np
import torch

from ...base import MXNetError
from ...context import cpu, cpu_pinned
from ...events import emit, heard
from ...ndarray import NDArray, array
from ..kinds import of_kind
from .dataset import ArrayDataset
from .place import Pass, Position
from .pooled import ForkingPickler as ForkingPickler  # for data loaders of other libraries
from .pooled import _as_in_context
from .pooled import _MultiWorkerIter as _MultiWorkerIter
from .resume import SamplerPass, position_of, refusal
from .sampler import BatchSampler, RandomSampler, SequentialSampler
from .shard import ShardedBatches, ShardedDataset
from .workers import WorkerPool, make_batch


def default_batchify_fn(data: Any) -> Any:
    """Combine items into a batch: arrays are stacked, numbers become an array, tuples become a list of batches."""
    first = data[0]
    if isinstance(first, NDArray):
        return of_kind(NDArray(_stack([item._data for item in data]), first.context))
    if isinstance(first, tuple):
        return [default_batchify_fn(part) for part in zip(*data, strict=False)]
    try:
        values = np.asarray(data)
    except ValueError as error:
        raise MXNetError(f"cannot batch items of different shapes: {error}. Pass a batchify_fn that pads") from None
    if values.dtype.kind in "OUS":
        raise MXNetError(
            f"default_batchify_fn cannot batch items of type {type(first).__name__}: expected arrays, numbers "
            "or tuples of them. Pass your own batchify_fn"
        )
    return of_kind(array(values, dtype=values.dtype))


def _stack(tensors: list[torch.Tensor]) -> torch.Tensor:
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise MXNetError(
            f"cannot batch items of different shapes: {', '.join(map(str, sorted(shapes)))}. Resize them in a "
            "transform, or pass a batchify_fn that pads"
        )
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:  # torch would use the widest one, which may vary between batches
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise MXNetError(f"cannot batch items of different dtypes: {names}. Cast them in a transform")
    return torch.stack(tensors).detach()


def default_mp_batchify_fn(data: Any) -> Any:
    """Combine items as `default_batchify_fn` does, but on the CPU: workers must not use the program's device."""
    with cpu():
        return default_batchify_fn(data)


def _is_in_memory(dataset: Any) -> bool:
    """Whether all items are rows of dense arrays, so that a batch can be gathered in one operation."""
    return type(dataset) is ArrayDataset and all(
        (isinstance(data, NDArray) and not data._sparse) or (isinstance(data, np.ndarray) and data.dtype.kind in "biuf")
        for data in dataset._data
    )


def _gather(dataset: ArrayDataset, indices: list[int]) -> Any:
    """Return the same batch as `default_batchify_fn` for these items, in half the time."""
    parts = [
        of_kind(
            NDArray(data._data[torch.tensor(indices)].detach(), data.context)
            if isinstance(data, NDArray)
            else array(data[indices], dtype=data.dtype)
        )
        for data in dataset._data
    ]
    return parts[0] if len(parts) == 1 else parts


class DataLoader:
    """Iterates over batches of `dataset`.

    The order is that of the dataset, random with `shuffle`, or that of a `sampler`. A `batch_sampler` yields whole
    lists of indices. `batchify_fn` combines a list of items into a batch. With `num_workers`, batches are prefetched
    by processes, or by threads with `thread_pool`. `prefetch` is the number of batches (default: two per worker). They
    arrive in the order of the sampler. The first iteration starts the worker processes. They see the dataset as it is
    at that time, and exit with the loader. An error is raised if a batch takes longer than `timeout` seconds.
    `auto_reload` starts prefetching the next epoch when an epoch ends.

    The random numbers of a transform depend on the sample, not on who creates it: the transforms of neomx, `mx.random`
    and `mx.random.rng()` give a sample the same numbers for any `num_workers`. For `mx.dist.shard(dataset, seed=...)`
    they depend on that seed, the epoch and the index of the sample, so they are the same for any number of workers of
    a job too. Otherwise they depend on `mx.random.seed` and the position of the sample in the pass. In worker
    processes this also holds for the generators of Python, NumPy and torch.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
    ):
        assert timeout > 0, f"timeout must be positive, given {timeout}"
        if isinstance(dataset, ShardedDataset):
            batches = _batches_of_part(dataset, batch_size, shuffle, sampler, last_batch, batch_sampler)
            dataset = dataset.dataset
        elif batch_sampler is None:
            batches = _batches(dataset, batch_size, shuffle, sampler, last_batch)
        else:
            batches = _given_batches(batch_sampler, batch_size, shuffle, sampler, last_batch)
        self._dataset = dataset
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._thread_pool, self._timeout = thread_pool, timeout
        self._batch_sampler = batches
        self._at_once = batch_sampler is sampler is None and batchify_fn is None and _is_in_memory(dataset)
        self._num_workers = max(0, num_workers)
        self._prefetch = max(0, 2 * self._num_workers if prefetch is None else int(prefetch))
        self._batchify_fn = batchify_fn or (default_mp_batchify_fn if self._num_workers else default_batchify_fn)
        self._worker_pool: Any = None
        self.auto_reload = auto_reload
        self._iter: Iterator[Any] | None = None
        self._epochs = 0
        self._pass: Pass | None = None  # the last one that was started
        self._resume: Position | None = None  # where the next pass starts, if it was loaded
        self._empty_passes = 0
        self._skips_ended = False

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._num_workers == 0:
            yield from self._here(reports=True)
            return
        epoch = self._iter or self._ahead()
        self._iter = None
        yield from epoch
        if self.auto_reload:
            self.refresh()

    def refresh(self) -> None:
        """Start prefetching the next epoch now, from the current state of the dataset."""
        if self._num_workers:
            self._iter = self._ahead()

    def clean(self) -> None:
        """Discard batches that `refresh` or `auto_reload` has prefetched."""
        self._iter = self._pass = None

    @property
    def current_pass(self) -> Pass | None:
        """The pass over the data that was started last."""
        return self._pass

    def keep_at_once(self, position: Position) -> None:
        """Use batches of all workers as large as those of the loader whose position this is."""
        if isinstance(self._batch_sampler, ShardedBatches) and position.get("kind") == "shard":
            self._batch_sampler.keep_at_once(int(position["at_once"]))

    # ---- resuming ----

    def state(self) -> Position:
        """Return the position in the data after the batches that the program has received, as plain JSON values.

        Prefetched batches do not count. Between two passes, it is the start of the next one. For `mx.dist.shard`, the
        position counts the samples of all workers and is valid for any number of workers. Otherwise it is that of this
        process. Raises MXNetError for a `batch_sampler` or `sampler` of the program, whose order is unknown.
        """
        if self._pass is not None and not self._pass.ended:
            return self._pass.position()
        if self._resume is not None:
            return self._resume
        if isinstance(self._batch_sampler, ShardedBatches):
            return self._batch_sampler.position(self._batch_sampler.shard.epoch, 0)
        if problem := refusal(self._batch_sampler):
            raise MXNetError(problem)
        rest = [int(i) for i in self._batch_sampler._rest]
        return {**position_of(self._epochs), "rest": rest}

    def load_state(self, state: Position, empty_passes: int = 0, skips_ended: bool = False) -> None:
        """Start the next pass at a position that `state` returned.

        Before that pass there are `empty_passes` without batches, for a program that repeats the loop of its epochs
        from the beginning. At a position after the last batch, that pass has no batches either: with `skips_ended` it
        is left out, for a program that calls `iter` again when a pass has ended.
        """
        kind = "shard" if isinstance(self._batch_sampler, ShardedBatches) else "sampler"
        if not isinstance(state, dict) or state.get("kind") != kind:
            found = state.get("kind") if isinstance(state, dict) else state
            raise MXNetError(
                f"the position is that of a {found!r:.80} loader, but this loader needs that of a {kind!r}. Create the "
                "loader with or without mx.dist.shard, as for the run that saved the position"
            )
        if isinstance(self._batch_sampler, ShardedBatches):
            self._batch_sampler.begin_at(state)
        elif problem := refusal(self._batch_sampler):
            raise MXNetError(problem)
        else:
            self._epochs = int(state["epoch"])
            self._batch_sampler._rest = list(state.get("rest", ()))
        self.clean()
        self._resume, self._empty_passes, self._skips_ended = state, empty_passes, skips_ended

    def unreported(self) -> Iterator[Any]:
        """Return the batches of the next pass, for an object that reports the progress of its own loop."""
        return self._ahead(reports=False) if self._num_workers else self._here(reports=False)

    def _here(self, reports: bool) -> Iterator[Any]:
        lists = self._start()
        return lists.follow(lambda: (self._deliver(self._make(indices, lists)) for indices in lists), self, reports)

    def _start(self) -> Pass:
        """Return the next pass over the lists of indices."""
        emit("pass", loader=self)
        self._pass = self._next_pass()
        return self._pass

    def _next_pass(self) -> Pass:
        if self._empty_passes:
            self._empty_passes -= 1
            return Pass(iter(()), 0)
        position, self._resume = self._resume, None
        if position is not None and self._skips_ended:
            resumed = self._pass_at(position)
            return self._pass_at(None) if resumed.has_ended() else resumed
        return self._pass_at(position)

    def _pass_at(self, position: Position | None) -> Pass:
        if isinstance(self._batch_sampler, ShardedBatches):
            return self._batch_sampler.start()
        self._epochs += 1
        steps = _steps_of(self._batch_sampler) if heard("epoch") else None
        return SamplerPass(self._batch_sampler, self._epochs - 1, steps, position)

    def _make(self, indices: Any, lists: Pass) -> Any:
        seeds = lists.seeds(indices)  # drawn even if no item needs it: the program's numbers do not depend on the way
        if self._at_once:
            return _gather(self._dataset, indices)
        return make_batch(self._dataset, self._batchify_fn, indices, seeds)

    def _ahead(self, reports: bool = True) -> Iterator[Any]:
        """Start prefetching an epoch and return its batches."""
        pool = self._pool()
        lists = self._start()
        tasks = enumerate(lists)
        waiting: deque[tuple[int, int, Future[Any]]] = deque()  # number, deal, batch

        def push() -> None:
            for number, indices in tasks:
                seeds = lists.seeds(indices)
                if isinstance(pool, WorkerPool):
                    batch = pool.submit(number, indices, seeds)
                else:
                    batch = pool.submit(make_batch, self._dataset, self._batchify_fn, indices, seeds)
                waiting.append((number, lists.deals, batch))
                return

        for _ in range(self._prefetch):
            push()

        def collect() -> Iterator[Any]:
            push()
            while waiting:
                number, deal, batch = waiting.popleft()
                if deal == lists.deals:  # otherwise its samples were dealt again
                    yield self._deliver(self._wait(number, batch))
                push()

        return lists.follow(collect, self, reports)

    def _wait(self, number: int, batch: Future[Any]) -> Any:
        """Wait for a batch and return it. Close a pool that lost a worker or whose worker hangs."""
        pool = self._worker_pool
        try:
            return batch.result(self._timeout)
        except FutureTimeout as error:
            if batch.done():  # it arrived at the last moment, or it raised a TimeoutError itself
                return batch.result()
            who = pool.who_makes(batch) if isinstance(pool, WorkerPool) else ""
            self._close_pool()
            raise WorkerTimeout(
                f"batch {number} did not arrive within timeout={self._timeout} seconds{who}. If it may take that long, "
                "increase the timeout. Otherwise its dataset, transform or batchify_fn hangs: try num_workers=0"
            ) from error
        except MXNetError:
            if isinstance(pool, WorkerPool) and pool.broken:
                self._close_pool()
            raise

    def _deliver(self, batch: Any) -> Any:
        return _as_in_context(batch, cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    def _pool(self) -> Any:
        if self._worker_pool is None:
            if self._thread_pool:
                pool: Any = ThreadPoolExecutor(self._num_workers, "DataLoader")
                self._finalizer = weakref.finalize(self, lambda: pool.shutdown(wait=False, cancel_futures=True))
            else:
                pool = WorkerPool(self._dataset, self._batchify_fn, self._num_workers)
                self._finalizer = weakref.finalize(self, pool.close)
            self._worker_pool = pool
        return self._worker_pool

    def _close_pool(self) -> None:
        self._finalizer()
        self._worker_pool = self._iter = None


class WorkerTimeout(MXNetError, multiprocessing.TimeoutError):
    """Raised when a batch takes longer than the `timeout` of the loader."""


def _steps_of(batch_sampler: Any) -> int | None:
    """The number of batches, or None if the sampler does not know it."""
    with contextlib.suppress(TypeError, AttributeError, NotImplementedError):
        return len(batch_sampler)
    return None


def _given_batches(
    batch_sampler: Any, batch_size: int | None, shuffle: bool, sampler: Any, last_batch: str | None
) -> Any:
    if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
        raise ValueError(
            "batch_size, shuffle, sampler and last_batch must not be specified if batch_sampler is specified."
        )
    return batch_sampler


def _batches_of_part(
    part: ShardedDataset,
    batch_size: int | None,
    shuffle: bool,
    sampler: Any,
    last_batch: str | None,
    batch_sampler: Any,
) -> Any:
    if shuffle or sampler is not None or batch_sampler is not None:
        raise ValueError(
            "the dataset is a shard, which defines the order of its samples: remove shuffle, sampler and "
            "batch_sampler. To shuffle each epoch, use shard(dataset, shuffle=True)"
        )
    if batch_size is None:
        raise ValueError("batch_size must be specified: the number of samples of this worker in a batch")
    return part.batches(batch_size, last_batch or "keep")


def _batches(dataset: Any, batch_size: int | None, shuffle: bool, sampler: Any, last_batch: str | None) -> Any:
    if batch_size is None:
        raise ValueError("batch_size must be specified unless batch_sampler is specified")
    if sampler is None:
        sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
    elif shuffle:
        raise ValueError("shuffle must not be specified if sampler is specified")
    return BatchSampler(sampler, batch_size, last_batch or "keep")
