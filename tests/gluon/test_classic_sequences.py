"""A bucketed LSTM language model, as MXNet programs build it."""

import numpy as np
import pytest

import neomx as mx

WORDS, BUCKETS, BATCH = 12, [4, 7, 10], 10


def sentences(count):
    """Sentences that count up from any word in steps of 1 or 2, modulo the vocabulary. 0 is for padding."""
    rng = np.random.RandomState(0)
    made = []
    for length in rng.randint(3, 10, count):
        start, step = rng.randint(0, WORDS - 1), rng.randint(1, 3)
        made.append([int(1 + (start + step * i) % (WORDS - 1)) for i in range(length)])
    return made


def symbols(stack):
    def sym_gen(length):
        words = mx.sym.Embedding(mx.sym.var("data"), input_dim=WORDS, output_dim=16, name="embed")
        stack.reset()
        outputs, _ = stack.unroll(length, inputs=words, merge_outputs=True)
        scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, 32)), num_hidden=WORDS, name="pred")
        label = mx.sym.Reshape(mx.sym.var("softmax_label"), shape=(-1,))
        net = mx.sym.SoftmaxOutput(scores, label, use_ignore=True, ignore_label=0, name="softmax")
        return net, ("data",), ("softmax_label",)

    return sym_gen


@pytest.fixture
def batches():
    mx.random.seed(1)
    np.random.seed(1)
    return mx.rnn.BucketSentenceIter(sentences(200), BATCH, buckets=BUCKETS, invalid_label=0)


def trained(batches, stack, **kwargs):
    module = mx.mod.BucketingModule(symbols(stack), default_bucket_key=batches.default_bucket_key, context=mx.cpu())
    module.fit(
        batches,
        eval_metric=mx.metric.Perplexity(ignore_label=0),
        optimizer="adam",
        optimizer_params={"learning_rate": 0.02},
        initializer=mx.init.Xavier(),
        **kwargs,
    )
    return module


def perplexity(module, batches):
    return module.score(batches, mx.metric.Perplexity(ignore_label=0))[0][1]


def assert_same_outputs(module, stack, arg_params, aux_params, batches):
    """Check that another module with these parameters computes the outputs of the trained one."""
    other = mx.mod.BucketingModule(symbols(stack), default_bucket_key=batches.default_bucket_key)
    other.bind(batches.provide_data, batches.provide_label, for_training=False)
    other.set_params(arg_params, aux_params)
    seen = set()
    batches.reset()
    for batch in batches:
        if batch.bucket_key not in seen:
            seen.add(batch.bucket_key)
            module.forward(batch, is_train=False)
            other.forward(batch, is_train=False)
            found, expected = other.get_outputs()[0].asnumpy(), module.get_outputs()[0].asnumpy()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert seen == set(BUCKETS)


def test_stacked_lstms_train_with_buckets(batches, tmp_path):
    stack = mx.rnn.SequentialRNNCell()
    for i in range(2):
        stack.add(mx.rnn.LSTMCell(num_hidden=32, prefix=f"lstm_l{i}_"))
    prefix = str(tmp_path / "lm")
    module = trained(batches, stack, num_epoch=3, epoch_end_callback=mx.rnn.do_rnn_checkpoint(stack, prefix, 3))
    assert perplexity(module, batches) < 3, "12 without learning"
    _, arg_params, aux_params = mx.rnn.load_rnn_checkpoint(stack, prefix, 3)
    assert_same_outputs(module, stack, arg_params, aux_params, batches)


def test_fused_lstm_weights_load_into_unfused_cells(batches):
    fused = mx.rnn.FusedRNNCell(32, num_layers=1, mode="lstm", prefix="lstm_")
    module = trained(batches, fused, num_epoch=3)
    assert perplexity(module, batches) < 3
    plain, (arg_params, aux_params) = fused.unfuse(), module.get_params()
    weights = plain.pack_weights(fused.unpack_weights(arg_params))
    assert_same_outputs(module, plain, weights, aux_params, batches)
