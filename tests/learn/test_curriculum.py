"""Pools of samples that grow with the epochs."""

import numpy as np
import pytest

from neomx import gluon, learn, nd

DATA = gluon.data.ArrayDataset(np.arange(20.0), np.arange(20))
HARD = np.random.default_rng(0).permutation(20)  # of each sample


def epoch_of(loader):
    return [x.asnumpy().astype(int).tolist() for x, _ in loader]


@pytest.mark.parametrize(
    ("last_batch", "batches"),
    [("keep", [[5], [6, 4], [6, 6, 3], [6, 6, 6, 2]]), ("discard", [[], [6], [6, 6], [6] * 3])],
)
def test_epochs_have_the_easiest_samples(last_batch, batches):
    part = learn.Curriculum(DATA, HARD, first=0.25, epochs=3)
    loader = gluon.data.DataLoader(part, 6, last_batch=last_batch)
    for epoch, (size, sizes) in enumerate(zip([5, 10, 15, 20], batches, strict=True)):
        assert part.epoch == epoch
        assert len(part) == part.pool(epoch) == size
        assert len(loader) == len(sizes)
        found = epoch_of(loader)
        assert [len(batch) for batch in found] == sizes
        samples = [sample for batch in found for sample in batch]
        assert len(set(samples)) == len(samples)
        assert all(HARD[sample] < size for sample in samples)
        if last_batch == "keep":
            assert sorted(samples) == sorted(np.argsort(HARD)[:size])
    assert part.pool(100) == 20


def test_order_depends_on_seed_and_epoch_only():
    first, again, other = (learn.Curriculum(DATA, HARD, 1.0, seed=seed) for seed in (1, 1, 2))
    orders = [part.order(0).tolist() for part in (first, again, other)]
    assert orders[0] == orders[1] != orders[2]
    assert first.order(1).tolist() != orders[0]
    again.epoch = 1
    assert sum(epoch_of(gluon.data.DataLoader(again, 20)), []) == first.order(1).tolist()
    assert [int(again[i][1]) for i in range(3)] == again.order(2)[:3].tolist()


def test_difficulty_may_be_a_function_or_an_array():
    expected = np.argsort(HARD).tolist()
    for difficulty in (HARD, HARD.tolist(), nd.array(HARD), lambda item: HARD[item[1]]):
        assert learn.Curriculum(DATA, difficulty).ranked.tolist() == expected
    assert learn.Curriculum(DATA, np.zeros(20)).ranked.tolist() == list(range(20))


def test_transform_keeps_the_order():
    part = learn.Curriculum(DATA, HARD, 0.5, seed=3).transform(lambda x, y: (x + 100, y))
    found = [int(x) for x, _ in part]
    assert found == (100 + learn.Curriculum(DATA, HARD, 0.5, seed=3).order(0)).tolist()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: learn.Curriculum(DATA, HARD[:3]), ValueError, r"each of 20 samples, received shape \(3,\)"),
        (lambda: learn.Curriculum(DATA, [float("nan")] * 20), ValueError, "difficulty of sample 0 is NaN"),
        (lambda: learn.Curriculum(DATA, ["a"] * 20), TypeError, "difficulty must be numbers"),
        (lambda: learn.Curriculum(DATA, HARD, first=0), ValueError, "first must be a fraction above 0"),
        (lambda: learn.Curriculum(DATA, HARD, epochs=0), ValueError, "epochs must be a positive integer"),
        (lambda: learn.Curriculum(DATA, HARD, seed=-1), ValueError, "seed must not be negative"),
        (lambda: learn.Curriculum(DATA, HARD).batches(2, "rollover"), ValueError, "'keep' or 'discard'"),
        (lambda: learn.Curriculum(DATA, HARD).take(3), ValueError, "select samples before"),
        (lambda: learn.Curriculum(learn.Curriculum(DATA, HARD), HARD), ValueError, "already a shard"),
    ],
)
def test_invalid_arguments_are_rejected(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
