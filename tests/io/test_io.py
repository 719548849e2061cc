"""mx.io: shuffling, sharding, threads and errors; parity/cases/io.py compares values with recordings of MXNet."""

import gc
import gzip
import http.server
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from launching import LIMIT

import neomx as mx
from neomx.base import MXNetError
from parity.cases.io import digit_files, digit_iter, rows, seen

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def files():
    with digit_files(23) as directory:
        yield directory


def labels(iterator):
    return [label for batch, _ in seen(iterator) for label in batch]


# ---- MNISTIter ----


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 23])
def test_parts_are_disjoint_and_cover_all(files, parts, shuffle):
    part = [digit_iter(mx, files, batch_size=1, shuffle=shuffle, num_parts=parts, part_index=i) for i in range(parts)]
    given = [labels(p) for p in part]
    assert sorted(sum(given, [])) == list(range(23))
    assert max(map(len, given)) - min(map(len, given)) <= 1
    assert sum(map(sorted, given), []) == list(range(23))  # each part is a contiguous range of the file


def test_seed_fixes_one_order_for_all_epochs(files):
    def order(seed):
        iterator = digit_iter(mx, files, batch_size=1, shuffle=True, seed=seed)
        first = labels(iterator)
        iterator.reset()
        assert labels(iterator) == first
        return first

    assert order(1) == order(1) != order(2)
    assert order(-1) != list(range(23))
    assert sorted(order(2)) == list(range(23))


def test_images_keep_their_labels(files):
    for batch in digit_iter(mx, files, batch_size=5, shuffle=True):
        np.testing.assert_array_equal(batch.data[0].asnumpy()[:, 0, 0, 0] * 256, batch.label[0].asnumpy() * 6)


def test_gzipped_files(files, tmp_path):
    for name in ("images", "labels"):
        (tmp_path / name).write_bytes(gzip.compress(pathlib.Path(files, name).read_bytes()))
    assert labels(digit_iter(mx, str(tmp_path), batch_size=1)) == list(range(23))


def test_mnist_iter_errors(files, tmp_path):
    def refused(message, **attrs):
        with pytest.raises(MXNetError, match=message):
            digit_iter(mx, files, **attrs)

    refused(r"part_index must be in \[0, 3\), received 3", num_parts=3, part_index=3)
    refused("num_parts must be at least 1, received 0", num_parts=0)
    refused("part 0 of 24 has 0 samples, not enough for one batch of 2", num_parts=24)
    refused("part 0 of 1 has 23 samples, not enough for one batch of 24", batch_size=24)
    refused("batch_size must be an integer, received 'many'", batch_size="many")
    refused("shuffle must be True or False, received 2", shuffle=2)
    refused(r"a label for each of the 23 images, received shape \(23, 2, 3\)", label="images")
    refused(r"a 3-dimensional array of images, received shape \(23,\)", image="labels")
    with pytest.warns(UserWarning, match="the unknown argument bach_size is ignored: did you mean batch_size"):
        digit_iter(mx, files, bach_size=3)
    iterator = digit_iter(mx, files, batch_size=23)
    iterator.next()
    assert not iterator.iter_next()
    with pytest.raises(MXNetError, match="the iterator is at its end"):
        iterator.getdata()


# ---- NDArrayIter ----


def test_shuffled_epochs_have_all_samples_in_a_new_order():
    data, label = rows(12)
    iterator, orders = mx.io.NDArrayIter(data, label, 4, shuffle=True), set()
    for _ in range(4):
        for batch in iterator:
            np.testing.assert_array_equal(batch.data[0].asnumpy()[:, 0], 2 * batch.label[0].asnumpy())
        iterator.reset()
        orders.add(tuple(labels(iterator)))
        iterator.reset()
    assert len(orders) == 4 and all(sorted(order) == list(range(12)) for order in orders)


def test_samples_roll_over_until_they_fill_a_batch():
    iterator, given = mx.io.NDArrayIter(*rows(3), batch_size=7, last_batch_handle="roll_over"), []
    for _ in range(7):  # MXNet fails here in the second epoch
        given.append(labels(iterator))
        iterator.reset()
    assert given == [[], [], [0, 1, 2, 0, 1, 2, 0], [], [1, 2, 0, 1, 2, 0, 1], [], [2, 0, 1, 2, 0, 1, 2]]


@pytest.mark.parametrize("handle", ["pad", "roll_over"])
def test_csr_with_each_last_batch_handle_and_shuffle(handle):
    dense = np.arange(20.0).reshape(10, 2)
    csr = mx.nd.array(dense).tostype("csr")
    iterator = mx.io.NDArrayIter(csr, np.arange(10), 4, shuffle=True, last_batch_handle=handle)
    for batch in iterator:
        np.testing.assert_array_equal(batch.data[0].asnumpy()[:, 0], 2 * batch.label[0].asnumpy())


class Dataset:
    """As strict as h5py: row indices must be sorted and unique."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.asked = values, values.shape, values.dtype, 0

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        assert (np.diff(rows) > 0).all()
        self.asked += len(rows)
        return self.values[rows]


@pytest.mark.parametrize("handle", ["pad", "roll_over"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_array_like_datasets_are_read_on_demand(shuffle, handle):
    x, y = rows(10)
    data = Dataset(x)

    def drawn(call, *args):
        np.random.seed(2)
        return call(*args)

    lazy = drawn(mx.io.NDArrayIter, data, {"y": Dataset(y)}, 4, shuffle, handle)
    whole = drawn(mx.io.NDArrayIter, x, {"y": y}, 4, shuffle, handle)
    assert data.asked == 0 and lazy.provide_data == whole.provide_data and lazy.provide_data[0].dtype == np.float32
    for _ in range(2):
        for batch, expected in zip(lazy, whole, strict=True):
            np.testing.assert_array_equal(batch.data[0].asnumpy(), expected.data[0].asnumpy())
            np.testing.assert_array_equal(batch.label[0].asnumpy(), expected.label[0].asnumpy())
        drawn(lazy.reset)
        drawn(whole.reset)
    assert mx.io.NDArrayIter([data, data], None, 20).next().data[1].shape == (20, 2)


class OnDisk:
    """Accepts a slice and an array of sample indices."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


@pytest.mark.parametrize("steps", [3, 8])
def test_samples_are_counted_and_shuffled_along_axis_n(steps):
    """MXNet counts and shuffles time steps here."""
    x = np.arange(steps * 5 * 2).reshape(steps, 5, 2)
    for make in (np.asarray, mx.nd.array, OnDisk):
        batches = list(mx.io.NDArrayIter(make(x), None, 2, shuffle=True, layout="TNC"))
        assert [b.data[0].shape for b in batches] == [(steps, 2, 2)] * 3
        seen = np.concatenate([b.data[0].asnumpy() for b in batches], axis=1)[:, :5]
        np.testing.assert_array_equal(seen[:, np.argsort(seen[0, :, 0])], x)


def test_ndarray_iter_errors():
    x, y = rows(10)
    for message, call in {
        "batch_size must be at least 1, received 0": lambda: mx.io.NDArrayIter(x, y, 0),
        "last_batch_handle must be .* received 'keep'": lambda: mx.io.NDArrayIter(x, y, 2, last_batch_handle="keep"),
        r"same number of samples .*'data': 10, 'softmax_label': 5": lambda: mx.io.NDArrayIter(x, y[:5], 2),
        "empty list or dictionary": lambda: mx.io.NDArrayIter({}, None, 2),
        "samples along axis 1, .*'softmax_label': .10,": lambda: mx.io.NDArrayIter(x, y, 2, layout="TNC"),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="a list of them or a dictionary with them, received <class 'str'>"):
        mx.io.NDArrayIter("x")
    with pytest.raises(TypeError, match="a should be an NDArray or a numpy array, received <class 'object'>"):
        mx.io.NDArrayIter({"a": object()})
    with pytest.raises(MXNetError, match="there is no current batch"):
        mx.io.NDArrayIter(x, y, 2).getdata()


def test_data_desc_can_be_pickled():
    desc = pickle.loads(pickle.dumps(mx.io.DataDesc("x", (2, 3), "int32", "NT")))
    assert (desc.name, desc.shape, desc.dtype, desc.layout) == ("x", (2, 3), "int32", "NT")


# ---- PrefetchingIter ----


class Failing(mx.io.NDArrayIter):
    def next(self):
        if self.cursor >= 0:
            raise OSError("the disk is gone")
        return super().next()


def test_prefetching_iter_raises_error_of_its_thread():
    iterator = mx.io.PrefetchingIter(Failing(*rows(6), batch_size=2))
    assert iterator.next().pad == 0
    with pytest.raises(OSError, match="the disk is gone"):
        iterator.next()
    iterator.reset()
    assert iterator.next().pad == 0


def test_rename_needs_a_dictionary_for_each_iterator():
    for renamed in ({"data": "a"}, [{"data": "a"}, {}]):
        with pytest.raises(ValueError, match="rename_data must be a list with a dictionary for each of the 1 iter"):
            mx.io.PrefetchingIter(mx.io.NDArrayIter(*rows(4), batch_size=2), rename_data=renamed)


def test_iterators_of_different_length_are_rejected():
    iterator = mx.io.PrefetchingIter([mx.io.NDArrayIter(*rows(n), batch_size=2) for n in (4, 6)])
    with pytest.raises(MXNetError, match=r"end at different samples \(padding of each: \[None, 0\]\)"):
        list(iterator)


def test_prefetching_iter_leaves_no_threads():
    iterator = mx.io.PrefetchingIter(mx.io.NDArrayIter(*rows(6), batch_size=2))
    threads = list(iterator._threads._threads)
    del iterator
    gc.collect()
    for thread in threads:
        thread.join(LIMIT)
    assert threads and not any(thread.is_alive() for thread in threads)


# ---- test_utils ----


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_download(tmp_path, monkeypatch, capsys):
    (tmp_path / "file.bin").write_bytes(b"abc")
    monkeypatch.chdir(tmp_path)
    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/file.bin"
        assert mx.test_utils.download(url, fname="new.bin") == "new.bin"
        deep = mx.test_utils.download(url, dirname=str(tmp_path / "a" / "b"))
        assert deep == str(tmp_path / "a" / "b" / "file.bin")
        named = mx.test_utils.download(url, "x.bin", str(tmp_path / "a"))
        assert pathlib.Path(named).read_bytes() == pathlib.Path(deep).read_bytes() == b"abc"
        (tmp_path / "file.bin").write_bytes(b"changed")
        assert pathlib.Path(mx.test_utils.download(url, "x.bin", str(tmp_path / "a"))).read_bytes() == b"abc"
        mx.test_utils.download(url, "x.bin", str(tmp_path / "a"), overwrite=True)
        assert pathlib.Path(named).read_bytes() == b"changed"
        server.shutdown()


def test_list_gpus():
    assert mx.test_utils.list_gpus() == [i for i in range(16) if i < mx.context.num_gpus()]


def test_get_mnist():
    digits = mx.test_utils.get_mnist(sample=True)
    assert {k: (v.shape, v.dtype.name, v.max()) for k, v in digits.items()} == {
        "train_data": ((5000, 1, 28, 28), "float32", 1),
        "train_label": ((5000,), "int8", 9),
        "test_data": ((1000, 1, 28, 28), "float32", 1),
        "test_label": ((1000,), "int8", 9),
    }


# ---- two workers ----


def test_horovod_example_with_iterators():
    run = [sys.executable, "-m", "neomx", "run", "-n", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*run, "examples/horovod_mnist_iter.py", "--epochs", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert float(re.search(r"test accuracy ([\d.]+)", done.stdout)[1]) > 0.85
