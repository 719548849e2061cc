"""mx.mod, beyond the recordings of MXNet: events, errors, and sharing."""

import logging
import re

import numpy as np
import pytest

import neomx as mx
from neomx import events
from neomx.model import _create_kvstore, _initialize_kvstore, _update_params, _update_params_on_kvstore
from parity.cases.module import batch, iterator, mlp, small, weights


def trained(module, count=3, **options):
    """Return a module after a few steps."""
    options.setdefault("optimizer_params", {"learning_rate": 0.3, "momentum": 0.9})
    module.init_optimizer(**options)
    for seed in range(count):
        module.forward_backward(batch(mx, seed=seed))
        module.update()
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


def same(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


# ---- events and logs ----


def test_fit_emits_the_same_events_as_gluon():
    heard = []
    stop = events.subscribe(lambda name, fields: heard.append((name, fields)))
    try:
        mx.mod.Module(mlp(mx)).fit(iterator(mx, 10), num_epoch=2, eval_metric="acc")
    finally:
        stop()
    names = [name for name, _ in heard]
    expected = ["trainer", "fit", "epoch", "forward", "backward", "step", "trained", "metrics", "batch"]
    assert names[: len(expected)] == expected
    assert [names.count(name) for name in ("epoch", "step", "batch", "metrics", "epoch_end")] == [2, 6, 6, 6, 2]
    first = next(fields for name, fields in heard if name == "epoch")
    assert (first["number"], first["steps"]) == (0, 3)
    batches = [fields["batch"] for name, fields in heard if name == "batch"]
    assert [(b.epoch, b.step, b.steps, b.samples) for b in batches[:3]] == [(0, 0, 3, 4), (0, 1, 3, 4), (0, 2, 3, 2)]
    assert "accuracy" in next(fields for name, fields in heard if name == "metrics")["values"]


def test_progress_bar_counts_the_batches_of_fit(capsys):
    shown = mx.monitor.progress(epochs=2, bar=False, every=0.0)
    try:
        mx.mod.Module(mlp(mx)).fit(iterator(mx, 12), iterator(mx, 8), num_epoch=2)
    finally:
        shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("epoch 0 of 2: 3 steps in") for line in lines) == 1
    assert any(line.startswith("epoch 1 of 2, step 2/3") and "accuracy" in line for line in lines)


def test_progress_bar_shows_the_epochs_and_metrics_that_fit_logs(capsys, caplog):
    """Speedometer resets the metric after each of its lines; the epoch's value covers all batches."""
    caplog.set_level("INFO")
    shown = mx.monitor.progress(bar=False, every=1e9)
    try:
        mx.mod.Module(mlp(mx)).fit(
            iterator(mx, 40),
            begin_epoch=3,
            num_epoch=5,
            optimizer_params={"learning_rate": 0.5},
            batch_end_callback=mx.callback.Speedometer(4, frequent=3),
        )
    finally:
        shown.close()
    logged = dict(re.findall(r"Epoch\[(\d)\] Train-accuracy=([\d.]+)", caplog.text))
    lines = dict(re.findall(r"epoch (\d) of 5: 10 steps .*accuracy ([\d.]+)", capsys.readouterr().err))
    assert list(logged) == ["3", "4"]
    assert {n: f"{float(v):.3f}" for n, v in lines.items()} == {n: f"{float(v):.3f}" for n, v in logged.items()}


def test_epoch_end_is_emitted_when_training_fails():
    ended = []
    stop = events.subscribe(lambda name, fields: ended.append(fields["number"]), "epoch_end")

    def fail(param):
        raise RuntimeError("enough")

    try:
        with pytest.raises(RuntimeError, match="enough"):
            mx.mod.Module(mlp(mx)).fit(iterator(mx), num_epoch=2, batch_end_callback=fail)
    finally:
        stop()
    assert ended == [0]


def test_callbacks_receive_the_local_variables_of_fit_and_score():
    seen = {}
    module = mx.mod.Module(mlp(mx))
    module.fit(iterator(mx), num_epoch=1, batch_end_callback=lambda p: seen.update(p.locals))
    assert seen["self"] is module and seen["nbatch"] == 2 and seen["data_batch"].pad == 2 and seen["epoch"] == 0
    module.score(iterator(mx), "acc", batch_end_callback=[lambda p: seen.update(p.locals)])
    assert seen["eval_batch"].data[0].shape == (4, 5) and seen["actual_num_batch"] == 2


def test_custom_logger_is_used(caplog):
    logger = logging.getLogger("mine")
    with caplog.at_level(logging.INFO, "mine"):
        mx.mod.Module(mlp(mx), logger=logger).fit(iterator(mx), num_epoch=1)
    assert [record.name for record in caplog.records] == ["mine", "mine"]


# ---- contexts and stores ----


@pytest.mark.parametrize("store", [None, "local", "device", "nccl", "local_allreduce_cpu", "dist_sync", "horovod"])
def test_all_local_kvstores_train_the_same(store):
    same(trained(small(mx), kvstore=store), trained(small(mx), kvstore=None))
    if store is not None:  # without a store, the contexts diverge
        contexts = [mx.cpu(0), mx.cpu(1)]
        same(trained(small(mx, context=contexts), kvstore=store), trained(small(mx), kvstore=None))


@pytest.mark.parametrize("contexts", [1, 2])
def test_contexts_can_update_without_the_store(contexts, monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    module = small(mx, context=[mx.cpu(i) for i in range(contexts)])
    same(trained(module, kvstore=mx.kv.create("local")), trained(small(mx), kvstore=None))
    assert module._update_on_kvstore is False and len(module._updater.states) == 4 * contexts


def test_kvstore_without_an_optimizer_only_sums():
    calls = []

    @mx.kv.KVStoreBase.register
    class SumsOnly(mx.kv.KVStoreBase):
        rank, num_workers = 0, 1

        def broadcast(self, key, value, out, priority=0):
            calls.append(("broadcast", key))
            for array in out:
                value.copyto(array)

        def pushpull(self, key, value, out=None, priority=0):
            calls.append(("pushpull", key))

        @staticmethod
        def is_capable(capability):
            return False

    module = small(mx)
    same(trained(module, kvstore="sumsonly"), trained(small(mx), kvstore=None))
    assert calls[:4] == [("broadcast", name) for name in module._param_names] and len(calls) == 4 + 3 * 4


def test_gradients_are_compressed_between_contexts():
    contexts = [mx.cpu(0), mx.cpu(1)]
    coarse = {"type": "2bit", "threshold": 0.01}
    settings = {"kvstore": "device", "optimizer_params": {"learning_rate": 1.0, "rescale_grad": 1.0}, "count": 1}
    before = small(mx).get_params()[0]["fc1_weight"].asnumpy().copy()
    after = trained(small(mx, context=contexts, compression_params=coarse), **settings)["fc1_weight"]
    steps = np.abs(after - before) / 0.01  # a multiple of the threshold from each of two contexts
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    assert set(np.round(steps).astype(int).ravel()) <= {0, 1, 2} and steps.max() > 0


def test_group2ctxs_places_parts_of_a_symbol():
    with mx.AttrScope(ctx_group="a"):
        x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc1")
    with mx.AttrScope(ctx_group="b"):
        x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu"), num_hidden=3, name="fc2")
        symbol = mx.sym.SoftmaxOutput(x, name="softmax")
    groups = {"a": mx.cpu(1), "b": mx.cpu(2)}
    module = small(mx, symbol=symbol, group2ctxs=groups)
    same(trained(module), trained(small(mx)))
    where = {
        name: row[0].context for name, row in zip(module._param_names, module._exec_group.param_arrays, strict=True)
    }
    assert where["fc1_weight"] == mx.cpu(1) and where["fc2_weight"] == mx.cpu(2)
    with pytest.raises(AssertionError, match="one context, or one for each of 1"):
        small(mx, symbol=symbol, group2ctxs={"a": [mx.cpu(1), mx.cpu(2)]})


def test_batches_can_be_given_per_context():
    contexts = [mx.cpu(0), mx.cpu(1)]
    module, whole = small(mx, context=contexts), batch(mx)
    parts = [
        mx.io.DataBatch([whole.data[0][i : i + 2]], [whole.label[0][i : i + 2]], provide_data=None) for i in (0, 2)
    ]
    module.forward(parts)
    cut = module.get_outputs()[0].asnumpy()
    module.forward(whole)
    np.testing.assert_allclose(cut, module.get_outputs()[0].asnumpy())
    metric = mx.metric.create("acc")
    module.update_metric(metric, [part.label for part in parts], pre_sliced=True)
    assert metric.num_inst == 4
    with pytest.raises(AssertionError, match="empty list"):
        module.forward([])


def test_helpers_for_custom_training_loops():
    assert _create_kvstore("local", 1, {}) == (None, False)
    weight, grad, value = mx.nd.ones(2), mx.nd.full(2, 3.0), mx.nd.full(2, 5.0)
    store, on_store = _create_kvstore("local", 2, {"w": weight})
    assert on_store and store.type == "local"
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    _initialize_kvstore(store, [[weight]], {"w": value}, ["w"], on_store)
    assert weight.asnumpy().tolist() == [5, 5]
    _update_params_on_kvstore([[weight]], [[grad]], store, ["w"])
    assert weight.asnumpy().tolist() == [2, 2]
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=1.0))
    _update_params([[weight], [value]], [[grad], [None]], updater, num_device=1)
    assert weight.asnumpy().tolist() == [-1, -1] and value.asnumpy().tolist() == [5, 5]
    with pytest.raises(TypeError, match="param_names"):
        _update_params([[weight]], [[grad]], updater, 1, kvstore=store)


# ---- sharing and copying ----


def test_buckets_share_arrays():
    module = mx.mod.BucketingModule(lambda key: (mlp(mx), ("data",), ("softmax_label",)), default_bucket_key=4)
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(arg_params=weights(mx, mlp(mx), data=(4, 5), softmax_label=(4,))[0])
    module.init_optimizer(optimizer_params={"learning_rate": 0.3, "momentum": 0.9})
    for seed, key in enumerate((4, 2, 4)):
        each = batch(mx, seed=seed)
        each.bucket_key = key  # without descriptions of its data
        module.forward_backward(each)
        module.update()
    groups = [bucket._exec_group for bucket in module._buckets.values()]
    assert all(a[0] is b[0] for a, b in zip(groups[0].param_arrays, groups[1].param_arrays, strict=True))
    assert all(a[0] is b[0] for a, b in zip(groups[0].grad_arrays, groups[1].grad_arrays, strict=True))
    found = {name: array.asnumpy() for name, array in module.get_params()[0].items()}
    same(found, trained(small(mx)))
    first = module._buckets[4]
    assert not module._buckets[2]._exec_group.execs[0]._results  # the graph of the previous bucket was freed
    assert module._buckets[2]._updater is first._updater and module._buckets[2]._optimizer is first._optimizer


def test_bucket_with_extra_parameters_raises():
    def generate(key):
        x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name=f"fc{key}")
        return mx.sym.SoftmaxOutput(x, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(generate, default_bucket_key=1)
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params()
    module.init_optimizer()
    with pytest.raises(
        mx.MXNetError, match=r"not have the parameters fc2_bias, fc2_weight, so they would not be trained"
    ):
        module.switch_bucket(2, [("data", (4, 5))], [("softmax_label", (4,))])
    with pytest.raises(ValueError, match="must return .* but returned Symbol"):
        mx.mod.BucketingModule(lambda key: mlp(mx), default_bucket_key=1)


def test_rebound_buckets_keep_their_parameters():
    module = mx.mod.BucketingModule(lambda key: (mlp(mx), ("data",), ("softmax_label",)), default_bucket_key=4)
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Constant(0.5))
    module.bind([("data", (2, 5))], [("softmax_label", (2,))], for_training=False, force_rebind=True)
    assert module.get_params()[0]["fc1_weight"].asnumpy().tolist() == np.full((6, 5), 0.5).tolist()
    assert module.predict(mx.nd.ones((2, 5))).shape == (2, 3)


def test_rebound_module_keeps_its_parameters():
    module = small(mx)
    after = trained(module)
    module.bind([("data", (2, 5))], [("softmax_label", (2,))], for_training=False, force_rebind=True)
    same({name: array.asnumpy() for name, array in module.get_params()[0].items()}, after)


def test_forward_copies_the_batch():
    module, given = small(mx), batch(mx)
    before = given.data[0].asnumpy()
    module.forward(given, is_train=True)
    given.data[0][:] = 0
    module.backward()
    reference = small(mx)
    reference.forward_backward(batch(mx))
    for ours, wanted in zip(module._exec_group.grad_arrays, reference._exec_group.grad_arrays, strict=True):
        np.testing.assert_array_equal(ours[0].asnumpy(), wanted[0].asnumpy())
    assert before.any()


def test_predict_accepts_other_batch_sizes_without_labels():
    module = small(mx)
    assert module.predict(mx.nd.ones((7, 5))).shape == (7, 3)
    assert module.label_shapes[0].shape == (7,)
    bare = mx.mod.Module(mlp(mx))
    with pytest.warns(UserWarning, match="label_shapes don't match"):
        bare.bind([("data", (4, 5))], for_training=False)
    bare.set_params(*module.get_params())
    with pytest.warns(UserWarning, match="label_shapes don't match"):
        found = bare.predict(np.ones((2, 5), "f"))
    np.testing.assert_allclose(found.asnumpy(), module.predict(np.ones((2, 5), "f")).asnumpy())


def test_converted_buckets_compute_in_half_precision():
    module = mx.mod.BucketingModule(lambda key: (mlp(mx), ("data",), ("softmax_label",)), default_bucket_key=4)
    with pytest.raises(AssertionError, match="no buckets yet"):
        mx.amp.convert_bucketing_module(module, "bfloat16")
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    half = mx.amp.convert_bucketing_module(module, "bfloat16", cast_optional_params=True)
    assert half.params_initialized and not half.binded
    half.bind([("data", (4, 5))], [("softmax_label", (4,))], for_training=False)
    ours, full = half.predict(batch(mx).data[0]), module.predict(batch(mx).data[0])
    assert "bfloat16" in str(half.get_params()[0]["fc1_weight"]._data.dtype) and "amp_cast" in half.symbol.tojson(
        remove_amp_cast=False
    )
    assert 0 < np.abs(ours.asnumpy() - full.asnumpy()).max() < 0.02
    with pytest.raises(AssertionError, match="expected a BucketingModule, received Module"):
        mx.amp.convert_bucketing_module(small(mx))


# ---- errors and warnings ----


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.update(), AssertionError, r"update: call init_optimizer\(\) first"),
        (lambda m: m.get_input_grads(), AssertionError, "inputs_need_grad=True"),
        (lambda m: m.forward(mx.io.DataBatch([], [])), mx.MXNetError, r"1 data array\(s\), data; received 0"),
        (
            lambda m: m.forward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.ones((4, 2))])),
            mx.MXNetError,
            r"label 'softmax_label' was bound with shape \(4,\), received \(4, 2\)",
        ),
        (
            lambda m: m.forward(mx.io.DataBatch([mx.nd.ones((4, 6))], [mx.nd.ones((4,))])),
            mx.MXNetError,
            r"require fc1_weight of shape \(6, 6\), but it has \(6, 5\)",
        ),
        (
            lambda m: m.forward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.ones(4), mx.nd.ones(4)])),
            mx.MXNetError,
            r"1 label array\(s\), softmax_label; received 2",
        ),
        (lambda m: m.set_params({}, {}), RuntimeError, "fc1_bias is not presented"),
        (
            lambda m: m.set_params({**m.get_params()[0], "fc1_bias": mx.nd.ones(9)}, {}),
            mx.MXNetError,
            r"parameter fc1_bias has shape \(6,\), but the given value has \(9,\)",
        ),
        (lambda m: m.init_optimizer(optimizer=3), AssertionError, "received int"),
        (lambda m: m.init_optimizer(kvstore=3), TypeError, "kvstore must be KVStore, str or None, received 3"),
        (lambda m: m.init_optimizer(kvstore="dist_async"), mx.MXNetError, "needs parameter servers"),
        (lambda m: m.predict([1]), ValueError, "received list"),
        (lambda m: m.fit(iterator(mx)), AssertionError, "num_epoch"),
        (lambda m: m.bind([("data", (4, 5))], shared_module=3, force_rebind=True), AssertionError, "shared_module"),
    ],
)
@pytest.mark.filterwarnings("ignore:Data provided by label_shapes")
def test_invalid_input_raises(call, error, message):
    with pytest.raises(error, match=message):
        call(small(mx))


def test_module_works_after_an_invalid_batch():
    module = small(mx)
    with pytest.raises(mx.MXNetError, match="fc1_weight"):
        module.forward(mx.io.DataBatch([mx.nd.ones((2, 6))], [mx.nd.ones(2)]))
    assert module.data_shapes[0].shape == (4, 5)
    same(trained(module), trained(small(mx)))


def test_warnings_match_mxnet():
    module = small(mx)
    with pytest.warns(
        UserWarning, match="Parameters already initialized and force_init=False. init_params call ignored."
    ):
        module.init_params()
    with pytest.warns(
        UserWarning, match=r"rescale_grad is not normalized to 1.0/batch_size/num_workers \(1.0 vs. 0.25"
    ):
        module.init_optimizer(optimizer=mx.optimizer.SGD())
    with pytest.warns(UserWarning, match="No need to call sparse_row_id_fn"):
        module.prepare(batch(mx), sparse_row_id_fn=lambda each: {})
    with pytest.warns(UserWarning, match="label_names=.*Did you mean one of:\n\tdata\n\tsoftmax_label"):
        mx.mod.Module(mlp(mx), label_names=["other"])
    on_store = small(mx)
    on_store.init_optimizer(kvstore=mx.kv.create("local"))
    with pytest.raises(AssertionError, match="dictionary of row ids by parameter"):
        on_store.prepare(batch(mx), sparse_row_id_fn=lambda each: [])


@pytest.mark.parametrize("allow_missing", [False, True])
def test_parameters_must_be_ndarrays(allow_missing):
    module = small(mx)
    before = {name: array.asnumpy() for name, array in module.get_params()[0].items()}
    with pytest.raises(TypeError, match=r"fc1_bias must be an NDArray, received ndarray. Use mx.nd.array"):
        module.set_params({"fc1_bias": np.ones(6)}, {}, allow_missing=allow_missing)
    same({name: array.asnumpy() for name, array in module.get_params()[0].items()}, before)
