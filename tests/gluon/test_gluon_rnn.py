"""gluon.rnn beyond recordings: lengths that MXNet's CPU kernel ignores, randomness, graphs, and torch twins."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import nd
from neomx.gluon import contrib, nn, rnn

LAYERS = ("RNN", "LSTM", "GRU")


def data(*shape, seed=0):
    return nd.array(np.random.RandomState(seed).uniform(-1, 1, shape))


def made(layer):
    layer.initialize(mx.init.Uniform(0.5))
    return layer


def close(a, b):
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("hybridize", [False, True])
def test_sequences_end_at_their_lengths(kind, hybridize):
    layer = made(getattr(rnn, kind)(4, 2, bidirectional=True, input_size=3, use_sequence_length=True))
    alone = getattr(rnn, kind)(4, 2, bidirectional=True, input_size=3, prefix=layer.prefix, params=layer.params)
    if hybridize:
        layer.hybridize()
    x, lengths = data(5, 3, 3), [2, 5, 1]
    states = layer.begin_state(3, func=nd.ones)
    out, last = layer(x, states, nd.array(lengths))
    for i, length in enumerate(lengths):
        expected, wanted = alone(x[:length, i : i + 1], [state[:, i : i + 1] for state in states])
        close(out[:length, i : i + 1], expected)
        assert not out[length:, i].asnumpy().any()
        for state, other in zip(last, wanted, strict=True):
            close(state[:, i : i + 1], other)


@pytest.mark.parametrize("kind", LAYERS)
def test_layer_equals_stack_of_cells(kind):
    layer = made(getattr(rnn, kind)(4, 2, bidirectional=True, input_size=3, layout="NTC"))
    x = data(2, 5, 3)
    out, states = layer(x, layer.begin_state(2))
    cells, cell_states = layer._unfuse().unroll(5, x, merge_outputs=True)
    close(out, cells)
    count = len(states)
    for kind_of_state, state in enumerate(states):
        for k in range(4):
            close(state[k], cell_states[count * k + kind_of_state])


def test_hybridized_layer_accepts_optional_states():
    layer = made(rnn.GRU(4, input_size=3))
    layer.hybridize()
    x = data(5, 2, 3)
    out = layer(x)
    with_states, states = layer(x, layer.begin_state(2))
    close(out, with_states)
    close(layer(x), out)
    assert len(states) == 1


def language_model():
    net = nn.HybridSequential()
    net.add(nn.Embedding(7, 4), rnn.LSTM(5, 2), rnn.GRU(3, bidirectional=True), nn.Dense(6, flatten=False))
    return made(net)


def test_graph_accepts_any_batch_size_and_does_not_pack_parameters():
    net = language_model()
    batches = [nd.array(np.random.RandomState(0).randint(0, 7, (4, batch))) for batch in (3, 5)]
    expected = [net(tokens) for tokens in batches]
    net.hybridize()
    for tokens, wanted in zip(batches, expected, strict=True):
        close(net(tokens), wanted)
    assert "_rnn_param_concat" in net._last_graph.symbol.tojson()
    assert "reshape" not in net._last_graph.run.source.lower()
    assert len([line for line in net._last_graph.run.source.splitlines() if " = op" in line]) < 10


def test_two_layers_share_parameters():
    first = made(rnn.LSTM(4, input_size=3, prefix="shared_"))
    second = rnn.LSTM(4, input_size=3, prefix="shared_", params=first.params)
    x = data(3, 2, 3)
    close(first(x), second(x))


def test_twin_of_layer_equals_torch_layer():
    layer = made(rnn.LSTM(4, 2, input_size=3))
    x = data(5, 2, 3)
    twin = layer.torch()
    plain = torch.nn.LSTM(3, 4, 2)
    names = {"weight_ih": "i2h_weight", "weight_hh": "h2h_weight", "bias_ih": "i2h_bias", "bias_hh": "h2h_bias"}
    with torch.no_grad():
        for name, param in plain.named_parameters():
            kind, _, number = name.rpartition("_l")
            param.copy_(twin.get_parameter(f"l{number}_{names[kind]}"))
        torch.testing.assert_close(twin(x._data), plain(x._data)[0])
    twin(x._data).sum().backward()
    assert all(param.grad is not None for param in twin.parameters())


def test_dropout_between_layers_only_in_training():
    layer = made(rnn.LSTM(50, 2, dropout=0.5, input_size=3))
    x = data(4, 8, 3)
    close(layer(x), layer(x))
    with mx.autograd.train_mode():
        first, second = layer(x), layer(x)
    assert not np.allclose(first.asnumpy(), second.asnumpy())


def test_lstm_cell_states_are_clipped():
    layer = made(rnn.LSTM(4, input_size=3, state_clip_min=-0.05, state_clip_max=0.05))
    _, (_, cell) = layer(10 * data(5, 2, 3), layer.begin_state(2))
    assert np.abs(cell.asnumpy()).max() == np.float32(0.05)


def test_zoneout_keeps_previous_or_new_values():
    base = made(rnn.RNNCell(50, input_size=3))
    x, before = data(8, 3), data(8, 50)
    new, _ = base(x, [before])
    cell = rnn.ZoneoutCell(base, zoneout_outputs=0.3, zoneout_states=0.6)
    with mx.autograd.train_mode():
        out, (state,) = cell(x, [before])
        assert set(np.unique(out.asnumpy() == new.asnumpy())) == {True, False}
        kept = state.asnumpy() == before.asnumpy()
        assert np.all(kept | (state.asnumpy() == new.asnumpy()))
        assert 0.5 < kept.mean() < 0.7
        assert 0.2 < (out.asnumpy() == 0).mean() < 0.4
        later, _ = cell(x, [before])
        assert np.all((later.asnumpy() == new.asnumpy()) | (later.asnumpy() == out.asnumpy()))


def test_variational_dropout_keeps_mask_until_reset():
    class Copy(rnn.HybridRecurrentCell):
        def state_info(self, batch_size=0):
            return [{"shape": (batch_size, 50), "__layout__": "NC"}]

        def hybrid_forward(self, F, x, states):
            return x, [states[0]]

    x = nd.ones((4, 6, 50))
    for rates in ((0.5, 0.0, 0.0), (0.0, 0.0, 0.5), (0.5, 0.5, 0.0)):
        cell = contrib.rnn.VariationalDropoutCell(Copy(), *rates)
        with mx.autograd.train_mode():
            first = cell.unroll(6, x, merge_outputs=True)[0].asnumpy()
            second = cell.unroll(6, x, merge_outputs=True)[0].asnumpy()
        assert np.array_equal(first, np.broadcast_to(first[:, :1], first.shape))
        assert 0.3 < (first == 0).mean() < 0.7
        assert not np.array_equal(first, second)


def test_dropped_states_stay_dropped():
    base = made(rnn.RNNCell(50, input_size=3, i2h_weight_initializer="zeros", h2h_weight_initializer="ones"))
    cell = contrib.rnn.VariationalDropoutCell(base, drop_states=0.5)
    states = [nd.ones((2, 50))]
    with mx.autograd.train_mode():
        cell(nd.zeros((2, 3)), states)
        mask = cell.drop_states_mask.asnumpy()
        cell(nd.zeros((2, 3)), states)
        assert np.array_equal(cell.drop_states_mask.asnumpy(), mask)
    assert set(np.unique(mask)) == {0, 2}


def test_dropout_with_axes_drops_whole_rows():
    cell = rnn.DropoutCell(0.5, axes=(1,))
    with mx.autograd.train_mode():
        out = cell.unroll(4, nd.ones((30, 4, 5)))[0].asnumpy()
    assert np.array_equal(out, np.broadcast_to(out[:, :1], out.shape))
    assert 0.2 < (out == 0).mean() < 0.8


def test_bidirectional_cell_merges_outputs_with_valid_length():
    cell = made(rnn.BidirectionalCell(rnn.GRUCell(4, input_size=3), rnn.GRUCell(4, input_size=3)))
    x, lengths = data(3, 5, 3), nd.array([2, 5, 1])
    out, _ = cell.unroll(5, x, valid_length=lengths)
    close(out, cell.unroll(5, x, merge_outputs=True, valid_length=lengths)[0])


def test_gradients_of_a_projected_lstm():
    layer = made(rnn.LSTM(4, 2, projection_size=2, input_size=3, dtype="float64"))
    twin = layer.torch()
    x = torch.rand(3, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(twin, x)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: rnn.LSTM(3, layout="CTN"), "Invalid layout CTN"),
        (lambda: rnn.RNN(3, activation="sigmoid"), "'relu' or 'tanh', received 'sigmoid'"),
        (lambda: rnn.LSTM(3).begin_state(), "arrays need a batch_size"),
        (lambda: rnn.GRUCell(3).begin_state(), "arrays need a batch_size"),
        (lambda: made(rnn.LSTM(3, input_size=4))(data(2, 2, 3)), "must have shape (12, 3)"),
        (lambda: made(rnn.LSTM(3, input_size=3))(data(2, 2, 3), data(1, 2, 3)), "3 arrays are expected before"),
        (lambda: made(rnn.GRU(3, input_size=3))(data(2, 2, 3), data(1, 5, 3)), "state must have shape (1, 2, 3)"),
        (lambda: rnn.RNNCell(3).unroll(3, data(2, 4, 3)), "length is 3, but inputs of layout NTC have 4 steps"),
        (lambda: rnn.RNNCell(3).unroll(3, [data(2, 3)]), "length is 3, but inputs are 1 steps"),
        (lambda: rnn.RNNCell(3).unroll(3, "abc"), "must be an array, a Symbol or a list of them, received str"),
        (lambda: rnn.RNNCell(3).unroll(3, data(2, 3, 3), layout="CCC"), "Received: 'CCC'"),
        (lambda: contrib.rnn.Conv2DRNNCell((3, 8, 8), 4, 3, 2), "Only support odd number"),
        (lambda: contrib.rnn.Conv2DRNNCell((3, 8, 8), 4, (3,), 3), "length 2. Received: (3,)"),
    ],
)
def test_errors_name_the_problem(wrong, message):
    with pytest.raises((AssertionError, KeyError, mx.MXNetError)) as error:
        wrong()
    assert message in str(error.value)
