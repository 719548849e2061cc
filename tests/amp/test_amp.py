"""Mixed precision: compared with MXNet's recordings where it could be run, and with float32 training."""

import contextlib
import json
import pathlib

import numpy as np
import pytest
import torch
from launching import neomx_run
from workers import half_layouts
from workers.half import GROUP, SHARES, images, normalised

import neomx as mx
from neomx import amp, autograd, gluon, nd
from neomx.gluon import nn
from parity import amp_programs as programs

HERE = pathlib.Path(__file__).parents[1]
RECORDED = json.loads((HERE / "parity" / "recorded" / "amp_init.json").read_text())


@pytest.fixture
def on():
    """Return amp.init. The fixture resets it after the test."""
    yield amp.init
    amp.amp._reset()


def same(received):
    """Convert a value through JSON."""
    return json.loads(json.dumps(received))


# ---- with a strategy ----


def test_custom_strategy_with_loss_scale(on):
    on("float16")
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=mx.step.AllReduce())
    amp.init_trainer(trainer)
    with autograd.record(), amp.scale_loss(net(mx.nd.ones((1, 2))).sum() * 0.125, trainer) as loss:
        loss.backward()
    before = net.weight.data().asnumpy()
    trainer.step(1)
    np.testing.assert_allclose(before - net.weight.data().asnumpy(), 0.01 * 0.125, rtol=1e-4)
    trainer.strategy.close()


# ---- compared with MXNet ----


def test_names_match_mxnet():
    assert set(RECORDED["float16"]["public"]) <= set(programs.public(amp))
    received = programs.signatures(amp)
    assert {name: received[name] for name in RECORDED["float16"]["signatures"]} == RECORDED["float16"]["signatures"]
    assert mx.contrib.amp is amp
    from neomx.contrib.amp import init

    assert init is amp.init


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lists_match_mxnet(dtype):
    assert same(programs.lists(amp, dtype)) == RECORDED[dtype]["lists"]
    assert amp.list_fp32_ops(dtype) is not amp.list_fp32_ops(dtype)  # a copy each time: programs may modify the list


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_graphs_match_mxnet(on, dtype):
    on(dtype)
    received = same(programs.symbols(mx))
    for key, expected in RECORDED[dtype]["symbols"].items():
        assert received[key] == expected, key


def test_dtypes_match_mxnet(on):
    on("bfloat16")
    assert programs.arrays(mx) == RECORDED["bfloat16"]["arrays"]


def test_loss_scale_changes_as_in_mxnet(on):
    on()
    for at, (received, expected) in enumerate(
        zip(same(programs.scales(mx, amp)), RECORDED["float16"]["scales"], strict=True)
    ):
        assert received == expected, at


def test_losses_with_their_own_gradient_are_scaled(on):
    on()
    assert programs.own_gradients(mx) == RECORDED["float16"]["own gradients"]
    programs.scales(mx, amp)
    assert programs.own_gradients(mx) == RECORDED["float16"]["own gradients later"]


# ---- errors and warnings ----


def trainer_of(**more):
    weight = gluon.Parameter("w", shape=(2,))
    weight.initialize(init=mx.init.One())
    return gluon.Trainer([weight], "sgd", {"learning_rate": 0.5}, **more)


def test_missing_initialization_raises(on):
    trainer = trainer_of()
    with pytest.raises(AssertionError, match=r"amp\.init\(\) first"):
        amp.init_trainer(trainer)
    on()
    with pytest.raises(AssertionError, match="amp.init_trainer"), amp.scale_loss(nd.ones(1), trainer):
        pass
    with pytest.raises(TypeError, match="gluon.Trainer, received SGD"):
        amp.init_trainer(trainer.optimizer)
    assert amp.unscale(trainer) is None  # as in MXNet
    with pytest.raises(AssertionError, match="update_on_kvstore=False"):
        amp.init_trainer(trainer_of(kvstore="local", update_on_kvstore=True))


def test_unknown_ops_and_dtypes_raise(on):
    with pytest.raises(AttributeError, match="Did you mean FullyConnected"):
        on("float16", target_precision_ops=["FullyConected"])
    with pytest.raises(AssertionError, match="target_dtype must be 'float16' or 'bfloat16', received 'int8'"):
        on("int8")
    assert nd.FullyConnected(nd.ones((1, 1)), nd.ones((1, 1)), no_bias=True, num_hidden=1).dtype == np.float32


def test_amp_initialized_tells_whether_enabled(on):
    assert amp.amp._amp_initialized is False
    on()
    assert amp.amp._amp_initialized is True
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        amp.amp.nothing


def test_submodule_has_the_names_of_the_package():
    names = ["convert_model", "convert_symbol", "convert_hybrid_block", "init", "unscale", "list_lp16_ops"]
    assert [getattr(amp.amp, name) for name in names] == [getattr(amp, name) for name in names]


def test_second_init_is_ignored_with_warning(on, caplog):
    on("bfloat16")
    on("bfloat16")
    assert not caplog.records
    on("float16")
    assert "amp.init is ignored" in caplog.text
    assert nd.dot(nd.ones((1, 1)).astype("bfloat16"), nd.ones((1, 1))).dtype == np.float32


def test_given_lists_replace_mxnets(on):
    on("float16", ["dot"], [("Activation", "act_type", ["relu"])], ["FullyConnected"])
    x = nd.ones((2, 2))
    half = x.astype("float16")
    assert nd.dot(x, x).dtype == np.float16
    assert nd.FullyConnected(half, half, no_bias=True, num_hidden=2).dtype == np.float32
    assert nd.Activation(half, act_type="relu").dtype == np.float32
    assert nd.Activation(half, act_type="softrelu").dtype == np.float16
    assert nd.exp(half).dtype == np.float16
    assert (half + x).dtype == np.float32


def test_lists_of_one_dtype_work_for_the_other(on):
    on("bfloat16", ["FullyConnected", "batch_dot"], fp32_ops=amp.list_fp32_ops("float16"))
    x = nd.ones((1, 2, 2))
    assert nd.batch_dot(x, x)._data.dtype is torch.bfloat16
    assert nd.batch_dot(x, x).reshape((2, 2)).T._data.dtype is torch.bfloat16
    assert nd.softmax(nd.batch_dot(x, x)).dtype == np.float32


def test_sparse_arrays_stay_sparse(on):
    on()
    table = nd.sparse.csr_matrix(np.eye(3, dtype="float32"))
    assert (table + table).stype == "csr"
    assert nd.sparse.square(table.tostype("default").tostype("row_sparse")).stype == "row_sparse"
    assert nd.sparse.dot(table, nd.ones((3, 2)).astype("float16")).dtype == np.float32


def test_out_argument_receives_the_result(on):
    on()
    x, out = nd.ones((2, 3)), nd.zeros((2, 4))
    nd.FullyConnected(x, nd.ones((4, 3)), no_bias=True, num_hidden=4, out=out)
    assert out.dtype == np.float32 and out.asnumpy()[0].tolist() == [3] * 4
    half = x.astype("float16")
    half *= x
    assert half.dtype == np.float16


def test_reset_disables_all_casts(on):
    on()
    amp.amp._reset()
    with pytest.raises(mx.MXNetError, match="one dtype"):
        nd.ones(1) + nd.ones(1).astype("float16")
    assert mx.sym.FullyConnected(mx.sym.var("a"), num_hidden=1).tojson(False).count("amp_cast") == 0


# ---- training ----


def network(hybrid=False):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, in_channels=1), nn.BatchNorm(in_channels=8), nn.Activation("relu"), nn.MaxPool2D(2))
    net.add(nn.Flatten(), nn.Dense(16, activation="relu", in_units=72), nn.LayerNorm(in_channels=16))
    net.add(nn.Dense(2, in_units=16))
    net.initialize()
    random = np.random.default_rng(0)
    for param in net.collect_params(".*weight").values():
        param.set_data(nd.array(random.standard_normal(param.shape) * 0.3))
    if hybrid:
        net.hybridize()
    return net


def losses(net, dtype="float32", optimizer="adam", scaled=False, casting=None, steps=8):
    """Return the mean loss before each step."""
    x = np.random.default_rng(1).standard_normal((32, 1, 8, 8)).astype("float32")
    y = nd.array(x.mean((1, 2, 3)) > 0)
    x = nd.array(x).astype(dtype)
    settings = {"learning_rate": 0.01, "multi_precision": dtype != "float32"}
    trainer = gluon.Trainer(net.collect_params(), optimizer, settings)
    if scaled:
        amp.init_trainer(trainer)
        trainer._amp_loss_scaler._loss_scale = trainer._amp_loss_scaler._next_loss_scale = 64.0
    loss_of, means = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(steps):
        with autograd.record():
            with torch.autocast("cpu", enabled=False) if casting is None else amp.autocast(casting):
                loss = loss_of(net(x), y)
            with amp.scale_loss(loss, trainer) if scaled else _as_it_is(loss) as heads:
                autograd.backward(heads)
        trainer.step(32)
        means.append(float(loss.astype("float32").mean().asscalar()))
    return np.array(means)


@contextlib.contextmanager
def _as_it_is(loss):
    yield loss


# The tolerance of losses relative to float32: a few units in the last digits of the dtype.
NEAR = {"float16": 2e-3, "bfloat16": 1.5e-2}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_mixed_precision_trains_like_float32(on, dtype, hybrid):
    expected = losses(network())
    on(dtype)
    assert np.abs(losses(network(hybrid), scaled=True) - expected).max() < NEAR[dtype]
    assert expected[-1] < expected[0] - 0.1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_cast_network_trains_like_float32(dtype, optimizer):
    expected, net = losses(network(), optimizer=optimizer), network()
    net.cast(dtype)
    assert {str(torch_dtype(p)) for p in net.collect_params(".*(conv|dense).*").values()} == {f"torch.{dtype}"}
    assert torch_dtype(net[1].gamma) is torch.float32
    assert np.abs(losses(net, dtype, optimizer) - expected).max() < NEAR[dtype]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_twins_and_executors_compute_in_mixed_precision(on, dtype):
    on(dtype)
    twin = network().torch()
    y = twin(torch.ones(2, 1, 8, 8))
    y.float().sum().backward()
    assert y.dtype is getattr(torch, dtype)
    assert {p.grad.dtype for p in twin.parameters()} == {torch.float32}
    graph = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="f")
    executor = mx.sym.LinearRegressionOutput(graph, name="l").simple_bind(mx.cpu(), data=(3, 4), l_label=(3, 2))
    executor.arg_dict["data"][:] = 1 / 3
    executor.arg_dict["f_weight"][:] = 1 / 3
    (out,) = executor.forward(is_train=True)
    executor.backward()
    assert out.dtype == executor.grad_dict["f_weight"].dtype == np.float32
    exact = 4 / 9
    assert 0 < abs(out.asnumpy()[0, 0] - exact) < NEAR[dtype]  # not exact, so it was computed in low precision


def test_compiled_graphs_contain_casts(on):
    expected, net = network(), network()
    on("bfloat16")
    net.hybridize(backend="eager")
    x = nd.array(np.random.default_rng(4).standard_normal((2, 1, 8, 8)))
    received = net(x)
    amp.amp._reset()
    assert received._data.dtype is torch.bfloat16
    np.testing.assert_allclose(received.astype("float32").asnumpy(), expected(x).asnumpy(), atol=5 * NEAR["bfloat16"])


def torch_dtype(param):
    return param.data()._data.dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_of_blocks_twins_and_modules(dtype):
    assert np.abs(losses(network(), casting=dtype) - losses(network())).max() < NEAR[dtype]
    wanted = getattr(torch, dtype)
    for module in (network().torch(), torch.nn.Linear(3, 2)):
        x = torch.ones(1, 1, 8, 8) if not isinstance(module, torch.nn.Linear) else torch.ones(1, 3)
        with amp.autocast(dtype):
            y = module(x)
        assert y.dtype is wanted
        assert {p.dtype for p in module.parameters()} == {torch.float32}
    with amp.autocast(dtype):  # arrays of different dtypes are promoted to the wider one
        assert (nd.dot(nd.ones((2, 2)), nd.ones((2, 2))) + nd.ones((2, 2))).dtype == np.float32


def test_overflow_keeps_weights_states_and_counts(on):
    on()
    weight = gluon.Parameter("w", shape=(2,))
    weight.initialize(init=mx.init.One())
    trainer = gluon.Trainer([weight], "adam")
    amp.init_trainer(trainer)

    def step(factor):
        with autograd.record(), amp.scale_loss((weight.data() * factor).sum(), trainer) as scaled:
            scaled.backward()
        trainer.step(1)
        return [a.asnumpy().tolist() for a in (weight.data(), *trainer._updaters[0].states[0])]

    before = step(2.0)
    assert step(float("nan")) == before
    assert trainer.optimizer.num_update == 1
    assert step(2.0) != before


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_all_finite(dtype):
    finite = [nd.array([-6e4, 6e4]).astype(dtype), nd.zeros((0,)), nd.array([3e38, 3e38])]
    assert amp.loss_scaler.all_finite([])
    assert amp.loss_scaler.all_finite(finite)
    for bad in (float("inf"), -float("inf"), float("nan")):
        assert not amp.loss_scaler.all_finite([*finite, nd.array([0, bad, 1]).astype(dtype)])


def test_stale_overflow_does_not_skip_steps(on):
    """A parameter that a step did not use has the gradient of an earlier step, which may be infinite."""
    on()
    weights = [gluon.Parameter(name, shape=(1,)) for name in "ab"]
    for weight in weights:
        weight.initialize(init=mx.init.One())
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.5})
    amp.init_trainer(trainer)
    for factor in (float("inf"), 1.0):
        with autograd.record():
            loss = weights[0].data() + (weights[1].data() * factor if factor > 1 else 0)
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        trainer.step(1, ignore_stale_grad=True)
    assert [weight.data().asscalar() for weight in weights] == [0.5, 1.0]


def test_several_contexts_skip_together(on):
    """MXNet's store would have updated them with infinity."""
    on()
    contexts = [mx.cpu(0), mx.cpu(1)]
    weight = gluon.Parameter("w", shape=(1,))
    weight.initialize(init=mx.init.One(), ctx=contexts)
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.5})
    amp.init_trainer(trainer)
    for factors in ([1.0, float("inf")], [1.0, 2.0]):
        with autograd.record():
            parts = [weight.data(ctx) * factor for ctx, factor in zip(contexts, factors, strict=True)]
            with amp.scale_loss(parts, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(1)
    assert [weight.data(ctx).asscalar() for ctx in contexts] == [-0.5, -0.5]
    assert trainer._amp_loss_scaler._next_loss_scale == 32768


def test_row_sparse_gradients_are_checked_for_overflow(on):
    on()
    layer = gluon.contrib.nn.SparseEmbedding(4, 2)
    layer.initialize(mx.init.One())
    trainer = gluon.Trainer(layer.collect_params(), "sgd", {"learning_rate": 0.5})
    amp.init_trainer(trainer)
    for factor, expected in ((float("inf"), 1.0), (1.0, 0.5)):
        with autograd.record(), amp.scale_loss(layer(nd.array([2])) * factor, trainer) as scaled:
            scaled.backward()
        trainer.step(1)
        assert layer.weight.data().asnumpy()[2].tolist() == [expected] * 2


def test_converted_block_computes_the_same():
    net = network(hybrid=True)
    x = nd.array(np.random.default_rng(2).standard_normal((4, 1, 8, 8)))
    expected = net(x).asnumpy()
    for dtype in ("float16", "bfloat16"):
        for options in ({}, {"cast_optional_params": True}, {"excluded_sym_names": ["not there"]}):
            made = amp.convert_hybrid_block(net, dtype, **options)
            assert made(x).dtype == np.float32
            np.testing.assert_allclose(made(x).asnumpy(), expected, atol=5 * NEAR[dtype])
            dtypes = {torch_dtype(p) for name, p in made.collect_params().items() if "dense" in name}
            assert dtypes == {getattr(torch, dtype) if options.get("cast_optional_params") else torch.float32}


# ---- float32 copies ----

FUSED = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("nag", {"momentum": 0.9}),
    ("adam", {}),
    ("adagrad", {}),
    ("rmsprop", {}),
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "settings"), FUSED)
def test_fused_update_of_float32_copies(name, settings, dtype, monkeypatch):
    """Equal to each optimizer's own op up to rounding: the copies to 1e-5, the weights to one digit of their dtype."""

    def run(fused_too):
        updater = mx.optimizer.get_updater(mx.optimizer.create(name, multi_precision=True, wd=0.01, **settings))
        if fused_too:
            monkeypatch.setattr(type(updater.optimizer), "update_multi_precision", None)
        else:
            monkeypatch.setattr("neomx.optimizer.fused.RULES", {})
        random = np.random.default_rng(3)
        shapes = [(3, 4), (5,), (2, 3, 3, 3)]
        weights = [nd.array(random.standard_normal(shape)).astype(dtype) for shape in shapes]
        weights.append(nd.ones(3))
        for _ in range(4):
            grads = [nd.array(random.standard_normal(w.shape)).astype(w.dtype) for w in weights]
            updater([0, 1, 2, 3], grads, weights)
        monkeypatch.undo()
        masters = [updater.optimizer._split_state(w, updater.states[i])[0] for i, w in enumerate(weights[:3])]
        return [a.astype("float32").asnumpy() for a in masters], [w.astype("float32").asnumpy() for w in weights]

    (copies, weights), (expected_copies, expected) = run(True), run(False)
    for one, other in zip(copies, expected_copies, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for one, other, copy in zip(weights, expected, [*copies, weights[3]], strict=True):
        np.testing.assert_allclose(one, other, rtol=0.01)
        np.testing.assert_allclose(one, copy, rtol=4e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_states_with_float32_copies_are_saved_and_restored(optimizer, tmp_path):
    net = network()
    net.cast("bfloat16")
    settings = {"learning_rate": 0.01, "multi_precision": True}
    x = nd.ones((2, 1, 8, 8)).astype("bfloat16")

    def step(net, trainer):
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
        trainer.step(2)

    trainer = gluon.Trainer(net.collect_params(), optimizer, settings)
    step(net, trainer)
    trainer.save_states(str(tmp_path / "states"))
    net.save_parameters(str(tmp_path / "params"))
    other = network()
    other.cast("bfloat16")
    other.load_parameters(str(tmp_path / "params"))
    again = gluon.Trainer(other.collect_params(), optimizer, settings)
    again.load_states(str(tmp_path / "states"))
    for each in ((net, trainer), (other, again)):
        step(*each)
    for one, two in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
        assert torch.equal(one.data()._data, two.data()._data)


# ---- on three workers ----


def written_by(count, script, folder):
    """Return the arrays that each of `count` workers wrote."""
    run = neomx_run("-n", count, HERE / "workers" / script, f"{folder}/w")
    assert run.returncode == 0, run.stdout + run.stderr
    return [dict(np.load(f"{folder}/w-{rank}.npz")) for rank in range(count)]


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    return written_by(3, "half.py", tmp_path_factory.mktemp("half"))


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    return written_by(2, "half_layouts.py", tmp_path_factory.mktemp("layouts"))


@pytest.mark.parametrize(("name", "ranks"), [("all", [0, 1, 2]), ("two", GROUP), ("two", [1])])
def test_sync_batch_norm_equals_batch_norm_of_whole_batch(workers, name, ranks):
    """Unequal parts of a batch: forward, backward and running averages. float32 sums in another order: 1e-5."""
    rows = np.concatenate([np.arange(*SHARES[rank]) for rank in ranks])
    expected = normalised(nn.BatchNorm(in_channels=3), images()[rows], images(1)[rows])
    found = [[workers[rank][f"{name}/{at}"] for at in range(len(expected))] for rank in ranks]
    for at, value in enumerate(expected):
        of_ranks = [each[at] for each in found]
        if at >= 8:  # the running averages are equal on all workers
            for each in of_ranks:
                np.testing.assert_allclose(each, value, rtol=1e-5, atol=1e-5)
        else:  # rows of outputs and data; gradients of gamma and beta are partial sums, which a Trainer adds
            whole = np.concatenate(of_ranks) if value.ndim > 1 else np.sum(of_ranks, axis=0)
            np.testing.assert_allclose(whole, value, rtol=1e-5, atol=1e-5, err_msg=str(at))


def test_all_workers_skip_the_same_steps(workers):
    for rank, found in enumerate(workers):
        weights, scales, following = found["together"].T
        assert scales.tolist() == [65536, 32768, 16384, 16384]
        assert following.tolist() == [32768, 16384, 16384, 16384]
        assert weights[:2].tolist() == [1, 1]
        assert weights[2:].tolist() == workers[0]["together"][2:, 0].tolist()
        apart, scales, following = found["apart"].T
        assert scales.tolist() == [65536, 32768, 16384, 16384]
        assert apart.tolist() == [1, 1, 1 - 0.5 * rank, 1 - 0.5 * rank - 1.5]
    assert workers[0]["together"][2:, 0].tolist() == [1 - 0.5 * (0 + 1 + 2), -0.5 - 0.5 * 3 * 3]  # sums over workers


def test_torch_optimizers_skip_the_same_steps(workers):
    for rank, found in enumerate(workers):
        weights, scales = found["torch"].T
        assert scales.tolist() == [4, 4, 4]
        assert weights.tolist() == [1, 1 - 0.5 * rank, 1 - 0.5 * rank - (1.5 if rank else 0)]


def test_grad_scaler_without_agree_equals_torchs():
    module = torch.nn.Linear(2, 1)
    optimizer, scaler = torch.optim.SGD(module.parameters(), lr=0.1), amp.GradScaler(init_scale=4.0)
    before = module.weight.detach().clone()
    scaler.scale(module(torch.ones(1, 2)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(module.weight.detach(), before - 0.1)


def test_worker_without_data_copies_the_scale(workers):
    assert [int(found["uneven count"]) for found in workers] == [9, 9, 6]
    assert workers[2]["uneven"].tolist() == workers[0]["uneven"].tolist() == workers[1]["uneven"].tolist()
    assert workers[0]["uneven"][1] > 65536


@pytest.mark.parametrize("layout", half_layouts.LAYOUTS)
@pytest.mark.parametrize("kind", half_layouts.KINDS)
def test_layouts_train_like_one_process(layouts, kind, layout):
    """Sums of half precision products in another order differ in their last digits, and so may the weights."""
    weights, scales = half_layouts.trained(kind)
    for found in layouts:
        assert found[f"{layout}/{kind}/scales"].tolist() == scales
        for name, value in weights.items():
            received = found[f"{layout}/{kind}/{name}"]
            np.testing.assert_allclose(received, value, rtol=0, atol=NEAR[kind.split()[1]], err_msg=name)
    start = half_layouts.network().collect_params()
    assert max(np.abs(start[name].data().asnumpy() - value).max() for name, value in weights.items()) > 0.05
