"""When pushes are applied on a server: rounds, their sums, staleness, missing workers. Without processes."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from launching import LIMIT, SOON

from neomx.base import MXNetError
from neomx.comm.server import arena
from neomx.comm.server.allocation import KeyAllocator
from neomx.comm.server.messages import KeySpec, Segment, SparseRows
from neomx.comm.server.replica import Replica
from neomx.comm.server.service import Service
from neomx.comm.server.shard import Shard
from neomx.comm.server.slot import Slot, merged
from neomx.comm.store import PeerError
from neomx.comm.wire import Refused


class Recorder:
    """A rule that adds gradients to weights and records its calls."""

    def __init__(self):
        self.calls = []

    def update(self, specs, gradients, weights, settings):
        self.calls.append(([spec.key for spec in specs], settings))
        for gradient, weight in zip(gradients, weights, strict=True):
            weight.add_(gradient)


def shard_of(workers, staleness, *, timeout=0.2, shape=(3, 2), rule=True, ranks=None):
    shard = Shard(workers, staleness, timeout)
    for rank in range(workers) if ranks is None else ranks:
        shard.join(rank)
    spec = KeySpec("k", shape, torch.float32, (Segment(0, 0, 6),))
    shard.create([Slot(0, spec, spec.segments[0], 0, 0, torch.zeros(shape))], [spec])
    shard.rule = Recorder() if rule else None
    return shard, shard.slots[0]


def push(shard, rank, part, settings=None):
    shard.push(rank, [shard.slots[0]], [part])
    shard.commit(rank, [shard.slots[0]], settings or {})


def is_ready(shard, rank):
    return [slot for found in shard.ready(rank, [shard.slots[0]]) for slot in found] == [shard.slots[0]]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_sums_are_bitwise_independent_of_arrival_order(order):
    shard, slot = shard_of(3, 0)
    parts = [torch.full((3, 2), value) for value in (1e8, -1e8, 1e-3)]
    for rank in order:
        push(shard, rank, parts[rank], {"rank": rank})
    assert slot.round == 1 and torch.equal(slot.weight, (parts[0] + parts[1]) + parts[2])
    assert shard.rule.calls == [(["k"], {"rank": 0})]  # once, with the settings of worker 0


def test_later_push_replaces_an_earlier_one_before_the_commit():
    shard, slot = shard_of(2, 0)
    push(shard, 1, torch.ones(3, 2))
    shard.push(0, [slot], [torch.full((3, 2), 7.0)])
    shard.push(0, [slot], [torch.full((3, 2), 2.0)])
    shard.commit(0, [slot], {})
    assert torch.equal(slot.weight, torch.full((3, 2), 3.0))


def test_worker_cannot_take_part_twice_in_a_round():
    shard, _ = shard_of(2, 0)
    push(shard, 0, torch.ones(3, 2))
    with pytest.raises(Refused, match="twice"):
        push(shard, 0, torch.ones(3, 2))


def test_missing_pushes_count_as_zero_and_no_push_updates_nothing():
    shard, slot = shard_of(2, 0)
    push(shard, 0, torch.ones(3, 2))
    shard.commit(1, [slot], {})
    assert slot.round == 1 and torch.equal(slot.weight, torch.ones(3, 2))
    for rank in range(2):
        shard.commit(rank, [slot], {})
    assert slot.round == 2 and len(shard.rule.calls) == 1


def test_without_a_rule_the_sum_replaces_the_value():
    shard, slot = shard_of(2, 0, rule=False)
    for _ in range(2):
        push(shard, 0, torch.ones(3, 2))
        push(shard, 1, SparseRows(torch.tensor([1]), torch.ones(1, 2)))
        assert slot.weight.tolist() == [[1, 1], [2, 2], [1, 1]]
    push(shard, 0, SparseRows(torch.tensor([0]), torch.ones(1, 2)))
    push(shard, 1, SparseRows(torch.tensor([0, 2]), torch.ones(2, 2)))
    assert slot.weight.tolist() == [[2, 2], [0, 0], [1, 1]]


def test_sparse_rows_are_merged():
    total = merged(
        SparseRows(torch.tensor([1, 4]), torch.ones(2, 2)), SparseRows(torch.tensor([0, 4]), torch.ones(2, 2))
    )
    assert total.indices.tolist() == [0, 1, 4] and total.values[:, 0].tolist() == [1, 1, 2]


def test_pull_waits_for_the_round_and_names_late_workers():
    shard, _ = shard_of(2, 0)
    assert is_ready(shard, 0)
    push(shard, 0, torch.ones(3, 2))
    with pytest.raises(PeerError, match="round 1 of key 'k' waits for the push of worker 1, last heard [0-9]"):
        is_ready(shard, 0)
    shard.timeout = LIMIT
    threading.Timer(0.05, lambda: push(shard, 1, torch.ones(3, 2))).start()
    assert is_ready(shard, 0)


def test_lost_worker_raises_only_where_it_is_needed():
    shard, _ = shard_of(2, 0, timeout=LIMIT)
    push(shard, 1, torch.ones(3, 2))
    shard.gone(1, "it has left")
    push(shard, 0, torch.ones(3, 2))
    assert is_ready(shard, 0)  # its part had arrived
    push(shard, 0, torch.ones(3, 2))
    began = time.monotonic()
    with pytest.raises(PeerError, match="worker 1 is gone: it has left; round 2 of key 'k' waits for .* worker 1$"):
        is_ready(shard, 0)
    assert time.monotonic() - began < SOON


def test_asynchronous_pushes_are_applied_as_they_arrive():
    shard, slot = shard_of(2, None)
    for _ in range(3):
        push(shard, 0, torch.ones(3, 2), {"lr": 1})
        assert is_ready(shard, 0)
    push(shard, 1, torch.ones(3, 2), {"lr": 2})
    assert slot.weight[0, 0] == 4 and [settings["lr"] for _, settings in shard.rule.calls] == [1, 1, 1, 2]


def test_bounded_staleness_waits_for_the_slowest_connected_worker():
    shard, slot = shard_of(3, 1)
    push(shard, 0, torch.ones(3, 2))
    assert is_ready(shard, 0)
    push(shard, 0, torch.ones(3, 2))
    with pytest.raises(PeerError, match="worker 0 is more than 1 steps ahead of worker 1, .* worker 2"):
        is_ready(shard, 0)
    push(shard, 1, torch.ones(3, 2))
    shard.gone(2, "it died")
    assert is_ready(shard, 0)
    push(shard, 0, torch.ones(3, 2))
    shard.join(2)  # late: it starts at the count of the slowest
    assert slot.commits == {0: 3, 1: 1, 2: 1}
    assert is_ready(shard, 2)


def test_end_of_an_old_connection_does_not_remove_a_reconnected_worker():
    shard = Shard(2, 1, timeout=0.2)
    first = shard.join(0)
    with pytest.raises(Refused, match="already"):
        shard.join(0)
    shard.gone(0, "it died")
    second = shard.join(0)
    shard.gone(0, "its old connection ended at last", first)
    assert shard.living == {0} and not shard.lost
    shard.gone(0, "silent")
    shard.hear(0)
    assert shard.living == {0} and not shard.lost
    shard.gone(0, "it left", second)
    assert shard.living == set() and shard.lost == {0: "it left"}


def test_optimizer_error_is_raised_in_all_workers_and_the_shard_survives():
    shard, _ = shard_of(2, 0)
    shard.rule.update = lambda *_: 1 / 0
    for rank in range(2):
        push(shard, rank, torch.ones(3, 2))
    for rank in range(2):
        with pytest.raises(MXNetError, match="keys 'k' failed on the server: ZeroDivisionError"):
            is_ready(shard, rank)


def test_workers_must_declare_the_same_arrays():
    shard, slot = shard_of(2, 0)
    shard.agree([slot.spec], 1)
    with pytest.raises(
        MXNetError, match=r"worker 0 initialized it as \(3, 2\) float32 on server 0 .* worker 1 as \(6,\)"
    ):
        shard.agree([KeySpec("k", (6,), torch.float32, slot.spec.segments)], 1)
    with pytest.raises(PeerError, match="worker 0 has not initialized 'other'"):
        shard.agree([KeySpec("other", (6,), torch.float32, slot.spec.segments)], 1)


def test_workers_wait_for_actions_of_worker_0_and_get_their_errors():
    shard, _ = shard_of(2, 0)
    with pytest.raises(PeerError, match="worker 0 has not called set_optimizer"):
        shard.once("set_optimizer", 1, 1, None)
    done = []
    shard.once("set_optimizer", 1, 0, lambda: done.append(1))
    shard.once("set_optimizer", 1, 0, lambda: done.append(2))  # it reconnected: not again
    shard.once("set_optimizer", 1, 1, None)
    assert done == [1]

    def fail():
        raise MXNetError("no such optimizer")

    for rank, act in ((0, fail), (1, None)):
        with pytest.raises(MXNetError, match="no such optimizer"):
            shard.once("set_optimizer", 2, rank, act)


def test_deadlock_of_workers_raises_immediately():
    shard, slot = shard_of(2, 0, timeout=LIMIT)
    push(shard, 0, torch.ones(3, 2))
    told = []

    def waits_for_the_round():
        with pytest.raises(MXNetError, match="wait for each other") as error:
            is_ready(shard, 0)
        told.append(str(error.value))

    waiting = threading.Thread(target=waits_for_the_round)
    waiting.start()
    with pytest.raises(MXNetError, match="wait for each other") as error:
        shard.agree([KeySpec("other", (6,), torch.float32, slot.spec.segments)], 1)
    waiting.join(SOON)
    assert told == [str(error.value)]
    assert "worker 0 waits because round 1 of key 'k' waits for the push of worker 1" in told[0]
    assert "worker 1 waits because worker 0 has not initialized 'other'" in told[0]


def test_stores_of_different_kinds_are_refused_with_both_kinds():
    service = Service(Replica(0, 1, 3, LIMIT, lambda data: Recorder()), {})
    service._welcome({"rank": 0, "space": 0, "staleness": 0})
    for staleness, kind in ((None, "'dist_async'"), (2, "'dist_stale' with staleness=2")):
        with pytest.raises(Refused, match=f"worker 1 created a store of kind {kind}, others one of kind 'dist_sync'"):
            service._welcome({"rank": 1, "space": 0, "staleness": staleness})


def test_large_arrays_are_split_evenly_and_others_go_to_the_least_loaded_server():
    placement = KeyAllocator(3, bound=100)
    assert placement.allocate((100,), 4) == (Segment(0, 0, 100),)
    assert placement.allocate((10,), 4) == (Segment(1, 0, 10),)
    assert placement.allocate((20,), 4) == (Segment(2, 0, 20),)
    assert placement.allocate((20,), 4)[0].server == 1
    assert [p[1:] for p in placement.allocate((1000,), 4)] == [(0, 333), (333, 666), (666, 1000)]
    assert [p[1:] for p in placement.allocate((100, 7), 4)] == [(0, 231), (231, 462), (462, 700)]  # whole rows
    assert len(placement.allocate((2, 600), 4, whole=True)) == 1


def test_rows_are_never_split():
    placement = KeyAllocator(3, bound=100)
    assert [p[1:] for p in placement.allocate((4, 60), 4)] == [(0, 60), (60, 120), (120, 240)]
    assert placement.loads == [240, 240, 480]
    assert placement.allocate((2, 60), 4) == (Segment(0, 0, 60), Segment(1, 60, 120))  # on the least loaded servers
    assert placement.allocate((1, 600), 4) == (Segment(0, 0, 600),)
    assert placement.allocate((5, 0), 4) == (Segment(1, 0, 0),)
    assert placement.allocate((), 4) == (Segment(1, 0, 1),)
    with pytest.raises(Refused, match="split its rows"):
        KeySpec.heard(["k", [2, 60], "float32", [[0, 0, 90], [1, 90, 120]], 0, False], 2)


def test_shared_memory_is_reached_only_by_its_name():
    chunk = arena.Chunk(1000, shared=True)
    name = chunk.name
    there = arena.attach(name, chunk.nbytes)
    chunk.bytes[5] = 7
    assert there is not None and there[5] == 7
    pid, file, token = name.split("/")
    assert arena.attach(f"{pid}/{file}/{'0' * 32}", chunk.nbytes) is None
    assert arena.attach(name, chunk.nbytes + 4096) is None
    assert arena.attach(f"{pid}/0/{token}", chunk.nbytes) is None
    with pytest.raises(Refused):
        arena.attach("1/../2", 4096)
    chunk.close()
    assert arena.attach(name, there.numel()) is None and there[5] == 7


def test_arena_grows_by_increasing_chunks():
    space = arena.Arena(shared=False)
    places = [space.reserve([100, 60])[0] for _ in range(2000)]
    assert len(set(places)) == 2000 and len(space.chunks) < 12
    assert all(offset % arena.ALIGNMENT == 0 for _, offset in places)


def test_memory_is_private_if_shared_memory_is_full(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    chunk = arena.Chunk(1000, shared=True)
    assert chunk.name == "" and chunk.bytes.numel() == chunk.nbytes
    chunk.close()
