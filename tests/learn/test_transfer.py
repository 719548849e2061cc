"""Freezing, rates by depth, gradual unfreezing and new output layers."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn
from neomx.gluon.model_zoo import vision

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def network(*layers):
    """Return a network whose features are the layers, with an output of 3 classes."""

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.features = nn.HybridSequential(prefix="")
                self.features.add(*layers)
                self.output = nn.Dense(3)

        def hybrid_forward(self, F, x):
            return self.output(self.features(x))

    net = Net()
    net.initialize(mx.init.Xavier())
    net(nd.ones((1, 4)))
    return net


def values(net):
    return {name: param.data().asnumpy() for name, param in net._collect_params_with_prefix().items()}


def step(net, trainer):
    x, y = nd.random.normal(shape=(6, 4)), nd.array([0, 1, 2, 0, 1, 2])
    with autograd.record():
        loss = LOSS(net(x), y)
    loss.backward()
    trainer.step(6)


def changed(net, before):
    return [name for name, value in values(net).items() if not np.array_equal(value, before[name])]


@pytest.mark.parametrize("hybridize", [False, True])
def test_existing_trainer_and_graph_follow_freezing(hybridize):
    net = network(nn.Dense(5), nn.BatchNorm(), nn.Dense(5, activation="tanh"))
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    everything = list(values(net))
    before = values(net)
    step(net, trainer)
    assert changed(net, before) == everything

    names = learn.freeze(net, net.features)
    assert names == [name for name in everything if name.startswith("features.")]
    for _ in range(2):
        before = values(net)
        step(net, trainer)
        assert changed(net, before) == ["output.weight", "output.bias"]

    assert learn.unfreeze(net, "features.2") == ["features.2.weight", "features.2.bias"]
    before = values(net)
    step(net, trainer)
    assert changed(net, before) == ["features.2.weight", "features.2.bias", "output.weight", "output.bias"]

    learn.unfreeze(net)
    before = values(net)
    step(net, trainer)
    assert changed(net, before) == everything


def test_frozen_statistics_are_used_in_training():
    net = network(nn.Dense(5), nn.BatchNorm())
    x = nd.random.normal(2, 3, shape=(6, 4))
    learn.freeze(net)
    with autograd.record():
        trained = net(x)
    np.testing.assert_array_equal(trained.asnumpy(), net(x).asnumpy())
    learn.unfreeze(net)
    learn.freeze(net, statistics=False)
    with autograd.record():
        trained = net(x)
    assert np.abs(trained.asnumpy() - net(x).asnumpy()).max() > 0.1


def test_layer_created_with_global_statistics_keeps_them():
    net = network(nn.Dense(5), nn.BatchNorm(use_global_stats=True))
    learn.freeze(net)
    learn.unfreeze(net)
    assert net.features[1]._kwargs["use_global_stats"] is True


def test_parts_are_layers_patterns_and_prefixes():
    net = network(*(nn.Dense(4) for _ in range(11)))
    assert learn.freeze(net, "features.1") == ["features.1.weight", "features.1.bias"]
    assert learn.freeze(net, r"features.\d0", net.features[3]) == [
        *("features.3.weight", "features.3.bias", "features.10.weight", "features.10.bias")
    ]
    assert len(learn.freeze(net, ".*bias")) == 12
    assert learn.unfreeze(net, net.output.prefix) == ["output.weight", "output.bias"]
    trained = [name for name, param in net._collect_params_with_prefix().items() if param.grad_req != "null"]
    assert trained == [f"features.{i}.weight" for i in (0, 2, 4, 5, 6, 7, 8, 9)] + ["output.weight", "output.bias"]


def test_accumulated_gradients_stay_accumulated():
    net = network(nn.Dense(5))
    net.features[0].weight.grad_req = "add"
    learn.unfreeze(net)
    assert net.features[0].weight.grad_req == "add"


def test_rates_decay_with_the_distance_from_the_output():
    net = network(nn.BatchNorm(), nn.Dense(5), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(5))
    assert [[type(layer).__name__ for layer in group] for group in learn.depth_groups(net)] == [
        *(["BatchNorm", "Dense", "BatchNorm"], ["Dense"], ["Dense"])
    ]
    factors = learn.discriminative_rates(net, 0.5)
    assert factors["features.0.gamma"] == factors["features.1.weight"] == factors["features.2.beta"] == 0.25
    assert factors["features.4.bias"] == 0.5
    assert factors["output.weight"] == 1.0
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    before = values(net)
    step(net, trainer)
    for name, param in net._collect_params_with_prefix().items():
        if param.grad_req != "null":
            expected = before[name] - 0.1 * factors[name] * param.grad().asnumpy() / 6
            np.testing.assert_allclose(param.data().asnumpy(), expected, rtol=1e-6, atol=1e-7, err_msg=name)


def test_gradual_unfreezing_depends_only_on_the_epoch():
    net = network(nn.Dense(5), nn.BatchNorm(), nn.Dense(5))
    names = {
        0: ["output.weight", "output.bias"],
        1: ["features.2.weight", "features.2.bias", "output.weight", "output.bias"],
    }
    for epoch in (0, 1, 2, 3, 2, 0):
        trained = learn.unfreeze_gradually(net, epoch, every=2)
        assert trained == names[epoch // 2]
        found = [name for name, param in net._collect_params_with_prefix().items() if param.grad_req != "null"]
        assert found == trained
        assert net.features[1]._kwargs["use_global_stats"] is True
    learn.unfreeze_gradually(net, 4, every=2)
    assert net.features[1]._kwargs["use_global_stats"] is False
    assert learn.unfreeze_gradually(net, 0, groups=[net.features, "output"]) == names[0]


def test_newly_trained_layer_has_no_stale_gradient():
    """A gradient from before a layer was frozen is not applied after it is trained again."""
    net = network(nn.Dense(5))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    step(net, trainer)
    learn.freeze(net, net.features)
    step(net, trainer)
    learn.unfreeze(net)
    before = values(net)
    with pytest.raises(UserWarning, match="has not been updated by backward"):
        trainer.step(6)
    trainer.step(6, ignore_stale_grad=True)
    assert changed(net, before) == []
    step(net, trainer)
    assert len(changed(net, before)) == 4


@pytest.mark.parametrize(
    ("name", "size", "replaced"),
    [
        ("resnet18_v1", 32, ["output.weight", "output.bias"]),
        ("squeezenet1.1", 224, ["output.0.weight", "output.0.bias"]),
        ("mobilenetv2_0.25", 32, ["output.0.weight"]),
    ],
)
def test_output_of_a_zoo_network_is_replaced(name, size, replaced):
    net = vision.get_model(name, classes=9)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = nd.random.uniform(shape=(1, 3, size, size))
    net(x)
    before, names = values(net), list(net.collect_params())
    learn.replace_output(net, 4, mx.init.Xavier())
    assert net(x).shape == (1, 4)
    assert list(net.collect_params()) == names
    after = values(net)
    assert [at for at in before if before[at].shape != after[at].shape] == replaced
    assert all(np.array_equal(before[at], after[at]) for at in before if at not in replaced)
    assert np.abs(after[replaced[0]]).max() > 0


def test_output_keeps_its_settings():
    net = nn.HybridSequential()
    net.add(nn.Dense(6), nn.Dense(5, activation="tanh", flatten=False, use_bias=False, dtype="float64"))
    made = learn.replace_output(net, 2)
    assert made is net[1] and made.bias is None and made.act._act_type == "tanh" and made._flatten is False
    assert np.dtype(made.weight.dtype) == np.float64


def test_torch_twin_follows_a_new_output():
    net = nn.HybridSequential()
    net.add(nn.Dense(6, in_units=3), nn.Dense(5, in_units=6))
    net.initialize()
    twin = net.torch()
    learn.replace_output(net, 2)
    assert twin(nd.ones((1, 3)).to_torch()).shape == (1, 2)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda net: learn.freeze(net, "feature"), ValueError, "'feature' selects no parameter.*features.0.weight"),
        (lambda net: learn.freeze(net, "("), ValueError, "is not a regular expression"),
        (lambda net: learn.freeze(net, nn.Dense(2)), ValueError, "is not a layer of net"),
        (lambda net: learn.freeze(net, 3), TypeError, "expected a layer, a pattern or a prefix, received 3"),
        (lambda net: learn.freeze("net"), TypeError, "expected a Block, received 'net'"),
        (lambda net: learn.unfreeze_gradually(net, -1), ValueError, "epoch must be an integer of at least 0"),
        (lambda net: learn.unfreeze_gradually(net, 0, every=0), ValueError, "every must be"),
        (lambda net: learn.unfreeze_gradually(net, 0, groups="output"), ValueError, "groups must be a list"),
        (lambda net: learn.discriminative_rates(net, 0), ValueError, "decay must be a number above 0"),
        (lambda net: learn.discriminative_rates(net, 0.5, [net, "output"]), ValueError, "output.weight is in groups 0"),
        (lambda net: learn.replace_output(net, 0), ValueError, "classes must be a positive integer, received 0"),
        (lambda net: learn.replace_output(net.features[1], 2), ValueError, "ends with no layer that has parameters"),
        (lambda net: learn.replace_output(net.features, 2), ValueError, "ends with BatchNorm"),
    ],
)
def test_invalid_arguments_are_rejected(call, kind, text):
    net = network(nn.Dense(5), nn.BatchNorm())
    with pytest.raises(kind, match=text):
        call(net)


def test_subclass_of_dense_is_not_replaced():
    class Special(nn.Dense):
        pass

    with pytest.raises(ValueError, match="ends with Special"):
        learn.replace_output(network(Special(4)).features, 2)


def test_statistics_of_a_symbol_block_are_not_frozen_silently(tmp_path):
    net = network(nn.Dense(5), nn.BatchNorm())
    net.hybridize()
    net(nd.ones((1, 4)))
    net.export(str(tmp_path / "net"))
    block = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), "data", str(tmp_path / "net-0000.params"))
    with pytest.raises(ValueError, match="running averages of a SymbolBlock cannot be frozen"):
        learn.freeze(block)
    assert any(param.grad_req == "write" for param in block.collect_params().values())
    learn.freeze(block, statistics=False)
    assert all(param.grad_req == "null" for param in block.collect_params().values())
