"""Blocks, Parameters and Trainers beyond MXNet's features, and in threads, copies and pickles."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn


def mlp(**kwargs):
    net = nn.HybridSequential(**kwargs)
    with net.name_scope():
        net.add(nn.Dense(5, activation="relu", in_units=4), nn.BatchNorm(in_channels=5), nn.Dense(3, in_units=5))
    net.initialize(mx.init.Normal(0.5))
    return net


X = mx.nd.array(np.random.RandomState(0).uniform(-1, 1, (2, 4)))


def gradient_of(net, x=X):
    with autograd.record():
        y = (net(x) ** 2).sum()
    y.backward()
    return net[0].weight.grad().asnumpy()


# ---- copies and pickles ----


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copy_has_its_own_parameters_gradients_and_graph(hybrid, copied):
    net = mlp(prefix="net_")
    if hybrid:
        net.hybridize()
    expected = net(X).asnumpy()
    other = copied(net)
    np.testing.assert_array_equal(other(X).asnumpy(), expected)
    assert list(other.collect_params().keys()) == list(net.collect_params().keys())
    before, expected = gradient_of(net), net(X).asnumpy()  # both update the running mean and variance
    other[0].weight.set_data(other[0].weight.data() * 2)
    assert np.abs(gradient_of(other) - before).max() > 0
    np.testing.assert_array_equal(net[0].weight.grad().asnumpy(), before)
    np.testing.assert_array_equal(net(X).asnumpy(), expected)


def test_copy_of_trained_net_has_no_trainer():
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    other = copy.deepcopy(net)
    assert all(param._trainer is None for param in other.collect_params().values())
    gradient_of(net)
    before = other[0].weight.data().asnumpy()
    trainer.step(1)
    np.testing.assert_array_equal(other[0].weight.data().asnumpy(), before)
    with pytest.raises(UserWarning):
        gluon.Trainer(other.collect_params(), "sgd").step(1)


@pytest.mark.parametrize("state", ["uninitialized", "deferred", "on two contexts", "without gradient", "constant"])
def test_parameters_are_copied_in_every_state(state):
    param = gluon.Parameter("w", shape=(0 if state == "deferred" else 2, 3), allow_deferred_init=True, lr_mult=3.0)
    if state == "constant":
        param = gluon.Constant("c", mx.nd.array([[1, 2]]))
    if state == "without gradient":
        param.grad_req = "null"
    if state != "uninitialized":
        param.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    for other in (copy.deepcopy(param), pickle.loads(pickle.dumps(param))):
        assert (other.name, other.shape, other.grad_req, other.lr_mult) == (
            param.name, param.shape, param.grad_req, param.lr_mult,
        )  # fmt: skip
        if state not in ("uninitialized", "deferred"):
            assert other.list_ctx() == [mx.cpu(0), mx.cpu(1)]
            for mine, theirs in zip(other.list_data(), param.list_data(), strict=True):
                np.testing.assert_array_equal(mine.asnumpy(), theirs.asnumpy())
                assert mine is not theirs
        if state == "deferred":
            other.shape = (4, 3)
            other._finish_deferred_init()
            assert param.shape == (0, 3)


# ---- threads ----


def test_block_names_are_per_thread():
    names, inside, go_on = [], threading.Event(), threading.Event()

    def work():
        inside.wait()
        with mx.name.NameManager():
            names.append(nn.Dense(1).name)
        go_on.set()

    thread = threading.Thread(target=work)
    thread.start()
    outer = nn.Sequential(prefix="outer_")
    with outer.name_scope():
        inside.set()
        go_on.wait()
        assert nn.Dense(1).name == "outer_dense0"
    thread.join()
    assert names == ["dense0"]


def test_threads_share_a_hybridized_net():
    net = mlp()
    net.hybridize()
    expected = {n: net(mx.nd.ones((n, 4)) * n).asnumpy() for n in range(1, 5)}
    wrong = []

    def work(n):
        for _ in range(20):
            if not np.array_equal(net(mx.nd.ones((n, 4)) * n).asnumpy(), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- names ----


def test_name_scope_is_reentrant():
    net = nn.Sequential(prefix="net_")
    with net.name_scope():
        first = nn.Dense(1)
        with net.name_scope():
            second = nn.Dense(1)
        third = nn.Dense(1)
    with mx.name.NameManager():
        outside = nn.Dense(1)
    assert [b.name for b in (first, second, third, outside)] == ["net_dense0", "net_dense1", "net_dense2", "dense0"]


def test_name_scope_exits_on_exception():
    net = nn.Sequential(prefix="net_")
    with pytest.raises(KeyError), net.name_scope():
        raise KeyError
    with mx.name.NameManager():
        assert nn.Dense(1).name == "dense0"


# ---- hooks ----


def test_hook_registered_twice_is_called_once():
    seen, net = [], mlp()

    def hook(block, inputs, output):
        seen.append(output.shape)

    first, second = net.register_forward_hook(hook), net.register_forward_hook(hook)
    net(X)
    assert seen == [(2, 3)]
    first.detach()
    second.detach()
    net(X)
    assert len(seen) == 1


def test_hook_may_detach_itself_and_others():
    seen, net = [], mlp()
    handles = []

    def once(block, inputs):
        seen.append("once")
        for handle in handles:
            handle.detach()

    handles.append(net.register_forward_pre_hook(once))
    handles.append(net.register_forward_hook(lambda block, inputs, output: seen.append("after")))
    net(X)
    net(X)
    assert seen == ["once"]


def test_hook_handle_does_not_keep_block_alive():
    net = mlp()
    handle = net.register_forward_hook(lambda *args: None)
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None
    handle.detach()


def test_op_hooks_receive_inputs_and_outputs():
    net, seen = mlp(prefix="net_"), {}
    net.hybridize()
    expected = net(X)
    net.register_op_hook(lambda name, op, array: seen.setdefault(name, array), monitor_all=True)
    np.testing.assert_array_equal(net(X).asnumpy(), expected.asnumpy())
    np.testing.assert_array_equal(seen["net_dense1_fwd_output"].asnumpy(), expected.asnumpy())
    np.testing.assert_array_equal(seen["net_dense0_fwd_data"].asnumpy(), X.asnumpy())
    np.testing.assert_array_equal(seen["net_dense0_fwd_weight"].asnumpy(), net[0].weight.data().asnumpy())


# ---- parameters ----


def test_block_methods_beyond_mxnet():
    net = mlp()
    gradient_of(net)
    net.zero_grad()
    assert not any(g.asnumpy().any() for p in net.collect_params(".*weight").values() for g in p.list_grad())
    net.reset_ctx([mx.cpu(1), mx.cpu(2)])
    assert net.collect_params().list_ctx() == [mx.cpu(1), mx.cpu(2)]
    assert net(X.as_in_context(mx.cpu(2))).context == mx.cpu(2)


def test_reinitialization_resets_gradients_and_keeps_trainer():
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    gradient_of(net)
    trainer.step(1)
    net.initialize(mx.init.One(), force_reinit=True)
    assert not net[0].weight.grad().asnumpy().any()
    with pytest.raises(UserWarning, match="stale|has not been updated"):
        trainer.step(1)
    gradient = gradient_of(net)
    trainer.step(1)
    np.testing.assert_allclose(net[0].weight.data().asnumpy(), 1 - 0.1 * gradient, rtol=1e-6)


def test_trainer_follows_changes_of_grad_req():
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    net[0].collect_params().setattr("grad_req", "null")
    frozen = net[0].weight.data().asnumpy()
    for _ in range(2):
        with autograd.record():
            y = net(X).sum()
        y.backward()
        trainer.step(1)
    np.testing.assert_array_equal(net[0].weight.data().asnumpy(), frozen)
    net[0].collect_params().setattr("grad_req", "write")
    gradient = gradient_of(net)
    trainer.step(1)
    np.testing.assert_allclose(net[0].weight.data().asnumpy(), frozen - 0.1 * gradient, rtol=1e-5, atol=1e-7)


def test_row_sparse_parameter_trains_by_rows():
    param = gluon.Parameter("w", shape=(6, 2), stype="row_sparse", grad_stype="row_sparse", init="ones")
    param.initialize()
    trainer = gluon.Trainer([param], "sgd", {"learning_rate": 0.5})
    rows = mx.nd.array([1, 4])
    with autograd.record():
        y = mx.nd.sparse.Embedding(rows, param.data(), input_dim=6, output_dim=2, sparse_grad=True).sum()
    y.backward()
    assert param.grad().stype == "row_sparse" and param.grad().indices.asnumpy().tolist() == [1, 4]
    trainer.step(1)
    expected = np.ones((6, 2), "float32")
    expected[[1, 4]] = 0.5
    part = param.row_sparse_data(mx.nd.array([0, 1]))
    assert part.stype == "row_sparse" and part.indices.asnumpy().tolist() == [0, 1]
    np.testing.assert_array_equal(part.data.asnumpy(), expected[[0, 1]])
    np.testing.assert_array_equal(param.list_row_sparse_data(mx.nd.array([4]))[0].data.asnumpy(), expected[[4]])


def test_shared_params_include_children_and_train():
    first = mlp(prefix="shared_")
    second = nn.HybridSequential(prefix="shared_", params=first.collect_params())
    with second.name_scope():
        second.add(nn.Dense(5, activation="relu", in_units=4), nn.BatchNorm(in_channels=5), nn.Dense(3, in_units=5))
    assert second[0].weight is first[0].weight and second[1].running_mean is first[1].running_mean
    trainer = gluon.Trainer(second.collect_params(), "sgd")
    gradient_of(first)
    trainer.step(1)
    np.testing.assert_array_equal(first(X).asnumpy(), second(X).asnumpy())


def test_loaded_model_is_hybridized_as_saved(tmp_path):
    net = mlp(prefix="net_")
    net.hybridize()
    expected = net(X).asnumpy()
    net.save(str(tmp_path / "m"))
    other = mlp()
    other.load(str(tmp_path / "m"))
    assert other._active and not other[0]._active
    np.testing.assert_array_equal(other(X).asnumpy(), expected)
    plain = mlp()
    plain.save(str(tmp_path / "p"))
    other = mlp()
    other.load(str(tmp_path / "p"))
    assert not other._active


def test_block_without_parameters_saves_and_loads(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Activation("relu"))
    path = str(tmp_path / "none.params")
    net.save_parameters(path)
    net.load_parameters(path)
    net.save(str(tmp_path / "m"))
    net.load(str(tmp_path / "m"))
    assert net(X).shape == (2, 4)


def test_graph_outputs_do_not_share_memory():
    """This includes graphs that end in an op that is a view in torch, or that return a parameter."""

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(2,), init="ones")

        def hybrid_forward(self, F, x, weight):
            return F.reshape(x, shape=(-1,)), F.identity(x), weight

    net = Net()
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    for result in net(x):
        result[:] = 7
    assert (x.asnumpy() == 1).all() and (net.weight.data().asnumpy() == 1).all()


def test_replacing_a_child_replaces_the_graph():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.head = nn.Dense(2, in_units=3)

        def hybrid_forward(self, F, x):
            return self.head(x)

    net = Net()
    net.initialize()
    net.hybridize()
    assert net(nd.ones((1, 3))).shape == (1, 2)
    net.head = nn.Dense(5, in_units=3)
    net.head.initialize()
    assert net(nd.ones((1, 3))).shape == (1, 5)


def test_cached_graph_is_available_to_libraries():
    net = mlp()
    assert net._cached_graph == ()
    net.hybridize()
    net(X)
    inputs, output = net._cached_graph
    assert [each.name for each in inputs] == ["data"]
    assert output.list_arguments()[0] == "data" and len(output.list_arguments()) == 7
    net.hybridize(False)
    assert net._cached_graph == ()


def test_shared_memory_arrays_work_with_cpu_parameters():
    """MXNet's worker processes return batches there. Results of ops are on the CPU context."""
    net = mlp()
    shared = X.as_in_context(mx.cpu_shared(0))
    assert net(shared).context == (shared + 1).context == mx.cpu(0)
    assert shared[0].context == shared.reshape((-1,)).context == shared.copy().context == mx.cpu_shared(0)
    weight = net[0].weight
    assert weight.data(mx.cpu_pinned(0)) is weight.data() and weight.grad(mx.cpu_shared(0)) is weight.grad()
    net.hybridize()
    assert net(shared).context == mx.cpu(0)
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu_shared\(1\)"):
        weight.data(mx.cpu_shared(1))


class Dropped(gluon.Parameter):
    """A Parameter whose `data` returns modified values, as in some libraries."""

    def data(self, ctx=None):
        return 2 * self._check_and_get(self._data, ctx)


def test_parameter_with_overridden_data_is_trained():
    net = nn.Dense(1, in_units=1, use_bias=False)
    param = Dropped(net.weight.name, shape=(1, 1))
    net._reg_params["weight"] = net.params._params[param.name] = param
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.25})
    for value in (2.0, 1.0):
        net.hybridize(value == 1)
        with autograd.record():
            loss = net(nd.ones((1, 1)))
        loss.backward()
        assert loss.asscalar() == value
        trainer.step(1)
    assert param.list_data()[0].asscalar() == 0


def test_parameter_files_of_block_without_parameters(tmp_path):
    net = mx.gluon.nn.HybridLambda("relu")
    net.hybridize()
    net(mx.nd.ones((1, 2)))
    net.export(str(tmp_path / "m"))
    again = mx.gluon.SymbolBlock.imports(str(tmp_path / "m-symbol.json"), ["data"], str(tmp_path / "m-0000.params"))
    assert again(mx.nd.array([[-1, 2]])).asnumpy().tolist() == [[0, 2]]
