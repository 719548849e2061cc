"""SoftmaxOutput(multi_label=True): independent classes, compared with numpy."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, nd, sym

rng = np.random.default_rng(0)
DATA = rng.standard_normal((4, 3)).astype("float32")
LABEL = (rng.random((4, 3)) > 0.5).astype("float32")
PROBABILITY = 1 / (1 + np.exp(-DATA))


def gradient(label=LABEL, **options):
    data = nd.array(DATA)
    data.attach_grad()
    with autograd.record():
        out = nd.SoftmaxOutput(data, nd.array(label), multi_label=True, **options)
    out.backward()
    np.testing.assert_allclose(out.asnumpy(), PROBABILITY, rtol=1e-5)  # rounding of float32
    return data.grad.asnumpy()


@pytest.mark.parametrize(
    ("options", "factor"),
    [({}, 1), ({"grad_scale": 2.5}, 2.5), ({"normalization": "batch"}, 1 / 4), ({"normalization": "valid"}, 1 / 12)],
)
def test_output_and_gradient(options, factor):
    np.testing.assert_allclose(gradient(**options), (PROBABILITY - LABEL) * factor, rtol=1e-5, atol=1e-7)


def test_ignored_labels_have_no_gradient():
    label = LABEL.copy()
    label[0, 1] = label[2] = -1
    expected = np.where(label == -1, 0, PROBABILITY - label)
    np.testing.assert_allclose(gradient(label, use_ignore=True), expected, rtol=1e-5, atol=1e-7)
    found = gradient(label, use_ignore=True, normalization="valid")
    np.testing.assert_allclose(found, expected / 8, rtol=1e-5, atol=1e-7)


def test_symbol_infers_the_label_and_a_module_learns():
    data = rng.standard_normal((64, 6)).astype("float32")
    labels = (data[:, :3] > 0).astype("float32")  # each class depends on one number
    net = sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")
    head = sym.SoftmaxOutput(net, multi_label=True, name="softmax")
    assert head.infer_shape(data=(8, 6))[0][-1] == (8, 3)
    assert '"multi_label": "True"' in head.tojson()
    assert sym.load_json(head.tojson()).infer_shape(data=(8, 6))[1] == [(8, 3)]
    assert "multi_label" not in sym.SoftmaxOutput(net, name="softmax").tojson()
    module = mx.mod.Module(head)
    batches = mx.io.NDArrayIter(data, labels, 16)
    module.fit(batches, num_epoch=20, eval_metric="mse", optimizer_params={"learning_rate": 1.0})
    assert ((module.predict(batches).asnumpy() > 0.5) == labels).mean() > 0.95


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"multi_output": True}, "cannot be combined with multi_output"),
        ({"smooth_alpha": 0.1, "out_grad": True}, "cannot be combined with smooth_alpha, out_grad"),
        ({"label": LABEL[:, 0]}, r"expected a label of shape \(4, 3\) for multi_label, .* got \(4,\)"),
    ],
)
def test_what_does_not_fit_is_rejected(options, words):
    with pytest.raises(mx.MXNetError, match=words):
        gradient(**options)
