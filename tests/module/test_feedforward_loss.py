"""FeedForward with a loss of its own, scores of arrays, and shards, which MXNet does not have."""

import numpy as np
import pytest

import neomx as mx
from neomx import gluon, sym
from parity.cases.feedforward import model, network, samples

rng = np.random.default_rng(1)
DATA = rng.standard_normal((50, 4)).astype("float32")
TARGETS = DATA @ rng.standard_normal((4, 2)).astype("float32")


def linear(hidden=2):
    return sym.FullyConnected(sym.var("data"), num_hidden=hidden, name="fc")


def fitted(loss, targets=TARGETS, hidden=2, **options):
    mx.random.seed(3)
    np.random.seed(3)  # the order of samples
    made = model(mx, linear(hidden), num_epoch=15, numpy_batch_size=16, learning_rate=0.3, loss=loss)
    made.fit(DATA, targets, **options)
    return made


def squares(pred, label):
    return sym.mean(sym.square(pred - label), axis=1) / 2


def test_gluon_loss_and_function_give_the_same_model():
    found = [fitted(loss) for loss in (gluon.loss.L2Loss(), squares)]
    for name in ("fc_weight", "fc_bias"):
        first, second = (made.arg_params[name].asnumpy() for made in found)
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-6)  # rounding of float32
    assert found[0].score(DATA, TARGETS) < 1e-3


def test_scores_are_the_loss_of_the_predictions():
    made = fitted(gluon.loss.L2Loss())
    predictions = made.predict(DATA)
    assert predictions.shape == (50, 2)
    shifted = TARGETS + rng.standard_normal((50, 2)).astype("float32")
    expected = ((predictions - shifted) ** 2).mean(1) / 2
    np.testing.assert_allclose(made.score_array(DATA, shifted), expected, rtol=1e-5)  # rounding of float32
    np.testing.assert_allclose(made.score(DATA, shifted), expected.mean(), rtol=1e-5)  # without padding
    batches = mx.io.NDArrayIter(DATA, shifted, 20)
    np.testing.assert_allclose(made.score_array(batches), expected, rtol=1e-5)
    np.testing.assert_allclose(made.score(batches, num_batch=1), expected[:20].mean(), rtol=1e-5)
    whole = made.score(DATA[:48], label=shifted[:48], eval_metric="mse")  # whole batches, which the metric averages
    np.testing.assert_allclose(whole, 2 * expected[:48].mean(), rtol=1e-5)


def test_scores_without_a_loss_are_accuracies():
    data, labels = samples(50)
    made = model(mx, network(mx), num_epoch=5, numpy_batch_size=20, learning_rate=0.5)
    made.fit(data, labels)
    correct = made.predict(data).argmax(1) == labels
    assert made.score(data, labels) == pytest.approx(correct.mean())
    np.testing.assert_array_equal(made.score_array(data, labels), correct)
    both = made.score_array(data, list(labels), ["acc", "ce"])
    assert both.shape == (50, 2) and (both[:, 0] == correct).all()
    assert made.score(data, list(labels)) == made.score(data, label=labels)


def test_metrics_in_fit_see_the_loss_or_the_prediction():
    seen = {}
    for metric in (None, "mse", ["mse", "mae"], mx.metric.MSE()):
        fitted(
            gluon.loss.L2Loss(),
            eval_metric=metric,
            eval_data=(DATA, TARGETS),
            batch_end_callback=lambda p, m=str(metric): seen.setdefault(m, []).append(p.eval_metric.get()),
        )
    assert [name for name, _ in seen["None"]][0] == "loss"
    values = [each[-1][1] for each in seen.values()]
    assert np.ravel(values[1])[0] == pytest.approx(2 * values[0], rel=1e-5)
    assert values[2][0] == values[1] and len(values[2]) == 2


def test_files_contain_the_network_without_the_loss(tmp_path):
    made = fitted(gluon.loss.L2Loss())
    made.save(str(tmp_path / "model"), 15)
    assert sym.load(str(tmp_path / "model-symbol.json")).list_arguments() == ["data", "fc_weight", "fc_bias"]
    with pytest.warns(DeprecationWarning):
        loaded = mx.model.FeedForward.load(str(tmp_path / "model"), 15, loss=gluon.loss.L2Loss(), num_epoch=16)
    np.testing.assert_array_equal(loaded.predict(DATA), made.predict(DATA))
    assert loaded.score(DATA, TARGETS) == pytest.approx(made.score(DATA, TARGETS), rel=1e-5)  # other batches
    loaded.fit(DATA, TARGETS)  # continues


def test_symbol_function_with_a_loss():
    class Buckets(mx.io.NDArrayIter):
        default_bucket_key = 0

        def next(self):
            batch = super().next()
            batch.bucket_key, batch.provide_data, batch.provide_label = 0, self.provide_data, self.provide_label
            return batch

    made = model(mx, lambda key: linear(), num_epoch=15, learning_rate=0.3, loss=squares)
    made.fit(Buckets(DATA, TARGETS, 10))
    assert made.score(DATA, TARGETS) < 1e-3


def test_shard_in_one_process_is_the_whole_data():
    data, labels = samples(50)
    trained = {}
    for kind in ("shard", "iterator"):
        mx.random.seed(2)
        made = model(mx, network(mx), num_epoch=2, numpy_batch_size=10, learning_rate=0.5)
        made.fit(
            mx.dist.shard(gluon.data.ArrayDataset(data, labels))
            if kind == "shard"
            else mx.io.NDArrayIter(data, labels, 10),
            eval_data=mx.dist.shard(gluon.data.ArrayDataset(data, labels)) if kind == "shard" else None,
        )
        trained[kind] = made
    weights = [each.arg_params["fc1_weight"].asnumpy() for each in trained.values()]
    np.testing.assert_array_equal(*weights)
    shard = mx.dist.shard(gluon.data.ArrayDataset(data[:45], labels[:45]))  # the last batch is smaller
    assert trained["shard"].score(shard) == pytest.approx(trained["shard"].score(data[:45], labels[:45]))
    assert trained["shard"].score_array(shard).shape == (45,) and trained["shard"].predict(shard).shape == (45, 3)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: model(mx, linear(), loss=3), TypeError, "loss must be a gluon loss, .* received 3"),
        (lambda: fitted(lambda p, y: 3), TypeError, r"loss\(pred, label\) must return a Symbol .* returned int"),
        (lambda: fitted(lambda p, y: sym.mean(p - y)), ValueError, r"one value per sample, shape \(16, ...\)"),
        (
            lambda: model(mx, network(mx), num_epoch=1, loss=squares).fit(*samples(20)),
            ValueError,
            "without a loss, but it ends in SoftmaxOutput 'softmax'",
        ),
        (
            lambda: model(mx, sym.Group([linear(), sym.var("extra_data")]), num_epoch=1, loss=squares).fit(
                mx.io.NDArrayIter({"data": DATA, "extra_data": DATA}, TARGETS)
            ),
            ValueError,
            "a symbol with one output, received fc_output, extra_data",
        ),
        (lambda: fitted(squares).score(DATA), ValueError, r"the loss needs labels: call score\(data, label\)"),
        (lambda: fitted(squares).score(DATA, TARGETS, label=TARGETS), TypeError, "received labels twice"),
        (lambda: model(mx, linear(), loss=squares).score_array(DATA, TARGETS), ValueError, "no parameters yet"),
    ],
)
def test_mistakes_are_named(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
