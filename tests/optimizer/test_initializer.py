"""Distributions of random initializers, and features without MXNet recordings."""

import copy
import logging
import pickle

import numpy as np
import pytest

import neomx as mx
from neomx import init


def weight():
    return init.InitDesc("x_weight")


def filled(initializer, *shape, dtype="float32", desc=None):
    array = mx.nd.zeros(shape, dtype=dtype)
    initializer(desc or weight(), array)
    return array.asnumpy().astype("float64")


@pytest.mark.parametrize("shape", [(300, 200), (300, 20, 3, 4), (40, 30, 50), (4000, 1)])
@pytest.mark.parametrize("factor_type", ["in", "out", "avg"])
def test_xavier_scale_depends_on_fan(shape, factor_type):
    receptive = np.prod(shape[2:])
    fans = {"in": shape[1] * receptive, "out": shape[0] * receptive}
    fan = fans.get(factor_type, sum(fans.values()) / 2)
    scale = np.sqrt(2.5 / fan)
    uniform = filled(init.Xavier("uniform", factor_type, 2.5), *shape)
    assert 0.99 * scale < uniform.max() <= scale * (1 + 1e-6) and -scale * (1 + 1e-6) <= uniform.min() < -0.99 * scale
    assert uniform.std() == pytest.approx(scale / np.sqrt(3), rel=0.03)
    gaussian = filled(init.Xavier("gaussian", factor_type, 2.5), *shape)
    assert gaussian.std() == pytest.approx(scale, rel=0.05) and abs(gaussian).max() > 2.5 * scale


def test_msra_scale_depends_on_slope():
    assert filled(init.MSRAPrelu("in", 0.5), 300, 200).std() == pytest.approx(np.sqrt(1.6 / 200), rel=0.03)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_and_normal(dtype):
    uniform = filled(init.Uniform(0.5), 300, 200, dtype=dtype)
    assert 0.499 < uniform.max() <= 0.5 and -0.5 <= uniform.min() < -0.499
    assert uniform.std() == pytest.approx(0.5 / np.sqrt(3), rel=0.02) and abs(uniform.mean()) < 0.01
    normal = filled(init.Normal(0.5), 300, 200, dtype=dtype)
    assert normal.std() == pytest.approx(0.5, rel=0.02) and abs(normal.mean()) < 0.01


@pytest.mark.parametrize("rand_type", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (4, 2, 3), (3, 2, 2, 2), (1, 5)])
def test_orthogonal_rows_or_columns(shape, rand_type):
    matrix = filled(init.Orthogonal(2.0, rand_type), *shape).reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_orthogonal_is_unbiased():
    mx.random.seed(1)
    drawn = np.array([filled(init.Orthogonal(1.0, "normal"), 3, 3) for _ in range(2000)])
    np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.06)
    np.testing.assert_allclose((drawn**2).mean(axis=0), 1 / 3, atol=0.03)


@pytest.mark.parametrize("make", [init.Uniform, init.Normal, init.Xavier, init.MSRAPrelu, init.Orthogonal])
def test_values_depend_only_on_seed(make):
    results = []
    for seed in (3, 3, 4):
        mx.random.seed(seed)
        results.append(filled(make(), 5, 4))
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_quantized_weights_are_one_small_integer():
    values = filled(init.Zero(), 20, dtype="int8", desc=init.InitDesc("w_weight_quantize"))
    assert len(set(values)) == 1 and -127 <= values[0] < 127


def test_writes_in_place_through_views_and_into_row_sparse():
    array = mx.nd.zeros((4, 3))
    init.Uniform()(weight(), array[1:3])
    assert (array.asnumpy()[1:3] != 0).all() and (array.asnumpy()[[0, 3]] == 0).all()
    sparse = mx.nd.sparse.zeros("row_sparse", (3, 4))
    init.Normal()(weight(), sparse)
    assert sparse.stype == "row_sparse" and (sparse.asnumpy() != 0).all()


def test_variables_keep_their_gradient():
    array = mx.nd.zeros((4, 3))
    array.attach_grad()
    init.Xavier()(weight(), array)
    with mx.autograd.record():
        loss = (array * 2).sum()
    loss.backward()
    assert (array.grad.asnumpy() == 2).all()


def test_fused_rnn_is_restored_from_json():
    fused = init.FusedRNN(init.Constant(5), 2, 1, "lstm", forget_bias=3.0)
    again = init.create(fused.dumps())
    assert again.dumps() == fused.dumps() and again == fused
    values = filled(init.Zero(), 56, desc=init.InitDesc("p", {"__init__": fused.dumps()}))
    assert values.tolist() == [5] * 40 + ([0, 0, 3, 3] + [0] * 4) * 2


def test_fused_rnn_requires_initializer_and_mode():
    with pytest.raises(ValueError, match="has no initializer"):
        filled(init.FusedRNN(None, 2, 1, "lstm"), 56)
    with pytest.raises(ValueError, match="mode must be one of"):
        filled(init.FusedRNN(init.Zero(), 2, 1, "other"), 56)


def test_packed_parameters_have_order_of_rnn_op():
    """An RNN computes with the values that its parts were initialized with by name."""

    class ByName(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 0.5 if "i2h" in name else 0.0

    parameters = mx.nd.zeros(2 * 3 + 2 * 2 + 4)
    init.FusedRNN(ByName(), 2, 1, "rnn_relu")(weight(), parameters)
    out = mx.nd.RNN(
        mx.nd.ones((1, 1, 3)), parameters, mx.nd.ones((1, 1, 2)), state_size=2, num_layers=1, mode="rnn_relu"
    )
    assert out.asnumpy().ravel().tolist() == [1.5, 1.5]


def test_verbose_initialization_is_logged(caplog):
    caplog.set_level(logging.INFO)
    initializer = init.Constant(2)
    assert initializer.set_verbosity(True) is initializer
    filled(initializer, 2, 3)
    filled(initializer, 2, desc=init.InitDesc("x_gamma"))
    filled(initializer, 2, desc=init.InitDesc("w", {"__init__": init.One().dumps()}))
    initializer.set_verbosity(True, lambda array: f"{array.size} numbers")
    filled(initializer, 2, 3)
    init.Load({"w": mx.nd.ones(2)}, init.One(), verbose=True)("w", mx.nd.zeros(2))
    assert [record.getMessage() for record in caplog.records] == [
        "Initialized x_weight as weight: 2.0",
        "Initialized x_gamma as gamma: 1.0",
        'Initialized w as ["one", {}]: 1.0',
        "Initialized x_weight as weight: 6 numbers",
        "Initialized w by loading",
    ]


def test_plain_strings_are_deprecated():
    with pytest.warns(DeprecationWarning, match="InitDesc"):
        init.Zero()("x_weight", mx.nd.ones(2))


def test_replacing_registered_name_warns():
    made = [type("TakenOver", (init.Initializer,), {}) for _ in range(2)]
    init.register(made[0])
    init.register(made[0])
    with pytest.warns(UserWarning, match="takenover"):
        init.register(made[1])
    assert type(init.create("takenover")) is made[1]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: init.create("xavir"), AssertionError, "unknown initializer 'xavir'. Did you mean xavier"),
        (lambda: init.create(), ValueError, "expected the name of a registered initializer"),
        (lambda: init.create('["normal", {}]', 2), AssertionError, "other arguments are not accepted"),
        (lambda: filled(init.Xavier(), 8), ValueError, r"'x_weight' must have two dimensions.* \(8,\)"),
        (lambda: filled(init.Orthogonal(), 8), mx.MXNetError, r"'x_weight' must have two dimensions.* \(8,\)"),
        (lambda: filled(init.Orthogonal(1, "other"), 8, 2), ValueError, "'uniform' or 'normal', received 'other'"),
        (lambda: filled(init.Bilinear(), 8), ValueError, "four dimensions"),
        (lambda: filled(init.Zero(), 8, desc=init.InitDesc("foo")), ValueError, "initializer for 'foo'"),
        (lambda: filled(init.Initializer(), 8), NotImplementedError, "must override _init_weight"),
        (lambda: init.Load({})("w", mx.nd.zeros(2)), AssertionError, "w is not in the loaded"),
        (lambda: init.Load({"w": mx.nd.ones(3)})("w", mx.nd.zeros(2)), AssertionError, r"\(2,\), but .* \(3,\)"),
        (lambda: init.Mixed(["a"], [init.Zero()])("b", mx.nd.zeros(2)), ValueError, r"none of \['a'\]"),
    ],
)
def test_error_states_what_was_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_copies_and_pickles():
    assert pickle.loads(pickle.dumps(init.Xavier(magnitude=2))) == init.Xavier(magnitude=2)
    desc = copy.deepcopy(init.InitDesc("w", {"a": "b"}, init.Zero()))
    assert desc == "w" and desc.attrs == {"a": "b"} and desc.global_init == init.Zero()
