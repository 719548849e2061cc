"""Checkpoints of modules from MXNet. tests/parity/record_module.py tests that MXNet continues from those of neomx."""

import pathlib
import pickle
import shutil

import numpy as np
import pytest

import neomx as mx
from neomx.formats import pickled
from neomx.ndarray.serialize import array_frombuffer
from parity.module_files import TRAININGS, new_buckets, sentences, train

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "module"


def alike(expected, found):
    wanted, received = mx.nd.load(str(expected)), mx.nd.load(str(found))
    assert list(wanted) == list(received) and len(wanted) == 4
    for name, array in wanted.items():
        np.testing.assert_allclose(received[name].asnumpy(), array.asnumpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", TRAININGS)
def test_training_continues_from_a_checkpoint_of_mxnet(name, tmp_path):
    for file in FIXTURES.glob(f"{name}-*"):
        if "0002" not in file.name:
            shutil.copy(file, tmp_path)
    train(mx, name, str(tmp_path / name), 1, 2)
    alike(FIXTURES / f"{name}-0002.params", tmp_path / f"{name}-0002.params")


@pytest.mark.parametrize("name", TRAININGS)
def test_checkpoints_match_mxnet(name, tmp_path):
    train(mx, name, str(tmp_path / name), 0, 1)
    alike(FIXTURES / f"{name}-0001.params", tmp_path / f"{name}-0001.params")
    train(mx, name, str(tmp_path / name), 1, 2)
    alike(FIXTURES / f"{name}-0002.params", tmp_path / f"{name}-0002.params")
    assert described(tmp_path / f"{name}-0001.states") == described(FIXTURES / f"{name}-0001.states")
    ours, theirs = (mx.sym.load(str(d / f"{name}-symbol.json")) for d in (tmp_path, FIXTURES))
    assert ours.list_arguments() == theirs.list_arguments() and ours.tojson() == theirs.tojson()


def described(path):
    """Describe a file of states: by index or name, the class and shape of each array."""
    held = pickled.read(path.read_bytes())
    return {
        key: [arrays(each) for each in (state if isinstance(state, tuple) else (state,))] for key, state in held.items()
    }


def arrays(state):
    return state.maker, state.arguments, array_frombuffer(state.state["handle"]).shape


def test_loads_buckets_of_mxnet(tmp_path):
    expected = mx.nd.load(str(FIXTURES / "outputs.params"))
    for received, wanted in zip(sentences(mx, str(FIXTURES / "buckets")), expected, strict=True):
        np.testing.assert_allclose(received.asnumpy(), wanted.asnumpy(), rtol=1e-4, atol=1e-5)


def test_bucket_files_match_mxnet(tmp_path):
    outputs = sentences(mx, str(tmp_path / "buckets"), new_buckets(mx))
    mx.nd.save(str(tmp_path / "outputs.params"), outputs)
    assert (tmp_path / "buckets.buckets").read_bytes() == (FIXTURES / "buckets.buckets").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        p.name for p in FIXTURES.iterdir() if p.name.startswith(("buckets", "outputs"))
    )


def test_mismatched_or_damaged_states_raise(tmp_path):
    prefix = str(tmp_path / "sgd")
    train(mx, "sgd", prefix, 0, 1)
    states = tmp_path / "sgd-0001.states"
    whole = states.read_bytes()
    for content in (b"", whole[:40], whole[:-20], pickle.dumps(print)):
        states.write_bytes(content)
        with pytest.raises(mx.MXNetError, match=r"sgd-0001\.states"):
            train(mx, "sgd", prefix, 1, 2)


def test_pickle_roundtrip():
    deep = {"a": (1, -2, 2**70, 0.5, None), 3: [True, False, "é"], "b": b"xyz", "c": bytearray(b"q"), "d": ((), {}, [])}
    assert pickled.read(pickled.write(deep)) == deep == pickle.loads(pickled.write(deep))
    instance = pickled.read(pickled.write(pickled.Instance(pickled.Name("a.b", "C"), (None,), {"x": 1})))
    assert (instance.maker, instance.arguments, instance.state) == (pickled.Name("a.b", "C"), (None,), {"x": 1})
    with pytest.raises(mx.MXNetError, match="cannot write an object of type object to a pickle for MXNet"):
        pickled.write({"a": object()})


# Whether the module has a store, whether the store updates, and the number of contexts.
STORES = {"none": (False, "1", 1), "store": (True, "1", 1), "sums": (True, "0", 2), "updates": (True, "1", 2)}


def _trained(monkeypatch, how, states=None, params=None, steps=3):
    """Train a Module with momentum SGD; its states are stored by name (in a store) or by index."""
    has_store, updates, count = STORES[how]
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", updates)
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(mx.sym.MakeLoss(net.sum()), label_names=(), context=[mx.cpu(k) for k in range(count)])
    module.bind([("data", (4, 3))])
    module.init_params(mx.init.One(), **({} if params is None else {"arg_params": params[0], "aux_params": params[1]}))
    store = mx.kv.create("local") if has_store else None
    module.init_optimizer(store, "sgd", (("learning_rate", 0.1), ("momentum", 0.9)))
    if states is not None:
        module.load_optimizer_states(states)
    for step in range(steps):
        module.forward_backward(mx.io.DataBatch([mx.nd.full((4, 3), 1 + step)], []))
        module.update()
    return module


@pytest.mark.parametrize("after", STORES)
@pytest.mark.parametrize("before", STORES)
def test_states_saved_with_any_store_load_with_any_other(before, after, tmp_path, monkeypatch):
    first = _trained(monkeypatch, before)
    file = str(tmp_path / "m.states")
    first.save_optimizer_states(file)
    expected = _trained(monkeypatch, after, file, first.get_params())
    same = _trained(monkeypatch, before, file, first.get_params())
    momentum_matters = _trained(monkeypatch, after, None, first.get_params())
    found, wanted, without = (
        {name: array.asnumpy() for name, array in each.get_params()[0].items()}
        for each in (expected, same, momentum_matters)
    )
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6)
        assert np.abs(without[name] - wanted[name]).max() > 0.01
