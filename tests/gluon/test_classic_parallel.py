"""Matrix factorization with embeddings on one context and layers on another, trained with Module."""

import numpy as np
import pytest

import neomx as mx

USERS, ITEMS, BATCH = 40, 30, 50


def network():
    with mx.AttrScope(ctx_group="embeddings"):
        user = mx.sym.Embedding(mx.sym.var("user"), input_dim=USERS, output_dim=12, name="user_factors")
        item = mx.sym.Embedding(mx.sym.var("item"), input_dim=ITEMS, output_dim=12, name="item_factors")
    with mx.AttrScope(ctx_group="layers"):
        user = mx.sym.FullyConnected(mx.sym.Activation(user, act_type="relu"), num_hidden=8, name="user_layer")
        item = mx.sym.FullyConnected(mx.sym.Activation(item, act_type="relu"), num_hidden=8, name="item_layer")
        score = mx.sym.Flatten(mx.sym.sum_axis(user * item, axis=1))
        return mx.sym.LinearRegressionOutput(score, mx.sym.var("score"), name="lro")


def ratings(count):
    """Scores from hidden two-dimensional factors."""
    rng = np.random.RandomState(0)
    users, items = rng.normal(0, 1, (USERS, 2)), rng.normal(0, 1, (ITEMS, 2))
    who, what = rng.randint(0, USERS, count), rng.randint(0, ITEMS, count)
    return mx.io.NDArrayIter({"user": who, "item": what}, {"score": (users[who] * items[what]).sum(1)}, BATCH)


def trained(**places):
    mx.random.seed(5)
    data = ratings(1500)
    module = mx.mod.Module(network(), data_names=["user", "item"], label_names=["score"], **places)
    module.fit(
        data,
        num_epoch=6,
        eval_metric="rmse",
        optimizer_params={"learning_rate": 0.2, "momentum": 0.9},
        initializer=mx.init.Normal(0.3),
    )
    return module, module.score(data, "rmse")[0][1]


def assert_same_weights(module, other):
    weights = other.get_params()[0]
    for name, array in module.get_params()[0].items():  # sums in another order, over 180 steps
        np.testing.assert_allclose(array.asnumpy(), weights[name].asnumpy(), rtol=1e-3, atol=1e-4, err_msg=name)


def test_model_split_over_two_contexts():
    groups = {"embeddings": mx.cpu(0), "layers": mx.cpu(1)}
    apart, loss = trained(context=[mx.cpu(0)], group2ctxs=groups)
    together, expected = trained(context=mx.cpu(0))
    assert loss == pytest.approx(expected, rel=1e-4)
    assert loss < 0.6, "1.4 without learning"
    assert_same_weights(apart, together)
    (bound,) = apart._exec_group.execs
    assert {name: str(array.context) for name, array in bound.arg_dict.items() if name.endswith("weight")} == {
        "user_factors_weight": "cpu(0)",
        "item_factors_weight": "cpu(0)",
        "user_layer_weight": "cpu(1)",
        "item_layer_weight": "cpu(1)",
    }


def test_two_context_pairs_split_each_batch():
    groups = {"embeddings": [mx.cpu(0), mx.cpu(2)], "layers": [mx.cpu(1), mx.cpu(3)]}
    apart, _ = trained(context=[mx.cpu(0), mx.cpu(2)], group2ctxs=groups)
    together, _ = trained(context=mx.cpu(0))
    assert_same_weights(apart, together)
    assert [str(e.arg_dict["item_layer_weight"].context) for e in apart._exec_group.execs] == ["cpu(1)", "cpu(3)"]
