"""Dealing the rest of an epoch again when the number of workers changes: each sample is trained exactly once."""

import random

import pytest

from neomx.comm.world import Limits, World
from neomx.gluon.data.shard import ShardedDataset


class Job:
    """The workers of a job, as a shard sees them."""

    def __init__(self, rank, size, initial, scales=False):
        self.world = World(rank=rank, size=size, limits=Limits(1, 99, initial, scales=scales))


def epoch_of(samples, rank, size, initial, batch, last_batch="keep"):
    shard = ShardedDataset(range(samples), shuffle=True, seed=7, workers=Job(rank, size, initial))
    return shard.batches(batch, last_batch).start()


@pytest.mark.parametrize("seed", range(40))
def test_each_sample_is_trained_once_over_any_sequence_of_workers(seed):
    rng = random.Random(seed)
    initial, batch, samples = rng.randint(1, 4), rng.randint(1, 5), rng.randint(0, 60)
    workers = [epoch_of(samples, rank, initial, initial, batch) for rank in range(initial)]
    trained, steps = [], []
    while True:
        if rng.random() < 0.3:  # a loss or a join; what was received since the last commit is dealt again
            size = rng.randint(1, 6)
            start = workers[0]._committed
            workers = [epoch_of(samples, rank, size, initial, batch) for rank in range(size)]
            for worker in workers:
                worker.deal_from(start)
        got = [next(worker, None) for worker in workers]
        if not any(got):
            break
        for worker, indices in zip(workers, got, strict=True):
            worker.delivered += indices is not None
        if rng.random() < 0.2:  # the step is dropped
            start = workers[0]._committed
            for worker in workers:
                worker.deal_from(start)
            continue
        steps.append(sorted(i for indices in got for i in indices or ()))
        trained += steps[-1]
        for worker in workers:
            worker.commit(max(each.index for each in workers))
    assert sorted(trained) == list(range(samples))
    order = ShardedDataset(range(samples), shuffle=True, seed=7).order(0).tolist()
    at_once = initial * batch
    assert steps == [sorted(order[at : at + at_once]) for at in range(0, samples, at_once)]


def test_batches_prefetched_before_a_deal_are_not_delivered():
    import neomx as mx
    from neomx.gluon.data import DataLoader

    job = Job(0, 2, 2)
    shard = ShardedDataset(mx.nd.arange(24).asnumpy(), shuffle=False, workers=job)
    loader = DataLoader(shard, 3, num_workers=2, thread_pool=True)
    seen = []
    for batch in loader:
        seen.append(batch.asnumpy().astype(int).tolist())
        if len(seen) == 1:
            loader.current_pass.commit(loader.current_pass.index)
            job.world = World(rank=0, size=1, limits=job.world.limits)
            loader.current_pass.deal_again()
        else:
            loader.current_pass.commit(loader.current_pass.index)
    assert seen == [[0, 2, 4], [6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17], [18, 19, 20, 21, 22, 23]]
