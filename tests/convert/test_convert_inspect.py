"""`neomx inspect`: the output for each kind of file, valid, damaged and truncated."""

import json
import os
import pathlib
import struct

import numpy as np
import onnx
import pytest
from onnx import helper

import neomx as mx
from neomx import recordio
from neomx.convert import records
from neomx.formats import safetensors
from neomx.formats.records import MAGIC
from neomx.launch.cli import main

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
SMALL = str(FIXTURES / "convert" / "small")  # written by MXNet


@pytest.fixture
def inspect(capsys):
    def run(path, *options, code=0):
        assert main(["inspect", str(path), *options]) == code
        received = capsys.readouterr()
        return received.err if code else received.out

    return run


def words(text):
    """Split the lines of a table into words."""
    return [line.split() for line in text.splitlines()]


def test_params(inspect, tmp_path):
    arrays = {
        "arg:w": mx.nd.array([[1, 2], [np.nan, 4]]),
        "aux:m": mx.nd.ones(3, dtype="float16"),
        "arg:rows": mx.nd.ones((4, 2)).tostype("row_sparse"),
    }
    mx.nd.save(str(tmp_path / "a.params"), arrays)
    lines = words(inspect(tmp_path / "a.params", "--stats"))
    assert " ".join(lines[0]) == ".params (2 arg:, 1 aux:): 3 arrays, 15 values, 54 bytes"
    assert lines[1:] == [
        ["name", "dtype", "shape", "storage", "least", "greatest", "mean", "NaN"],
        ["arg:w", "float32", "2x2", "default", "1", "4", "2.333", "1"],
        ["aux:m", "float16", "3", "default", "1", "1", "1", "0"],
        ["arg:rows", "float32", "4x2", "row_sparse", "1", "1", "1", "0"],
    ]


def test_long_tables_are_shortened_without_all(inspect, tmp_path):
    mx.nd.save(str(tmp_path / "many.params"), [mx.nd.ones(1)] * 50)
    short, whole = inspect(tmp_path / "many.params"), inspect(tmp_path / "many.params", "--all")
    assert short.splitlines()[-1] == "  ... 10 more (--all shows them)"
    assert whole.startswith(".params without names: 50 arrays")
    assert len(whole.splitlines()) == 52


def test_files_of_mxnet(inspect):
    assert words(inspect(SMALL + "-0003.params"))[0][:3] == [".params", "(7", "arg:,"]
    said = inspect(SMALL + "-symbol.json", "--shape", "data:1,3,8,8")
    assert "symbol: 19 nodes, written by MXNet 1.9.1" in said
    assert "outputs: softmax_output 1x5" in said
    assert ["Convolution", "1", "conv0", "kernel=(3,", "3),", "num_filter=4,", "pad=(1,", "1)"] in words(said)
    assert ["fc0_weight", "argument", "5x64"] in words(said)
    assert [line[:3] for line in words(said) if line[0] in ("data", "bn0_moving_var", "softmax_label")] == [
        ["data", "given", "1x3x8x8"],
        ["softmax_label", "label", "1"],
        ["bn0_moving_var", "auxiliary", "4"],
    ]
    assert "parameters: 457 values" in said
    assert "fc0_weight" in inspect(SMALL + "-symbol.json")


def test_optimizer_states_of_mxnet_and_neomx(inspect, tmp_path):
    said = inspect(FIXTURES / "states" / "adam.states")
    assert "optimizer states of " in said
    assert "float32" in said
    net = mx.gluon.nn.Dense(3, in_units=2)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.25})
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 2))).sum()
    loss.backward()
    trainer.step(2)
    trainer.save_states(str(tmp_path / "t.states"))
    lines = inspect(tmp_path / "t.states").splitlines()
    assert lines[0].startswith("optimizer Adam: ")
    assert "lr=0.25" in lines[0]
    assert lines[1] == "optimizer states of 2 parameters: 4 arrays, 18 values, 72 bytes"


def test_safetensors(inspect, tmp_path):
    safetensors.write(tmp_path / "s.safetensors", {"w": mx.nd.ones((2, 3))._data}, {"made": "here"})
    lines = words(inspect(tmp_path / "s.safetensors"))
    assert lines[0] == ["safetensors:", "1", "arrays,", "6", "values,", "24", "bytes"]
    assert lines[2:] == [["w", "float32", "2x3", "default"], ["made:", "here"]]


def test_idx_of_mnist(inspect, tmp_path):
    (tmp_path / "labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 3) + bytes([1, 2, 6]))
    assert words(inspect(tmp_path / "labels-idx1-ubyte", "--stats"))[2][1:] == [
        "uint8",
        "3",
        "default",
        "1",
        "6",
        "3",
        "0",
    ]


def test_onnx(inspect, tmp_path):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [value("x", 1, ["batch", 2])],
        [value("y", 1, ["batch", 2])],
        [onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    lines = inspect(tmp_path / "m.onnx").splitlines()
    assert lines[:3] == [
        "ONNX: 1 nodes, opset 17, by unknown producer",
        "inputs: x (batch, 2)",
        "outputs: y (batch, 2)",
    ]
    assert words("\n".join(lines[4:])) == [["Add", "1"], ["arrays:", "1", "arrays,", "2", "values,", "8", "bytes"]] + [
        ["name", "dtype", "shape", "storage"],
        ["w", "float32", "2", "default"],
    ]


# ---- records ----


@pytest.fixture
def rec(tmp_path):
    """Ten images with one label, then ten texts with three labels, one of which contains the magic number."""
    writer = recordio.MXIndexedRecordIO(str(tmp_path / "t.idx"), str(tmp_path / "t.rec"), "w")
    pixels = np.zeros((20, 30, 3), np.uint8)
    for i in range(10):
        kind = ".jpg" if i % 2 else ".png"
        writer.write_idx(i, recordio.pack_img(recordio.IRHeader(0, i, i, 7), pixels[i:], img_fmt=kind, quality=5))
    for i in range(10, 20):
        text = MAGIC * 3 if i == 12 else b"text"
        writer.write_idx(i, recordio.pack(recordio.IRHeader(0, [1, 2, 3.5], i, 0), text))
    writer.close()
    return tmp_path / "t.rec"


def test_rec(inspect, rec):
    said = inspect(rec)
    lines = words(said)
    assert lines[0][:3] == ["RecordIO:", "20", "records,"]
    assert said.splitlines()[1] == "labels: 10 with 1 label, 10 with 3 labels"
    assert lines[3][0:2] + lines[3][3:] == ["0", "0", "0", "0", "7", "PNG", "30x20"]
    assert lines[4][3:] == ["1", "1", "7", "JPEG", "30x19"]
    assert said.splitlines()[-1].endswith("t.idx: matches, one key per record")
    assert [line[0] for line in words(inspect(rec, "--all")) if "12 0" in " ".join(line)] == ["12"]


def test_scan_finds_the_same_records_as_reading(rec):
    reader = recordio.MXRecordIO(str(rec), "r")
    for record in records.scan(str(rec), looked_at=100):
        assert reader.tell() == record.position
        content = reader.read()
        assert len(content) == record.length
        assert content.startswith(record.start)
    assert reader.read() is None


def test_truncated_record_file(inspect, rec):
    whole = rec.read_bytes()
    for cut, kept in ((3, 19), (len(whole) - 5, 0)):
        rec.write_bytes(whole[:-cut])
        said = inspect(rec, code=2)
        assert "t.rec is truncated: the record at byte" in said
        assert f"Complete records before it: {kept}" in said


def test_damaged_record_file(inspect, rec):
    whole = bytearray(rec.read_bytes())
    second = int(rec.with_suffix(".idx").read_text().splitlines()[1].split("\t")[1])
    whole[second] ^= 1
    rec.write_bytes(whole)
    said = inspect(rec, code=2)
    assert f"is damaged: at byte {second} there is no record" in said
    assert "Complete records before it: 1" in said


def test_index(inspect, rec):
    index = rec.with_suffix(".idx")
    assert "index: 20 keys" in inspect(index)
    index.write_text("\n".join(index.read_text().splitlines()[:-1]) + "\n")
    assert "it has 19 keys for 20 records" in inspect(index)
    assert "it has 19 keys for 20 records" in inspect(rec)
    index.write_text("0\t0\n1\t3\n")
    assert "1 of its 2 keys do not point to a record, first '1'" in inspect(index)
    index.write_text("0 0\n")
    assert "line 1: expected a key, a tab and a position" in inspect(index, code=2)


def test_list(inspect, tmp_path):
    (tmp_path / "t.lst").write_text("0\t1.0\ta/b.jpg\n1\t2.5\t3\tc d.jpg\n")
    lines = inspect(tmp_path / "t.lst").splitlines()
    assert lines[0] == "list: 2 images, 1 with 1 label, 1 with 2 labels, 2 different"
    assert lines[3].split(None, 3)[1:] == ["2.5", "3", "c d.jpg"]
    (tmp_path / "t.lst").write_text("0\ta/b.jpg\n")
    assert "line 1: expected an index, one or more labels and a path" in inspect(tmp_path / "t.lst", code=2)


def test_long_scan_shows_progress_only_on_a_terminal(monkeypatch, capsys):
    bar = records._Bar(1000)
    bar.begun -= 2
    bar.show(500)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar.show(500)
    assert "] " + " 50 %" in capsys.readouterr().err
    bar.close()
    assert capsys.readouterr().err.strip() == ""


# ---- unreadable files ----


def test_invalid_files_are_errors(inspect, tmp_path):
    params = pathlib.Path(SMALL + "-0003.params").read_bytes()
    graph = {"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "Foo", "name": "foo7", "inputs": [[0, 0]]}]}
    damaged = helper.make_graph([], "g", [], [], [helper.make_tensor("w", 1, [2, 3], [0.0] * 6)])
    damaged.initializer[0].dims[1] = 0
    bad = {
        "cut.params": (params[:100], "not a readable .params file: array 0 of 9"),
        "other.params": (b"abcdefgh" * 4, "not a readable .params file"),
        "empty.params": (b"", "is empty"),
        "bad.json": (b'{"nodes": [', "not the JSON of a symbol"),
        "list.json": (b"[1, 2]", "not the JSON of a symbol"),
        "unknown.json": (
            json.dumps({**graph, "heads": [[1, 0]]}).encode(),
            "unknown ops: Foo; first node: Foo 'foo7'",
        ),
        "op.json": (b'{"nodes": [{"op": [], "name": "x"}]}', "the op and the name of a node must be strings"),
        "attrs.json": (b'{"nodes": [{"op": "Foo", "name": "x", "attrs": 5}]}', "not the JSON of a symbol: TypeError"),
        "bad.rec": (b"no records at all", "at byte 0 there is no record"),
        "bad.states": (b"\x80\x02c__main__\nx\n.", "invalid optimizer states"),
        "bad.safetensors": (b"1234", "not a readable safetensors file"),
        "bad.idx": (b"\xff\xfe\xfd", "cannot read"),
        "bad.onnx": (b"abc", "not a readable ONNX file"),
        "array.onnx": (helper.make_model(damaged).SerializeToString(), "not a readable ONNX file: cannot reshape"),
        "junk": (b"hello world", "unknown file format: it begins with b'hello wo'"),
    }
    for name, (content, said) in bad.items():
        (tmp_path / name).write_bytes(content)
        assert said in inspect(tmp_path / name, code=2), name
    assert "cannot read" in inspect(tmp_path / "nothere.params", code=2)
    assert "cannot read" in inspect(tmp_path, code=2)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in inspect(tmp_path / "pipe", code=2)


def test_shape_of_unknown_input_is_an_error(inspect):
    assert "the symbol has no input dota" in inspect(SMALL + "-symbol.json", "--shape", "dota:1,2", code=2)
    assert "Convolution 'conv0'" in inspect(SMALL + "-symbol.json", "--shape", "data:1,2", code=2)
