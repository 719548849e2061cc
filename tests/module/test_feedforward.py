"""FeedForward, beyond the comparison with MXNet in tests/parity/cases/feedforward.py."""

import logging
import pickle
import re

import numpy as np
import pytest

import neomx as mx
from parity.cases.feedforward import batches, fitted, model, network, samples, values


def test_feedforward_warns_that_it_is_deprecated():
    with pytest.warns(DeprecationWarning, match="use mx.mod.Module"):
        mx.model.FeedForward(network(mx))


def test_training_on_arrays_learns_and_logs(caplog):
    caplog.set_level(logging.INFO)
    mx.random.seed(1)
    np.random.seed(1)
    data, labels = samples(400)
    trained = model(mx, network(mx), num_epoch=8, numpy_batch_size=20, learning_rate=0.5, initializer=mx.init.Xavier())
    trained.fit(data, labels, eval_data=(data[:100], labels[:100]))
    accuracy = trained.score(mx.io.NDArrayIter(data, labels, 20))
    assert accuracy > 0.85
    assert np.mean(trained.predict(data).argmax(1) == labels) == pytest.approx(accuracy)
    lines = [re.sub(r"[\d.]+$", "N", record.getMessage()) for record in caplog.records][:4]
    assert lines == [
        "Start training with [cpu(0)]",
        "Epoch[0] Resetting Data Iterator",
        "Epoch[0] Time cost=N",
        "Epoch[0] Validation-accuracy=N",
    ]


def test_create_trains_the_model():
    data, labels = samples(100)
    with pytest.warns(DeprecationWarning):
        made = mx.model.FeedForward.create(
            network(mx), data, labels, num_epoch=1, numpy_batch_size=20, learning_rate=0.1
        )
    assert made.predict(data).shape == (100, 3)


def test_pickled_copy_predicts_the_same():
    trained, _ = fitted(mx, {}, num_epoch=1, learning_rate=0.1)
    data, _ = samples()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(trained)).predict(data), trained.predict(data))


def test_predictions_change_after_more_training():
    trained, _ = fitted(mx, {}, num_epoch=1, learning_rate=0.1)
    before = trained.predict(batches(mx))
    trained.fit(batches(mx))
    assert np.abs(trained.predict(batches(mx)) - before).max() > 1e-3


def test_symbol_function_for_buckets():
    def sym_gen(length):
        words = mx.sym.Embedding(mx.sym.var("data"), input_dim=5, output_dim=8, name="embed")
        net = mx.sym.FullyConnected(mx.sym.mean(words, axis=1), num_hidden=5, name="fc")
        return mx.sym.SoftmaxOutput(net, name="softmax")

    rng = np.random.RandomState(0)
    sentences = []
    for length in rng.choice([3, 6], 200):  # the class is the repeated word
        word = rng.randint(1, 5)
        sentences.append([word] * length)

    class Buckets(mx.io.DataIter):
        default_bucket_key, batch_size = 6, 10
        provide_data, provide_label = [("data", (10, 6))], [("softmax_label", (10,))]

        def __init__(self):
            super().__init__(10)
            self.ready = []
            for length in (3, 6):
                rows = np.array([s for s in sentences if len(s) == length])
                for at in range(0, len(rows) - 9, 10):
                    part = mx.nd.array(rows[at : at + 10])
                    shapes = {"provide_data": [("data", part.shape)], "provide_label": [("softmax_label", (10,))]}
                    self.ready.append(mx.io.DataBatch([part], [part[:, 0]], 0, bucket_key=length, **shapes))
            self.reset()

        def reset(self):
            self.left = iter(self.ready)

        def next(self):
            return next(self.left)

    mx.random.seed(2)
    seen = []
    trained = model(mx, sym_gen, num_epoch=6, learning_rate=1.0, initializer=mx.init.Normal(0.5))
    trained.fit(Buckets(), batch_end_callback=lambda p: seen.append(p.eval_metric.get()[1]))
    assert seen[-1] > 0.95


def test_labels_of_each_time_step_need_an_iterator():
    data = np.random.RandomState(0).rand(24, 5, 3).astype("float32")
    labels = data.argmax(axis=2)
    scores = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, flatten=False)
    tagger = mx.sym.SoftmaxOutput(mx.sym.transpose(scores, axes=(0, 2, 1)), multi_output=True, name="softmax")
    mx.random.seed(0)
    made = model(mx, tagger, num_epoch=10, numpy_batch_size=8, learning_rate=2.0, initializer=mx.init.Normal(0.1))
    words = r"1D or 2D.*received shape \(24, 5\).*one per time step.*mx.io.NDArrayIter\(X, y, batch_size\)"
    with pytest.raises(ValueError, match=words):  # as in MXNet
        made.fit(data, labels)
    with pytest.raises(ValueError, match=words):
        made.fit(mx.io.NDArrayIter(data, labels, 8), eval_data=(data, labels))
    made.fit(mx.io.NDArrayIter(data, labels, 8))
    assert made.score(mx.io.NDArrayIter(data, labels, 8)) > 0.9
    with pytest.raises(ValueError, match=words):
        made.score(data, labels)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.fit("x"), TypeError, "received str"),
        (lambda m: m.predict(samples()[0]), ValueError, "no parameters yet"),
        (lambda m: m.save("x"), AssertionError, "no parameters yet"),
        (
            lambda m: model(mx, network(mx), num_epoch=1, arg_params={"fc1_bias": mx.nd.ones((9,))}).fit(batches(mx)),
            ValueError,
            r"fc1_bias has shape \(9,\), but the symbol requires \(5,\)",
        ),
        (
            lambda m: model(mx, network(mx), arg_params=values(mx)).fit(batches(mx)),
            TypeError,
            "num_epoch must be an integer",
        ),
    ],
)
def test_invalid_input_raises(call, error, words):
    with pytest.raises(error, match=words):
        call(model(mx, network(mx), num_epoch=1))
