"""mx.test_utils: tolerances, messages, what numpy's generator draws, checks of symbols and optimizers."""

import contextlib
import io

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def said(call):
    """What a call prints, and its error up to the arrays, which numpy's versions show differently."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            call()
            error = "fine"
        except AssertionError as raised:
            error = str(raised).partition("\n ACTUAL")[0]
    return text.getvalue() + error


@program
def tolerances(mx):
    t = mx.test_utils
    dtypes = ["float16", "float32", "float64", "int32", "uint8", "int64"]
    numpy_pairs = [(np.ones(2, a), np.ones(2, b)) for a in dtypes for b in dtypes]
    pairs = [(mx.nd.ones(2, dtype=a), mx.nd.ones(2, dtype=b)) for a in dtypes for b in dtypes]
    results = [sorted((str(k), v) for k, v in f().items()) for f in (t.default_rtols, t.default_atols)]
    results += [sorted((str(k), v) for k, v in t.default_numeric_eps().items()), t.default_dtype().__name__]
    results += [[t.get_tols(a, b, None, None) for a, b in [*numpy_pairs, *pairs]]]
    results += [t.get_tols(np.ones(2, "float16"), np.ones(2), {np.dtype("float16"): 0.5}, 0.25)]
    results += [t.get_rtol(), t.get_atol(), t.get_rtol(1e-3), t.get_atol(0.5), t.get_etol(), t.get_etol(0.1)]
    return results + [t.get_rtol(dtype=np.dtype("float16")), t.get_atol(dtype=np.dtype("float32"))]


@program
def equalities(mx):
    t, one, nan = mx.test_utils, np.ones(3, "float32"), np.array([np.nan, 1])
    results = [t.same(one, one.astype("float16")), t.same(one, one + 1), t.same(nan, nan), t.same(one, np.ones(2))]
    results += [t.almost_equal(one, one * (1 + 1e-6)), t.almost_equal(one, one * 1.1), t.almost_equal(nan, nan)]
    results += [t.almost_equal(nan, nan, equal_nan=True), t.almost_equal(one, one * 1.05, rtol=0.1)]
    results += [t.almost_equal(np.ones((2, 3)), np.ones(3))]
    results += [outcome(lambda: t.almost_equal(np.ones((2, 3)), np.ones(3), use_broadcast=False))]
    x = mx.nd.ones(3)
    results += [t.same_array(x, x), t.same_array(x, x[:]), t.same_array(x, mx.nd.ones(3))]
    a, b = mx.sym.var("a"), mx.sym.var("b")
    results += [t.same_symbol_structure(a * 2, b * 3), t.same_symbol_structure(a * 2, mx.sym.relu(b))]
    results += [t.assert_exception(lambda: 1 / 0, ZeroDivisionError)]
    return results + [outcome(lambda: t.assert_exception(lambda: 1 / 0, ValueError))]


@program
def messages(mx):
    t = mx.test_utils
    b = np.arange(6.0).reshape(2, 3)
    c = b.copy()
    c[1, 2] += 1
    c[0, 1] += 1e-3
    nan, inf = np.array([np.nan, 1]), np.array([np.inf, 1])
    equal = t.assert_almost_equal
    calls = [
        lambda: equal(b, c),
        lambda: equal(mx.nd.array(b), mx.nd.array(c), 1e-2, 1e-3, ("x", "y")),
        lambda: equal(np.zeros(30), np.ones(30)),
        lambda: equal(np.zeros((5, 5)), np.ones((5, 5)), mismatches=(2, 3)),
        lambda: equal(np.ones((2, 3)), np.ones(3), use_broadcast=False),
        lambda: equal(nan, nan),
        lambda: equal(nan, nan, equal_nan=True),
        lambda: equal(nan, np.ones(2), equal_nan=True),
        lambda: equal(inf, inf),
        lambda: equal(inf, np.ones(2)),
        lambda: equal(np.array([1, 2]), np.array([1, 3])),
        lambda: equal(1.0, 1.5),
        lambda: t.assert_almost_equal_ignore_nan(nan, np.array([5, 1.0])),
        lambda: t.assert_almost_equal_ignore_nan(nan, np.array([5, 2.0])),
        lambda: t.assert_almost_equal_with_err(b, c, etol=0.5),
        lambda: t.assert_almost_equal_with_err(b, c, etol=0.1),
        lambda: t.assert_allclose(b, c),
        lambda: t.compare_ndarray_tuple((mx.nd.ones(2), (mx.nd.ones(1),)), (mx.nd.ones(2), (mx.nd.ones(1),))),
        lambda: t.compare_ndarray_tuple((mx.nd.ones(2), None), (mx.nd.zeros(2), None)),
    ]
    return [said(call) for call in calls]


@program
def draws(mx):
    t = mx.test_utils
    np.random.seed(3)
    results = [t.rand_shape_2d(), t.rand_shape_2d(5, 3), t.rand_shape_2d(2, 2, True), t.rand_shape_3d()]
    results += [t.rand_shape_nd(4), t.rand_shape_nd(3, 4, True), t.rand_coord_2d(1, 5, 2, 9)]
    results += [t.random_arrays((2, 2)), *t.random_arrays((2,), ()), *t.random_uniform_arrays((2,), low=1, high=3)]
    results += [t.random_sample([1, 2, 3, 4, 5], 3), t.rand_ndarray((2, 3)), t.rand_ndarray((2, 2), dtype="int32")]
    for density in (None, 0, 0.5, 1):
        results.append(t.rand_ndarray((4, 5), "row_sparse", density))
    made, (values, rows) = t.rand_sparse_ndarray((4, 5), "row_sparse", density=0.7)
    results += [made, values, rows, t.create_sparse_array((4, 2), "row_sparse", 2.0, [1, 3], None, lambda v: v * 2)]
    results += [t.create_sparse_array_zd((4, 2), "row_sparse", 1, 2.0, rows) for rows in (None, [1, 3])]
    csr = t.rand_ndarray((4, 5), "csr", 1)
    return results + [csr.stype, csr.shape, csr.dtype.__name__, t.rand_ndarray((4, 5), "csr", 0)]


@program
def numpy_helpers(mx):
    t, b = mx.test_utils, np.arange(6.0).reshape(2, 3)
    results = [
        t.np_reduce(b, (0, 1), True, np.sum),
        t.np_reduce(b, 1, False, np.sum),
        t.np_reduce(b, None, True, np.max),
    ]
    results += [t.collapse_sum_like(b, (3,)), t.collapse_sum_like(b, (1, 3)), t.collapse_sum_like(b, (2, 1))]
    results += [t.assign_each(b, lambda v: v * 2), t.assign_each2(b, b, lambda v, w: v + w), t.assign_each(b, None)]
    results += [t.create_vector(3), t.create_2d_tensor(2, 3), t.get_identity_mat(2), t.get_identity_mat_batch(2)]
    return results + [t.default_context(), t.has_tvm_ops(), list(t.list_gpus())]


def dense(mx):
    net = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="fc")
    return net, {
        "x": np.array([[1, 2.0], [3, 4]]),
        "fc_weight": np.arange(6.0).reshape(3, 2),
        "fc_bias": np.arange(3.0),
    }


@program
def checks_of_symbols(mx):
    t, (net, at) = mx.test_utils, dense(mx)
    x, w, b = at.values()
    out, head = x @ w.T + b, np.ones((2, 3))
    grads = {"x": head @ w, "fc_weight": head.T @ x, "fc_bias": head.sum(0)}
    results = [t.simple_forward(net, x=x, fc_weight=w, fc_bias=b), *t.check_symbolic_forward(net, at, [out])]
    results += [*t.check_symbolic_forward(net, [x, w, b], {"fc_output": out})]
    results += [*dict(sorted(t.check_symbolic_backward(net, at, [head], grads).items())).values()]
    results += [t.check_symbolic_backward(net, at, {"fc_output": head}, {"x": grads["x"]})["x"]]
    results += [sorted(t.check_symbolic_backward(net, at, [head], list(grads.values())))]
    loss = mx.sym.MakeLoss(mx.sym.var("x") ** 2)
    results += [t.check_symbolic_backward(loss, {"x": x}, None, {"x": 2 * x})["x"]]
    results += [said(lambda: t.check_symbolic_backward(net, at, [head], {"x": grads["x"]}, grad_req="add"))]
    alone = {"x": "write", "fc_weight": "null", "fc_bias": "null"}
    results += [said(lambda: t.check_symbolic_backward(net, at, [head], {"x": grads["x"]}, grad_req=alone))]
    results += [said(lambda: t.check_symbolic_forward(net, at, [out + 1]))]
    results += [said(lambda: t.check_symbolic_backward(net, at, [head], {"x": grads["x"] + 1}))]
    for given in ({"x": x}, {**at, "z": x}, 3, [x]):
        results.append(outcome(lambda given=given: t.check_symbolic_forward(net, given, [out])))
    return results


@program
def checks_by_differences(mx):
    t, (net, at) = mx.test_utils, dense(mx)
    small = {name: value / 8 for name, value in at.items()}
    results = [said(lambda: t.check_numeric_gradient(net, small))]
    results += [said(lambda: t.check_numeric_gradient(net, small, grad_nodes=["x"]))]
    results += [said(lambda: t.check_numeric_gradient(net, small, grad_nodes={"x": "write", "fc_weight": "add"}))]
    x = mx.sym.var("x")
    results += [said(lambda: t.check_numeric_gradient(mx.sym.exp(x), {"x": small["x"]}, dtype=np.float64))]
    wrong = said(lambda: t.check_numeric_gradient(mx.sym.BlockGrad(x) * x, {"x": at["x"]}))
    results += ["BACKWARD_x" in wrong and "mismatch 100" in wrong]
    results += [outcome(lambda: t.check_numeric_gradient(net, at, dtype=np.int32))]
    results += [outcome(lambda: t.check_numeric_gradient(net, at, grad_nodes=3))]
    norm = mx.sym.BatchNorm(x, name="bn")
    given = {"x": at["x"], "bn_gamma": np.ones(2), "bn_beta": np.zeros(2)}
    results += [outcome(lambda: t.check_numeric_gradient(norm, given))]
    executor = mx.sym.exp(x).bind(mx.cpu(), {"x": mx.nd.zeros((2, 2))})
    return results + [t.numeric_grad(executor, {"x": small["x"]}, eps=1 / 64)["x"]]


@program
def checks_of_consistency(mx):
    t, (net, at) = mx.test_utils, dense(mx)
    places = [
        {"ctx": mx.cpu(0), "x": (2, 2), "type_dict": {"x": np.float32}},
        {"ctx": mx.cpu(1), "x": (2, 2), "type_dict": {"x": np.float64}},
    ]
    found = t.check_consistency(net, places, arg_params=at)
    results = [sorted(found), *(found[name] for name in sorted(found)), sorted(t.check_consistency(net, places))]
    results += [sorted(t.check_consistency(net, places, grad_req="null"))]
    results += [sorted(t.check_consistency([net, net], places, grad_req="add"))]
    results += [outcome(lambda: t.check_consistency(net, places[:1]))]
    results += [outcome(lambda: t.check_consistency([net, net * 2], places))]
    wrong = {"fc_output": np.ones((2, 3))}
    failed = said(lambda: t.check_consistency(net, places, arg_params=at, ground_truth=wrong))
    return results + [failed.partition("Predict Err")[0], "at fc_output" in failed]


@program
def checks_of_optimizers(mx):
    t, sgd = mx.test_utils, mx.optimizer.SGD
    first, second = (sgd(learning_rate=0.1, momentum=0.9) for _ in range(2))
    results = [said(lambda: t.compare_optimizer(first, second, (3, 4), np.float32))]
    results += [said(lambda: t.compare_optimizer(first, second, [(3, 4), (2,)], np.float32, ntensors=2))]
    rows = {"w_stype": "row_sparse", "g_stype": "row_sparse"}
    results += [said(lambda: t.compare_optimizer(first, second, (3, 4), np.float32, **rows))]
    other = sgd(learning_rate=0.2, momentum=0.9)
    return results + [outcome(lambda: t.compare_optimizer(first, other, (3, 4), np.float32))]


@program
def an_iterator_of_one_batch(mx):
    real = mx.io.NDArrayIter(np.arange(8.0).reshape(4, 2), np.arange(4.0), 2)
    dummy = mx.test_utils.DummyIter(real)
    batch = dummy.next()
    results = [dummy.batch_size, dummy.provide_data, dummy.provide_label, dummy.next() is batch, iter(dummy) is dummy]
    return results + [batch.data[0], batch.label[0]]
