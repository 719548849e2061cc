"""Small files crafted to be expensive raise a clear error quickly and in little memory."""

import gzip
import json
import os
import struct
import time
import zlib
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.base import MXNetError
from neomx.formats import idx, params, pickled, picture, safetensors
from neomx.optimizer.states import loads


@contextmanager
def at_once(seconds=3.0):
    """Fail if the block takes longer than expected for its size on a busy machine."""
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < seconds


def doubling(levels):
    """Return a pickle of a tuple that contains another one twice, and so on."""
    pairs = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94" for i in range(levels))
    return b"\x80\x04}K\x00(]\x94" + pairs + b"ls."


def colliding(count):
    """Return a pickle of a dict whose keys all have the hash 0."""
    keys = b"".join(b"\x8a\x10" + (i * (2**61 - 1)).to_bytes(16, "little") + b"N" for i in range(count))
    return b"\x80\x04}(" + keys + b"u."


def repeated(count):
    """Return a pickle that repeats the same long bytes."""
    text = b"X" + struct.pack("<I", 20_000) + b"a" * 20_000
    make = b"c_codecs\nencode\n\x94" + text + b"X\x06\0\0\0latin1\x86\x94"
    return b"\x80\x04](" + make + b"h\x00h\x01R" * count + b"e."


def containing_itself():
    return b"\x80\x04}\x94K\x00h\x00s."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (doubling(22), "repeats shared parts so often"),
        (doubling(100), "repeats shared parts so often|levels deep"),
        (b"\x80\x04}" + b"(" * 30_000 + b"l" * 30_000 + b"0.", "instruction POP"),
        (b"\x80\x04}K\x00" + b"(" * 30_000 + b"l" * 30_000 + b"s.", "levels deep"),
        (colliding(20_000), "cannot be a key"),
        (repeated(20_000), "it repeats the same bytes"),
        (containing_itself(), "contains itself"),
    ],
)
def test_expanding_pickles_are_refused(data, said):
    with at_once(), pytest.raises(MXNetError, match=rf"at byte \d+: .*({said})"):
        loads(data)


def test_error_of_hostile_states_names_file_and_position(tmp_path):
    path = tmp_path / "a.states"
    path.write_bytes(doubling(22))
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    with at_once(), pytest.raises(MXNetError, match=r"a\.states: .*at byte \d+"):
        trainer.load_states(str(path))


def test_pickle_may_share_parts():
    shared = (1, 2, 3)
    data = pickled.read(b"\x80\x04](K\x01K\x02K\x03\x87\x94h\x00h\x00e.")
    assert data == [shared, shared, shared]


def symbol_text(op, attrs, inputs=1):
    nodes = [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(inputs)]
    nodes.append({"op": op, "name": "n", "attrs": attrs, "inputs": [[i, 0, 0] for i in range(inputs)]})
    return json.dumps({"nodes": nodes, "arg_nodes": list(range(inputs)), "heads": [[inputs, 0, 0]]})


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("SliceChannel", {"num_outputs": "4000000000"}),
        ("_split_v2", {"indices": "(0,)", "sections": "4000000000"}),
        ("Concat", {"num_args": "4000000000"}),
        ("amp_multicast", {"num_outputs": "4000000000"}),
        ("multi_sum_sq", {"num_arrays": "4000000000"}),
        ("multi_sgd_update", {"num_weights": "4000000000", "lrs": "(1,)", "wds": "(1,)"}),
        ("UpSampling", {"num_args": "4000000000", "scale": "2", "sample_type": "nearest"}),
    ],
)
def test_symbols_with_huge_attributes_are_refused(op, attrs):
    with at_once(), pytest.raises(MXNetError, match="node 1.*4000000000"):
        mx.sym.load_json(symbol_text(op, attrs))


def test_nodes_with_huge_total_outputs_are_refused():
    nodes = [{"op": "null", "name": "x", "inputs": []}]
    nodes += [
        {"op": "SliceChannel", "name": f"n{i}", "attrs": {"num_outputs": "60000"}, "inputs": [[0, 0, 0]]}
        for i in range(1000)
    ]
    with at_once(), pytest.raises(MXNetError, match="node 2, SliceChannel 'n1': .* more than 65536 node outputs"):
        mx.sym.load_json(json.dumps({"nodes": nodes, "heads": [[1, 0, 0]]}))


@pytest.mark.parametrize(
    "change",
    [
        {"num_layers": "2000000000"},
        {"num_layers": "-5"},
        {"state_size": "-1"},
        {"projection_size": "-3"},
    ],
)
def test_invalid_recurrent_layers_are_refused(change):
    attrs = {"state_size": "4", "num_layers": "1", "mode": "lstm", **change}
    with at_once(), pytest.raises(MXNetError):
        mx.sym.load_json(symbol_text("RNN", attrs, inputs=4)).infer_shape(x0=(3, 2, 5))


def test_recurrent_layers_refuse_data_of_wrong_rank():
    symbol = mx.sym.load_json(symbol_text("RNN", {"state_size": "4", "num_layers": "1", "mode": "lstm"}, inputs=4))
    assert symbol.infer_shape_partial(x0=(3, 2, 5))[1] == [(3, 2, 4)]
    with pytest.raises(MXNetError, match="RNN 'n'"):
        symbol.infer_shape(x0=(3, 2), x1=(1,), x2=(1, 2, 4), x3=(1, 2, 4))


def test_deeply_nested_shape_is_refused():
    for text in ("(" * 1_000_000, "-" * 1_000_000 + "1", "[" * 500_000 + "]" * 500_000, "9" * 1_000_000):
        with at_once(), pytest.raises(MXNetError, match="expected an int or a tuple of ints"):
            mx.sym.load_json(symbol_text("Pooling", {"kernel": text}))


def test_deeply_nested_loops_are_refused():
    attrs = {"num_args": "2", "num_outputs": "1", "num_out_data": "1"}
    attrs.update(in_data_locs="(0,)", in_state_locs="()", remain_locs="()")

    def loop(inner):
        body = {"op": "_foreach", "name": "n", "attrs": attrs, "inputs": [[0, 0, 0]], "subgraphs": [inner]}
        return {"nodes": [{"op": "null", "name": "x", "inputs": []}, body], "heads": [[1, 0, 0]]}

    def nested(levels):
        graph = {
            "nodes": [
                {"op": "null", "name": "x", "inputs": []},
                {"op": "relu", "name": "r", "inputs": [[0, 0, 0]]},
            ],
            "heads": [[1, 0, 0]],
        }
        for _ in range(levels):
            graph = loop(graph)
        return json.dumps(graph)

    with at_once(10):
        mx.sym.load_json(nested(12)).infer_shape_partial(x=(2,) * 14)
    with at_once(), pytest.raises(MXNetError, match="levels deep"):
        mx.sym.load_json(nested(60))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height):
    """Return a PNG of one color, a thousand times smaller than its pixels."""
    packer, row = zlib.compressobj(9), b"\0" * (width + 1)
    packed = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def test_images_above_the_pixel_limit_are_refused(monkeypatch):
    good = png(400, 300)
    assert picture.decode(good).shape == (300, 400, 3)
    monkeypatch.setenv("NEOMX_MAX_PIXELS", "100000")
    with pytest.raises(MXNetError, match="400 x 300 pixels exceeds the limit of 100000. Set NEOMX_MAX_PIXELS"):
        picture.decode(good)
    monkeypatch.setenv("NEOMX_MAX_PIXELS", "120000")
    assert picture.decode(good).shape == (300, 400, 3)


@pytest.mark.parametrize("ending", [".png", ".jpg", ".bmp"])
def test_image_size_is_checked_before_decoding(monkeypatch, ending):
    encoded = picture.encode(np.zeros((300, 400, 3), np.uint8), 3, ending)
    monkeypatch.setenv("NEOMX_MAX_PIXELS", "1000")
    with pytest.raises(MXNetError, match="400 x 300 pixels"):
        picture.decode(encoded)
    with pytest.raises(MXNetError, match="400 x 300 pixels"):
        mx.image.imdecode(encoded)


def test_image_declaring_a_huge_size_is_refused():
    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 6, 0, 0, 0)
    with at_once(), pytest.raises(MXNetError, match="100000 x 100000 pixels"):
        picture.decode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))


def test_png_chunk_declaring_a_huge_size_is_refused():
    good = picture.encode(np.zeros((8, 8, 3), np.uint8), 3, ".png")
    at = good.index(b"IDAT") - 4
    with at_once(1), pytest.raises(MXNetError, match=f"truncated or damaged at byte {at}"):
        picture.decode(good[:at] + struct.pack(">I", 1 << 29) + good[at + 4 :])


def test_sparse_arrays_too_large_to_be_dense(tmp_path):
    path = str(tmp_path / "a.params")
    one = params.Sparse("row_sparse", (1 << 50, 4), torch.ones(1, 4), (torch.tensor([7]),))
    two = params.Sparse("csr", (1, 1 << 60), torch.ones(1), (torch.tensor([0, 1]), torch.tensor([7])))
    params.write(path, [one, two], ["one", "two"])
    arrays = mx.nd.load(path)
    for array in arrays.values():
        with pytest.raises(MXNetError, match="cannot convert a .* array of shape .* to dense"):
            array.asnumpy()


def test_index_with_invalid_positions_is_an_error(tmp_path):
    index, records = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    with mx.recordio.MXIndexedRecordIO(index, records, "w") as writer:
        writer.write_idx(0, b"data")
    for place in ("-8", "99999999999999999999999", "9" * 5000, "", "x"):
        (tmp_path / "a.idx").write_text(f"0\t{place}\n")
        with pytest.raises(MXNetError, match=r"a\.idx, line 1"):
            mx.recordio.MXIndexedRecordIO(index, records, "r")
        with pytest.raises(MXNetError, match=r"a\.idx, line 1"):
            mx.io.ImageRecordIter(path_imgrec=records, path_imgidx=index, data_shape=(3, 8, 8), batch_size=1)
    (tmp_path / "a.idx").write_text("0\t4000000000000\n")
    with pytest.raises(MXNetError, match=r"a\.rec is truncated"):
        mx.recordio.MXIndexedRecordIO(index, records, "r").read_idx(0)


def test_pipe_is_not_a_record_file(tmp_path):
    os.mkfifo(tmp_path / "a.rec")
    with at_once(), pytest.raises(MXNetError, match="not a regular file"):
        mx.recordio.MXRecordIO(str(tmp_path / "a.rec"), "r")


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [0] + [2] * 100, [2**62, 0, 4]])
def test_safetensors_with_impossible_shapes_are_refused(tmp_path, shape):
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(MXNetError, match=r"a\.safetensors: not a readable safetensors file: 'a' has"):
        safetensors.read(tmp_path / "a.safetensors")


def test_idx_files_that_unpack_to_more_than_declared(tmp_path):
    path = tmp_path / "a.gz"
    content = struct.pack(">4BI", 0, 0, 8, 1, 10) + bytes(50_000_000)
    path.write_bytes(gzip.compress(content))
    with at_once(1), pytest.raises(MXNetError, match="has 19 or more bytes, but its header declares 18"):
        idx.read(path)
    path.write_bytes(struct.pack(">4B", 0, 0, 8, 200) + struct.pack(">200I", 0, *[4_000_000_000] * 199))
    with pytest.raises(MXNetError, match="200 dimensions"):
        idx.read(path)


def test_onnx_files_with_huge_constants_are_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [100_000, 100_000])
    nodes = [
        onnx.helper.make_node("ConstantOfShape", ["shape"], ["big"]),
        onnx.helper.make_node("Add", ["x", "big"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], [shape])
    path = str(tmp_path / "a.onnx")
    onnx.save(onnx.helper.make_model(graph), path)
    with at_once(10), pytest.raises(MXNetError, match="ConstantOfShape .* too large for a model of this size"):
        mx.onnx.import_model(path)
