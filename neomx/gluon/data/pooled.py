"""Batches created by a `multiprocessing.Pool`, with MXNet's private names, for data loaders of other libraries."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from ...base import MXNetError
from ...context import Context, accelerator, cpu_pinned, num_gpus
from ...ndarray import NDArray
from ...process import state


def _as_in_context(data: Any, ctx: Context) -> Any:
    """Move the arrays of a batch to another context. Memory is pinned only if there is a GPU to copy to."""
    if isinstance(data, NDArray):
        if ctx.device_type == "cpu_pinned" and num_gpus() and accelerator() != "mps":  # mps shares its memory
            return NDArray(data._data.pin_memory(), ctx)
        return data.as_in_context(ctx)
    if isinstance(data, (list, tuple)):
        return [_as_in_context(part, ctx) for part in data]
    return data


# The forked processes have no torch threads: a computation divided among threads would never finish.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def _worker_initializer(dataset: Any) -> None:
    """Store the dataset in each process of a pool."""
    state.pool_dataset = dataset


def _worker_fn(samples: Any, batchify_fn: Callable[[Any], Any], dataset: Any = None) -> bytes:
    """Return a pickled batch of the items with these indices."""
    batch = batchify_fn([state.pool_dataset[i] for i in samples])
    pickled = io.BytesIO()
    ForkingPickler(pickled, pickle.HIGHEST_PROTOCOL).dump(batch)
    return pickled.getvalue()


class _MultiWorkerIter:
    """A pass over the batches of a sampler, prefetched by `worker_pool`: processes, or threads if given `dataset`."""

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Callable[[Any], Any],
        batch_sampler: Any,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Callable[..., Any] = _worker_fn,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
    ):
        self._worker_pool, self._batchify_fn, self._batch_sampler = worker_pool, batchify_fn, batch_sampler
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._worker_fn, self._dataset, self._timeout = worker_fn, dataset, timeout
        self._data_loader = data_loader  # keeps the loader and its pool alive
        self._data_buffer: dict[int, Any] = {}  # batches that were requested but not yet returned
        self._sent_idx = self._rcvd_idx = 0
        self._iter = iter(batch_sampler)
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return self

    def _push_next(self) -> None:
        """Request the next batch from the pool, if there is one."""
        for samples in self._iter:
            arguments = samples, self._batchify_fn, self._dataset
            self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, arguments)
            self._sent_idx += 1
            return

    def __next__(self) -> Any:
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        batch = self._wait(self._data_buffer.pop(self._rcvd_idx))
        self._rcvd_idx += 1
        return _as_in_context(batch, cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    next = __next__

    def _wait(self, result: Any) -> Any:
        try:
            batch = result.get(self._timeout)
        except multiprocessing.TimeoutError as error:
            raise MXNetError(
                f"batch {self._rcvd_idx} did not arrive within timeout={self._timeout} seconds: a worker died, "
                "or its dataset, transform or batchify_fn hangs. Try num_workers=0"
            ) from error
        return batch if self._dataset is not None else pickle.loads(batch)
