"""Sharded datasets: N workers see every sample once, in the order of a single process."""

import itertools
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx.comm import session
from neomx.events import subscribe
from neomx.gluon.data import ArrayDataset, DataLoader, Dataset, SequentialSampler, ShardedDataset, SplitSampler
from neomx.gluon.data.place import Batch, current_batch
from neomx.process import state


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    """Reset the current batch, in case another test left a loop unfinished."""
    monkeypatch.setattr(state, "batch", None)


def parts(length, size, **kwargs):
    return [ShardedDataset(range(length), rank=rank, size=size, **kwargs) for rank in range(size)]


def epoch_of(length, size, batch_size, epoch=0, last_batch="keep", **kwargs):
    """Return the batches of all workers: [worker][step] -> list of samples."""
    workers = parts(length, size, **kwargs)
    for worker in workers:
        worker.epoch = epoch
    return [list(worker.batches(batch_size, last_batch)) for worker in workers]


def by_step(workers):
    """Return the samples of all workers at each step."""
    return [sorted(sum(batches, [])) for batches in itertools.zip_longest(*workers, fillvalue=[])]


CASES = list(itertools.product(range(14), (1, 2, 3, 4), (1, 2, 3), ("keep", "discard", "rollover"), (False, True)))


def test_workers_together_have_the_batches_of_one_process():
    for length, size, batch_size, last_batch, shuffle in CASES:
        for epoch in range(3):
            kwargs = {"epoch": epoch, "last_batch": last_batch, "shuffle": shuffle, "seed": 5}
            workers = epoch_of(length, size, batch_size, **kwargs)
            (alone,) = epoch_of(length, 1, batch_size * size, **kwargs)
            assert by_step(workers) == [sorted(batch) for batch in alone], (length, size, batch_size, kwargs)


def test_last_batches_differ_by_at_most_one_sample():
    for length, size, batch_size, last_batch, _ in CASES:
        workers = epoch_of(length, size, batch_size, last_batch=last_batch)
        sizes = [[len(batch) for batch in batches] for batches in workers]
        for counts in itertools.zip_longest(*sizes, fillvalue=0):
            assert max(counts) - min(counts) <= 1
        assert all(count == batch_size for counts in sizes for count in counts[:-1])
        if last_batch != "keep":
            assert all(count == batch_size for counts in sizes for count in counts)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**40), st.integers(0, 1000))
def test_every_sample_occurs_once_per_epoch(length, size, batch_size, seed, epoch):
    workers = epoch_of(length, size, batch_size, epoch, shuffle=True, seed=seed)
    assert sorted(sum((sum(batches, []) for batches in workers), [])) == list(range(length))


def test_rollover_moves_rest_to_next_epoch():
    workers = parts(7, 2, shuffle=True, seed=3)
    loaders = [worker.batches(3, "rollover") for worker in workers]
    seen = []
    for _ in range(6):
        announced = [len(loader) for loader in loaders]
        epoch = [list(loader) for loader in loaders]
        assert [len(batches) for batches in epoch] == announced
        seen += sum(sum(epoch, []), [])
    assert len(seen) == 6 * 7  # 42 samples are 7 batches of 6
    assert np.bincount(seen).tolist() == [6] * 7


def test_order_depends_on_epoch_and_seed():
    shard = ShardedDataset(range(50), shuffle=True, seed=1)
    batches = shard.batches(50)
    first, second = next(batches.__iter__()), next(batches.__iter__())
    assert first != second and sorted(first) == sorted(second)
    assert next(ShardedDataset(range(50), shuffle=True, seed=1).batches(50).__iter__()) == first
    assert next(ShardedDataset(range(50), shuffle=True, seed=2).batches(50).__iter__()) != first
    in_order = ShardedDataset(range(50)).batches(50)
    assert next(in_order.__iter__()) == next(in_order.__iter__()) == list(range(50))


def test_training_can_resume_at_an_epoch():
    def run(start):
        shard = ShardedDataset(range(20), shuffle=True, seed=4, rank=1, size=3)
        shard.epoch = start
        loader = DataLoader(shard, batch_size=4, last_batch="rollover")
        return [[batch.asnumpy().tolist() for batch in loader] for _ in range(start, 6)]

    assert run(3) == run(0)[3:]


@pytest.mark.parametrize("how", [{}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True}])
def test_loader_yields_shard_and_current_batch(how):
    x = np.arange(22, dtype="float32").reshape(11, 2)
    shards = [
        ShardedDataset(ArrayDataset(x, np.arange(11)), shuffle=True, seed=9, rank=rank, size=2) for rank in range(2)
    ]
    loaders = [DataLoader(shard, batch_size=2, **how) for shard in shards]
    for epoch in range(2):
        seen = []
        for rank, loader in enumerate(loaders):
            assert len(loader) == 3
            for step, (data, label) in enumerate(loader):
                assert data.asnumpy().tolist() == x[label.asnumpy()].tolist()
                here = current_batch()
                assert (here.epoch, here.step, here.steps, here.samples) == (epoch, step, 3, len(label))
                assert here.total == (4 if step < 2 else 3)
                assert len(label) == (2 if step < 2 else 2 - rank)
                seen += label.asnumpy().tolist()
            assert current_batch() is None
        assert sorted(seen) == list(range(11))
    assert [shard.epoch for shard in shards] == [2, 2]


@pytest.mark.parametrize("how", [{}, {"num_workers": 1}])
def test_current_batch_has_number_of_samples(how):
    loader = DataLoader(mx.nd.zeros((5, 1)), batch_size=2, **how)
    for _ in range(2):
        assert [(current_batch().step, current_batch().samples) for _ in loader] == [(0, 2), (1, 2), (2, 1)]
        assert current_batch() is None
    for _ in DataLoader(list(range(3)), batch_sampler=[(i for i in range(2))]):
        assert current_batch() == Batch(epoch=0, step=0, steps=None, samples=2, total=None)


def test_prefetched_batches_do_not_advance_the_epoch():
    shard = ShardedDataset(range(6), shuffle=True, seed=1)
    loader = DataLoader(shard, batch_size=3, num_workers=1, auto_reload=True)
    epochs = []
    for epoch in range(3):
        epochs.append([batch.asnumpy().tolist() for batch in loader])
        assert shard.epoch == epoch + 1
    loader.clean()
    assert [[list(batch) for batch in shard.batches(3)] for shard.epoch in range(3)] == epochs


def test_nested_loader_restores_the_outer_batch():
    outer = DataLoader(ShardedDataset(range(4)), batch_size=2)
    inner = DataLoader(ShardedDataset(range(3)), batch_size=3)
    for _ in outer:
        before = current_batch()
        for _ in inner:
            assert current_batch().samples == 3
        assert current_batch() is before
        break
    assert current_batch() is None


def test_loaders_emit_epoch_events():
    seen = []
    stops = [subscribe(lambda name, fields: seen.append((name, fields)), name) for name in ("epoch", "epoch_end")]
    sharded = DataLoader(ShardedDataset(range(10), rank=1, size=2), batch_size=2)
    plain = DataLoader(mx.nd.zeros((5, 1)), batch_size=2)
    try:
        for _ in range(2):
            list(sharded)
        for _ in plain:
            break
        list(DataLoader(list(range(3)), batch_sampler=([i] for i in range(3))))
    finally:
        for stop in stops:
            stop()
    assert [(name, fields["number"], fields.get("steps"), fields.get("samples")) for name, fields in seen] == [
        ("epoch", 0, 3, 10),
        ("epoch_end", 0, None, None),
        ("epoch", 1, 3, 10),
        ("epoch_end", 1, None, None),
        ("epoch", 0, 3, None),
        ("epoch_end", 0, None, None),
        ("epoch", 0, None, None),
        ("epoch_end", 0, None, None),
    ]
    assert [fields["loader"] for _, fields in seen[:6]] == [sharded] * 4 + [plain] * 2


def test_shard_is_a_dataset_without_a_loader():
    shard = ShardedDataset(range(100, 110), shuffle=True, seed=1, rank=2, size=3)
    assert isinstance(shard, Dataset) and len(shard) == 3
    assert list(shard) == [100 + i for i in shard.order(0)[2::3]]
    shard.epoch = 1
    assert list(shard) == [100 + i for i in shard.order(1)[2::3]]


def test_transformed_shard_is_a_shard():
    data = ArrayDataset(np.arange(10), np.arange(10) * 2)
    shard = ShardedDataset(data, shuffle=True, seed=2, rank=1, size=2)
    shard.epoch = 3
    for lazy in (True, False):
        made = shard.transform_first(lambda x: x + 100, lazy=lazy)
        assert made.epoch == 3 and sorted(made) == [(100 + x, y) for x, y in sorted(shard)]
    assert isinstance(shard.filter(lambda item: item[0] % 2), ShardedDataset)
    assert len(shard.filter(lambda item: item[0] % 2)) == 2
    assert len(shard.take(4)) == 2 and len(shard.sample(SequentialSampler(6))) == 3


def test_invalid_sharding_raises():
    shard = ShardedDataset(range(10), rank=0, size=2)
    for wrong in ({"shuffle": True}, {"sampler": SequentialSampler(10)}):
        with pytest.raises(ValueError, match=r"shard\(dataset, shuffle=True\)"):
            DataLoader(shard, batch_size=2, **wrong)
    with pytest.raises(ValueError, match="remove shuffle, sampler and batch_sampler"):
        DataLoader(shard, batch_sampler=[[0]])
    with pytest.raises(ValueError, match="batch_size"):
        DataLoader(shard)
    with pytest.raises(ValueError, match="at least 1"):
        DataLoader(shard, batch_size=0)
    with pytest.raises(ValueError, match="last_batch"):
        DataLoader(shard, batch_size=1, last_batch="pad")
    with pytest.raises(ValueError, match="already"):
        shard.shard(2, 0)
    with pytest.raises(ValueError, match="already"):
        ShardedDataset(shard, rank=0, size=2)
    with pytest.raises(ValueError, match="rank=2, size=2"):
        ShardedDataset(range(3), rank=2, size=2)
    with pytest.raises(ValueError, match="negative"):
        ShardedDataset(range(3), seed=-1)


def test_split_sampler_parts_have_equal_size():
    np.random.seed(3)
    drawn = [[list(SplitSampler(11, 3, part)) for part in range(3)] for _ in range(2)]
    assert [[sorted(part) for part in parts] for parts in drawn] == [[[0, 1, 2], [3, 4, 5], [6, 7, 8]]] * 2
    many = SplitSampler(100, num_parts=2, part_index=1)
    assert len(many) == 50 and list(many) != list(many) and sorted(many) == list(range(50, 100))
    assert sorted(SplitSampler(4)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="part_index=2, num_parts=2"):
        SplitSampler(10, 2, 2)
    loader = DataLoader(mx.nd.arange(10), batch_size=5, sampler=SplitSampler(10, 2, 1))
    assert sorted(next(iter(loader)).asnumpy().ravel().tolist()) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("has_passed", [True, False])
def test_a_pass_that_all_have_ended_is_over_even_if_samples_were_dealt_again(monkeypatch, has_passed):
    """A worker may be lost when others have passed the end of the data, and begun the next pass."""
    epoch = ShardedDataset(list(range(8)), size=2).batches(2).start()

    def pause(**_):
        epoch.deal_again()
        return has_passed

    opened = types.SimpleNamespace(world=types.SimpleNamespace(servers=0), rounds=types.SimpleNamespace(pause=pause))
    monkeypatch.setattr(session, "session", lambda: opened)
    monkeypatch.setattr(session, "is_open", lambda: True)
    assert epoch._finish() == (not has_passed)
