"""BucketSampler: batches of similar lengths, which N workers share as one process would have them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neomx.gluon.data import DataLoader, SimpleDataset, text
from neomx.gluon.data.place import current_batch

LENGTHS = st.lists(st.integers(0, 40), max_size=120)
BUCKETS = st.integers(1, 12) | st.lists(st.integers(0, 39), max_size=5).map(lambda bounds: [*bounds, 40])


def workers(lengths, size, batch_size, epoch=0, **kwargs):
    """Return the batches of all workers: [worker][step] -> list of samples."""
    samplers = [text.BucketSampler(lengths, batch_size, rank=rank, size=size, **kwargs) for rank in range(size)]
    for sampler in samplers:
        sampler.epoch = epoch
    counts = [len(sampler) for sampler in samplers]
    found = [list(sampler) for sampler in samplers]
    assert [len(batches) for batches in found] == counts
    return found


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.integers(1, 9), st.integers(0, 3), BUCKETS, st.booleans(), st.booleans())
def test_workers_together_have_the_batches_of_one_process(lengths, size, batch_size, epoch, buckets, shuffle, keep):
    options = {"epoch": epoch, "buckets": buckets, "shuffle": shuffle, "seed": 7}
    options["last_batch"] = "keep" if keep else "discard"
    parts = workers(lengths, size, batch_size, **options)
    (alone,) = workers(lengths, 1, batch_size * size, **options)
    together = [sorted(sum(batches, [])) for batches in itertools.zip_longest(*parts, fillvalue=[])]
    assert together == [sorted(batch) for batch in alone]
    sizes = [[len(batch) for batch in batches] for batches in parts]
    assert all(count == batch_size for counts in sizes for count in counts[:-1])
    seen = sorted(sum(alone, []))
    assert seen == list(range(len(lengths))) if keep else len(seen) == len(lengths) - len(lengths) % (batch_size * size)
    assert len(set(seen)) == len(seen)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 9), BUCKETS)
def test_full_batches_of_a_bucket_are_only_mixed_with_leftovers_of_shorter_ones(lengths, batch_size, buckets):
    sampler = text.BucketSampler(lengths, batch_size, buckets, seed=1, rank=0, size=1)
    bucket_of = np.searchsorted(sampler.buckets, lengths)
    mixed = [batch for batch in list(sampler) if len({bucket_of[i] for i in batch}) > 1]
    assert len(mixed) <= len(sampler.buckets)
    # A leftover has fewer samples than a batch, so it is in only one batch with longer samples.
    assert sum(len(batch) for batch in mixed) <= batch_size * len(sampler.buckets)


def test_bucketing_saves_padding():
    lengths = np.random.default_rng(1).integers(1, 100, 2000)

    def padded(batches):
        return sum(max(lengths[batch]) * len(batch) for batch in batches)

    found = padded(text.BucketSampler(lengths, 20, 10))
    random = padded(np.random.default_rng(2).permutation(2000).reshape(-1, 20).tolist())
    assert found < 1.15 * lengths.sum() < 1.8 * lengths.sum() < random


def test_number_of_buckets_divides_the_samples_evenly():
    sampler = text.BucketSampler(np.arange(100), 1, 4)
    assert sampler.buckets == [24, 49, 74, 99]
    assert text.BucketSampler([3] * 9, 1, 4).buckets == [3] and text.BucketSampler([], 1).buckets == [0]
    assert text.BucketSampler([1, 2], 1, [9, 3, 9]).buckets == [3, 9]


def test_order_depends_on_epoch_and_seed():
    lengths = np.arange(60) % 7
    sampler = text.BucketSampler(lengths, 4, 3, seed=1)
    first, second = list(sampler), list(sampler)
    assert sampler.epoch == 2 and first != second
    sampler.epoch = 1
    assert list(sampler) == second
    assert list(text.BucketSampler(lengths, 4, 3, seed=2)) != first
    in_order = text.BucketSampler(lengths, 4, 3, shuffle=False)
    assert list(in_order) == list(in_order)
    longest = [lengths[batch].max() for batch in in_order]
    assert longest == sorted(longest)
    shuffled = [lengths[batch].max() for batch in first]
    assert shuffled != sorted(shuffled)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "thread_pool": True}, {"num_workers": 2}])
def test_augmented_samples_do_not_depend_on_workers(options):
    words = [[f"w{number}" for number in range(length)] for length in np.random.default_rng(3).integers(2, 20, 30)]
    vocabulary = text.Vocabulary.of(words, reserved_tokens=["<pad>", "[MASK]", "<blank>"])
    mask, noise = text.MaskTokens(vocabulary), text.BackTranslationNoise()
    lengths = [len(each) for each in words]

    def augmented(index):
        return (index, *mask(vocabulary.encode(noise(text.CharacterNoise()(words[index])))))

    def epochs(batch_size, rank=0, size=1, **options):
        """Return {index: sample} for each of two epochs."""
        sampler = text.BucketSampler(lengths, batch_size, 3, seed=5, rank=rank, size=size)
        loader = DataLoader(
            SimpleDataset(range(len(words))).transform(augmented), batch_sampler=sampler, batchify_fn=list, **options
        )
        return [{item[0]: np.array(item[1:]).tolist() for batch in loader for item in batch} for _ in range(2)]

    alone = epochs(9)
    parts = [epochs(3, rank, 3, **options) for rank in range(3)]
    for epoch in range(2):
        assert alone[epoch] == {**parts[0][epoch], **parts[1][epoch], **parts[2][epoch]}
    assert alone[0] != alone[1] and len(alone[0]) == 30


def test_loader_knows_the_samples_of_all_workers():
    sampler = text.BucketSampler([1] * 11, 2, rank=1, size=2)
    found = [(current_batch().step, current_batch().samples, current_batch().total)
             for _ in DataLoader(list(range(11)), batch_sampler=sampler)]  # fmt: skip
    assert found == [(0, 2, 4), (1, 2, 4), (2, 1, 3)]


def test_invalid_buckets_raise():
    sampler = text.BucketSampler
    with pytest.raises(ValueError, match=r"the longest sample has length 9, but the buckets are \[4, 8\]"):
        sampler([3, 9], 1, [4, 8])
    with pytest.raises(ValueError, match="buckets must be at least 1"):
        sampler([3], 1, 0)
    with pytest.raises(ValueError, match="'keep' or 'discard', received 'rollover'"):
        sampler([3], 1, last_batch="rollover")
    with pytest.raises(ValueError, match="both rank and size"):
        sampler([3], 1, rank=0)
    with pytest.raises(ValueError, match="one number for each sample"):
        sampler([[3]], 1)
    with pytest.raises(ValueError, match="batch_size"):
        sampler([3], 0)
