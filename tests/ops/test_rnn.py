"""RNN features without MXNet recordings: lengths, clipping, projection, dropout and gradients."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.ops.rnn import rnn, rnn_param_size
from neomx.ops.table import OPS

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")


def inputs(mode, steps=4, batch=3, channels=2, state=3, layers=1, bidirectional=False, projection=None, grad=False):
    """Return random float64 arguments of the op: tensors and attributes."""
    make = torch.Generator().manual_seed(5)
    count = layers * (1 + bidirectional)
    shapes = [(steps, batch, channels)]
    shapes.append((rnn_param_size(mode, channels, state, layers, bidirectional, projection),))
    shapes.append((count, batch, projection or state))
    if mode == "lstm":
        shapes.append((count, batch, state))
    tensors = [torch.rand(s, generator=make, dtype=torch.float64).mul_(2).sub_(1).requires_grad_(grad) for s in shapes]
    attrs = {"state_size": state, "num_layers": layers, "bidirectional": bidirectional, "mode": mode}
    return tensors, {**attrs, "projection_size": projection, "state_outputs": True, "ctx": mx.cpu()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [None, [4, 1, 2]])
def test_gradients_match_finite_differences(mode, lengths):
    tensors, attrs = inputs(mode, layers=2, bidirectional=True, grad=True)
    if lengths:
        attrs |= {"sequence_length": torch.tensor(lengths), "use_sequence_length": True}
    assert torch.autograd.gradcheck(lambda *args: tuple(rnn(*args, **attrs)), tensors)


@pytest.mark.parametrize("mode", MODES)
def test_each_sequence_equals_separate_run(mode):
    tensors, attrs = inputs(mode, layers=2, bidirectional=True)
    lengths = torch.tensor([4, 1, 2])
    outputs = rnn(*tensors, **attrs, sequence_length=lengths, use_sequence_length=True)
    for i, length in enumerate(lengths):
        one = [tensors[0][:length, i : i + 1], tensors[1], *(state[:, i : i + 1] for state in tensors[2:])]
        expected = rnn(*one, **attrs)
        torch.testing.assert_close(outputs[0][:length, i : i + 1], expected[0])
        assert not outputs[0][length:, i].any()
        for state, wanted in zip(outputs[1:], expected[1:], strict=True):
            torch.testing.assert_close(state[:, i : i + 1], wanted)


def test_sequence_length_by_position_follows_states():
    tensors, attrs = inputs("gru")
    lengths = torch.tensor([4.0, 1.0, 2.0])
    by_name = rnn(*tensors, **attrs, sequence_length=lengths, use_sequence_length=True)
    by_position = rnn(*tensors, lengths, **attrs, use_sequence_length=True)
    torch.testing.assert_close(by_name, by_position)


def lstm_step_by_step(tensors, state, projection, clip):
    x, packed, h, c = (t.detach() if clip is None else t for t in tensors)
    out, width = projection or state, 4 * state
    sizes = [width * x.shape[2], width * out, (projection or 0) * state, width, width]
    wih, whh, whr, bih, bhh = packed.split(sizes)
    h, c, outputs = h[0], c[0], []
    for step in x:
        gates = step @ wih.view(width, -1).T + bih + h @ whh.view(width, -1).T + bhh
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        c = c if clip is None else c.clamp(*clip)
        h = o.sigmoid() * c.tanh()
        h = h @ whr.view(projection, state).T if projection else h
        outputs.append(h)
    return torch.stack(outputs), h.unsqueeze(0), c.unsqueeze(0)


def test_projection_reduces_state_size():
    tensors, attrs = inputs("lstm", projection=2)
    outputs = rnn(*tensors, **attrs)
    torch.testing.assert_close(tuple(outputs), lstm_step_by_step(tensors, 3, 2, None))


def test_projection_with_layers_and_directions():
    tensors, attrs = inputs("lstm", projection=2, layers=2, bidirectional=True, grad=True)
    assert [tuple(o.shape) for o in rnn(*tensors, **attrs)] == [(4, 3, 4), (4, 3, 2), (4, 3, 3)]
    assert torch.autograd.gradcheck(lambda *args: tuple(rnn(*args, **attrs)), tensors)


@pytest.mark.parametrize("clip", [(-0.1, 0.2), (None, 0.1), (-0.1, None)])
def test_cells_are_clipped(clip):
    tensors, attrs = inputs("lstm", grad=True)
    attrs |= {"lstm_state_clip_min": clip[0], "lstm_state_clip_max": clip[1]}
    received, expected = rnn(*tensors, **attrs), lstm_step_by_step(tensors, 3, None, clip)
    torch.testing.assert_close(tuple(received), expected)
    heads = [torch.ones_like(o) for o in expected]
    torch.testing.assert_close(
        torch.autograd.grad(received, tensors, heads), torch.autograd.grad(expected, tensors, heads)
    )


def test_clipping_can_replace_nan():
    tensors, attrs = inputs("lstm")
    tensors[3][0, 0, 0] = float("nan")
    attrs |= {"lstm_state_clip_min": -0.5, "lstm_state_clip_max": 0.5}
    assert rnn(*tensors, **attrs)[0].isnan().any()
    assert not rnn(*tensors, **attrs, lstm_state_clip_nan=True)[0].isnan().any()


@pytest.mark.parametrize("mode", MODES)
def test_dropout_only_between_layers_and_only_in_training(mode):
    tensors, attrs = inputs(mode, layers=2, batch=2)
    arrays = [mx.nd.from_torch(t) if hasattr(mx.nd, "from_torch") else mx.nd.NDArray(t, mx.cpu()) for t in tensors]
    attrs = {k: v for k, v in attrs.items() if k not in ("ctx", "projection_size")}

    def run(p, train):
        mx.random.seed(3)
        with mx.autograd.record(train_mode=train):
            return mx.nd.RNN(*arrays, p=p, **attrs)

    plain, dropped = run(0.0, True), run(0.5, True)
    np.testing.assert_array_equal(run(0.5, False)[0].asnumpy(), plain[0].asnumpy())
    np.testing.assert_array_equal(run(0.5, True)[0].asnumpy(), dropped[0].asnumpy())
    np.testing.assert_array_equal(dropped[1].asnumpy()[0], plain[1].asnumpy()[0])
    assert np.abs(dropped[0].asnumpy() - plain[0].asnumpy()).max() > 1e-3
    assert np.isfinite(run(1.0, True)[0].asnumpy()).all()


@pytest.mark.parametrize("mode", MODES)
def test_shapes_on_meta_tensors(mode):
    tensors, attrs = inputs(mode, layers=2, bidirectional=True)
    outputs = rnn(*(t.to("meta") for t in tensors), **attrs)
    assert [o.shape for o in outputs] == [o.shape for o in rnn(*tensors, **attrs)]


def test_parameter_gradients_without_data_gradient():
    tensors, attrs = inputs("lstm", grad=True)
    whole = torch.autograd.grad(rnn(*tensors, **attrs)[0].sum(), tensors[1])
    alone = torch.autograd.grad(rnn(tensors[0].detach(), *tensors[1:], **attrs)[0].sum(), tensors[1])
    torch.testing.assert_close(whole, alone)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gpu_path_equals_cpu_path(mode, bidirectional):
    tensors, attrs = inputs(mode, layers=2, bidirectional=bidirectional)
    expected = rnn(*tensors, **attrs)

    class OnGpu(torch.Tensor):
        is_cuda = True

    received = rnn(tensors[0].as_subclass(OnGpu), *tensors[1:], **attrs)
    torch.testing.assert_close([o.as_subclass(torch.Tensor) for o in received], expected)


def test_input_order_matches_gluon():
    assert OPS["RNN"].inputs == ("data", "parameters", "state", "state_cell", "sequence_length")


@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("train", [False, True])
def test_kernels_agree_with_torch(mode, train):
    tensors, attrs = inputs(mode, layers=2, bidirectional=True)
    results = []
    for dtype in (torch.float32, torch.float64):
        args = [t.to(dtype).requires_grad_() for t in tensors]
        with mx.autograd.train_mode() if train else mx.autograd.predict_mode():
            outputs = rnn(*args, **attrs)
        heads = [torch.ones_like(o) for o in outputs]
        results.append([*outputs, *torch.autograd.grad(outputs, args, heads)])
        with torch.no_grad():
            torch.testing.assert_close(rnn(*args, **attrs), outputs, rtol=1e-5, atol=1e-6)
    for single, double in zip(*results, strict=True):
        torch.testing.assert_close(single, double, check_dtype=False, rtol=1e-4, atol=1e-5)
