"""Programs that random ones, run under both, showed to differ once."""

import contextlib
import io

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def values(mx, *shape, seed=0):
    return mx.nd.array(np.random.RandomState(seed).normal(0, 1, shape))


def filled(net, seed=0):
    """The net with parameters from a numpy seed."""
    rng = np.random.RandomState(seed)
    for param in net.collect_params().values():
        param.set_data(rng.normal(0, 0.4, param.shape))
    return net


@program
def cross_entropy_of_one_example(mx):
    pred, results = values(mx, 3), []
    for hybrid in (False, True):
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        if hybrid:
            loss.hybridize()
        pred.attach_grad()
        with mx.autograd.record():
            result = loss(pred, mx.nd.array([2]))
        result.backward()
        results += [result, pred.grad]
    return results


@program
def two_classes_at_every_place(mx):
    labels = mx.nd.array(np.random.RandomState(0).randint(0, 2, (4, 3)))
    results = []
    for name in ("f1", "mcc"):
        metric = mx.metric.create(name)
        metric.update([labels], [values(mx, 4, 2, 3)])
        results.append(metric.get()[1])
    return results


@program
def perplexity_along_no_axis(mx):
    metric = mx.metric.Perplexity(ignore_label=None, axis=1)
    return [outcome(lambda: metric.update([mx.nd.array([0, 1])], [mx.nd.array([0.5, 0.5])]))]


@program
def frozen_by_a_rate_of_zero(mx):
    results = []
    for name in ("ftrl", "ftml"):
        weight = values(mx, 3)
        mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.0))(0, values(mx, 3, seed=1), weight)
        results.append(weight)
    return results


@program
def projection_as_wide_as_the_cell(mx):
    results = []
    for bidirectional in (False, True):
        net = mx.gluon.rnn.LSTM(2, num_layers=2, projection_size=2, bidirectional=bidirectional, input_size=3)
        net.initialize()
        filled(net)
        states = [values(mx, *each.shape, seed=1) for each in net.begin_state(batch_size=2)]
        output, states = net(values(mx, 4, 2, 3), states)
        results += [output, *states]
    return results


@program
def summary_of_nested_blocks(mx):
    nn = mx.gluon.nn

    class Wrapper(mx.gluon.HybridBlock):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def hybrid_forward(self, F, x):
            return self.inner(x)

    def sequence(kind, *layers):
        made = kind()
        made.add(*layers)
        return made

    nets = [
        Wrapper(nn.Dense(2)),
        sequence(nn.Sequential, Wrapper(nn.Dense(2)), sequence(nn.HybridSequential, nn.Dense(3))),
        sequence(nn.Sequential, sequence(mx.gluon.contrib.nn.HybridConcurrent, nn.Dense(2), nn.Dense(3))),
    ]
    texts = []
    for net in nets:
        net.initialize()
        with contextlib.redirect_stdout(io.StringIO()) as text:
            net.summary(mx.nd.ones((1, 2)))
        texts.append(text.getvalue())
    return texts


@program
def outputs_without_gradients(mx):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.tanh(x), x > 0, F.argmax(x, axis=1)

    x, results = values(mx, 2, 3), []
    x.attach_grad()
    for hybrid in (False, True):
        net = Net()
        if hybrid:
            net.hybridize()
        with mx.autograd.record():
            outputs = net(x)
        mx.autograd.backward(outputs)
        results += [*outputs, x.grad]
        with mx.autograd.record():
            _, positive, _ = net(x)
        positive.backward()
        results.append(x.grad)
    return results


@program
def states_that_are_symbols(mx):
    cell = mx.gluon.rnn.ResidualCell(mx.gluon.rnn.GRUCell(3, input_size=3))
    cell.initialize()
    results = [outcome(lambda: cell(values(mx, 2, 3), cell.begin_state(batch_size=2)))]
    output, _ = filled(cell)(values(mx, 2, 3), cell.begin_state(batch_size=2, func=mx.nd.zeros))
    cell.hybridize()
    return [*results, output, outcome(lambda: cell(values(mx, 2, 3), cell.begin_state(batch_size=2)))]
