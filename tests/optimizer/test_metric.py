"""Metrics without MXNet recordings: cases where MXNet is wrong, devices, pickles and error messages."""

import pickle

import numpy as np
import pytest

import neomx as mx
from neomx import metric as m

A = mx.nd.array


def updated(metric, *batches):
    for labels, preds in batches:
        metric.update(labels, preds)
    return metric


def test_micro_pearson_equals_correlation_of_all_values():
    rng = np.random.RandomState(0)
    first, second = rng.randn(2, 30) + 1000, rng.randn(2, 7) * 5
    metric = m.PearsonCorrelation(average="micro")
    metric.update(A(first[0], dtype="float64"), A(first[1], dtype="float64"))
    metric.reset_local()
    assert np.isnan(metric.get()[1])
    metric.update(A(second[0], dtype="float64"), A(second[1], dtype="float64"))
    every = np.concatenate([first, second], axis=1)
    assert metric.get()[1] == pytest.approx(np.corrcoef(second)[0, 1], abs=1e-12)
    assert metric.get_global()[1] == pytest.approx(np.corrcoef(every)[0, 1], abs=1e-12)


def test_binary_labels_may_be_a_column():
    rng = np.random.RandomState(0)
    labels, scores = rng.randint(0, 2, 9), A(rng.rand(9, 2))
    for make in (m.F1, m.MCC):
        column = updated(make(), ([A(labels.reshape(9, 1))], [scores]))
        assert column.get() == updated(make(), ([A(labels)], [scores])).get()


def test_perplexity_of_sequences_and_along_an_axis():
    rng = np.random.RandomState(0)
    labels, scores = rng.randint(0, 4, (2, 3)), rng.dirichlet([1] * 4, (2, 3))
    expected = np.exp(-np.log(np.take_along_axis(scores, labels[..., None], 2)).mean())
    assert updated(m.Perplexity(None), ([A(labels)], [A(scores)])).get()[1] == pytest.approx(expected, rel=1e-5)
    turned = A(scores.transpose(0, 2, 1))
    assert updated(m.Perplexity(None, axis=1), ([A(labels)], [turned])).get()[1] == pytest.approx(expected, rel=1e-5)


def test_numpy_arrays_are_accepted():
    assert updated(m.Accuracy(), ([np.array([0, 1])], [np.array([[2, 1], [2, 1]])])).get() == ("accuracy", 0.5)
    assert updated(m.Loss(), (None, np.ones(3))).get() == ("loss", 1.0)


def test_recorded_arrays_and_other_contexts_are_accepted():
    x = A([[0.25, 0.75], [0.5, 0.5]])
    x.attach_grad()
    with mx.autograd.record():
        y = x * 1
        metric = updated(m.CrossEntropy(), (A([0, 1], ctx=mx.cpu(1)), y))
        y.backward()
    assert metric.get()[1] == pytest.approx(-np.log([0.25, 0.5]).mean()) and (x.grad.asnumpy() == 1).all()


def test_sums_are_python_numbers():
    metric = updated(m.Accuracy(), (A([1, 0]), A([[0, 1], [0, 1]])))
    assert (metric.sum_metric, metric.num_inst) == (1.0, 2) and type(metric.sum_metric) is float


@pytest.mark.parametrize(
    "made", [m.Accuracy(), m.F1(), m.PCC(), m.PearsonCorrelation(average="micro"), m.create(["acc"])]
)
def test_metric_is_pickled_with_sums(made):
    updated(made, (A([0, 1, 1]), A([[0, 1], [0, 1], [1, 0]]) if "pearson" not in made.name else A([0, 1, 2])))
    assert pickle.loads(pickle.dumps(made)).get() == made.get()


def test_metric_is_recreated_from_config():
    for metric in (m.Accuracy(axis=2, name="a"), m.TopKAccuracy(3), m.Perplexity(0), m.CrossEntropy(eps=0.5)):
        config = metric.get_config()
        if isinstance(metric, m.TopKAccuracy):
            config["name"] = "top_k_accuracy"
        assert m.create(config).get_config() == metric.get_config()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: m.create(m.Accuracy), TypeError, r"Use Accuracy\(\)"),
        (lambda: m.create("acurracy"), AssertionError, "Did you mean accuracy"),
        (lambda: m.F1(average="weighted"), ValueError, "'macro' or 'micro', received 'weighted'"),
        (lambda: m.CompositeEvalMetric(["acc"]).get_metric(3), ValueError, "index 3 is out of range: there are 1"),
        (
            lambda: m.Accuracy().update(A([1, 2]), A([[1, 2]])),
            ValueError,
            "number of labels, 2, differs from .* predictions, 1",
        ),
        (lambda: m.Accuracy(axis=3).update([A([1])], [A([[1, 2]])]), mx.MXNetError, r"axis 3, received shape \(1, 2\)"),
        (lambda: m.Loss().update(None, 3.0), TypeError, "NDArrays, received float"),
        (
            lambda: m.TopKAccuracy(2).update([A([1])], [A([1])]),
            ValueError,
            r"at least 2 classes, received scores \(1,\)",
        ),
        (lambda: m.PCC().update([A([-1])], [A([[0, 1]])]), ValueError, "at least 0, received -1"),
        (lambda: m.PCC().update([A([1, 0])], [A([[0, 1]])]), ValueError, "number of labels, 2"),
        (lambda: m.F1().update([A([1])], [A([1])]), ValueError, r"\(batch, 2, ...\), received \(1,\)"),
        (lambda: m.F1().update([A([1, 2, 3])], [A([[1, 2]] * 3)]), ValueError, r"two classes, .* \[1, 2, 3\]"),
        (
            lambda: m.MAE().update([A([1, 2])], [A([1, 2, 3])]),
            ValueError,
            r"labels \(2,\) do not fit predictions \(3,\)",
        ),
        (
            lambda: m.Perplexity(0).update([A([1])], [A([[1, 2]] * 2)]),
            AssertionError,
            r"\(1,\) do not fit predictions \(2, 2\)",
        ),
        (
            lambda: m.Accuracy(label_names=["l"]).update_dict({"x": 1}, {}),
            KeyError,
            "needs an array 'l', received only x",
        ),
    ],
)
def test_error_states_what_was_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_custom_metric_sums_in_double_precision():
    metric = mx.metric.CustomMetric(lambda label, pred: np.float32(0.1))
    for _ in range(1000):
        metric.update([mx.nd.ones(1)], [mx.nd.ones(1)])
    assert metric.get()[1] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
