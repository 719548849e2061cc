"""Iterators of mx.io whose samples are dealt to the workers of an elastic job, in one process."""

import collections
import types

import numpy as np
import pytest
import trainings

import neomx as mx
from neomx.comm import session
from neomx.elastic.iterators import DealtBatches, IteratorDealer
from neomx.formats import idx
from neomx.io.dealt import Samples
from neomx.process import state

COUNT = 11  # three batches of 4, the last one smaller


class Dealer(IteratorDealer):
    """Deals to the only worker of a job that is not elastic."""

    def check(self, who, num_parts):
        pass


@pytest.fixture(autouse=True)
def dealer(monkeypatch):
    monkeypatch.setattr(state, "dealer", Dealer())


def arrays(folder, **how):
    return mx.io.NDArrayIter(np.arange(COUNT), np.arange(COUNT), 4, num_parts=1, part_index=0, **how)


def csv(folder):
    (folder / "x.csv").write_text("".join(f"{n}\n" for n in range(COUNT)))
    return mx.io.CSVIter(data_csv=f"{folder}/x.csv", data_shape=(1,), batch_size=4, num_parts=1, part_index=0)


def libsvm(folder):
    (folder / "x.libsvm").write_text("".join(f"{n} {n}:1\n" for n in range(COUNT)))
    how = {"batch_size": 4, "num_parts": 1, "part_index": 0}
    return mx.io.LibSVMIter(data_libsvm=f"{folder}/x.libsvm", data_shape=(COUNT,), **how)


def mnist(folder):
    idx.write(f"{folder}/x", np.zeros((COUNT, 2, 2), np.uint8))
    idx.write(f"{folder}/y", np.arange(COUNT).astype(np.uint8))
    how = {"batch_size": 4, "num_parts": 1, "part_index": 0, "silent": True}
    return mx.io.MNISTIter(image=f"{folder}/x", label=f"{folder}/y", **how)


def records(folder, **how):
    trainings.write_files(trainings.MODES["records"], COUNT, folder)
    how = {"path_imgrec": f"{folder}/x.rec", "data_shape": (3, 1, 3), "label_width": 2, "batch_size": 4, **how}
    return mx.io.ImageRecordIter(num_parts=1, part_index=0, **how)


def numbers(batch, source):
    """Return the numbers of the samples of a batch."""
    column = {libsvm: lambda y: y, records: lambda y: y[:, 1]}.get(source, lambda y: y)
    values = batch.data[0] if source in (arrays, csv) else column(batch.label[0])
    return values.asnumpy().astype(int).ravel().tolist()


def epoch(iterator, source):
    iterator.reset()
    return [numbers(batch, source) for batch in iterator]


@pytest.mark.parametrize("source", [arrays, csv, libsvm, mnist, records])
def test_each_sample_is_in_one_batch_of_an_epoch(tmp_path, source):
    iterator = source(tmp_path)
    assert iterator.is_dealt
    for _ in range(3):
        batches = epoch(iterator, source)
        seen = [number for batch in batches for number in batch]
        assert len(set(seen)) == len(seen)
        if source is mnist:  # it drops samples that do not fill a batch
            assert [len(batch) for batch in batches] == [4, 4]
        else:
            assert [len(batch) for batch in batches] == [4, 4, 3] and set(seen) == set(range(COUNT))


@pytest.mark.parametrize("source", [arrays, csv, libsvm, mnist, records])
def test_positions_continue_in_the_middle_and_at_the_end_of_an_epoch(tmp_path, source):
    expected = source(tmp_path)
    batches = [epoch(expected, source) for _ in range(2)]
    for read in range(len(batches[0]) + 1):
        first, second = source(tmp_path), source(tmp_path)
        first.reset()
        for _ in range(read):
            first.next()
        if read == len(batches[0]):
            with pytest.raises(StopIteration):
                first.next()
        second.load_state(first.state())
        rest = [] if read == len(batches[0]) else epoch(second, source)
        assert rest == batches[0][read:] and epoch(second, source) == batches[1]


def test_shuffling_depends_on_the_seed_and_the_epoch(tmp_path):
    for source in (arrays, records):
        one, same, other = (source(tmp_path, shuffle=True, seed=seed) for seed in (3, 3, 4))
        first, second = epoch(one, source), epoch(one, source)
        assert first != second and first == epoch(same, source) != epoch(other, source)


def test_pictures_are_augmented_differently_in_each_epoch_and_equally_in_each_run(tmp_path):
    def pixels(iterator):
        iterator.reset()
        return np.concatenate([batch.data[0].asnumpy() for batch in iterator])

    one, same = (records(tmp_path, max_random_illumination=9, preprocess_threads=n) for n in (1, 3))
    first = pixels(one)
    assert np.array_equal(first, pixels(same)) and not np.array_equal(first, pixels(one))


def test_iter_next_and_the_methods_of_a_batch(tmp_path):
    for source in (arrays, csv):
        iterator = source(tmp_path)
        assert iterator.iter_next()
        data = iterator.getdata()
        assert (data[0] if isinstance(data, list) else data).asnumpy().ravel().tolist() == [0, 1, 2, 3]
        assert iterator.getpad() == 0
        assert iterator.iter_next() and iterator.iter_next() and not iterator.iter_next()


def test_a_reset_before_the_end_begins_the_next_epoch(tmp_path):
    iterator = arrays(tmp_path, shuffle=True, seed=3)
    expected = [epoch(arrays(tmp_path, shuffle=True, seed=3), arrays)]
    assert numbers(iterator.next(), arrays) == expected[0][0]
    assert epoch(iterator, arrays) != expected[0]


def test_records_of_several_files_and_with_an_index(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        records(folder)
    both = ";".join(f"{folder}/x.rec" for folder in folders)
    seen = collections.Counter(n for batch in epoch(records(tmp_path, path_imgrec=both), records) for n in batch)
    assert seen == dict.fromkeys(range(COUNT), 2)
    reader = mx.recordio.MXRecordIO(f"{folders[0]}/x.rec", "r")
    places = []
    for _ in range(COUNT):
        places.append(reader.tell())
        reader.read()
    (tmp_path / "x.idx").write_text("".join(f"{n}\t{place}\n" for n, place in enumerate(places)))
    indexed = records(tmp_path, path_imgrec=f"{folders[0]}/x.rec", path_imgidx=f"{tmp_path}/x.idx")
    assert epoch(indexed, records) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_iterators_that_read_ahead_are_refused(tmp_path):
    for wrap in (mx.io.PrefetchingIter, lambda source: mx.io.ResizeIter(source, 2)):
        with pytest.raises(mx.MXNetError, match="cannot read from an iterator with num_parts in an elastic job"):
            wrap(arrays(tmp_path))


def test_without_num_parts_samples_are_not_dealt(tmp_path):
    iterator = mx.io.NDArrayIter(np.arange(COUNT), batch_size=4)
    assert not iterator.is_dealt and iterator.next().data[0].shape == (4,)
    with pytest.raises(mx.MXNetError, match="the position is that of an elastic job"):
        iterator.load_state(arrays(tmp_path).state())


def test_parts_must_be_the_workers(monkeypatch):
    world = types.SimpleNamespace(size=3, limits=types.SimpleNamespace(initial=4))
    monkeypatch.setattr(session, "session", lambda: types.SimpleNamespace(world=world))
    IteratorDealer().check("CSVIter", 3)
    IteratorDealer().check("CSVIter", 4)
    with pytest.raises(mx.MXNetError, match="CSVIter: an elastic job deals .* their number, 3; received 8"):
        IteratorDealer().check("CSVIter", 8)


def test_the_number_of_samples_is_that_of_one_worker():
    assert mx.io.NDArrayIter(np.arange(COUNT), batch_size=4, num_parts=3, part_index=0).num_data == 4


def test_batches_are_kept_until_a_restart():
    dealt = DealtBatches(Samples(5, 2, lambda rows, seeds: rows))
    assert list(dealt) == [[0, 1], [2, 3], [4]] and list(dealt) == []
    dealt.restart()
    assert next(dealt) == [0, 1]
