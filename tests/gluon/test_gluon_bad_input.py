"""Invalid input to gluon: errors say what was expected, what was received and what to do, and nothing changes."""

import json
import os
import pathlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx import autograd, gluon
from neomx.base import MXNetError, NotImplementedForSymbol
from neomx.gluon import nn, rnn

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mlp(**kwargs):
    net = nn.HybridSequential(**kwargs)
    with net.name_scope():
        net.add(nn.Dense(3, in_units=4), nn.Dense(2, in_units=3))
    net.initialize()
    return net


def values(net):
    return {name: param.data().asnumpy().copy() for name, param in net.collect_params().items()}


def backward(net, x=None):
    with autograd.record():
        y = net(mx.nd.ones((2, 4)) if x is None else x)
    y.backward()


def refused(call, kind, *words):
    """Check that a call raises an error whose message contains these words. Return the message."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message, message
    return message


class unchanged:
    """A context manager that checks that the values of a net's parameters do not change."""

    def __init__(self, net):
        self.net = net

    def __enter__(self):
        self.before = values(self.net)

    def __exit__(self, *exc):
        after = values(self.net)
        assert after.keys() == self.before.keys()
        for name in after:
            np.testing.assert_array_equal(after[name], self.before[name], name)


# ---- parameters ----


def test_reading_deferred_parameter_raises():
    layer = nn.Dense(3, prefix="d_")
    refused(layer.weight.data, RuntimeError, "'d_weight'", "initialize()")
    layer.initialize()
    for read in (layer.weight.data, layer.weight.grad, layer.weight.list_data, layer.weight.list_grad):
        refused(read, gluon.DeferredInitializationError, "'d_weight'", "(3, 0)", "Run one batch", "in_units")


def test_invalid_initializer_keeps_values():
    net = mlp()
    wrong = [
        ({"init": "xaveir"}, AssertionError, ["'xaveir'", "Did you mean xavier"]),
        ({"init": 3}, AssertionError, ["initializer", "received 3"]),
        ({"init": mx.init.Xavier}, AssertionError, ["initializer", "Xavier"]),
        ({"ctx": "cpu"}, TypeError, ["ctx", "'cpu'"]),
        ({"ctx": []}, ValueError, ["at least one context"]),
        ({"ctx": [mx.cpu(), mx.gpu(99)]}, MXNetError, ["gpu(99)", "Use mx.cpu()"]),
    ]
    for arguments, kind, words in wrong:
        with unchanged(net):
            refused(lambda a=arguments: net.initialize(force_reinit=True, **a), kind, *words)
    layer = nn.Dense(2, in_units=2, weight_initializer="xaveir")
    refused(layer.initialize, AssertionError, "Did you mean xavier")
    refused(layer.weight.data, RuntimeError, "has not been initialized")


def test_writing_mismatched_values_raises():
    net = mlp(prefix="net_")
    weight = net[0].weight
    with unchanged(net):
        refused(lambda: weight.set_data(mx.nd.ones((1, 4))), AssertionError, "(1, 4)", "(3, 4)", "net_dense0_weight")
        refused(lambda: weight.set_data(3), TypeError, "net_dense0_weight", "array", "received 3")
        refused(lambda: net.cast("flaot32"), MXNetError, "'flaot32'", "float32")
        refused(lambda: net.collect_params().reset_ctx([mx.cpu(), mx.gpu(99)]), MXNetError, "gpu(99)")
    assert weight.list_ctx() == [mx.cpu()]
    refused(lambda: gluon.Parameter("p", stype="dense"), AssertionError, "'default', 'row_sparse' or 'csr'", "'dense'")
    refused(lambda: gluon.Parameter("p", grad_req="all"), AssertionError, "'write'", "'all'")
    refused(lambda: nn.Dense(2).collect_params().reset_ctx(mx.cpu()), ValueError, "has not been initialized")


def test_changing_attribute_type_raises():
    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            self.layer = nn.Dense(2, in_units=2)
            self.weight = self.params.get("w", shape=(2,))

    net = Net()
    net.initialize()
    layer, weight = net.layer, net.weight
    refused(lambda: setattr(net, "layer", 3), TypeError, "layer", "Dense", "int", "another attribute")
    refused(lambda: setattr(net, "weight", None), TypeError, "weight", "Parameter", "NoneType")
    refused(lambda: setattr(net, "weight", gluon.Parameter("x")), AssertionError, "weight", "params")
    assert net.layer is layer and net.weight is weight
    assert len(net.collect_params().keys()) == 3
    refused(lambda: nn.HybridSequential().add(nn.Sequential()), ValueError, "HybridBlock", "try HybridSequential")


# ---- parameter files ----


def test_mismatched_file_changes_nothing(tmp_path):
    path = str(tmp_path / "net.params")
    arrays = {"0.weight": mx.nd.ones((3, 9)), "1.weight": mx.nd.ones((2, 3)), "1.bais": mx.nd.ones((2,))}
    mx.nd.save(path, arrays)
    net = mlp()
    with unchanged(net):
        message = refused(lambda: net.load_parameters(path), AssertionError, path)
    for word in ("'0.bias'", "'1.bias'", "'1.bais'", "'0.weight'", "(3, 4)", "(3, 9)", "allow_missing", "ignore_extra"):
        assert word in message, message
    with unchanged(net):  # each problem separately, too
        refused(lambda: net.load_parameters(path, ignore_extra=True), AssertionError, "'0.bias', '1.bias'")
        refused(lambda: net.load_parameters(path, allow_missing=True), ValueError, "'1.bais'", "(3, 9)")
        both = {"allow_missing": True, "ignore_extra": True}
        refused(lambda: net.load_parameters(path, **both), AssertionError, "'0.weight'", "expected (3, 4)")


def test_file_with_other_dtypes_or_contexts_changes_nothing(tmp_path):
    path = str(tmp_path / "net.params")
    net, other = mlp(), mlp()
    other.cast("float64")
    other.save_parameters(path)
    with unchanged(net):
        refused(lambda: net.load_parameters(path), AssertionError, "float32", "float64", "cast_dtype=True")
        wrong = {"ctx": mx.cpu(1), "cast_dtype": True}
        refused(lambda: net.load_parameters(path, **wrong), AssertionError, "cpu(1)", "cpu(0)", "reset_ctx")
        wrong = {"ctx": mx.gpu(99), "cast_dtype": True}
        refused(lambda: net.load_parameters(path, **wrong), MXNetError, "gpu(99)")
        refused(lambda: net.load_parameters(path, dtype_source="file"), ValueError, "'current' or 'saved'", "'file'")
        mx.nd.save(path, [mx.nd.ones((1,))])
        refused(lambda: net.load_parameters(path), MXNetError, path, "named", "without names")
        refused(lambda: net.load_parameters(str(tmp_path / "none")), MXNetError, "none", "No such file")
        refused(lambda: net.load_parameters(str(tmp_path)), MXNetError, "directory")


@FUZZ
@given(st.data())
def test_damaged_parameter_file_raises_or_fits(tmp_path, data):
    net, path = mlp(), tmp_path / "net.params"
    net.save_parameters(str(path))
    whole = path.read_bytes()
    path.write_bytes(damaged(whole, data))
    before = values(net)
    try:
        net.load_parameters(str(path))
    except (MXNetError, AssertionError, ValueError) as error:
        assert str(path) in str(error) or "Parameter" in str(error)
        for name, value in values(net).items():
            np.testing.assert_array_equal(value, before[name])


def damaged(content, data):
    """Truncate the content, or change one bit or a run of bytes."""
    at = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "overwrite"]))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        return content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :]
    run = data.draw(st.binary(min_size=1, max_size=9))
    return content[:at] + run + content[at + len(run) :]


@pytest.fixture
def full_disk(monkeypatch):
    """Make syncing a file fail, as when the disk is full."""

    def fail(_):
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr(os, "fsync", fail)


def test_full_disk_keeps_old_files(tmp_path, full_disk):
    net = mlp()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    backward(net)
    trainer.step(1)
    prefix = str(tmp_path / "m")
    writes = [
        lambda: net.save_parameters(prefix + ".params"),
        lambda: net.collect_params().save(prefix + ".dict"),
        lambda: net.export(prefix),
        lambda: net.save(prefix),
        lambda: trainer.save_states(prefix + ".states"),
    ]
    for write in writes:
        write()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(before) == 7
    backward(net)
    trainer.step(1)
    full_disk()
    for write in writes:
        refused(write, MXNetError, prefix, "No space left")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# ---- calls ----

SHAPES = {
    "Dense": (lambda: nn.Dense(3, in_units=4), [(2, 5)], "FullyConnected", ["(3, 5)", "(3, 4)"]),
    "Dense of nothing": (lambda: nn.Dense(3, in_units=4, flatten=False), [(2, 4, 5)], "FullyConnected", ["(3, 4)"]),
    "Conv2D": (lambda: nn.Conv2D(3, 3, in_channels=4), [(2, 5, 8, 8)], "Convolution", ["(3, 5, 3, 3)", "(3, 4, 3, 3)"]),
    "Conv2D of 3": (lambda: nn.Conv2D(3, 3, in_channels=4), [(2, 4, 8)], "Convolution", ["[2, 4, 8]", "dimensions"]),
    "small": (lambda: nn.Conv2D(3, 9, in_channels=4), [(2, 4, 8, 8)], "Convolution", ["(8 x 8)", "(9 x 9)"]),
    "BatchNorm": (lambda: nn.BatchNorm(in_channels=4), [(2, 5, 8)], "BatchNorm", ["(5,)", "(4,)"]),
    "LayerNorm": (lambda: nn.LayerNorm(in_channels=4), [(2, 5)], "LayerNorm", ["[5]", "[4]"]),
    "LSTM": (lambda: rnn.LSTM(3, input_size=4), [(2, 5, 7)], "RNN", ["(12, 7)", "[12, 4]"]),
    "LSTM of 2": (lambda: rnn.LSTM(3, input_size=4), [(2, 4)], "RNN", ["3 dimensions", "[2, 4]"]),
    "GRUCell": (lambda: rnn.GRUCell(3, input_size=4), [(2, 5), [(2, 3)]], "FullyConnected", ["(9, 5)", "(9, 4)"]),
    "states": (lambda: rnn.LSTM(3, input_size=4), [(2, 5, 4), [(1, 9, 3)] * 2], "RNN", ["(1, 5, 3)", "[1, 9, 3]"]),
    "few states": (lambda: rnn.LSTMCell(3, input_size=4), [(2, 4), [(2, 3)]], "lstm", ["2 states", "received 1"]),
}  # fmt: skip


def of_shapes(shapes):
    return [of_shapes(each) if isinstance(each, list) else mx.nd.ones(each) for each in shapes]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_inputs_with_wrong_shapes_raise(name, hybrid):
    make, shapes, who, words = SHAPES[name]
    block = make()
    block.initialize()
    if hybrid:
        block.hybridize()
    with unchanged(block):
        refused(lambda: block(*of_shapes(shapes)), MXNetError, who, *words)


@pytest.mark.parametrize("hybrid", [False, True])
def test_call_succeeds_after_mismatched_first_input(hybrid):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(3, 3), nn.Dense(2))
    net.initialize()
    if hybrid:
        net.hybridize()
    refused(
        lambda: net(mx.nd.ones((2, 3, 8))), ValueError, "Deferred initialization failed", "Convolution", "[2, 3, 8]"
    )
    assert net(mx.nd.ones((2, 5, 8, 8))).shape == (2, 2)
    refused(lambda: net(mx.nd.ones((2, 4, 8, 8))), MXNetError, "Convolution", "(3, 4, 3, 3)", "(3, 5, 3, 3)")
    assert net(mx.nd.ones((2, 5, 8, 8))).shape == (2, 2)


@pytest.mark.parametrize("hybrid", [False, True])
def test_other_invalid_arguments_raise(hybrid):
    net = mlp(prefix="net_")
    if hybrid:
        net.hybridize()
    there = mx.nd.ones((2, 4), ctx=mx.cpu(1))
    refused(lambda: net(there), RuntimeError, "net_dense0_weight", "cpu(1)", "cpu(0)", "reset_ctx", "as_in_context")
    refused(lambda: net(mx.nd.ones((2, 4), dtype="float64")), MXNetError, "FullyConnected", "float64", "float32")
    refused(lambda: net(np.ones((2, 4))), ValueError, "HybridBlock takes", "ndarray")
    refused(lambda: net(None), ValueError, "NDArray", "received NoneType")
    refused(lambda: net(), TypeError, "missing")
    refused(lambda: net(mx.nd.ones((2, 4)), mx.nd.ones((1,))), TypeError, "hybrid_forward")
    assert net(mx.nd.ones((2, 4))).shape == (2, 2)


def hybridized(compute):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, *args):
            return compute(F, *args)

    net = Net(prefix="mine_")
    net.hybridize()
    return net


ASKING_FOR_VALUES = {
    "if": (lambda F, x: x if x.sum() > 0 else -x, NotImplementedForSymbol),
    "while": (lambda F, x: [x for _ in iter(lambda: bool(x), True)], NotImplementedForSymbol),
    "asnumpy": (lambda F, x: x * x.asnumpy().sum(), NotImplementedForSymbol),
    "asscalar": (lambda F, x: x * x.sum().asscalar(), NotImplementedForSymbol),
    "float": (lambda F, x: x * float(x.sum()), TypeError),
    "shape": (lambda F, x: F.reshape(x, (x.shape[0], -1)), AttributeError),
    "index": (lambda F, x: x[:, 0], TypeError),
    "mx.nd": (lambda F, x: mx.nd.relu(x), MXNetError),
    "an array": (lambda F, x: x + mx.nd.ones((2, 3)), TypeError),
    "a numpy array": (lambda F, x: x + np.ones((2, 3)), TypeError),
}


@pytest.mark.parametrize("name", ASKING_FOR_VALUES)
def test_code_that_needs_values_raises_on_symbols(name):
    compute, kind = ASKING_FOR_VALUES[name]
    net = hybridized(compute)
    refused(lambda: net(mx.nd.ones((2, 3))), kind, "'mine' was given symbols", "hybridize", "Compute only with F")
    outer = nn.HybridSequential()
    outer.add(net)
    outer.hybridize()
    message = refused(lambda: outer(mx.nd.ones((2, 3))), kind, "'mine' was given symbols")
    assert message.count("was given symbols") == 1, message  # reported once, by the innermost Block


@pytest.mark.parametrize("value", [3, None, "text", {"a": 1}])
def test_hybrid_forward_without_symbols_raises(value):
    refused(lambda: hybridized(lambda F, x: value)(mx.nd.ones((2,))), ValueError, "return", repr(value))


def test_graph_with_parameters_of_another_block_raises():
    other = mlp(prefix="other_")
    net = hybridized(lambda F, x: F.broadcast_mul(x, other[0].bias.var()))
    refused(lambda: net(mx.nd.ones((2, 3))), MXNetError, "mine", "'other_dense0_bias'", "self.params.get")


def test_unknown_function_of_F_raises():
    refused(lambda: hybridized(lambda F, x: F.relux(x))(mx.nd.ones((2,))), AttributeError, "relux", "Did you mean relu")


# ---- models in files ----


@pytest.fixture
def exported(tmp_path):
    net = mlp(prefix="net_")
    prefix = str(tmp_path / "model")
    refused(lambda: net.export(prefix), RuntimeError, "hybridize", "forward", "at least once")
    assert not os.listdir(tmp_path)
    net.hybridize()
    net(mx.nd.ones((2, 4)))
    net.export(prefix)
    net.save(prefix)
    return net, prefix + "-symbol.json", prefix + "-0000.params", prefix


def test_imports_with_wrong_names_or_files_raises(exported):
    _, graph, params, prefix = exported
    imports = gluon.SymbolBlock.imports
    refused(lambda: imports(graph, ["x"], params), AssertionError, "'data'", "no input 'x'")
    refused(lambda: imports(graph, [], params), AssertionError, "'data'")
    refused(
        lambda: imports(graph, ["data", "net_dense0_bias"], params), AssertionError, "net_dense0_bias", "ignore_extra"
    )
    refused(lambda: imports(prefix + "none", ["data"], params), MXNetError, "modelnone", "No such file")
    refused(lambda: imports(graph, ["data"], prefix + "none"), MXNetError, "modelnone", "No such file")
    refused(lambda: imports(params, ["data"], params), MXNetError, params)
    refused(lambda: imports(graph, ["data"], graph), MXNetError, graph, "not a readable .params file")
    refused(lambda: imports(graph, ["data"], params, ctx="cpu"), TypeError, "Context", "'cpu'")
    block = imports(graph, ["data"], params)
    refused(lambda: block(mx.nd.ones((2, 4)), mx.nd.ones((1,))), ValueError, "1 input(s), data", "received 2")
    refused(lambda: block(mx.nd.ones((2, 7))), MXNetError, "net_dense0_fwd", "(3, 7)", "(3, 4)")
    refused(lambda: imports(graph, ["data"])(mx.nd.ones((2, 4))), RuntimeError, "net_dense0_weight", "initialize()")
    every = mx.sym.load(graph).get_internals()
    refused(lambda: gluon.SymbolBlock(every, every["net_dense0_fwd_output"]), AssertionError, "variable")


@FUZZ
@given(st.data())
def test_damaged_graph_raises_or_loads(exported, data):
    _, graph, params, prefix = exported
    broken = pathlib.Path(prefix + "-broken.json")
    broken.write_bytes(damaged(pathlib.Path(graph).read_bytes(), data))
    try:
        gluon.SymbolBlock.imports(str(broken), ["data"], params)
    except (MXNetError, AssertionError, ValueError) as error:
        assert str(error)


@FUZZ
@given(st.data())
def test_damaged_model_raises_or_loads_unchanged(exported, data):
    net, _, _, prefix = exported
    whole = pathlib.Path(prefix + "-model.json").read_bytes()
    broken = prefix + "-broken"
    pathlib.Path(broken + "-model.json").write_bytes(damaged(whole, data))
    pathlib.Path(broken + "-model.params").write_bytes(pathlib.Path(prefix + "-model.params").read_bytes())
    other = mlp()
    expected = list(values(net).values())
    before = list(values(other).values())
    try:
        other.load(broken)
    except MXNetError as error:
        assert broken in str(error)
        expected = before
    for received, wanted in zip(values(other).values(), expected, strict=True):
        np.testing.assert_array_equal(received, wanted)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"a": 1}', '{"a": {}, "b": {}}', "[" * 100000])
def test_invalid_model_file_raises(exported, text):
    net, _, _, prefix = exported
    pathlib.Path(prefix + "-model.json").write_text(text)
    with unchanged(net):
        refused(lambda: net.load(prefix), MXNetError, prefix + "-model.json", "xpected")


def test_model_with_another_structure_raises(exported):
    _, _, _, prefix = exported
    other = nn.HybridSequential()
    other.add(nn.Dense(3, in_units=4))
    other.initialize()
    with unchanged(other):
        refused(
            lambda: other.load(prefix), MXNetError, "hybridsequential0, dense1;", "hybridsequential0, dense1, dense2"
        )
    refused(lambda: other.load(prefix + "none"), FileNotFoundError, "modelnone-model.json")


# ---- training ----


def test_invalid_trainer_arguments_raise():
    net = mlp()
    make = gluon.Trainer
    refused(lambda: make(net, "sgd"), ValueError, "list or dict of Parameters", "HybridSequential")
    refused(lambda: make([mx.nd.ones((1,))], "sgd"), ValueError, "Parameters", "NDArray")
    refused(lambda: make(nn.Dense(2, prefix="d_").collect_params(), "sgd"), RuntimeError, "d_", "initialize()")
    refused(lambda: make(net.collect_params(), "sdg"), ValueError, "sdg", "Did you mean sgd", "adam")
    refused(lambda: make(net.collect_params(), mx.optimizer.SGD), TypeError, "Optimizer", "'sgd'", "SGD")
    refused(lambda: make(net.collect_params(), "sgd", {"lr": 0.1}), TypeError, "'lr'")
    refused(lambda: make(net.collect_params(), mx.optimizer.SGD(), {"wd": 1}), AssertionError, "optimizer_params")
    elsewhere = nn.Dense(2, in_units=2, prefix="e_")
    elsewhere.initialize(ctx=mx.cpu(1))
    mixed = [*net.collect_params().values(), *elsewhere.collect_params().values()]
    refused(lambda: make(mixed, "sgd"), AssertionError, "'e_weight'", "cpu(1)", "cpu(0)")
    net[0].weight.set_data(mx.nd.ones((3, 4)))  # the failed Trainers keep no reference to the parameters
    assert all(param._trainer is None for param in net.collect_params().values())


def test_invalid_steps_raise():
    net = mlp(prefix="net_")
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with unchanged(net):
        refused(lambda: trainer.step(1), UserWarning, "net_dense0_bias", "cpu(0)", "ignore_stale_grad=True")
        backward(net)
        for size in (0, None, "2"):
            refused(lambda size=size: trainer.step(size), ValueError, "batch_size", repr(size))
        store = {"kvstore": None, "update_on_kvstore": True}
        refused(lambda: gluon.Trainer(net.collect_params(), "sgd", **store).step(1), ValueError, "update_on_kvstore")
        refused(lambda: gluon.Trainer(net.collect_params(), "sgd", kvstore=3), TypeError, "KVStore", "received 3")
        wrong = gluon.Trainer(net.collect_params(), "sgd", kvstore="locla")
        refused(lambda: wrong.step(1), MXNetError, "'locla'", "Did you mean local")
    waiting = nn.Dense(2, prefix="w_")
    waiting.initialize()
    trainer = gluon.Trainer(waiting.collect_params(), "sgd")
    refused(lambda: trainer.step(1), gluon.DeferredInitializationError, "w_weight", "Run one batch")


@pytest.mark.parametrize("kvstore", ["device", None])
def test_context_without_backward_raises(kvstore):
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = nn.Dense(1, in_units=2, prefix="d_")
    net.initialize(ctx=contexts)
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=kvstore, update_on_kvstore=False)
    with autograd.record():
        y = net(mx.nd.ones((1, 2), ctx=contexts[0]))
    y.backward()
    before = [(w.asnumpy(), g.asnumpy()) for w, g in zip(net.weight.list_data(), net.weight.list_grad(), strict=True)]
    refused(lambda: trainer.step(1), UserWarning, "d_bias", "cpu(1)", "ignore_stale_grad")
    for (weight, gradient), w, g in zip(before, net.weight.list_data(), net.weight.list_grad(), strict=True):
        np.testing.assert_array_equal(w.asnumpy(), weight)
        np.testing.assert_array_equal(g.asnumpy(), gradient)


def test_batch_smaller_than_contexts_raises():
    contexts = [mx.cpu(0), mx.cpu(1)]
    split, load = gluon.utils.split_data, gluon.utils.split_and_load
    one = mx.nd.ones((1, 2))
    refused(lambda: load(one, contexts), ValueError, "(1, 2)", "2 slices", "even_split=False")
    refused(lambda: load(one, contexts, even_split=False), MXNetError, "(1, 2)", "2 contexts", "last_batch='discard'")
    refused(lambda: load(one, []), ValueError, "at least one context")
    refused(lambda: load(one, ["cpu"]), TypeError, "Context", "'cpu'")
    refused(lambda: split(one, 0), ValueError, "at least one slice", "num_slice=0")
    refused(lambda: split(one, 1, batch_axis=2), ValueError, "(1, 2)", "batch_axis=2")


STORES = [{"update_on_kvstore": False}, {"update_on_kvstore": True, "kvstore": "two contexts"}]


def trained(optimizer, options, **kwargs):
    """Return a net and its Trainer after one step."""
    contexts = [mx.cpu(0)]
    if kwargs.pop("kvstore", None):
        contexts.append(mx.cpu(1))
    else:
        kwargs.pop("update_on_kvstore")
    net = kwargs.pop("net")()
    net.initialize(ctx=contexts, force_reinit=True)
    trainer = gluon.Trainer(net.collect_params(), optimizer, options, **kwargs)
    step(net, trainer)
    return net, trainer


def step(net, trainer):
    width = net[0].weight.shape[1]
    with autograd.record():
        outputs = [net(mx.nd.ones((2, width), ctx=ctx)) for ctx in trainer._contexts]
    autograd.backward(outputs)
    trainer.step(2)


def wide():
    net = nn.HybridSequential()
    net.add(nn.Dense(5, in_units=7), nn.Dense(2, in_units=5))
    return net


def short():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4))
    return net


@pytest.mark.parametrize("store", STORES)
def test_optimizer_states_of_another_model_change_nothing(tmp_path, store):
    path = str(tmp_path / "states")
    _, source = trained("adam", {}, net=mlp, **store)
    source.save_states(path)
    for make in (wide, short):
        net, trainer = trained("sgd", {"momentum": 0.9}, net=make, **store)
        before = states_of(trainer)
        refused(lambda t=trainer: t.load_states(path), MXNetError, path, "saved from")
        assert type(trainer.optimizer).__name__ == "SGD"
        assert states_of(trainer) == before
        step(net, trainer)


def states_of(trainer):
    updater = trainer._updaters[0] if trainer._kvstore is None else trainer._kvstore._updater
    return updater.get_states(dump_optimizer=True)


@pytest.mark.parametrize("store", STORES)
def test_optimizer_states_restore_their_optimizer(tmp_path, store):
    path = str(tmp_path / "states")
    _, source = trained("adam", {"learning_rate": 0.25}, net=mlp, **store)
    source.save_states(path)
    net, trainer = trained("sgd", {"momentum": 0.9}, net=mlp, **store)
    trainer.load_states(path)
    assert type(trainer.optimizer).__name__ == "Adam" and trainer.learning_rate == 0.25
    step(net, trainer)


@pytest.mark.parametrize("content", [b"", b"hello world" * 9, b"\x80\x04.", b"\x80\x04}.", b"\x80\x04cos\nsystem\n."])
def test_invalid_optimizer_state_files_raise(tmp_path, content):
    path = tmp_path / "states"
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    backward(net)
    trainer.step(1)
    before = states_of(trainer)
    path.write_bytes(content)
    if content != b"\x80\x04}.":  # a pickled empty dictionary: no states yet
        refused(lambda: trainer.load_states(str(path)), MXNetError, str(path))
        assert states_of(trainer) == before
    net.save_parameters(str(path))
    refused(lambda: trainer.load_states(str(path)), MXNetError, str(path), "save_states")
    refused(lambda: trainer.load_states(str(tmp_path / "none")), FileNotFoundError, "none")


@FUZZ
@given(st.data())
def test_damaged_optimizer_states_raise_or_fit(tmp_path, data):
    path = tmp_path / "states"
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    backward(net)
    trainer.step(1)
    trainer.save_states(str(path))
    before = path.read_bytes()
    path.write_bytes(damaged(before, data))
    try:
        trainer.load_states(str(path))
    except MXNetError as error:
        assert str(path) in str(error)
        assert states_of(trainer) == before


# ---- stores, metrics, loaders ----


def test_invalid_store_calls_raise():
    refused(lambda: mx.kv.create("locla"), MXNetError, "'locla'", "Did you mean local")
    refused(lambda: mx.kv.create(3), TypeError, "string", "3")
    kv, two, three = mx.kv.create("local"), mx.nd.ones((2,)), mx.nd.ones((3,))
    kv.init([1, 2], [two, two * 2])
    refused(lambda: kv.init([7, 1], [two, two]), MXNetError, "key 1", "already")
    for key in (1.5, None, b"a", np.int64(1), {1: 2}, [[1]], [1, 2.5], ["a", None]):
        values = [two * 9] * len(key) if isinstance(key, list) else two * 9
        for call in (kv.init, kv.push, kv.pull, kv.pushpull):
            refused(lambda call=call, key=key, values=values: call(key, values), AssertionError, "ints, strings")
        refused(lambda key=key, v=values: kv.broadcast(key, v, out=v), AssertionError, "ints, strings")
        refused(lambda key=key, v=values: kv.row_sparse_pull(key, out=v, row_ids=v), AssertionError, "ints, strings")
    refused(lambda: kv.init([7, 7], [two, two]), MXNetError, "duplicate init of key 7")
    refused(lambda: kv.init(7, [two, two]), MXNetError, "key 7", "one initial array", "2")
    refused(lambda: kv.pushpull(1, two * 9, out=three), MXNetError, "key 1", "(2,)", "(3,)")
    refused(lambda: kv.pushpull(1, two * 9, out=3), AssertionError, "key 1", "NDArray")
    refused(lambda: kv.broadcast(7, two, out=three), MXNetError, "key 7", "(2,)", "(3,)")
    refused(lambda: kv.init(7, 3), AssertionError, "NDArray", "int 3")
    refused(lambda: kv.init(7, np.ones(2)), AssertionError, "NDArray", "ndarray")
    refused(lambda: kv.init([7, 8], [two]), AssertionError, "2 keys, 1 values")
    refused(lambda: kv.push(7, two), MXNetError, "key 7", "Call init")
    refused(lambda: kv.push([1, 2], [two * 9, three]), MXNetError, "key 2", "(2,)", "(3,)")
    refused(lambda: kv.push([1, 7], [two * 9, two]), MXNetError, "key 7")
    refused(lambda: kv.pull(1), AssertionError, "out=")
    outs = [mx.nd.zeros((2,)), mx.nd.zeros((3,))]
    refused(lambda: kv.pull([1, 2], out=outs), MXNetError, "key 2", "(2,)", "(3,)")
    assert not outs[0].asnumpy().any()
    refused(lambda: kv.row_sparse_pull(1, out=two), AssertionError, "row_ids=")
    refused(lambda: kv.row_sparse_pull(1, out=outs[0], row_ids=two), MXNetError, "key 1", "row_sparse", "default")
    rows = mx.nd.sparse.zeros("row_sparse", (2,))
    refused(lambda: kv.row_sparse_pull(1, out=rows, row_ids=[two, two]), AssertionError, "2 arrays", "has 1")
    refused(lambda: kv.row_sparse_pull([1, 2], out=[rows, rows], row_ids=two), AssertionError, "2 keys", "NDArray")
    refused(lambda: kv.row_sparse_pull([1, 2], out=[rows, rows], row_ids=[two]), AssertionError, "2 keys, 1 values")
    refused(lambda: kv.row_sparse_pull(1, out=rows, row_ids=[1, 2]), AssertionError, "NDArray")
    refused(lambda: kv.row_sparse_pull(1, out=rows, row_ids=two * 2), MXNetError, "key 1 has 2 rows")
    assert rows.indices.size == 0
    refused(lambda: kv.set_optimizer("sgd"), TypeError, "Optimizer", "'sgd'")
    refused(lambda: kv.save_optimizer_states("unused"), AssertionError, "set_optimizer")
    refused(lambda: kv.load_optimizer_states("unused"), AssertionError, "set_optimizer")
    refused(lambda: kv.set_gradient_compression({"type": "2bit"}), MXNetError, "'local'")
    kv.pull([1, 2], out=[outs[0], outs[0]])
    first = mx.nd.zeros((2,))
    kv.pull(1, out=first)
    np.testing.assert_array_equal(first.asnumpy(), [1, 1])  # no failed call was partially applied
    assert list(kv._stored) == [1, 2]


def test_unknown_names_raise_with_suggestion():
    refused(lambda: mx.metric.create("acuracy"), AssertionError, "'acuracy'", "Did you mean accuracy")
    refused(lambda: mx.metric.create(3), AssertionError, "metric", "received 3")
    refused(lambda: mx.optimizer.create("adamm"), ValueError, "adamm", "Did you mean adam")
    refused(lambda: mx.init.create("ortogonal"), AssertionError, "Did you mean orthogonal")
    layer = nn.Dense(2, in_units=2, activation="rleu")
    layer.initialize()
    refused(lambda: layer(mx.nd.ones((1, 2))), MXNetError, "'relu'", "'rleu'")


def test_metrics_without_data_and_with_nan():
    metric = mx.metric.Accuracy()
    assert np.isnan(metric.get()[1])
    refused(lambda: metric.update([mx.nd.ones((2,))], [mx.nd.ones((3, 2))]), ValueError, "labels", "predictions")
    refused(lambda: metric.update([mx.nd.ones((2,))], []), ValueError, "labels, 1", "predictions, 0")
    assert np.isnan(metric.get()[1])  # a rejected batch is not counted
    loss = mx.metric.Loss()
    loss.update(None, [mx.nd.array([1.0, float("nan")])])
    assert np.isnan(loss.get()[1])
    loss.reset()
    loss.update(None, [mx.nd.array([1.0, 3.0])])
    assert loss.get()[1] == 2


def test_invalid_loader_arguments_raise():
    data = gluon.data.SimpleDataset(list(range(4)))
    make = gluon.data.DataLoader
    refused(lambda: make(data), ValueError, "batch_size")
    refused(lambda: make(data, batch_size=0), ValueError, "at least 1", "received 0")
    refused(lambda: make(data, 2, shuffle=True, sampler=[0]), ValueError, "shuffle", "sampler")
    refused(lambda: make(data, 2, batch_sampler=[[0]]), ValueError, "batch_size", "batch_sampler")
    refused(lambda: list(make(data, 2, last_batch="drop")), ValueError, "'keep', 'discard' or 'rollover'", "'drop'")
    refused(lambda: make(data, 2, timeout=0), AssertionError, "timeout", "0")
    ragged = gluon.data.SimpleDataset([mx.nd.ones((2,)), mx.nd.ones((3,))])
    refused(lambda: list(make(ragged, 2)), MXNetError, "(2,)", "(3,)", "batchify_fn")
    refused(lambda: list(make(gluon.data.SimpleDataset(["a", "b"]), 2)), MXNetError, "str", "batchify_fn")
    refused(lambda: gluon.data.ArrayDataset(np.ones(2), np.ones(3)), AssertionError, "2", "3")
    refused(lambda: gluon.data.ArrayDataset(), AssertionError, "at least")
    assert len(list(make(data, 2))) == 2


def test_invalid_children_raise():
    for sequential in (nn.Sequential, nn.HybridSequential):
        net = sequential()
        for wrong in (3, None, nn.Dense):
            refused(lambda wrong=wrong, net=net: net.add(wrong), ValueError, "expects Blocks", repr(wrong)[:20])
        assert len(net) == 0
    refused(lambda: nn.Dense(-1), ValueError, "units", "-1")


def test_saved_model_has_mxnet_json_format(exported):
    _, _, _, prefix = exported
    content = json.loads(pathlib.Path(prefix + "-model.json").read_text())
    assert list(content) == ["hybridsequential0"]
    facts = content["hybridsequential0"]
    assert facts["hybridized"] is True and facts["children"] == {"net_dense0": "0", "net_dense1": "1"}
    assert mx.sym.load_json(facts["symbol"]).list_arguments()[0] == "data"
    assert facts["dense1"] == {"orig_name": "net_dense0", "hybridized": False, "children": {}}
