"""mx.rnn, beyond the recordings: checkpoints shared with MXNet, randomness, and errors."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT

import neomx as mx
from neomx.base import MXNetError
from parity import record_rnn
from parity.cases import bucketing

DATA = mx.sym.Variable("data")


# ---- checkpoints ----


@pytest.mark.parametrize("which", [("fused", "fused"), ("fused", "single"), ("single", "fused"), ("single", "single")])
def test_mxnet_checkpoints_load_into_fused_and_unfused_networks(which):
    now, then = record_rnn.read(mx, record_rnn.FIXTURES)[which]
    np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-6)


def test_checkpoints_match_mxnet(tmp_path):
    record_rnn.write(mx, tmp_path)
    for name in ("fused", "single"):
        now, then = (mx.nd.load(str(folder / f"{name}-0003.params")) for folder in (tmp_path, record_rnn.FIXTURES))
        assert list(now) == list(then)
        assert all(np.array_equal(now[key].asnumpy(), then[key].asnumpy()) for key in then)
    for now, then in record_rnn.read(mx, tmp_path).values():
        np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-6)


def test_checkpoint_callback_honors_the_period(tmp_path):
    cell = mx.rnn.LSTMCell(2)
    net = mx.sym.Group(cell.unroll(2, DATA)[0])
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(1, 2, 3))[0], strict=True))
    args = {name: mx.nd.ones(shape) for name, shape in shapes.items() if name != "data"}
    callback = mx.rnn.do_rnn_checkpoint([cell], str(tmp_path / "net"), period=2)
    for epoch in range(3):
        callback(epoch, net, args, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net-0002.params", "net-symbol.json"]
    _, loaded, _ = mx.rnn.load_rnn_checkpoint([cell], str(tmp_path / "net"), 2)
    assert sorted(loaded) == sorted(args)


def test_trained_fused_model_works_unfused(tmp_path):
    """Fit a fused cell on buckets, save after the epoch, and get the same score with the unfused cells."""
    data, prefix = bucketing.batches(mx), str(tmp_path / "model")
    fused = mx.rnn.FusedRNNCell(6, num_layers=2, mode="lstm", prefix="lstm_")
    trained = mx.mod.BucketingModule(bucketing.model(mx, fused), data.default_bucket_key, context=mx.cpu())
    trained.fit(
        data,
        num_epoch=1,
        eval_metric=mx.metric.Perplexity(bucketing.INVALID),
        initializer=bucketing.by_name(mx),
        optimizer_params={"learning_rate": 0.1},
        epoch_end_callback=mx.rnn.do_rnn_checkpoint(fused, prefix),
    )
    single = fused.unfuse()
    _, arg_params, aux_params = mx.rnn.load_rnn_checkpoint(single, prefix, 1)
    again = mx.mod.BucketingModule(bucketing.model(mx, single), data.default_bucket_key, context=mx.cpu())
    again.bind(data.provide_data, data.provide_label, for_training=False)
    again.set_params(arg_params, aux_params)
    # `batches` sets the seeds: the sentences of a bucket that do not fill a batch are dropped at random.
    metric = mx.metric.Perplexity(bucketing.INVALID)
    scores = [module.score(bucketing.batches(mx), metric)[0][1] for module in (trained, again)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_packing_names_the_missing_parameter():
    with pytest.raises(KeyError, match="parameter 'lstm_i2h_weight' is missing, received .'other'"):
        mx.rnn.LSTMCell(2).unpack_weights({"other": mx.nd.ones((1,))})
    with pytest.raises(KeyError, match="gru_l0_i2h_r_weight"):
        mx.rnn.FusedRNNCell(2, mode="gru").pack_weights({})
    with pytest.raises(MXNetError, match="cannot split 7 rows into 4 gates"):
        mx.rnn.LSTMCell(2).unpack_weights({"lstm_i2h_weight": mx.nd.ones((7, 2)), "lstm_i2h_bias": mx.nd.ones((7,))})


# ---- randomness ----


def test_zoneout_keeps_the_expected_fraction_of_values():
    """Each element of a state is the new value or that of the previous step."""
    zoned = mx.rnn.ZoneoutCell(mx.rnn.RNNCell(400, prefix="z_"), zoneout_outputs=0.25)
    plain = mx.rnn.RNNCell(400, prefix="z_")
    nets = [mx.sym.Group(cell.unroll(2, DATA)[0]) for cell in (zoned, plain)]
    bound = [net.simple_bind(mx.cpu(), grad_req="null", data=(4, 2, 3)) for net in nets]
    mx.random.seed(1)
    for name, array in bound[0].arg_dict.items():
        array[:] = mx.nd.random.uniform(-1, 1, array.shape)
        bound[1].arg_dict[name][:] = array
    zoned_out, plain_out = ([o.asnumpy() for o in each.forward(is_train=True)] for each in bound)
    first = zoned_out[0] == plain_out[0]
    assert np.all(first | (zoned_out[0] == 0)) and 0.7 < first.mean() < 0.8
    second = zoned_out[1] == plain_out[1]
    assert np.all(second | (zoned_out[1] == zoned_out[0])) and 0.7 < second.mean() < 0.8


def test_dropout_is_only_active_in_training():
    bound = mx.rnn.DropoutCell(0.5).unroll(2, DATA)[0].simple_bind(mx.cpu(), data=(40, 2, 50))
    bound.arg_dict["data"][:] = 1
    assert (bound.forward(is_train=False)[0].asnumpy() == 1).all()
    dropped = bound.forward(is_train=True)[0].asnumpy()
    assert set(np.unique(dropped)) == {0.0, 2.0} and 0.45 < (dropped == 0).mean() < 0.55


# ---- unrolling ----

BIND = """
import sys
import neomx as mx
words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, name="words")
cells = mx.rnn.SequentialRNNCell()
cells.add(mx.rnn.FusedRNNCell(4, bidirectional=True))
cells.add(mx.rnn.LSTMCell(3, prefix="last_"))
cells.unroll(3, words, merge_outputs=True)[0].simple_bind(mx.cpu(), data=(2, 3))
print("torch._dynamo" in sys.modules)
"""


def test_binding_does_not_import_the_compiler():
    """torch's compiler takes seconds to import, and some ops import it when they run on tensors without memory."""
    run = subprocess.run([sys.executable, "-c", BIND], capture_output=True, text=True, timeout=LIMIT)
    assert run.stdout.split() == ["False"], run.stderr[-500:]


def test_fused_cell_matches_its_single_cells():
    for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
        fused = mx.rnn.FusedRNNCell(3, num_layers=2, mode=mode, bidirectional=True)
        single = fused.unfuse()
        nets = [cell.unroll(4, DATA, layout="TNC", merge_outputs=True)[0] for cell in (fused, single)]
        first = nets[0].simple_bind(mx.cpu(), data=(4, 2, 5))
        for array in first.arg_dict.values():
            array[:] = mx.nd.random.uniform(-1, 1, array.shape)
        args = dict(first.arg_dict)
        second = nets[1].bind(mx.cpu(), single.pack_weights(fused.unpack_weights(args)))
        results = [each.forward()[0].asnumpy() for each in (first, second)]
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


def test_rnn_unroll_creates_the_inputs():
    with pytest.warns(UserWarning, match="rnn_unroll is deprecated"):
        outputs, _ = mx.rnn.rnn_unroll(mx.rnn.RNNCell(3), 2, input_prefix="in_")
    assert [name for name in mx.sym.Group(outputs).list_arguments() if "data" in name] == ["in_t0_data", "in_t1_data"]


def test_channels_last_conv_gru_splits_its_channels():
    cell = mx.rnn.ConvGRUCell((1, 4, 4, 2), 3, conv_layout="NHWC")
    net = mx.sym.Group(cell.unroll(2, DATA, layout="NTHWC")[0])
    assert net.infer_shape(data=(5, 2, 4, 4, 2))[1] == [(5, 4, 4, 3)] * 2


def test_custom_cell():
    class Adder(mx.rnn.BaseRNNCell):
        @property
        def state_info(self):
            return [{"shape": (0, 3), "__layout__": "NC"}]

        def __call__(self, inputs, states):
            self._counter += 1
            total = mx.sym.elemwise_add(inputs, states[0], name=f"{self._prefix}t{self._counter}")
            return total, [total]

    net = Adder(prefix="sum_").unroll(3, DATA, merge_outputs=True)[0]
    bound = net.bind(mx.cpu(), {"data": mx.nd.ones((2, 3, 3))})
    assert bound.forward()[0].asnumpy()[0, :, 0].tolist() == [1, 2, 3]
    with pytest.raises(NotImplementedError, match="BaseRNNCell must define state_info"):
        mx.rnn.BaseRNNCell().begin_state()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: mx.rnn.RNNCell(3).unroll(2, [DATA]), AssertionError, "length is 2, but inputs are 1 steps"),
        (lambda: mx.rnn.RNNCell(3).unroll(2, DATA, layout="NC"), AssertionError, "layout must contain T \\(time\\)"),
        (
            lambda: mx.rnn.RNNCell(3).unroll(1, mx.nd.ones((1, 1, 1))),
            AssertionError,
            "Use mx.gluon.rnn for arrays",
        ),
        (lambda: mx.rnn.LSTMCell(3)(DATA, [DATA]), MXNetError, r"expects a list of 2 state\(s\).*received 1"),
        (lambda: mx.rnn.FusedRNNCell(3, mode="elman"), ValueError, "mode must be one of rnn_relu.*received 'elman'"),
        (lambda: mx.rnn.RNNCell(3).begin_state(func=mx.nd.zeros), MXNetError, "arrays need a batch_size"),
        (lambda: mx.rnn.ConvRNNCell((1, 2, 0, 5), 3), ValueError, "input_shape except the first .* must be known"),
    ],
)
def test_invalid_input_raises(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# ---- sentences ----


def test_too_long_sentences_are_counted(caplog):
    with caplog.at_level(logging.WARNING):
        batches = mx.rnn.BucketSentenceIter([[1, 2], [1, 2, 3], [3, 4]], 2, buckets=[2])
    assert "discarded 1 sentences" in caplog.text
    assert [batch.data[0].shape for batch in batches] == [(2, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 9}, "no sentence length occurs 9 times in the 2 sentences"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 1, "layout": "TC"}, "layout 'NT' or 'TN'"),
    ],
)
def test_invalid_bucket_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        mx.rnn.BucketSentenceIter([[1], [2]], **arguments)
