"""Shared memory: collectives among ranks that are threads here, each with its own mapping."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from launching import LIMIT

from neomx.base import MXNetError
from neomx.comm import memory
from neomx.comm.transport import OPS, Absent, Mismatch


class Board:
    """A store whose `get` waits for the key."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value if isinstance(value, bytes) else value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, timeout=LIMIT), f"{key} was never set"
            return self.values[key]


def among(size, work, **meeting):
    """Run `work(rank, store, settings)` on each of `size` ranks and return the results."""
    store = Board()
    settings = {"timeout": LIMIT, "check": lambda late: None, **meeting}
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(rank, store, settings), range(size)))


def channels(size, work, **meeting):
    def run(rank, store, settings):
        channel, why = memory.open_channel(rank, size, store, "c", **settings)
        assert channel, why
        return work(rank, channel)

    return among(size, run, **meeting)


def values(rank, count, dtype):
    """Small integers, so that sums and products are exact; adjacent ones differ."""
    return ((torch.arange(count) * (rank + 3) + rank) % 5 + 1).to(dtype)


SEVERAL_CHUNKS = 2 * memory.CHUNK // 4 + 4321
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("op", OPS)
def test_all_reduce(size, op):
    def work(rank, channel):
        results = []
        for dtype in DTYPES:
            for count in (0, 1, 7, 10_000):
                tensor = values(rank, count, dtype)
                channel.all_reduce_(tensor, op)
                results.append(tensor)
        return results

    expected = []
    for dtype in DTYPES:
        for count in (0, 1, 7, 10_000):
            stack = torch.stack([values(rank, count, torch.float64) for rank in range(size)])
            reduced = {"sum": stack.sum(0), "mean": stack.sum(0) / size, "prod": stack.prod(0)}
            reduced |= {"min": stack.amin(0), "max": stack.amax(0)}
            whole = reduced[op] if dtype.is_floating_point else reduced[op].trunc()
            expected.append(whole.to(dtype))
    for results in channels(size, work):
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == wanted.dtype and torch.equal(result, wanted)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_long_tensors_are_chunked_and_bitwise_equal(size):
    generator = [torch.Generator().manual_seed(rank) for rank in range(size)]
    inputs = [torch.randn(SEVERAL_CHUNKS, generator=generator[rank]) for rank in range(size)]

    def work(rank, channel):
        tensor = inputs[rank].clone()
        channel.all_reduce_(tensor, "sum")
        return tensor

    first, *others = channels(size, work)
    wanted = inputs[0]
    for tensor in inputs[1:]:
        wanted = wanted + tensor  # in rank order, so bitwise equal
    assert torch.equal(first, wanted)
    assert all(torch.equal(first, other) for other in others)


def test_half_precision_is_added_in_single_precision():
    inputs = [torch.tensor([2048.0]), torch.tensor([1.0]), torch.tensor([1.0])]

    def work(rank, channel):
        tensor = inputs[rank].half()
        channel.all_reduce_(tensor, "sum")
        return tensor.item()

    assert channels(3, work) == [2050.0] * 3  # 2048 + 1 is 2048 in half precision


@pytest.mark.parametrize("size", [1, 2, 4])
def test_broadcast_gather_scatter_and_all_to_all(size):
    count = SEVERAL_CHUNKS

    def work(rank, channel):
        root = size - 1
        sent = values(rank, count, torch.int32)
        channel.broadcast_(sent, root)
        assert torch.equal(sent, values(root, count, torch.int32))

        lengths = [5 + 100_000 * other for other in range(size)]
        outs = [torch.empty(length) for length in lengths]
        outs[rank].copy_(values(rank, lengths[rank], torch.float32))
        channel.all_gather(outs)
        for other, out in enumerate(outs):
            assert torch.equal(out, values(other, lengths[other], torch.float32))

        parts = [values(rank, count, torch.float32) + other for other in range(size)]
        out = torch.empty(count)
        channel.reduce_scatter(parts, "sum", out)
        assert torch.equal(out, sum(values(other, count, torch.float32) + rank for other in range(size)))

        def between(source, target):
            return torch.full((1 + 150_000 * source + target,), 10.0 * source + target, dtype=torch.float64)

        outs = [torch.empty_like(between(other, rank)) for other in range(size)]
        longest = max(between(p, q).nbytes for p in range(size) for q in range(size))
        channel.all_to_all([between(rank, other) for other in range(size)], outs, longest)
        for other, out in enumerate(outs):
            assert torch.equal(out, between(other, rank))

        for turn in range(20):
            table = channel.all_gather_small(torch.tensor([[rank, turn]]))
            assert table.tolist() == [[[other, turn]] for other in range(size)]
        channel.barrier()
        return True

    assert all(channels(size, work))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_staging_sums_repeatedly(size, dtype):
    def work(rank, store, settings):
        for count in (1, 1000, 200_003):
            staging, why = memory.open_area(count, dtype, rank, size, store, f"s{count}", **settings)
            assert staging, why
            for turn in range(5):
                staging.local.copy_(values(rank + turn, count, dtype))
                if rank == turn % size:
                    time.sleep(0.002)  # each rank is the slow one once
                result = staging.reduce()
                staging.local.fill_(77)  # allowed immediately
                if rank == (turn + 1) % size:
                    time.sleep(0.002)  # late reading is allowed too
                assert torch.equal(result, sum(values(other + turn, count, dtype) for other in range(size)))
        return True

    assert all(among(size, work))


def test_staging_passes_its_slice_to_other_hosts():
    def work(rank, store, settings):
        staging, _ = memory.open_area(1000, torch.float32, rank, 2, store, "s", cross=lambda t: t.mul_(3), **settings)
        staging.local.fill_(rank + 1)
        return staging.reduce()

    for result in among(2, work):
        assert torch.equal(result, torch.full((1000,), 9.0))


def test_timeout_names_the_missing_rank():
    def work(rank, channel):
        if rank == 1:
            return None
        with pytest.raises(Absent) as caught:
            channel.barrier()
        return caught.value.ranks

    assert channels(3, work, timeout=1.0) == [[1], None, [1]]
    assert "[1]" in str(Absent([1], 1.0))


def test_waiting_checks_whether_other_ranks_are_gone():
    def check(late):
        raise MXNetError(f"gone: {late()}")

    def work(rank, channel):
        if rank == 0:
            with pytest.raises(MXNetError, match=r"gone: \[1\]"):
                channel.barrier()

    channels(2, work, check=check)


def test_waiting_uses_little_cpu():
    def work(rank, channel):
        if rank == 1:
            time.sleep(0.5)
            channel.barrier()
            return 0.0, 0.0
        before = time.thread_time()
        channel.barrier()
        return time.thread_time() - before, channel.meeting.waited

    cost, waited = channels(2, work)[0]
    assert waited > 0.4 and cost < waited / 5


def test_different_calls_raise_mismatch():
    def work(rank, channel):
        channel.barrier(b"barrier")
        with pytest.raises(Mismatch) as caught:
            channel.all_reduce_(torch.ones(rank + 1), "sum", f"all_reduce ({rank + 1},)".encode())
        return caught.value.notes

    assert channels(2, work) == [["all_reduce (1,)", "all_reduce (2,)"]] * 2


@pytest.mark.parametrize("size", [1, 3])
def test_memory_exhaustion_is_reported_to_all_ranks(size, monkeypatch):
    def full(fd, start, length):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    answers = among(size, lambda rank, store, settings: memory.open_channel(rank, size, store, "c", **settings))
    assert all(channel is None and "No space left" in why for channel, why in answers)


def test_failure_to_open_memory_is_reported_to_all_ranks(monkeypatch):
    def refuse(place, nbytes):
        raise OSError("another container")

    monkeypatch.setattr(memory, "_attach", refuse)
    answers = among(3, lambda rank, store, settings: memory.open_channel(rank, 3, store, "c", **settings))
    assert answers == [(None, "another container")] * 3


def test_shared_memory_has_no_path():
    """So that even SIGKILL at any moment leaves nothing behind."""
    seen = []

    def work(rank, store, settings):
        region, why = memory.share(10_000, rank, 2, store, "m")
        assert region.nbytes == 3 * memory.PAGE and not why
        seen.append(store.get("m/place").decode())
        return region

    first, second = among(2, work)
    first.tensor(100, 5, torch.uint8).fill_(7)
    assert second.tensor(100, 6, torch.uint8).tolist() == [7] * 5 + [0]
    path, name, _ = seen[0].split()
    assert path.startswith("/proc/") and not any(name in os.listdir(folder) for folder in ("/dev/shm", "/tmp"))
    assert not os.path.exists(path) or name not in os.readlink(path)  # closed: only the mappings remain


def test_rank_that_joins_shares_memory_that_it_has_created_before():
    stock = memory.Stock(5 * memory.PAGE)
    places = []

    def work(rank, store, settings):
        creator = memory.Creator(1, stock if rank == 1 else None)
        regions = [memory.share(2 * memory.PAGE, rank, 2, store, f"m{number}", creator)[0] for number in range(3)]
        places.append([store.get(f"m{number}/place").decode() for number in range(3)])
        regions[0].tensor(64 * rank, 1, torch.uint8).fill_(7)
        store.set(f"done/{rank}", b"")
        store.get(f"done/{1 - rank}")
        return regions

    for regions in among(2, work):
        assert [region.nbytes for region in regions] == [2 * memory.PAGE] * 3
        assert regions[0].tensor(0, 65, torch.uint8).sum() == 14 and not regions[1].tensor(0, 65, torch.uint8).any()
    files, offsets = zip(*(place.rsplit(" ", 1) for place in places[0]), strict=True)
    assert offsets == ("0", str(2 * memory.PAGE), "0") and files[0] == files[1] != files[2]  # too little was left
    stock.close()


def test_file_of_another_container_is_not_mapped(tmp_path):
    with open(tmp_path / "other", "wb") as other, pytest.raises(OSError, match="different containers"):
        memory._attach(f"/proc/{os.getpid()}/fd/{other.fileno()} neomx-0123 0".encode(), memory.PAGE)
    with pytest.raises(OSError, match="No space left"):
        memory._attach(b"!No space left on device", memory.PAGE)


def test_without_memfd_there_is_no_shared_memory(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    answers = among(2, lambda rank, store, settings: memory.open_channel(rank, 2, store, "c", **settings))
    assert answers == [(None, "this system does not have memfd_create")] * 2
