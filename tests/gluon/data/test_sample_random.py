"""The random numbers of a sample depend on its seed, epoch and index, not on the process or thread that creates it."""

import random

import numpy as np
import pytest

import neomx as mx
from neomx import gluon
from neomx.gluon.data import DataLoader, ShardedDataset, SimpleDataset
from neomx.gluon.data.vision import transforms

COUNT = 22


def own(index):
    """Return the index and a number from each generator that follows the sample in any process."""
    return np.array(
        [
            index,
            mx.nd.random.uniform(shape=(1,)).asscalar(),
            mx.random.rng().random(),
            mx.image.HorizontalFlipAug(0.5)(mx.nd.array([[[0.0], [1.0]]]))[0, 0].asscalar(),
        ]
    )


def epochs(batch_size, rank=0, size=1, count=2, transform=own, **options):
    shard = ShardedDataset(SimpleDataset(list(range(COUNT))).transform(transform), True, 5, rank, size)
    loader = DataLoader(shard, batch_size, **options)
    return [np.concatenate([batch.asnumpy() for batch in loader]) for _ in range(count)]


def by_index(parts):
    rows = np.concatenate(parts)
    return rows[rows[:, 0].argsort()]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2, "thread_pool": True}, {"num_workers": 1}, {"num_workers": 3}]
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_samples_do_not_depend_on_workers(options, size):
    alone = epochs(8)
    parts = [epochs(4, rank, size, **options) for rank in range(size)]
    for epoch in range(2):
        found = by_index([part[epoch] for part in parts])
        assert found[:, 0].tolist() == list(range(COUNT))
        np.testing.assert_array_equal(found, by_index([alone[epoch]]))
    first, second = by_index([alone[0]]), by_index([alone[1]])
    assert len(np.unique(first[:, 1])) == len(np.unique(first[:, 2])) == COUNT
    assert not np.any(first[:, 1:3] == second[:, 1:3])  # the next epoch differs
    assert 0 < first[:, 3].mean() < 1


def test_generators_of_python_and_numpy_follow_the_sample_in_processes():
    def transform(index):
        return np.array([index, random.random(), np.random.rand()])

    one, three = (epochs(4, transform=transform, num_workers=n) for n in (1, 3))
    np.testing.assert_array_equal(one, three)
    assert len(np.unique(one[0][:, 1])) == COUNT


@pytest.mark.parametrize("options", [{"num_workers": 2, "thread_pool": True}, {"num_workers": 2}])
def test_plain_loaders_follow_the_seed(options):
    def samples(seed, **options):
        mx.random.seed(seed)
        loader = DataLoader(SimpleDataset(list(range(COUNT))).transform(own), 8, **options)
        return [np.concatenate([batch.asnumpy() for batch in loader]) for _ in range(2)]

    here = samples(3)
    np.testing.assert_array_equal(here, samples(3, **options))
    assert not np.any(here[0][:, 1] == here[1][:, 1])
    assert not np.any(here[0][:, 1] == samples(4)[0][:, 1])


def test_oversampled_items_differ():
    mx.random.seed(1)
    loader = DataLoader(SimpleDataset([0]).transform(own), batch_sampler=[[0, 0], [0]])
    rows = np.concatenate([batch.asnumpy() for batch in loader])
    assert len(np.unique(rows[:, 1])) == 3


def test_program_keeps_its_own_numbers():
    """After the seed of a pass is drawn, samples do not change the numbers that the program draws."""

    def drawn(draws):
        mx.random.seed(9)
        loader = DataLoader(SimpleDataset(list(range(4))).transform(lambda i: draws() and i), 2)
        return [(mx.nd.random.uniform(shape=(1,)).asscalar(), len(batch)) for batch in loader]

    assert drawn(lambda: 1) == drawn(lambda: mx.nd.random.uniform(shape=(50,)).sum().asscalar())


def test_order_of_augmenters_does_not_depend_on_earlier_samples():
    jitter = mx.image.RandomOrderAug([mx.image.BrightnessJitterAug(0.3), mx.image.ContrastJitterAug(0.9)])
    image = mx.nd.arange(48).reshape((4, 4, 3))
    shard = ShardedDataset(SimpleDataset(list(range(6))).transform(lambda i: jitter(image.copy())), seed=2)
    together = next(iter(DataLoader(shard, 6)))
    shard.epoch = 0
    last = [batch for batch in DataLoader(ShardedDataset(shard.dataset, seed=2, rank=5, size=6), 1)]
    np.testing.assert_array_equal(together[5].asnumpy(), last[0][0].asnumpy())


def test_transforms_of_vision_follow_the_sample():
    augment = transforms.Compose(
        [
            transforms.RandomFlipLeftRight(),
            transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1),
            transforms.RandomResizedCrop(8),
            transforms.ToTensor(),
            transforms.RandomApply(transforms.RandomRotation((-30, 30)), 0.7),
        ]
    )
    images = mx.nd.random.uniform(0, 255, shape=(10, 12, 12, 3)).astype("uint8")

    def batch(**options):
        dataset = gluon.data.ArrayDataset(images).transform(augment)
        return next(iter(DataLoader(ShardedDataset(dataset, seed=4), 10, **options))).asnumpy()

    np.testing.assert_array_equal(batch(), batch(num_workers=2))
    np.testing.assert_array_equal(batch(), batch(num_workers=3, thread_pool=True))


def test_error_in_a_sample_leaves_the_generator_of_the_program():
    def fail(index):
        raise ValueError(index)

    with pytest.raises(ValueError) as kept:  # keeps the traceback, and with it the frames
        next(iter(DataLoader(SimpleDataset([0, 1]).transform(fail), 2)))
    drawn = []
    for _ in range(2):
        mx.random.seed(1)
        drawn.append(mx.nd.random.uniform(shape=(1,)).asscalar())
    assert drawn[0] == drawn[1] and kept.value.args == (0,)


@pytest.mark.parametrize("options", [{"num_workers": 2, "thread_pool": True}, {"num_workers": 2}])
def test_batchify_draws_the_same_numbers_in_any_process(options):
    def numbers(**options):
        mx.random.seed(1)
        draw = [np.array([mx.random.rng().random(), mx.nd.random.uniform(shape=(1,)).asscalar()])]
        loader = DataLoader(
            SimpleDataset(list(range(6))),
            2,
            batchify_fn=lambda items: np.array([mx.random.rng().random(), mx.nd.random.uniform(shape=(1,)).asscalar()]),
            **options,
        )
        return np.array(draw + list(loader) + [mx.nd.random.uniform(shape=(2,)).asnumpy()])

    here = numbers()
    np.testing.assert_array_equal(here, numbers(**options))
    assert len(np.unique(here[:, 0])) == len(here)


@pytest.mark.parametrize("options", [{"num_workers": 2, "thread_pool": True}, {"num_workers": 1}])
def test_numbers_of_the_program_do_not_depend_on_processes(options):
    def following(**options):
        mx.random.seed(1)
        for _ in DataLoader(gluon.data.ArrayDataset(np.zeros((4, 1), "float32")), 2, **options):
            pass
        return mx.nd.random.uniform(shape=(1,)).asscalar()

    assert following() == following(**options)
