"""Training steps: the strategy for each store name, and user-defined strategies and compressors."""

import pathlib

import numpy as np
import pytest
import torch
from launching import neomx_run, write

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.step import AllReduce, Asked, OneDevice, Store, choose

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "strategies.py"


# ---- strategies by name ----


@pytest.mark.parametrize(
    ("kvstore", "contexts", "kind"),
    [
        (None, 1, OneDevice),
        (None, 2, OneDevice),
        ("device", 1, OneDevice),
        ("local", 1, OneDevice),
        ("device", 2, Store),
        ("local", 2, Store),
        ("dist_sync", 1, Store),  # the only process of its job
    ],
)
def test_store_name_selects_the_strategy(kvstore, contexts, kind):
    assert type(choose(Asked(kvstore), contexts, 10)) is kind
    assert type(choose(Asked(mx.kv.create("device")), contexts, 10)) is Store
    own = AllReduce()
    assert choose(Asked(own), contexts, 10) is own


@pytest.mark.parametrize(("variable", "asked", "updates"), [("0", None, False), ("1", None, True), ("0", True, True)])
def test_argument_overrides_the_environment_variable(variable, asked, updates, monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", variable)
    net = gluon.nn.Dense(2, in_units=2)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="device", update_on_kvstore=asked)
    trainer._init_kvstore()
    assert trainer._update_on_kvstore is updates


def test_large_array_is_not_updated_in_a_local_store():
    assert choose(Asked("local"), 2, 2**24 + 1).splits
    assert not choose(Asked("local"), 2, 2**24).splits
    assert not choose(Asked("device"), 2, 2**24 + 1).splits


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"kvstore": "dist_sync"}, "kvstore='dist_sync'"),
        ({"kvstore": mx.kv.create("device")}, "kvstore='device'"),
        ({"kvstore": AllReduce()}, "kvstore="),
        ({"kvstore": "device", "compression": {"type": "2bit"}}, "compression_params="),
        ({"kvstore": "device", "update_on_kvstore": True}, "update_on_kvstore=True"),
    ],
)
def test_layout_and_store_cannot_be_combined(how, word):
    with pytest.raises(ValueError, match=word + ".*layout"):
        choose(Asked(**how), 1, 10, layout=OneDevice)
    assert isinstance(choose(Asked("device"), 1, 10, layout=OneDevice), OneDevice)


@pytest.mark.parametrize("how", [{"update_on_kvstore": False}, {"compression": {"type": "fp16"}}])
def test_arguments_that_a_strategy_would_ignore_are_rejected(how):
    with pytest.raises(ValueError, match="the strategy decides"):
        choose(Asked(AllReduce(), **how), 1, 10)


def test_strategy_belongs_to_one_trainer():
    net = gluon.nn.Dense(2, in_units=2)
    net.initialize()
    strategy = AllReduce()
    with pytest.raises(mx.MXNetError, match="is not attached to a Trainer"):
        strategy.step(1)
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=strategy)
    with pytest.raises(mx.MXNetError, match="already attached to another"):
        gluon.Trainer(net.collect_params(), "sgd", kvstore=strategy)
    assert trainer.strategy is strategy
    strategy.close()


# ---- gradients ----


def test_step_after_zero_grad_uses_zeros_as_in_mxnet():
    net = gluon.nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "wd": 0.5})
    with autograd.record():
        loss = net(nd.ones((1, 1))).sum()
    loss.backward()
    net.collect_params().zero_grad()
    trainer.step(1)
    assert net.weight.data().asscalar() == 0.75  # only by weight decay
    net.collect_params().zero_grad()  # a used gradient does not become fresh
    with pytest.raises(UserWarning, match="has not been updated by backward"):
        trainer.step(1)


def test_store_follows_weights_set_by_the_program():
    net = gluon.nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})

    def step():
        with autograd.record():
            losses = [net(nd.ones((1, 1), ctx=ctx)).sum() for ctx in (mx.cpu(0), mx.cpu(1))]
        autograd.backward(losses)
        trainer.step(1)
        return [each.asscalar() for each in net.weight.list_data()]

    assert step() == [0, 0]
    net.weight.set_data(nd.array([[5.0]]))
    assert step() == [4, 4]


# ---- user-defined strategies and compressors ----


def test_two_workers_train_with_user_defined_strategies_and_compressors(tmp_path):
    """Exchanging every second step equals one process with twice the batch size, up to rounding."""
    run = neomx_run("-n", 2, PROGRAM, tmp_path / "w")
    assert run.returncode == 0, run.stdout + run.stderr
    one, other = (dict(np.load(tmp_path / f"w-{rank}.npz")) for rank in range(2))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    for name in ("gluon", "module", "module all-reduce", "in place", "module divisor"):
        np.testing.assert_allclose(one[name], one[name + " expected"], rtol=0, atol=5e-6, err_msg=name)
    # The message contains all directions of a matrix with five columns, and all elements: only rounding differs.
    for name, near in (("low-rank", 1e-5), ("largest", 1e-6), ("fp16", 2e-3)):
        np.testing.assert_allclose(one[name], one["plain"], rtol=0, atol=near, err_msg=name)
    assert np.abs(one["fp16"] - one["plain"]).max() > 1e-7


MISTAKES = """
    import pytest
    import neomx as mx
    import neomx.horovod as hvd
    from neomx import gluon

    class Own(mx.step.AllReduce):
        pass

    @mx.step.register_compressor
    class Signs(mx.step.Compressor):
        kind = "signs"
        def encode(self, key, tensor): ...
        def decode(self, data, out): ...

    hvd.init()
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize()
    params = net.collect_params()
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd"))
    for store in ("dist_sync", Own()):
        with pytest.raises(ValueError, match="DistributedOptimizer would both sum the gradients.*kvstore=None"):
            gluon.Trainer(params, optimizer, kvstore=store)
    with pytest.raises(mx.MXNetError, match="servers can decode only 2bit, 1bit, fp16.*received 'signs'"):
        gluon.Trainer(params, "sgd", kvstore="dist_sync", compression_params={"type": "signs"})
    with pytest.raises(mx.MXNetError, match="worker 0 has the strategy AllReduce, worker 1 has the strategy Own"):
        gluon.Trainer(params, "sgd", kvstore=(mx.step.AllReduce, Own)[mx.dist.rank()]())
    print("all refused")
"""


def test_mistakes_are_rejected_on_all_workers(tmp_path):
    run = neomx_run("-n", 2, "-s", 1, write(tmp_path, MISTAKES))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("all refused") == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Asked(AllReduce), r"expects an object, received a class. Pass AllReduce\("),
        (lambda: AllReduce(compressor={"type": "2bit"}), "derived from mx.step.Compressor, received {'type'"),
    ],
)
def test_invalid_strategy_or_compressor_is_rejected(make, words):
    with pytest.raises(TypeError, match=words):
        make()


def test_compressor_is_checked_at_registration_and_use():
    class Incomplete(mx.step.Compressor):
        kind = "incomplete"

    class Other(Incomplete):
        kind = "2bit"

        def encode(self, key, tensor):
            return tensor

        def decode(self, data, out):
            return out

    with pytest.raises(TypeError, match="Incomplete must define decode, encode"):
        mx.step.register_compressor(Incomplete)
    with pytest.raises(ValueError, match="the kind '2bit' is used by TwoBit"):
        mx.step.register_compressor(Other)
    with pytest.raises(mx.MXNetError, match="Other.encode must return a flat uint8 tensor, received torch.float32"):
        Other().sum_([0], [torch.ones(2)], [torch.ones(2)], None, "")


def test_compression_accepts_the_parameters_of_its_kind():
    make = mx.kv.create("device").set_gradient_compression
    with pytest.raises(
        mx.MXNetError, match="2bit gradient compression accepts 'type' and 'threshold'; unknown .'levels'."
    ):
        make({"type": "2bit", "levels": 4})
    with pytest.raises(mx.MXNetError, match="need a 'type', one of 2bit"):
        make({"threshold": 4})
    with pytest.raises(TypeError, match="subclass of Compressor"):
        mx.step.register_compressor(dict)


def test_gradient_sent_twice_counts_once():
    from neomx.comm import compress

    made, other = (compress.make({"type": "2bit", "threshold": 0.5}) for _ in range(2))
    first, second = torch.tensor([0.3, 0.7, -0.9]), torch.tensor([0.4, -0.1, 0.2])
    for compressor in (made, other):
        compressor.encode("w", first)
    made.encode("w", second)
    made.take_back("w")
    wrong = made.encode("w", second)
    assert wrong.tolist() == other.encode("w", second).tolist()
    assert made.residuals["w"].tolist() == other.residuals["w"].tolist()


def test_state_of_a_strategy_includes_compressor_residuals():
    from neomx.comm import compress

    made, other = (AllReduce(compressor=compress.make({"type": "2bit", "threshold": 0.5})) for _ in range(2))
    first, second = torch.tensor([0.3, 0.7, -0.9]), torch.tensor([0.4, -0.1, 0.2])
    for key in (0, "0"):
        made.compressor.encode(key, first)
    state = made.state()
    assert len(state) == 2
    other.load_state(state)
    for key in (0, "0"):
        assert made.compressor.encode(key, second).tolist() == other.compressor.encode(key, second).tolist()
    with pytest.raises(mx.MXNetError, match="has no state"):
        AllReduce().load_state(state)
    assert AllReduce().state() == {}


# ---- gradients are sent during backward ----


def sparse_net():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Embedding(6, 4, sparse_grad=True), gluon.nn.Dense(2, in_units=4, flatten=False))
    net.initialize()
    return net


@pytest.mark.parametrize("compression", [None, {"type": "2bit", "threshold": 0.1}, {"type": "fp16"}])
def test_all_gradients_are_sent_during_backward(compression):
    from neomx.comm import compress

    net = sparse_net()
    strategy = AllReduce(compressor=compression and compress.make(compression))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=strategy)
    trainer._init_kvstore()
    before = net[0].weight.data().asnumpy()
    for _ in range(4):
        with autograd.record():
            loss = net(nd.array([1, 3])).sum()
        assert not strategy.has_sent()
        loss.backward()
        assert strategy.has_sent()
        assert all(bucket.travel is not None for bucket in strategy.buckets._buckets)  # before `step` is called
        trainer.step(1)
    moved = np.abs(net[0].weight.data().asnumpy() - before).sum(axis=1) > 0
    assert moved.tolist() == [False, True, False, True, False, False]  # rows without a gradient do not change
    strategy.close()


def test_gradients_changed_after_backward_are_sent_again():
    net = sparse_net()
    other = sparse_net()
    for one, two in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
        two.set_data(one.data())
    strategy = AllReduce()
    trainers = [
        gluon.Trainer(each.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store)
        for each, store in ((net, strategy), (other, None))
    ]
    for step in range(5):
        for each, trainer in zip((net, other), trainers, strict=True):
            with autograd.record():
                loss = (each(nd.array([1, 3 + step % 2])) * nd.array([1, 2])).sum()
            loss.backward()
            each[1].weight.grad()[:] *= 0.5
            trainer.step(1)
    for one, two in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
        np.testing.assert_allclose(one.data().asnumpy(), two.data().asnumpy(), rtol=1e-6, err_msg=one.name)
    strategy.close()


def test_module_gradients_are_sent_during_backward():
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="a")
    symbol = mx.sym.MakeLoss(mx.sym.FullyConnected(symbol, num_hidden=1, name="b"))
    modules = [mx.mod.Module(symbol, label_names=None) for _ in range(2)]
    strategy = AllReduce()
    values = {"a_weight": nd.ones((2, 3)), "a_bias": nd.zeros(2), "b_weight": nd.ones((1, 2)), "b_bias": nd.zeros(1)}
    for module, store in zip(modules, (strategy, None), strict=True):
        module.bind([("data", (4, 3))])
        module.init_params(arg_params=values)
        module.init_optimizer(kvstore=store, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    for step in range(4):
        for module in modules:
            module.forward_backward(mx.io.DataBatch([nd.array(np.arange(12).reshape(4, 3) + step)]))
            if module is modules[0]:
                assert strategy.has_sent() is (step < 3)  # once changed, gradients are sent only in `update`
            if step == 2:  # change a gradient after it was sent
                module._exec_group.grad_arrays[0][0][:] = 0.25
            module.update()
    found = [module.get_params()[0] for module in modules]
    for name in values:
        np.testing.assert_allclose(found[0][name].asnumpy(), found[1][name].asnumpy(), rtol=1e-6, err_msg=name)
    strategy.close()
