"""`mx.onnx` and `mx.contrib.onnx`: import of files of other tools, and export of symbols."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import neomx as mx
from neomx.base import MXNetError
from neomx.contrib import onnx as contrib_onnx
from neomx.convert.program import inferring

RNG = np.random.RandomState(11)


# ---- single operators of several opsets, compared with onnxruntime ----


def kind(array):
    """Return ONNX's number for the dtype of an array."""
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model(op, inputs, constants=(), opset=13, outputs=1, **attrs):
    """Return a model of one node; the constants follow the inputs."""
    names = [f"x{i}" for i in range(len(inputs))] + [f"c{i}" if c is not None else "" for i, c in enumerate(constants)]
    out = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, out, name="node", **attrs)],
        "g",
        [helper.make_tensor_value_info(f"x{i}", kind(x), x.shape) for i, x in enumerate(inputs)],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in out],
        [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants) if c is not None],
    )  # fmt: skip
    for value in graph.output:
        value.ClearField("type")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def x(*shape, lo=-1.0, hi=1.0):
    return RNG.uniform(lo, hi, shape).astype(np.float32)


def i64(*values):
    return np.array(values, dtype=np.int64)


W = x(4, 3, 3, 3)
CASES = {
    "Conv": model("Conv", [x(2, 3, 8, 8)], [W, x(4)], strides=[2, 2], pads=[1, 1, 1, 1]),
    "Conv uneven pads": model("Conv", [x(2, 3, 8, 8)], [W], pads=[0, 1, 2, 1]),
    "Conv SAME_UPPER": model("Conv", [x(2, 3, 7, 8)], [W], strides=[2, 2], auto_pad="SAME_UPPER"),
    "Conv SAME_LOWER": model("Conv", [x(2, 3, 7, 8)], [W], strides=[2, 2], auto_pad="SAME_LOWER"),
    "Conv 1d": model("Conv", [x(2, 3, 9)], [x(6, 1, 3), x(6)], group=3, dilations=[2], pads=[1, 3]),
    "ConvTranspose": model(
        "ConvTranspose", [x(2, 4, 5, 5)], [W, x(3)], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]
    ),
    "MaxPool": model("MaxPool", [x(2, 3, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
    "MaxPool ceil": model("MaxPool", [x(2, 3, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "AveragePool": model("AveragePool", [x(2, 3, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "AveragePool counting pads": model(
        "AveragePool", [x(2, 3, 8, 8)], kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1
    ),
    "GlobalAveragePool": model("GlobalAveragePool", [x(2, 3, 5, 5)]),
    "GlobalMaxPool 1d": model("GlobalMaxPool", [x(2, 3, 5)]),
    "BatchNormalization": model("BatchNormalization", [x(2, 3, 4, 4)], [x(3), x(3), x(3), x(3, lo=0.5)], epsilon=1e-3),
    "BatchNormalization 7": model("BatchNormalization", [x(2, 3)], [x(3), x(3), x(3), x(3, lo=0.5)], opset=7),
    "InstanceNormalization": model("InstanceNormalization", [x(2, 3, 5, 5)], [x(3), x(3)]),
    "LayerNormalization": model("LayerNormalization", [x(2, 3, 5)], [x(5), x(5)], opset=17),
    "LRN": model("LRN", [x(2, 6, 3, 3)], size=3, alpha=0.1, bias=2.0),
    "Gemm": model("Gemm", [x(2, 3)], [x(4, 3), x(4)], transB=1),
    "Gemm scaled": model("Gemm", [x(3, 2)], [x(3, 4), x(2, 4)], transA=1, alpha=0.5, beta=2.0),
    "MatMul": model("MatMul", [x(2, 3, 4)], [x(4, 5)]),
    "MatMul of two": model("MatMul", [x(2, 1, 3, 4), x(5, 4, 2)]),
    "Add": model("Add", [x(2, 3), x(3)]),
    "Sub a number": model("Sub", [x(2, 3)], [np.float32(2)]),
    "Pow": model("Pow", [x(2, 3, lo=0.1)], [np.float32(2.5)]),
    "Max of three": model("Max", [x(2, 3), x(1, 3), x(2, 1)]),
    "Mean": model("Mean", [x(2, 3), x(2, 3), x(2, 3)]),
    "Where": model("Where", [x(2, 3) > 0, x(2, 1), x(1, 3)]),
    "Where a number": model("Where", [x(2, 3) > 0, x(3)], [np.float32(7)]),
    "Clip": model("Clip", [x(2, 3)], [np.float32(-0.3), np.float32(0.2)]),
    "Clip 6": model("Clip", [x(2, 3)], opset=7, min=-0.3, max=0.2),
    "Clip above": model("Clip", [x(2, 3)], [None, np.float32(0.2)]),
    "Softmax": model("Softmax", [x(2, 3, 4)], axis=1),
    "Softmax 11": model("Softmax", [x(2, 3, 4)], opset=11),
    "LogSoftmax": model("LogSoftmax", [x(2, 3)]),
    "Elu": model("Elu", [x(2, 3)], alpha=0.7),
    "Selu": model("Selu", [x(2, 3)]),
    "LeakyRelu": model("LeakyRelu", [x(2, 3)], alpha=0.2),
    "PRelu": model("PRelu", [x(2, 3, 4, 4)], [x(3, 1, 1)]),
    "HardSigmoid": model("HardSigmoid", [x(2, 3, lo=-4, hi=4)], alpha=0.25),
    "HardSwish": model("HardSwish", [x(2, 3, lo=-4, hi=4)], opset=14),
    "Gelu": model("Gelu", [x(2, 3)], opset=20),
    "Gelu tanh": model("Gelu", [x(2, 3)], opset=20, approximate="tanh"),
    "Softplus": model("Softplus", [x(2, 3)]),
    "Erf": model("Erf", [x(2, 3)]),
    "Round": model("Round", [x(2, 3, lo=-3, hi=3)]),
    "Reshape": model("Reshape", [x(2, 3, 4)], [i64(0, -1)]),
    "Flatten": model("Flatten", [x(2, 3, 4)], axis=2),
    "Transpose": model("Transpose", [x(2, 3, 4)], perm=[2, 0, 1]),
    "Squeeze": model("Squeeze", [x(2, 1, 4)], [i64(1)]),
    "Squeeze 11": model("Squeeze", [x(2, 1, 4, 1)], opset=11, axes=[1, 3]),
    "Unsqueeze": model("Unsqueeze", [x(2, 4)], [i64(-1, 1)]),
    "Unsqueeze 11": model("Unsqueeze", [x(2, 4)], opset=11, axes=[0, 3]),
    "Concat": model("Concat", [x(2, 3), x(2, 4)], axis=-1),
    "Split": model("Split", [x(2, 6)], [i64(1, 3, 2)], outputs=3, axis=1),
    "Split 11": model("Split", [x(6, 2)], opset=11, outputs=3),
    "Slice": model("Slice", [x(4, 6, 5)], [i64(1, -4), i64(3, 2**62), i64(0, -1), i64(1, 2)]),
    "Slice 9": model("Slice", [x(4, 6)], opset=9, starts=[0, 1], ends=[2, -1]),
    "Slice backwards": model("Slice", [x(4, 6)], [i64(-1), i64(-(2**62)), i64(1), i64(-1)]),
    "Gather": model("Gather", [x(5, 3)], [i64(0, -1, 2)], axis=0),
    "Gather one": model("Gather", [x(5, 3)], [np.int64(-1)], axis=1),
    "Gather by input": model("Gather", [x(5, 3), i64(4, 0)]),
    "GatherND": model("GatherND", [x(3, 4, 2)], [np.array([[0, 1], [2, 3]])]),
    "Expand": model("Expand", [x(3, 1)], [i64(2, 1, 4)]),
    "Tile": model("Tile", [x(2, 3)], [i64(1, 2)]),
    "Pad": model("Pad", [x(2, 3, 4, 4)], [i64(0, 0, 1, 2, 0, 0, 0, 1), np.float32(1.5)]),
    "Pad 10": model("Pad", [x(2, 3, 4)], opset=10, pads=[0, 0, 1, 0, 0, 2], mode="reflect"),
    "Pad that cuts": model("Pad", [x(2, 3, 4, 4)], [i64(0, 0, -1, 0, 0, 0, 0, -2)]),
    "DepthToSpace": model("DepthToSpace", [x(2, 8, 3, 3)], blocksize=2),
    "DepthToSpace CRD": model("DepthToSpace", [x(2, 8, 3, 3)], blocksize=2, mode="CRD"),
    "SpaceToDepth": model("SpaceToDepth", [x(2, 3, 4, 4)], blocksize=2),
    "Resize nearest": model(
        "Resize", [x(1, 2, 3, 3)], [None, np.array([1, 1, 2, 2], np.float32)], mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
    "Resize linear": model("Resize", [x(1, 2, 3, 4)], [None, None, i64(1, 2, 6, 9)], mode="linear"),
    "ReduceMean": model("ReduceMean", [x(2, 3, 4)], axes=[1, -1], keepdims=0),
    "ReduceSum": model("ReduceSum", [x(2, 3, 4)], [i64(1)]),
    "ReduceL2": model("ReduceL2", [x(2, 3, 4)], axes=[2]),
    "ReduceLogSumExp": model("ReduceLogSumExp", [x(2, 3, 4)], axes=[1], keepdims=0),
    "ReduceMax of all": model("ReduceMax", [x(2, 3)]),
    "ArgMax": model("ArgMax", [x(2, 5)], axis=1, keepdims=0),
    "TopK": model("TopK", [x(2, 5)], [i64(3)], outputs=2),
    "CumSum": model("CumSum", [x(2, 5)], [np.int64(1)]),
    "OneHot": model("OneHot", [i64(1, 0, 2)], [np.int64(3), np.array([0, 1], np.float32)]),
    "Greater": model("Greater", [x(2, 3), x(2, 3)]),
    "Cast": model("Cast", [x(2, 3, hi=5)], to=TensorProto.INT32),
    "LSTM": model(
        "LSTM", [x(5, 2, 3)], [x(2, 16, 3), x(2, 16, 4), x(2, 32)], outputs=3, hidden_size=4, direction="bidirectional"
    ),
    "GRU": model(
        "GRU", [x(5, 2, 3)], [x(1, 12, 3), x(1, 12, 4), x(1, 24)], outputs=2, hidden_size=4, linear_before_reset=1
    ),
    "RNN": model("RNN", [x(5, 2, 3)], [x(1, 4, 3), x(1, 4, 4)], outputs=1, hidden_size=4),
}  # fmt: skip


def values_for(proto):
    known = {each.name for each in proto.graph.initializer}
    rng = np.random.RandomState(3)
    fed = {}
    for value in proto.graph.input:
        if value.name not in known:
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            numbers = rng.uniform(0.1, 2, shape) if dtype == np.float32 else rng.randint(0, 2, shape)
            fed[value.name] = np.asarray(
                numbers * rng.choice([-1, 1], shape) if dtype == np.float32 else numbers, dtype
            )
    return fed


def outputs_of(symbol, arguments, states, fed):
    """Return the outputs of an imported symbol."""
    arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in fed.items()}
    executor = symbol.bind(mx.cpu(), {**arguments, **arrays}, aux_states=states)
    return [each.asnumpy() for each in executor.forward()]


@pytest.mark.parametrize("case", CASES)
def test_operator_matches_onnxruntime(case, tmp_path):
    proto, path = CASES[case], str(tmp_path / "m.onnx")
    onnx.save(proto, path)
    fed = values_for(proto)
    if case == "Pow":
        fed = {name: abs(value) for name, value in fed.items()}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, fed)
    received = outputs_of(*mx.onnx.import_model(path), fed)
    assert len(received) == len(expected)
    for ours, theirs in zip(received, expected, strict=True):
        assert ours.size == np.size(theirs)
        np.testing.assert_allclose(
            ours.reshape(np.shape(theirs)).astype(np.float64), theirs.astype(np.float64), 1e-5, 1e-5
        )


# ---- complete models written by torch ----


class Picture(nn.Module):
    """Most layers of small image networks."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8), nn.Hardswish(), nn.ConvTranspose2d(8, 6, 2, 2),
            nn.AvgPool2d(3, 2, 1), nn.LeakyReLU(0.1), nn.PReLU(6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.out = nn.Linear(6, 5)

    def forward(self, x):
        return torch.log_softmax(self.out(self.features(x)), 1)


class Text(nn.Module):
    """A small transformer."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu", dropout=0.0)
        self.out = nn.Linear(16, 11, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        query, key = (t.view(*t.shape[:2], 4, 4).transpose(1, 2) for t in (x, x * 2))
        mixed = torch.softmax(query @ key.transpose(-1, -2) / 2, -1) @ key
        return self.out(self.layer(self.norm(x + mixed.transpose(1, 2).reshape(x.shape))))


class Series(nn.Module):
    """Recurrent layers."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(3, 4, bidirectional=True), nn.GRU(8, 5)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


MODELS = {
    "picture": (Picture, torch.randn(2, 3, 17, 17), True),
    "perceptron": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(2, 4), False),
    "text": (Text, torch.randint(0, 11, (2, 7)), True),
    "series": (Series, torch.randn(5, 2, 3), False),
}


@pytest.mark.parametrize("name", MODELS)
def test_import_models_written_by_torch(name, tmp_path):
    make, example, varies = MODELS[name]
    torch.manual_seed(1)
    net, path = make().eval(), str(tmp_path / "net.onnx")
    dims = ({0: torch.export.Dim.DYNAMIC},) if varies else None
    with inferring():  # silences torch's own warnings
        torch.onnx.export(net, (example,), path, dynamo=True, verbose=False, dynamic_shapes=dims)
    imported = contrib_onnx.import_to_gluon(path, mx.cpu())
    data = torch.cat([example, example[:1]]) if varies else example
    received = imported(mx.nd.array(data.numpy(), dtype=data.numpy().dtype)).asnumpy()
    with torch.no_grad():
        np.testing.assert_allclose(received, net(data).numpy(), 1e-5, 1e-6)


# ---- export ----


def small():
    """Return a symbol with a label, and its parameters."""
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn"), name="softmax")
    rng = np.random.RandomState(2)
    shapes = {"fc_weight": (3, 4), "fc_bias": (3,), "bn_gamma": (3,), "bn_beta": (3,)}
    arguments = {name: mx.nd.array(rng.uniform(-1, 1, shape)) for name, shape in shapes.items()}
    states = {name: mx.nd.array(rng.uniform(0.5, 1, (3,))) for name in ("bn_moving_mean", "bn_moving_var")}
    return net, arguments, states


def test_export_and_import(tmp_path):
    net, arguments, states = small()
    prefix, path = str(tmp_path / "small"), str(tmp_path / "small.onnx")
    mx.model.save_checkpoint(prefix, 0, net, arguments, states)
    files = (prefix + "-symbol.json", prefix + "-0000.params")
    given = mx.onnx.export_model(*files, [(2, 4)], np.float32, path, dynamic=True, dynamic_input_shapes=[("n", 4)])
    assert given == path
    assert mx.onnx.get_model_metadata(path) == {
        "input_tensor_data": [("data", (0, 4))],
        "output_tensor_data": [("softmax_output", (0, 3))],
    }
    data = RNG.uniform(-1, 1, (5, 4)).astype(np.float32)
    args = {**arguments, "data": mx.nd.array(data), "softmax_label": mx.nd.zeros(5)}
    expected = net.bind(mx.cpu(), args, aux_states=states).forward()[0].asnumpy()
    np.testing.assert_allclose(onnxruntime.InferenceSession(path).run(None, {"data": data})[0], expected, 1e-5, 1e-6)
    np.testing.assert_allclose(outputs_of(*mx.onnx.import_model(path), {"data": data})[0], expected, 1e-5, 1e-6)


def test_export_of_objects_by_old_names(tmp_path):
    net, arguments, states = small()
    path = str(tmp_path / "small.onnx")
    old = {"input_shape": [(2, 4), (2,)], "input_type": np.float32, "opset_version": 13}
    with pytest.warns(UserWarning, match="writing opset 18"):
        contrib_onnx.export_model(sym=net, params={**arguments, **states}, onnx_file_path=path, **old)
    assert onnx.load(path).opset_import[0].version == 18
    assert mx.onnx.get_model_metadata(path)["input_tensor_data"] == [("data", (2, 4))]
    with pytest.raises(MXNetError, match="expected the shapes of data, received 3"):
        mx.onnx.export_model(net, [arguments, states], [(1,), (2,), (3,)], onnx_file_path=path)
    with pytest.raises(ValueError, match="expected params to be a file"):
        mx.onnx.export_model(net, 3, [(2, 4)], onnx_file_path=path)


def test_operator_support():
    names = mx.onnx.get_operator_support()
    assert {"Convolution", "BatchNorm", "FullyConnected", "softmax", "elemwise_add", "_plus_scalar", "RNN"} <= set(
        names
    )
    assert names == sorted(set(names)) == mx.onnx.mx2onnx.get_operator_support(13)
    assert not {"erfinv", "_contrib_box_nms"} & set(names)


# ---- errors ----


def test_error_names_unsupported_operator(tmp_path):
    path = str(tmp_path / "m.onnx")
    onnx.save(model("NonZero", [x(2, 3)]), path)
    with pytest.raises(MXNetError, match="ONNX operator NonZero of node 'node' is not supported"):
        mx.onnx.import_model(path)
    onnx.save(model("MaxPool", [x(2, 3, 8, 8)], kernel_shape=[2, 2], dilations=[2, 2]), path)
    with pytest.raises(MXNetError, match=r"MaxPool of node 'node': dilations \(2, 2\) are not supported"):
        mx.onnx.import_model(path)


def test_file_that_is_not_onnx_is_an_error(tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(MXNetError, match=r"junk.onnx: not a readable ONNX file"):
        mx.onnx.import_model(str(tmp_path / "junk.onnx"))
    with pytest.raises(MXNetError, match="no such file"):
        mx.onnx.get_model_metadata(str(tmp_path / "nothere.onnx"))


def test_damaged_file_is_an_error(tmp_path):
    path = str(tmp_path / "m.onnx")
    wrong_shape, no_output = model("Add", [x(3)], [x(2, 3)]), model("Add", [x(3)], [x(2, 3)])
    wrong_shape.graph.initializer[0].dims[1] = 0
    del no_output.graph.output[:]
    for proto, said in [(wrong_shape, "cannot reshape"), (no_output, "Group expects")]:
        onnx.save(proto, path)
        with pytest.raises(MXNetError, match=f"m.onnx: not a readable ONNX file: {said}"):
            mx.onnx.import_model(path)


def test_error_without_onnx_names_the_extra(monkeypatch):
    import importlib

    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MXNetError, match=r'pip install "neomx\[onnx\]"'):
        mx.onnx.import_model("any.onnx")
