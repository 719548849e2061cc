"""CSVIter and LibSVMIter: files, parts and errors; parity/cases/io_files.py compares values with MXNet."""

import bz2
import gzip
import inspect
import lzma
import pathlib

import numpy as np
import pytest

import neomx as mx
from neomx.base import MXNetError

ROWS = "1,2,3\n2,3,4\n3,4,5\n4,5,6\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(**texts):
    for name, text in texts.items():
        pathlib.Path(".".join(name.rsplit("_", 1))).write_text(text)


def rows(**attrs):
    return mx.io.CSVIter(**{"data_csv": "d.csv", "data_shape": (3,), "batch_size": 2, **attrs})


def sparse(**attrs):
    return mx.io.LibSVMIter(**{"data_libsvm": "d.t", "data_shape": (5,), "batch_size": 1, **attrs})


def test_files_of_a_folder_are_read_in_order():
    pathlib.Path("many").mkdir()
    for name, text in {"b.csv": "5,6,7\n", "a.csv": "1,2,3\n2,3,4\n", "empty.csv": ""}.items():
        pathlib.Path("many", name).write_text(text)
    assert [b.data[0][0, 0].asscalar() for b in rows(data_csv="many", batch_size=1)] == [1, 2, 5]


def test_reset_in_the_middle_restarts():
    write(d_csv=ROWS)
    iterator = rows(batch_size=3)
    iterator.next()
    iterator.reset()
    assert iterator.next().index.tolist() == [0, 1, 2]
    assert iterator.next().index.tolist() == [3, 0, 1]
    iterator.reset()  # after the epoch, whose last batch used two rows of the next one
    assert iterator.next().index.tolist() == [2, 3, 0]


def test_fewer_rows_than_a_batch_without_rounding():
    write(d_csv=ROWS)
    for _ in range(2):
        batch = rows(batch_size=6, round_batch=False).next()
        assert batch.pad == 2 and batch.data[0].shape == (6, 3)
        np.testing.assert_array_equal(batch.data[0][:4].asnumpy(), np.loadtxt("d.csv", delimiter=","))


def test_csv_iter_errors():
    write(d_csv=ROWS, bad_csv="1,2,3\n2,x,4\n", short_csv="1,2,3\n2,4\n", one_csv="1\n2\n", empty_csv="")
    for message, attrs in {
        "cannot open nowhere.csv": {"data_csv": "nowhere.csv"},
        "cannot read bad.csv as rows of float32.*'x'": {"data_csv": "bad.csv"},
        "cannot read short.csv as rows of float32 of equal length": {"data_csv": "short.csv"},
        r"data_shape=\(4,\) has 4 values, the rows of d.csv have 3": {"data_shape": (4,)},
        "d.csv has 4 rows, one.csv only 2": {"label_csv": "one.csv"},
        r"label_shape=\(2,\) has 2 values, the rows of one.csv have 1": {"label_csv": "one.csv", "label_shape": (2,)},
        "the number of samples, 0, must be bigger than batch_size": {"data_csv": "empty.csv"},
        "the number of samples, 4, must be bigger than batch_size, 9": {"batch_size": 9},
        "batch_size must be at least 1, received 0": {"batch_size": 0},
        "data_shape must be a tuple of integers, received 'wide'": {"data_shape": "wide"},
        "dtype must be one of .* received 'float64'": {"dtype": "float64"},
        "data_csv must be text, received None": {"data_csv": None},
        "round_batch must be True or False, received 'yes'": {"round_batch": "yes"},
        "ctx must be 'cpu' or 'gpu', received 'disk'": {"ctx": "disk"},
    }.items():
        with pytest.raises(MXNetError, match=message):
            rows(**attrs)
    with pytest.raises(MXNetError, match=r"CSVIter: data_csv \(text\) is required"):
        mx.io.CSVIter(batch_size=3)
    with pytest.warns(UserWarning, match="CSVIter: the unknown argument batchsize is ignored: did you mean"):
        rows(batchsize=3)


@pytest.mark.parametrize("parts", [1, 2, 3, 11])
def test_each_line_is_in_one_part(parts):
    write(d_t="".join(f"{i} {i % 5}:{i * 0.5}\n" for i in range(11)))
    seen = [[b.label[0].asscalar() for b in sparse(num_parts=parts, part_index=i)] for i in range(parts)]
    assert sum(seen, []) == list(range(11))
    assert max(map(len, seen)) - min(map(len, seen)) <= 1


@pytest.mark.parametrize("parts", [1, 2, 3, 11])
def test_each_row_is_in_one_part(parts):
    write(r_c="".join(f"{i}\n" for i in range(11)))
    how = {"data_csv": "r.c", "data_shape": (1,), "batch_size": 1, "num_parts": parts}
    seen = [[b.data[0].asscalar() for b in mx.io.CSVIter(part_index=i, **how)] for i in range(parts)]
    assert sum(seen, []) == list(range(11))
    arrays = [mx.io.NDArrayIter(np.arange(11), num_parts=parts, part_index=i) for i in range(parts)]
    assert [[b.data[0].asscalar() for b in part] for part in arrays] == seen
    shuffled = [mx.io.NDArrayIter(np.arange(11), None, 1, True, num_parts=parts, part_index=i) for i in range(parts)]
    assert [sorted(b.data[0].asscalar() for b in part) for part in shuffled] == seen
    for make in (mx.io.CSVIter, lambda **_: mx.io.NDArrayIter(np.arange(11), num_parts=parts, part_index=parts)):
        with pytest.raises(MXNetError, match=r"part_index must be in \["):
            make(part_index=parts, **how)


def test_comments_queries_order_and_columns_without_values():
    write(d_t="1 2:1 0:5 # sorted\n\n2 qid:3 1:2\n3 4\n")
    expected = [[5, 0, 1, 0, 0], [0, 2, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert [b.data[0].asnumpy()[0].tolist() for b in sparse()] == expected


def test_plain_and_irregular_lines_parse_equally(monkeypatch):
    """Lines are parsed in blocks, plain ones in one call: the values are the same either way."""
    monkeypatch.setattr("neomx.io.libsvm._BLOCK", 7)
    numbers = np.random.default_rng(0)
    dense = numbers.integers(-3, 4, (50, 5)) / 4
    plain = [f"{i} " + " ".join(f"{c}:{v}" for c, v in enumerate(row) if v) + "\n" for i, row in enumerate(dense)]
    for odd in ([], [3], [3, 20, 49]):
        text = "".join(f"{line[:-1]} # more\n\n" if i in odd else line for i, line in enumerate(plain))
        write(d_t=text.replace("3 0:", "3 qid:1 0:") if odd else text)
        batches = list(sparse(batch_size=10))
        np.testing.assert_array_equal(np.concatenate([b.data[0].asnumpy() for b in batches]), dense)
        assert [label for b in batches for label in b.label[0].asnumpy()] == list(range(50))


def test_libsvm_iter_errors():
    write(d_t="1 0:1\n2 1:2\n", over_t="1 3:1\n2 7:1\n", bad_t="1 0:x\n", one_t="1 0:1\n")
    for message, attrs in {
        "cannot open nowhere.t": {"data_libsvm": "nowhere.t"},
        r"over.t, line 2: columns must be in \[0, 5\), received 7 to 7; columns count from 0": {
            "data_libsvm": "over.t"
        },
        "bad.t, line 1: expected 'label column:value ...': could not convert string to float: 'x'": {
            "data_libsvm": "bad.t"
        },
        r"label_shape must be more than \(1,\)": {"label_libsvm": "one.t"},
        "d.t has more rows than one.t": {"label_libsvm": "one.t", "label_shape": (3,)},
        "data_shape must have one dimension": {"data_shape": (5, 1)},
        "round_batch=False is not supported": {"round_batch": False},
        r"part_index must be in \[0, 2\), received 2": {"num_parts": 2, "part_index": 2},
        "the number of samples, 0, must be bigger": {"num_parts": 3, "part_index": 0},
        "dtype must be 'float32', received 'int32'": {"dtype": "int32"},
    }.items():
        with pytest.raises(MXNetError, match=message):
            sparse(**attrs)


def test_help_lists_the_arguments():
    assert "label_csv: 'str' = 'NULL'" in str(inspect.signature(mx.io.CSVIter))
    assert {"data_libsvm", "num_parts", "ctx"} < set(inspect.signature(mx.io.LibSVMIter).parameters)


def test_iterators_are_instances_of_mx_data_iter():
    kinds = [mx.io.CSVIter, mx.io.LibSVMIter, mx.io.MNISTIter, mx.io.ImageRecordIter, mx.io.ImageDetRecordIter]
    assert all(issubclass(kind, mx.io.MXDataIter) for kind in kinds) and issubclass(mx.io.MXDataIter, mx.io.DataIter)


def test_decimals_are_truncated_to_integers_as_in_mxnet(tmp_path):
    (tmp_path / "a.csv").write_text("1.000,2.7\n3.2,-4.9\n9007199254740993,-5\n")
    batch = mx.io.CSVIter(data_csv=str(tmp_path / "a.csv"), data_shape=(2,), batch_size=3, dtype="int64").next()
    assert batch.data[0].asnumpy().tolist() == [[1, 2], [3, -4], [9007199254740993, -5]]


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_compressed_files_are_not_unpacked_and_noise_is_an_error(ending, tmp_path):
    module = {"gz": gzip, "bz2": bz2, "xz": lzma}[ending]
    path = tmp_path / f"d.csv.{ending}"
    path.write_bytes(module.compress(b"1,2,3\n" * 1000))
    with pytest.raises(MXNetError, match=f"cannot read .*d.csv.{ending} as rows"):
        mx.io.CSVIter(data_csv=str(path), data_shape=(3,), batch_size=2)
    path.write_bytes(b"1,2,3\n4,5,6\n")  # compressed by name only
    (batch,) = mx.io.CSVIter(data_csv=str(path), data_shape=(3,), batch_size=2)
    assert batch.data[0].asnumpy().tolist() == [[1, 2, 3], [4, 5, 6]]
