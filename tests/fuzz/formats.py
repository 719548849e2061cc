"""The file formats to fuzz: valid files to start from, how to damage them, and their readers."""

import contextlib
import gzip
import os
import pickle
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

import mutate
import numpy as np
import torch

import neomx as mx
from neomx.base import MXNetError
from neomx.formats import idx, params, picture, records, safetensors, wav
from neomx.io.lists import read_list
from neomx.optimizer import states
from neomx.optimizer.updater import Updater


@dataclass
class Format:
    """A file format: seeds, a function from (random generator, seed, seeds) to bytes, and one that reads a file."""

    seeds: list[bytes]
    change: Callable[[random.Random, bytes, list[bytes]], bytes]
    read: Callable[[bytes, str], None]

    def case(self, seed: int, name: str, number: int) -> bytes:
        """Return the bytes of a case."""
        rng = random.Random(f"{seed} {name} {number}")
        return self.change(rng, rng.choice(self.seeds), self.seeds)


def _stored(data: bytes, folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# ---- .params ----


def _params_seeds(folder: str) -> list[bytes]:
    path = os.path.join(folder, "a.params")
    dense = {"arg:weight": mx.nd.ones((2, 3)), "aux:mean": mx.nd.array([1, 0], dtype="int8"), "b": mx.nd.ones(1)}
    mx.nd.save(path, dense)
    seeds = [_content(path)]
    mx.nd.save(path, [mx.nd.ones((2, 2)).tostype("csr"), mx.nd.ones((3, 2)).tostype("row_sparse")])
    seeds.append(_content(path))
    old = struct.pack("<QQQ", 0x112, 0, 1) + struct.pack("<IIIiii", 2, 1, 2, 1, 0, 0) + struct.pack("<2f", 1, 2)
    return [*seeds, old + struct.pack("<QQ", 1, 1) + b"a"]


def _read_params(data: bytes, folder: str) -> None:
    loaded = mx.nd.load(_stored(data, folder, "a.params"))
    for array in loaded.values() if isinstance(loaded, dict) else loaded:
        if array.size < 1e5:
            _ignore(array.asnumpy)
        elif array.stype != "default" and array.size > 1e12:
            try:
                array.asnumpy()
            except MXNetError:
                continue


# ---- -symbol.json ----


def _symbol_seeds(folder: str) -> list[bytes]:
    data = mx.sym.var("data")
    net = mx.sym.Convolution(data, kernel=(3, 3), num_filter=2, pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, name="bn")
    net = mx.sym.Pooling(mx.sym.Activation(net, act_type="relu"), kernel=(2, 2), pool_type="max", stride=(2, 2))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.flatten(net), num_hidden=3, name="fc"), name="softmax")
    lstm = mx.sym.RNN(
        mx.sym.var("data"), mx.sym.var("p"), mx.sym.var("s"), mx.sym.var("c"), state_size=4, num_layers=2, mode="lstm"
    )
    parts = mx.sym.split(mx.sym.var("data", shape=(2, 4), dtype="float16"), num_outputs=2)
    joined = mx.sym.Concat(parts[0], parts[1], mx.sym.zeros(shape=(2, 2)), dim=1)
    sliced = mx.sym.slice(mx.sym.reshape(joined, shape=(-1, 2)), begin=(0, None), end=(1, 2))
    looped, _ = mx.sym.contrib.foreach(lambda x, s: (x + s, x * s), mx.sym.var("data"), mx.sym.var("state"))
    many = mx.sym.UpSampling(mx.sym.var("data"), scale=2, sample_type="nearest") + mx.sym.Correlation(
        mx.sym.var("data"), mx.sym.var("data2"), pad_size=1
    )
    return [each.tojson().encode() for each in (net, lstm, sliced, looped, many)]


def _change_json(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    return mutate.mutated_json(rng, data) if rng.random() < 0.85 else mutate.mutated(rng, data, seeds)


_SHAPES = ((2, 3, 8, 8), (3, 2, 5), (2, 4))


def _read_symbol(data: bytes, folder: str) -> None:
    symbol = mx.sym.load(_stored(data, folder, "a-symbol.json"))
    names = symbol.list_arguments()
    symbol.get_internals().list_outputs(), symbol.list_auxiliary_states(), symbol.attr_dict()
    mx.sym.load_json(symbol.tojson())
    inputs = symbol.list_inputs()
    if len(set(inputs)) == len(inputs):
        mx.sym.lower(symbol, inputs)
    _ignore(symbol.infer_type_partial)
    for shape in _SHAPES if "data" in names else ():
        _ignore(lambda shape=shape: symbol.infer_shape_partial(data=shape))


# ---- .states ----


def _states_seeds(folder: str) -> list[bytes]:
    arrays = {0: mx.nd.ones((2, 3)), 1: (mx.nd.ones(2), mx.nd.zeros(2)), 2: None}
    plain = states.dumps(arrays, None)
    ours = states.dumps(arrays, mx.optimizer.Adam(learning_rate=0.1, lr_scheduler=mx.lr_scheduler.FactorScheduler(5)))
    others = [pickle.dumps({0: None, "a": (1.5, [2, 3], b"bytes", bytearray(b"more"))}, each) for each in (2, 4)]
    made = b"\x80\x02}q\x00K\x00Nscmxnet.optimizer.optimizer\nSGD\nq\x01)\x81q\x02}q\x03"
    made += b"X\x02\x00\x00\x00lrq\x04K\x01sb\x86."
    return [plain, plain, ours, *others, made]


def _change_states(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    if data[:1] == b"\x80":
        return mutate.mutated_pickle(rng, data, seeds) if rng.random() < 0.7 else mutate.mutated(rng, data, seeds)
    if rng.random() < 0.6:  # neomx's own: the header is JSON in the first array
        records_, names = params.read(data)
        at = names.index("header")
        found = records_[at]
        assert isinstance(found, params.Dense)
        text = mutate.mutated_json(rng, found.data.numpy().tobytes())
        records_[at] = params.Dense(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        return params.encode(records_, names)
    return mutate.mutated(rng, data, seeds)


def _read_states(data: bytes, folder: str) -> None:
    states.loads(data)
    weights = {0: mx.nd.ones((2, 3)), 1: mx.nd.ones(2), 2: None}
    _ignore(Updater(mx.optimizer.SGD()).restored, _stored(data, folder, "a.states"), weights)


# ---- records: an index, and after a separator the file ----

_BETWEEN = b"\n--rec--\n"


def _record_seeds(folder: str) -> list[bytes]:
    seeds = []
    for number, content in enumerate((b"data", records.MAGIC * 3 + b"cut in pieces", None)):
        index, path = (os.path.join(folder, f"{number}.{ending}") for ending in ("idx", "rec"))
        with mx.recordio.MXIndexedRecordIO(index, path, "w") as writer:
            for key in range(3):
                header = mx.recordio.IRHeader(0, [1.0, 2.0] if key else 3.0, key, 0)
                pixels = np.full((8, 8, 3), 20 * key, np.uint8)
                packed = mx.recordio.pack_img(header, pixels, 3, ".png") if content is None else None
                writer.write_idx(key, packed or mx.recordio.pack(header, content or b""))
        seeds.append(_content(index) + _BETWEEN + _content(path))
    return seeds


def _change_records(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    index, _, content = data.partition(_BETWEEN)
    if rng.random() < 0.4:
        index = mutate.mutated_text(rng, index, b"\t\n") if rng.random() < 0.7 else mutate.mutated(rng, index, seeds)
    else:
        content = mutate.mutated(rng, content, [each.partition(_BETWEEN)[2] for each in seeds])
    return index + _BETWEEN + content


def _read_records(data: bytes, folder: str) -> None:
    index, _, content = data.partition(_BETWEEN)
    index_path, path = _stored(index, folder, "a.idx"), _stored(content, folder, "a.rec")
    _ignore(_read_in_order, path)
    _ignore(_read_by_index, index_path, path)
    for source in ((path,), (path, "", 3, 1, True, (0,), 64), (path, index_path, 2, 0, True)):
        _ignore(_read_source, source)


def _read_in_order(path: str) -> None:
    with mx.recordio.MXRecordIO(path, "r") as reader:
        while (record := reader.read()) is not None:
            _ignore(mx.recordio.unpack_img, record)


def _read_by_index(index: str, path: str) -> None:
    with mx.recordio.MXIndexedRecordIO(index, path, "r") as reader:
        for key in reader.keys:
            _ignore(reader.read_idx, key)


def _read_source(arguments: tuple) -> None:
    for place in records.RecordSource(*arguments).one_pass(0):
        place.read(), place.file.begin(place.position, 10), place.file.length(place.position)


def _ignore(call, *arguments) -> None:
    """Ignore errors about the file that a reader may raise before it continues with the next record."""
    with contextlib.suppress(MXNetError):
        call(*arguments)


# ---- safetensors, IDX ----


def _safetensors_seeds(folder: str) -> list[bytes]:
    path = os.path.join(folder, "a.safetensors")
    safetensors.write(
        path, {"w": torch.ones(2, 3), "b": torch.tensor([True, False]), "n": torch.zeros(0, 2)}, {"a": "b"}
    )
    return [_content(path)]


def _change_safetensors(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    if rng.random() < 0.4:
        return mutate.mutated(rng, data, seeds)
    (length,) = struct.unpack("<Q", data[:8])
    header = mutate.mutated_json(rng, data[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _read_safetensors(data: bytes, folder: str) -> None:
    for tensor in safetensors.read(_stored(data, folder, "a.safetensors")).values():
        tensor.float().sum()


def _idx_seeds(folder: str) -> list[bytes]:
    plain = struct.pack(">4B3I", 0, 0, 8, 3, 2, 3, 2) + bytes(range(12))
    floats = struct.pack(">4BI3f", 0, 0, 13, 1, 3, 1, 2, 3)
    return [plain, floats, gzip.compress(plain, mtime=0), gzip.compress(floats, mtime=0)]


def _read_idx(data: bytes, folder: str) -> None:
    idx.read(_stored(data, folder, "a-idx3-ubyte"))


# ---- WAV ----


def _wav_seeds(folder: str) -> list[bytes]:
    seeds = []
    for encoding in wav.ENCODINGS:
        path = os.path.join(folder, f"{encoding}.wav")
        wav.write(path, np.linspace(-1, 1, 30).reshape(-1, 2 if encoding == "int24" else 1), 8000, encoding)
        seeds.append(_content(path))
    extensible = struct.pack("<HHIIHHHHIH14s", 0xFFFE, 1, 8000, 16000, 2, 16, 22, 16, 4, 1, bytes(14))
    chunks = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", 40) + extensible
    content = b"WAVE" + chunks + b"data" + struct.pack("<I", 8) + bytes(8)
    return [*seeds, b"RIFF" + struct.pack("<I", len(content)) + content]


def _read_wav(data: bytes, folder: str) -> None:
    _ignore(wav.read, data, 2, 3)
    mx.gluon.data.audio.load(_stored(data, folder, "a.wav"))


# ---- text ----


def _read_libsvm(data: bytes, folder: str) -> None:
    path = _stored(data, folder, "a.libsvm")
    for batch in mx.io.LibSVMIter(data_libsvm=path, data_shape=(6,), batch_size=1):
        batch.data[0].asnumpy()


def _read_csv(data: bytes, folder: str) -> None:
    path = _stored(data, folder, "a.csv.gz" if data[:1] == b"4" else "a.csv")
    for dtype in ("float32", "int32"):
        for batch in mx.io.CSVIter(data_csv=path, data_shape=(3,), batch_size=1, dtype=dtype):
            batch.data[0].asnumpy()


def _change_text(separators: bytes):
    def change(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
        if rng.random() < 0.6:
            return mutate.mutated_text(rng, data, separators)
        return mutate.mutated(rng, data, seeds)

    return change


def _read_list(data: bytes, folder: str) -> None:
    read_list(_stored(data, folder, "a.lst"))


# ---- ONNX ----


def _onnx_seeds(folder: str) -> list[bytes]:
    import onnx
    from onnx import TensorProto, helper

    def model(nodes, shape, constants):
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None))
        ]
        held = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()

    node, ones = helper.make_node, np.ones
    dense = [
        node("Constant", [], ["two"], value_floats=[2.0]),
        node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        node("Mul", ["two", "two"], ["four"]),
        node("Relu", ["h"], ["r"]),
        node("Mul", ["r", "four"], ["y"]),
    ]
    pictures = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["m"], ["s"]),
        node("ConstantOfShape", ["dims"], ["z"]),
        node("Reshape", ["m", "to"], ["f"]),
        node("Add", ["f", "z"], ["y"]),
    ]
    more = {"dims": np.array([1, 32]), "to": np.array([1, -1])}
    return [
        model(dense, [1, 3], {"w": ones((2, 3), np.float32), "b": ones(2, np.float32)}),
        model(pictures, [1, 3, 8, 8], {"w": ones((2, 3, 3, 3), np.float32), **more}),
    ]


def _read_onnx(data: bytes, folder: str) -> None:
    path = _stored(data, folder, "a.onnx")
    mx.onnx.get_model_metadata(path)
    mx.onnx.import_model(path)


# ---- images ----


def _picture_seeds(folder: str) -> list[bytes]:
    pixels = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    seeds = [picture.encode(pixels, 90, ending) for ending in (".jpg", ".bmp")]
    return [*seeds, *(picture.encode(each, 3, ".png") for each in (pixels, pixels[:, :, 0], pixels.astype(np.uint16)))]


def _read_picture(data: bytes, folder: str) -> None:
    for flag in (1, 0, -1):
        _ignore(picture.decode, data, flag)
    mx.image.imdecode(data)


def _bytes(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    return mutate.mutated(rng, data, seeds)


def formats(folder: str) -> dict[str, Format]:
    """Return all formats by name. Seeds are created in `folder`."""
    table = b"1,2,3\n4.5,-6,7e2\n+8,0,9\n"
    rows = b"1 0:1.5 3:2\n0 1:1\n-1 2:3 4:4 5:5 # words\n2\n"
    found = {
        "params": Format(_params_seeds(folder), _bytes, _read_params),
        "symbol": Format(_symbol_seeds(folder), _change_json, _read_symbol),
        "states": Format(_states_seeds(folder), _change_states, _read_states),
        "records": Format(_record_seeds(folder), _change_records, _read_records),
        "safetensors": Format(_safetensors_seeds(folder), _change_safetensors, _read_safetensors),
        "idx": Format(_idx_seeds(folder), _bytes, _read_idx),
        "wav": Format(_wav_seeds(folder), _bytes, _read_wav),
        "libsvm": Format([rows], _change_text(b" :\n"), _read_libsvm),
        "csv": Format([table], _change_text(b",\n"), _read_csv),
        "lst": Format([b"0\t1.0\ta.png\n1\t0\t2.5\tb/c.png\n"], _change_text(b"\t\n"), _read_list),
        "pictures": Format(_picture_seeds(folder), _bytes, _read_picture),
    }
    with contextlib.suppress(ImportError):
        found["onnx"] = Format(_onnx_seeds(folder), _bytes, _read_onnx)
    return found
