"""DataLoader workers: order, random numbers, errors, crashes, hangs, and cleanup."""

import io
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest
from launching import LIMIT, SOON, alive, until

import neomx as mx
from neomx.gluon import data
from neomx.gluon.data import dataloader

KINDS = [{}, {"thread_pool": True}]


class Numbers(data.Dataset):
    """The numbers from 0 to 11, mapped by a function."""

    def __init__(self, fn=lambda i: i):
        self.fn = fn

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return self.fn(i)


def values(loader):
    return [batch.asnumpy().tolist() for batch in loader]


def gone(pid):
    """Return whether the process exits."""
    return until(lambda: not alive(pid))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_keep_sampler_order(kind, workers):
    slow_start = Numbers(lambda i: time.sleep(0.05 if i < 2 else 0) or i)
    loader = data.DataLoader(slow_start, 2, num_workers=workers, **kind)
    assert values(loader) == values(loader) == [[i, i + 1] for i in range(0, 12, 2)]


def test_worker_processes_persist():
    loader = data.DataLoader(Numbers(lambda i: os.getpid()), 2, num_workers=2)
    first, second = (set(sum(values(loader), [])) for _ in range(2))
    assert os.getpid() not in first | second
    assert len(first | second) == 2


def test_batchify_results_arrive_unchanged():
    def batchify(items):
        return {"sum": mx.nd.array([sum(items)]), "parts": [np.arange(3), "text", None], "empty": mx.nd.zeros((0, 2))}

    (batch,) = data.DataLoader(Numbers(), 12, num_workers=1, batchify_fn=batchify)
    assert batch["sum"].asscalar() == 66
    assert batch["parts"][0].tolist() == [0, 1, 2] and batch["parts"][1:] == ["text", None]
    assert batch["empty"].shape == (0, 2)
    batch["sum"] += 1
    batch["parts"][0][0] = 5


def test_large_batches():
    loader = data.DataLoader(Numbers(lambda i: np.full((300, 1000), i, "float32")), 4, num_workers=2)
    assert [batch.mean().asscalar() for batch in loader] == [1.5, 5.5, 9.5]


@pytest.mark.parametrize("kind", KINDS)
def test_two_simultaneous_iterations_of_one_loader(kind):
    loader = data.DataLoader(Numbers(), 4, num_workers=2, **kind)
    pairs = [(a.asnumpy()[0], b.asnumpy()[0]) for a, b in zip(loader, loader, strict=True)]
    assert pairs == [(0, 0), (4, 4), (8, 8)]


def draws(seed, workers):
    mx.random.seed(seed)

    def fn(i):
        return [random.random(), np.random.rand(), mx.nd.random.uniform(shape=(1,)).asscalar()]

    loader = data.DataLoader(Numbers(fn), 3, num_workers=workers)
    return [values(loader) for _ in range(2)]


def test_random_numbers_depend_on_seed_not_worker():
    one = draws(5, 1)
    assert draws(5, 3) == one
    assert draws(6, 1) != one
    numbers = np.array(one).reshape(-1)
    assert len(np.unique(numbers)) == len(numbers)  # all distinct, across batches and epochs


@pytest.mark.parametrize("kind", KINDS)
def test_exception_in_item_is_raised(kind):
    def fails_at_five(i):
        if i == 5:
            raise KeyError("five")
        return i

    loader = data.DataLoader(Numbers(fails_at_five), 2, num_workers=2, **kind)
    with pytest.raises(KeyError, match="five") as caught:
        values(loader)
    if not kind:
        assert "fails_at_five" in str(caught.value.__cause__)
    assert next(iter(loader)).shape == (2,)  # the loader still works


def test_unpicklable_exception_is_raised_as_text():
    class Odd(Exception):
        pass

    def fails(i):
        raise Odd("very odd")

    with pytest.raises(mx.MXNetError, match="very odd"):
        values(data.DataLoader(Numbers(fails), 2, num_workers=1))


def test_unpicklable_batch():
    loader = data.DataLoader(Numbers(), 2, num_workers=1, batchify_fn=lambda items: lambda: items)
    with pytest.raises(Exception, match="pickle"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os._exit(3), r"worker \d \(pid \d+\) died with exit code 3.*Batch 1"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"worker \d \(pid \d+\) was killed by signal 9 \(SIGKILL\)"),
    ],
)
def test_dead_worker_is_named_immediately(end, told):
    loader = data.DataLoader(Numbers(lambda i: end() if i == 2 else i), 2, num_workers=2, timeout=LIMIT)
    start = time.monotonic()
    with pytest.raises(mx.MXNetError, match=told):
        values(loader)
    assert time.monotonic() - start < SOON
    assert next(iter(loader)).asnumpy().tolist() == [0, 1]  # new workers


def test_worker_that_died_between_epochs_is_named_once():
    loader = data.DataLoader(Numbers(lambda i: os.getpid()), 12, num_workers=1)
    (batch,) = values(loader)
    os.kill(batch[0], signal.SIGKILL)
    with pytest.raises(mx.MXNetError, match=rf"pid {batch[0]}\) was killed by signal 9"):
        values(loader)
    assert values(loader) != [batch]


@pytest.mark.parametrize("kind", KINDS)
def test_timeout_names_the_batch(kind):
    end = threading.Event()
    loader = data.DataLoader(Numbers(lambda i: end.wait() if i == 2 else i), 2, num_workers=1, timeout=LIMIT, **kind)
    batches = iter(loader)
    next(batches)
    loader._timeout = 0.3  # set now, so that the first batch has no short timeout
    with pytest.raises(mx.MXNetError, match="batch 1 did not arrive within timeout=0.3") as caught:
        next(batches)
    end.set()
    assert isinstance(caught.value, multiprocessing.TimeoutError)
    if not kind:
        assert "worker 0 (pid" in str(caught.value)


def test_workers_exit_when_loader_or_iterator_is_dropped():
    loader = data.DataLoader(Numbers(lambda i: os.getpid()), 1, num_workers=2)
    iterator = iter(loader)
    pids = {int(next(iterator).asscalar()) for _ in range(4)}
    del iterator, loader
    assert all(map(gone, pids))


PROGRAM = """
import os, signal, time, neomx as mx
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells make background jobs ignore it
class Numbers(mx.gluon.data.Dataset):
    def __len__(self): return 1_000_000_000
    def __getitem__(self, i):
        time.sleep(0.05)
        return os.getpid()
other = iter(mx.gluon.data.DataLoader(Numbers(), 1, num_workers=1))
print(next(other).asscalar(), flush=True)
for batch in mx.gluon.data.DataLoader(Numbers(), 1, num_workers=2):
    print(batch.asscalar(), flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_exit_with_the_program(how):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    pids = {int(program.stdout.readline()) for _ in range(6)}
    assert len(pids) == 3
    if how is signal.SIGINT:  # a terminal sends it to the whole process group
        os.killpg(program.pid, how)
    else:
        program.send_signal(how)
    _, errors = program.communicate(timeout=LIMIT)
    assert all(map(gone, pids))
    if how is signal.SIGINT:
        assert errors.count("KeyboardInterrupt") == 1  # no worker prints a traceback


def test_auto_reload_and_refresh_prefetch_batches():
    asked = []

    class Watched(data.SequentialSampler):
        def __iter__(self):
            asked.append(1)
            return super().__iter__()

    loader = data.DataLoader(Numbers(), 4, sampler=Watched(12), num_workers=1, auto_reload=True)
    assert len(values(loader)) == 3 and len(asked) == 2
    loader.refresh()
    assert len(asked) == 3
    assert len(values(loader)) == 3 and len(asked) == 4
    loader.clean()
    assert values(loader)[0] == [0, 1, 2, 3] and len(asked) == 6


def test_default_batchify_errors():
    with pytest.raises(mx.MXNetError, match="dict"):
        values(data.DataLoader(data.SimpleDataset([{}, {}]), 2))
    with pytest.raises(mx.MXNetError, match="different shapes"):
        values(data.DataLoader(data.SimpleDataset([np.ones(2), np.ones(3)]), 2))
    with pytest.raises(mx.MXNetError, match=r"\(2,\), \(3,\)"):
        values(data.DataLoader(data.SimpleDataset([mx.nd.ones(2), mx.nd.ones(3)]), 2))
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        data.DataLoader(Numbers(), 0)


@pytest.mark.parametrize(
    "parts",
    [
        [mx.nd.arange(42).reshape((7, 2, 3)), mx.nd.arange(7)],
        [np.arange(14.0).reshape(7, 2)],
        [mx.nd.arange(7, dtype="float16").expand_dims(1), np.arange(7, dtype="int32"), np.arange(7) > 3],
    ],
)
def test_gathered_rows_equal_batched_items(parts):
    dataset = data.ArrayDataset(*parts)
    at_once = list(data.DataLoader(dataset, 3))
    one_by_one = list(data.DataLoader(dataset, 3, sampler=data.SequentialSampler(7)))
    for received, expected in zip(at_once, one_by_one, strict=True):
        assert type(received) is type(expected)
        pairs = zip(received, expected, strict=True) if isinstance(received, list) else [(received, expected)]
        for a, b in pairs:
            assert (a.dtype, a.shape, a.context) == (b.dtype, b.shape, b.context)
            assert a.asnumpy().tolist() == b.asnumpy().tolist()


class Doubled(dataloader._MultiWorkerIter):
    """A subclass as in other libraries: requests batches with its own function."""

    def _push_next(self):
        samples = next(self._iter, None)
        if samples is not None:
            task = (samples, self._batchify_fn)
            self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(_doubled, task)
            self._sent_idx += 1


def _doubled(samples, batchify_fn):
    pickled = io.BytesIO()
    dataloader.ForkingPickler(pickled, pickle.HIGHEST_PROTOCOL).dump(batchify_fn([2 * i for i in samples]))
    return pickled.getvalue()


def test_pool_iterator_can_be_subclassed():
    sampler = data.BatchSampler(data.SequentialSampler(5), 2, "keep")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        batches = Doubled(pool, data.dataloader.default_mp_batchify_fn, sampler, prefetch=2, timeout=LIMIT)
        assert len(batches) == 3
        assert [batch.asnumpy().tolist() for batch in batches] == [[0, 2], [4, 6], [8]]


def test_pool_iterator_with_threads():
    items = [1.0, 2.0, 4.0]
    sampler = data.BatchSampler(data.SequentialSampler(3), 2, "keep")

    end = threading.Event()

    def slowly(samples, batchify_fn, dataset):
        if samples[0]:
            end.wait()
        return batchify_fn([dataset[i] for i in samples])

    with ThreadPool(1) as pool:
        batches = dataloader._MultiWorkerIter(pool, list, sampler, worker_fn=slowly, dataset=items, timeout=LIMIT)
        assert batches.next() == [1.0, 2.0]
        batches._timeout = 0.5
        with pytest.raises(mx.MXNetError, match="batch 1 did not arrive within timeout=0.5 seconds"):
            next(batches)
        end.set()


FORKED = """
import multiprocessing
import torch
import neomx.gluon

def compute(count):
    return torch.exp(torch.ones(count)).sum().item() > 0, torch.get_num_threads()

if __name__ == "__main__":
    torch.set_num_threads(2)
    compute(3_000_000)  # starts torch's threads, which do not exist after a fork
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(compute, (3_000_000,)).get() == (True, 1)
    assert torch.get_num_threads() == 2
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="programs fork on Linux")
def test_forked_pool_computes_without_torch_threads(tmp_path):
    (tmp_path / "forked.py").write_text(FORKED)
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": path}
    subprocess.run([sys.executable, str(tmp_path / "forked.py")], env=environment, check=True, timeout=LIMIT)
