"""The fused RNN op, against MXNet's CPU kernels.

Those silently ignore sequence_length, lstm_state_clip_* and (for LSTM) p, refuse projection_size while recording,
and have no float16; tests/ops/test_rnn.py covers these.
"""

import numpy as np

from ..spec import f, family, outcome

case, program = family(__name__)

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def size(mode, channels, state, layers, directions):
    rows = GATES[mode] * state
    return sum(directions * rows * ((directions * state if layer else channels) + state + 2) for layer in range(layers))


def rnn(mode, steps=4, batch=2, channels=3, state=5, layers=1, bidirectional=False, dtype="float32", **attrs):
    directions = 1 + bidirectional
    arrays = [
        f(steps, batch, channels, dtype=dtype),
        f(size(mode, channels, state, layers, directions), dtype=dtype),
    ]
    arrays += [f(layers * directions, batch, state, dtype=dtype)] * (2 if mode == "lstm" else 1)
    if bidirectional:
        attrs["bidirectional"] = True
    case("RNN", *arrays, state_size=state, num_layers=layers, mode=mode, **attrs)


for mode in sorted(GATES):
    rnn(mode)
    rnn(mode, state_outputs=True)
    rnn(mode, layers=2, bidirectional=True, state_outputs=True)
    # Of several float64 layers MXNet gets some weight gradients wrong; tests/ops/test_rnn.py checks ours numerically.
    rnn(mode, layers=3 if mode in ("lstm", "gru") else 1, dtype="float64", state_outputs=True)
    rnn(mode, layers=3, dtype="float64", batch=1, _grad=False)
    rnn(mode, steps=1, batch=1, state_outputs=True)
    rnn(mode, steps=12, batch=3, channels=7, state=6, layers=2, bidirectional=True)  # long sums
    rnn(mode, layers=2, p=0.5, _train=False)
    rnn(mode, state=1, layers=2, bidirectional=True, state_outputs=True)
    rnn(mode, state=1, dtype="float64")

case("_rnn_param_concat", f(3), f(5), f(2), dim=0)
case("_rnn_param_concat", f(2, 3), f(2, 1))


def ramp(mx, *shape):
    """Numbers between -0.5 and 0.5 that do not repeat."""
    return mx.nd.array((np.arange(np.prod(shape)) * 0.37 % 1 - 0.5).reshape(shape))


@program
def only_the_cell_is_used(mx):
    arrays = [ramp(mx, *shape) for shape in ((4, 2, 3), (size("lstm", 3, 2, 1, 1),), (1, 2, 2), (1, 2, 2))]
    for array in arrays:
        array.attach_grad()
    with mx.autograd.record():
        _, _, cell = mx.nd.RNN(*arrays, state_size=2, num_layers=1, mode="lstm", state_outputs=True)
    cell.backward()
    return [cell] + [array.grad for array in arrays]


@program
def state_carried_over_and_detached(mx):
    w, h, x = ramp(mx, size("gru", 2, 3, 1, 1)), ramp(mx, 1, 2, 3), ramp(mx, 3, 2, 2)
    w.attach_grad()
    grads = []
    for _ in range(3):
        h = h.detach()
        with mx.autograd.record():
            out, h = mx.nd.RNN(x, w, h, state_size=3, num_layers=1, mode="gru", state_outputs=True)
            loss = out * out
        loss.backward()
        grads.append(w.grad.copy())
    return grads + [out, h]


@program
def wrong_arguments(mx):
    x, w, s = ramp(mx, 3, 2, 3), ramp(mx, size("gru", 3, 4, 1, 1)), ramp(mx, 1, 2, 4)
    kw = {"state_size": 4, "num_layers": 1, "mode": "gru"}
    return [
        outcome(lambda: mx.nd.RNN(x, w[:9], s, **kw).asnumpy()),
        outcome(lambda: mx.nd.RNN(x, w, s[:, :1], **kw).asnumpy()),
        outcome(lambda: mx.nd.RNN(x, w, s, s, **kw).asnumpy()),
        outcome(lambda: mx.nd.RNN(x[0], w, s, **kw).asnumpy()),
        outcome(lambda: mx.nd.RNN(x, w, s, p=1.5, **kw).asnumpy()),
    ]
