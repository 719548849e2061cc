"""`neomx convert`: torch programs and ONNX files compute the same as the checkpoint, and do not need neomx."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from launching import LIMIT

import neomx as mx
from neomx.base import MXNetError
from neomx.convert import onnx_file
from neomx.convert.checkpoint import load
from neomx.convert.command import parse_shapes, trace
from neomx.formats import safetensors
from neomx.gluon.model_zoo import vision
from neomx.launch.cli import main

HERE = pathlib.Path(__file__).resolve().parents[1]
SMALL = str(HERE / "fixtures" / "convert" / "small")  # written by MXNet: tests/record_convert.py
RECORDED = np.load(SMALL + ".npz")
SHAPE = ["--shape", "data:1,3,8,8"]


def run_onnx(path, **inputs):
    return onnxruntime.InferenceSession(str(path)).run(None, inputs)


def convert(*args, code=0):
    assert main(["convert", *map(str, args)]) == code


# ---- a checkpoint of MXNet ----


def test_program_needs_only_torch_and_gives_mxnets_results(tmp_path):
    convert(SMALL, "--to", "torch", "-o", tmp_path / "small", *SHAPE)
    script = f"""
import sys, json
sys.modules["neomx"] = None  # must not be imported
import torch, numpy as np
net = torch.export.load({str(tmp_path / "small.pt2")!r}).module()
data = torch.from_numpy(np.load({SMALL + ".npz"!r})["data"])
print(json.dumps([net(data).tolist(), net(data[:1]).tolist(), sorted(net.state_dict())]))
"""
    environ = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, timeout=LIMIT, env=environ
    )
    assert done.returncode == 0, done.stderr.decode()
    both, one, names = json.loads(done.stdout)
    np.testing.assert_allclose(both, RECORDED["predicted"], 1e-5, 1e-6)
    np.testing.assert_allclose(one, RECORDED["predicted"][:1], 1e-5, 1e-6)
    weights = safetensors.read(tmp_path / "small.safetensors")
    assert names == sorted(weights) == sorted(load(SMALL).arrays)
    assert weights["bn0_gamma"].tolist() == [1] * 4  # fix_gamma


def test_onnx_gives_mxnets_results_for_any_batch_size(tmp_path, capsys):
    convert(SMALL + "-symbol.json", SMALL + "-0003.params", "--to", "onnx", "-o", tmp_path / "small.onnx", *SHAPE)
    said = capsys.readouterr().out
    assert "data -> softmax_output; for batches of any size" in said
    received = run_onnx(tmp_path / "small.onnx", data=RECORDED["data"])[0]
    np.testing.assert_allclose(received, RECORDED["predicted"], 1e-5, 1e-6)
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"))
    assert [(each.name, each.shape) for each in session.get_inputs()] == [("data", ["batch", 3, 8, 8])]
    assert [(each.name, each.shape) for each in session.get_outputs()] == [("softmax_output", ["batch", 5])]


@pytest.mark.parametrize("convention", ["valid", "full"])
def test_sum_pooling_as_onnx(tmp_path, convention):
    how = {"kernel": (2, 3), "stride": (2, 2), "pad": (1, 1), "pooling_convention": convention}
    net = mx.sym.Pooling(mx.sym.var("data"), pool_type="sum", **how)
    data = np.random.RandomState(0).rand(1, 2, 6, 7).astype(np.float32)
    expected = mx.nd.Pooling(mx.nd.array(data), pool_type="sum", **how).asnumpy()
    mx.onnx.export_model(net, {}, [data.shape], onnx_file_path=str(tmp_path / "m.onnx"))
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", data=data)[0], expected, 1e-5)


def test_input_as_output_and_duplicate_outputs(tmp_path):
    data = mx.sym.var("data")
    twice = mx.sym.relu(data, name="twice")
    mx.onnx.export_model(mx.sym.Group([data, twice, twice]), {}, [(1, 2)], onnx_file_path=str(tmp_path / "m.onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [each.name for each in session.get_outputs()] == ["data_output", "twice_output", "twice_output_1"]
    assert [each.tolist() for each in session.run(None, {"data": np.float32([[-1, 2]])})] == [
        [[-1, 2]],
        [[0, 2]],
        [[0, 2]],
    ]


def test_params_round_trip(tmp_path):
    convert(SMALL, "--to", "params", "-o", tmp_path / "again")
    ours, theirs = (mx.model.load_checkpoint(prefix, 3) for prefix in (str(tmp_path / "again"), SMALL))
    assert ours[0].tojson() == theirs[0].tojson()
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.keys() == other.keys()
        assert all((mine[name].asnumpy() == other[name].asnumpy()).all() for name in mine)
    assert (tmp_path / "again-0003.params").read_bytes() == pathlib.Path(SMALL + "-0003.params").read_bytes()


def test_float16_keeps_batch_norm_vectors_in_float32(tmp_path):
    convert(SMALL, "--to", "params", "-o", tmp_path / "half", "--dtype", "float16", "--plain-names")
    arrays = mx.nd.load(str(tmp_path / "half-0003.params"))
    assert arrays["conv0_weight"].dtype == np.float16
    assert {arrays[f"bn0_{name}"].dtype for name in ("gamma", "beta", "moving_mean", "moving_var")} == {np.float32}
    convert(tmp_path / "half", "--to", "safetensors", "-o", tmp_path / "half")
    assert safetensors.read(tmp_path / "half.safetensors")["fc0_weight"].dtype == torch.float16
    traced = trace(load(str(tmp_path / "half")), parse_shapes(["data:1,3,8,8"]))
    received = traced.program.module()(torch.from_numpy(RECORDED["data"]).half())
    assert received.dtype == torch.float16
    np.testing.assert_allclose(received.float(), RECORDED["predicted"], 2e-2, 2e-3)


# ---- other inputs ----

OLD = {  # written by MXNet 0.8: attributes of ops in `param`, no auxiliary states
    "nodes": [
        {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "bn_gamma", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "bn_beta", "inputs": [], "backward_source_id": -1},
        {
            "op": "BatchNorm",
            "param": {"eps": "0.001", "fix_gamma": "False", "momentum": "0.9", "use_global_stats": "False"},
            "name": "bn",
            "inputs": [[0, 0], [1, 0], [2, 0]],
            "backward_source_id": -1,
        },
    ],
    "arg_nodes": [0, 1, 2],
    "heads": [[3, 0]],
}


def test_old_json_and_names_without_prefixes(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(OLD))
    arrays = {"bn_gamma": 2.0, "bn_beta": 1.0, "bn_moving_mean": 3.0, "bn_moving_var": 4.0}
    mx.nd.save(str(tmp_path / "w.params"), {name: mx.nd.full((2,), value) for name, value in arrays.items()})
    convert(tmp_path / "old.json", tmp_path / "w.params", "--to", "params", "-o", tmp_path / "new")
    checkpoint = load(str(tmp_path / "new"))
    assert sorted(checkpoint.states) == ["bn_moving_mean", "bn_moving_var"]
    traced = trace(checkpoint, {"data": (1, 2)})
    expected = (5 - 3) / np.sqrt(4 + 0.001) * 2 + 1
    np.testing.assert_allclose(traced.program.module()(torch.full((3, 2), 5.0)), np.full((3, 2), expected), 1e-6)


def test_names_with_dots_and_dynamic_dimension(tmp_path):
    net = mx.sym.FullyConnected(
        mx.sym.Embedding(mx.sym.var("tokens"), mx.sym.var("embed.0/w:1"), input_dim=7, output_dim=4),
        mx.sym.var("out.weight"), no_bias=True, num_hidden=3, flatten=False,
    )  # fmt: skip
    mx.random.seed(3)
    arrays = {"embed.0/w:1": mx.nd.random.normal(shape=(7, 4)), "out.weight": mx.nd.random.normal(shape=(3, 4))}
    mx.model.save_checkpoint(str(tmp_path / "m"), 0, net, arrays, {})
    convert(tmp_path / "m", "--to", "onnx", "-o", tmp_path / "m", "--shape", "tokens:0,0")
    tokens = mx.nd.array([[1, 2, 6, 0, 5]])
    expected = net.eval(tokens=tokens, **arrays)[0].asnumpy()
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", tokens=tokens.asnumpy())[0], expected, 1e-5)
    assert set(trace(load(str(tmp_path / "m")), {"tokens": (1, 4)}).program.state_dict) == set(arrays)


@pytest.mark.parametrize("names", [("forward", "b"), ("a", "a.b"), ("a..b", "c")])
def test_names_that_torch_does_not_support_are_rejected(names):
    net = mx.sym.var("data") * mx.sym.var(names[0]) + mx.sym.var(names[1])
    with pytest.raises(MXNetError, match="a torch module cannot have an array named"):
        trace(mx_checkpoint(net, **dict.fromkeys(names, mx.nd.ones((1, 2)))), {"data": (1, 2)})


def test_losses_need_no_labels():
    data = mx.sym.var("data")
    for made, function in [
        (mx.sym.LinearRegressionOutput(data), lambda x: x),
        (mx.sym.MAERegressionOutput(data), lambda x: x),
        (mx.sym.LogisticRegressionOutput(data), torch.sigmoid),
        (mx.sym.SVMOutput(data * 2), lambda x: x * 2),
        (mx.sym.SoftmaxOutput(data, preserve_shape=True), lambda x: x.softmax(-1)),
        (mx.sym.MakeLoss(mx.sym.BlockGrad(data + 1)), lambda x: x + 1),
    ]:
        traced = trace(mx_checkpoint(made), {"data": (1, 3)})
        x = torch.linspace(-1, 1, 12).reshape(4, 3)
        torch.testing.assert_close(traced.program.module()(x), function(x))
        assert traced.inputs == ["data"]


def mx_checkpoint(symbol, **arrays):
    from neomx.convert.checkpoint import Checkpoint

    return Checkpoint(symbol, arrays, {})


def test_fixed_batch_size_of_a_graph_is_reported(tmp_path, capsys):
    net = mx.sym.Reshape(mx.sym.var("data"), shape=(2, 2, -1))
    mx.model.save_checkpoint(str(tmp_path / "m"), 0, net, {"unused": mx.nd.ones(1)}, {})
    convert(tmp_path / "m", "--to", "torch", "-o", tmp_path / "m", "--shape", "data:4,3")
    assert "for these shapes only, because the graph fixes them (data:4,3)" in capsys.readouterr().out
    net = torch.export.load(tmp_path / "m.pt2").module()
    assert net(torch.ones(4, 3)).shape == (2, 2, 3)


# ---- all families of the model zoo ----

FAMILIES = {
    "resnet_v1": (lambda: vision.ResNetV1(vision.BasicBlockV1, [1, 1], [8, 8, 16], classes=10), 32),
    "resnet_v2": (lambda: vision.ResNetV2(vision.BottleneckV2, [1, 1], [8, 16, 32], classes=10), 32),
    "vgg": (lambda: vision.VGG([1, 1], [4, 8], classes=10, batch_norm=True), 8),
    "alexnet": (lambda: vision.alexnet(classes=10), 224),
    "densenet": (lambda: vision.DenseNet(8, 4, [1, 2, 1, 1], classes=10), 224),
    "squeezenet": (lambda: vision.squeezenet1_1(classes=10), 224),
    "inception": (lambda: vision.inception_v3(classes=10), 299),
    "mobilenet": (lambda: vision.mobilenet0_25(classes=10), 32),
    "mobilenet_v2": (lambda: vision.mobilenet_v2_0_25(classes=10), 32),
}
TORCH_ONLY = {
    "resnet_v1",
    "vgg",
    "alexnet",
    "inception",
    "mobilenet_v2",
}  # skipped to save time: others use the same operators


@pytest.mark.parametrize("family", FAMILIES)
def test_model_zoo(family, tmp_path):
    """Results equal those of the net up to rounding: 1e-5 of the largest value."""
    make, size = FAMILIES[family]
    mx.random.seed(5)
    net = make()
    net.initialize(mx.init.MSRAPrelu("in", 0))
    net.hybridize()
    data = mx.nd.random.normal(shape=(2, 3, size, size))
    expected = net(data).asnumpy()
    net.export(str(tmp_path / "net"))
    traced = trace(load(str(tmp_path / "net")), {"data": (1, 3, size, size)})
    assert traced.varies
    bound = 1e-5 * np.abs(expected).max()
    with torch.no_grad():
        np.testing.assert_allclose(traced.program.module()(data._data), expected, 0, bound)
    if family in TORCH_ONLY:
        return
    path = str(tmp_path / "net.onnx")
    onnx_file.write(path, traced.program, traced.inputs, traced.outputs)
    np.testing.assert_allclose(run_onnx(path, data=data.asnumpy())[0], expected, 0, bound)
    back = mx.onnx.import_to_gluon(path)
    np.testing.assert_allclose(back(data).asnumpy(), expected, 0, bound)


# ---- errors ----


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nothere", "--to", "params"], "nothere-symbol.json: no such file"),
        ([SMALL, "--epoch", "9", "--to", "params"], "small-0009.params"),
        ([SMALL, "--to", "onnx"], "no array for data. If these are inputs, pass their shapes, as in --shape data:1"),
        ([SMALL, "--to", "onnx", "--shape", "dota:1,3"], "no input dota. Its inputs: data"),
        ([SMALL, "--to", "onnx", "--shape", "data=1,3"], "--shape data=1,3: expected the name of an input and its sh"),
        ([SMALL, "--to", "torch", "--shape", "data:1,3,8"], "Convolution 'conv0'"),
        (
            [SMALL, "--to", "onnx", "--shape", "data:9,9999999999999999"],
            "an input of shape (9, 9999999999999999) canno",
        ),
        (
            [SMALL, "--to", "onnx", *SHAPE, "--opset", "11"],
            "opset 11 cannot be written: torch writes 18 for this model. Use 18",
        ),
    ],
)
def test_invalid_input_is_an_error(args, said, tmp_path, capsys):
    convert(*args, "-o", tmp_path / "out", code=2)
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_output_without_a_file_name_is_an_error(tmp_path, capsys):
    convert(SMALL, "--to", "safetensors", "-o", f"{tmp_path}/", code=2)
    assert "expected a file name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_missing_parameters_are_named(tmp_path, capsys):
    (tmp_path / "old.json").write_text(json.dumps(OLD))
    mx.nd.save(str(tmp_path / "w.params"), {"bn_gamma": mx.nd.ones(2)})
    options = ["--to", "torch", "-o", tmp_path / "out", "--shape", "data:1,2"]
    convert(tmp_path / "old.json", tmp_path / "w.params", *options, code=2)
    assert "the parameters have no array for bn_beta, bn_moving_mean, bn_moving_var" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "make", "said"),
    [
        ("torch", lambda x: mx.sym.contrib.box_nms(x, name="nms7"), "_contrib_box_nms 'nms7': cannot be converted"),
        ("onnx", lambda x: mx.sym.erfinv(x, name="inv3"), "erfinv 'inv3' cannot be converted to ONNX"),
    ],
)
def test_error_names_op_that_cannot_be_converted(kind, make, said, tmp_path, capsys):
    mx.model.save_checkpoint(str(tmp_path / "m"), 0, make(mx.sym.var("data")), {"unused": mx.nd.ones(1)}, {})
    convert(tmp_path / "m", "--to", kind, "-o", tmp_path / "out", "--shape", "data:4,5,6", code=2)
    received = capsys.readouterr().err
    assert said in received
    assert len(received.splitlines()) == 1
