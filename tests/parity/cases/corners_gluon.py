"""Edges of gluon: children by hand, several Trainers, the order of handlers, odd blocks, splits and sample weights."""

import importlib
import os
import tempfile

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def described(value):
    """A result, or several, as a text."""
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(described, value))
    if hasattr(value, "asnumpy"):
        return "%s %s %s" % (np.dtype(value.dtype), value.asnumpy().tolist(), value.context)
    return str(value)


def results(*calls):
    return [described(outcome(call)) for call in calls]


@program
def children_by_hand(mx):
    nn = mx.gluon.nn

    class Listed(mx.gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.layers = [nn.Dense(2, in_units=3), nn.Dense(1, in_units=2)]
            for i, layer in enumerate(self.layers):
                self._children["layer%d" % i] = layer

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    class Sequence(nn.HybridSequential):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self._children["a"] = nn.Dense(2, in_units=3)
                self._children["b"] = nn.Dense(1, in_units=2)

    path = os.path.join(tempfile.mkdtemp(), "a.params")
    x, found = mx.nd.ones((1, 3)), []
    for kind in (Listed, Sequence):
        net, other = kind(prefix="n_"), kind(prefix="m_")
        net.initialize(mx.init.One())
        net.save_parameters(path)
        other.load_parameters(path)
        found += [net(x), str(sorted(mx.nd.load(path))), other(x), str(list(net.collect_params()))]
        net.hybridize()
        found.append(net(x))
    return found


@program
def two_trainers_of_one_parameter(mx):
    def train(kvstore, sparse_grad=False):
        net = mx.gluon.nn.Embedding(4, 2, sparse_grad=sparse_grad)
        net.initialize(mx.init.One())
        rates = (0.1, 0.5)
        first, second = (mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": r}, kvstore) for r in rates)
        for trainer in (first, second, first):
            with mx.autograd.record():
                y = net(mx.nd.array([[0, 2]])).sum()
            y.backward()
            trainer.step(1)
        return net.weight.data()

    def of_row_sparse():
        param = mx.gluon.Parameter("w", shape=(3, 2), stype="row_sparse", grad_stype="row_sparse")
        param.initialize(mx.init.One())
        return ["made" for _ in [mx.gluon.Trainer([param], "sgd"), mx.gluon.Trainer([param], "sgd")]]

    return results(*[lambda how=how: train(*how) for how in (("device",), (None,), ("local", True))], of_row_sparse)


@program
def dumps_of_initializers(mx):
    init = mx.init
    made = [init.Constant(3), init.Constant(2.5), init.Constant(mx.nd.array([1, 2])), init.Constant(np.array([1.0, 2]))]
    made += [
        init.Zero(),
        init.One(),
        init.Xavier(),
        init.MSRAPrelu(),
        init.Normal(),
        init.Uniform(0.3),
        init.Bilinear(),
    ]
    made += [init.LSTMBias(2.0), init.Orthogonal()]
    return results(*[each.dumps for each in made])


@program
def handlers_by_priority(mx):
    estimators = importlib.import_module(mx.__name__ + ".gluon.contrib.estimator")
    events = importlib.import_module(mx.__name__ + ".gluon.contrib.estimator.event_handler")
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    estimator = estimators.Estimator(net, mx.gluon.loss.L2Loss(), train_metrics=mx.metric.Loss(), trainer=trainer)
    estimator.logger.disabled = True
    told = []

    class Begins(events.TrainBegin, events.BatchEnd):
        def __init__(self, name, **kwargs):
            self.name = name
            vars(self).update(kwargs)

        def train_begin(self, estimator, *args, **kwargs):
            told.append("train_begin " + self.name)

        def batch_end(self, estimator, *args, **kwargs):
            told.append("batch_end " + self.name)

    class Ends(events.EpochBegin, events.EpochEnd, events.TrainEnd, events.BatchBegin):
        priority = 10

        def epoch_begin(self, estimator, *args, **kwargs):
            told.append("epoch_begin")

        def epoch_end(self, estimator, *args, **kwargs):
            told.append("epoch_end")

        def train_end(self, estimator, *args, **kwargs):
            told.append("train_end")

        def batch_begin(self, estimator, *args, **kwargs):
            told.append("batch_begin")

    def names(handlers):
        return [type(handler).__name__ for handler in handlers]

    mine = [Begins("a", priority=5), Ends(), Begins("b", priority=-2000), Begins("c", priority=2000), Begins("d")]
    data = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(mx.nd.ones((2, 2)), mx.nd.ones((2, 1))), 1)
    return results(
        lambda: estimator.fit(data, epochs=1, event_handlers=list(mine)) or told,
        lambda: [
            names(h) for h in estimator._categorize_handlers(estimator._prepare_default_handlers(None, list(mine)))
        ],
        lambda: names(estimator._prepare_default_handlers(None, [])),
        lambda: estimator.fit(data, epochs=1, event_handlers=["x"]),
        lambda: estimator.fit(data, epochs=1, event_handlers=[Begins]),
        lambda: estimator.fit(data, epochs=1, event_handlers=Begins("only")),
        lambda: estimator.fit(data, epochs=1, batches=1),
        lambda: estimator.fit(data),
    )


@program
def blocks_that_return_numbers(mx):
    class Returns(mx.gluon.HybridBlock):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def hybrid_forward(self, F, x):
            return self.function(x)

    x = mx.nd.ones((2, 2))
    functions = [lambda x: 3, lambda x: (x, 3), lambda x: None, lambda x: [x, None], lambda x: "a", lambda x: {"a": 1}]
    functions += [lambda x: (x, 2.5, [x]), lambda x: ()]
    dense = mx.gluon.nn.Dense
    return results(*[lambda g=g: Returns(g)(x) for g in functions], lambda: dense(0), lambda: dense(0).weight.shape)


@program
def splits_of_every_kind(mx):
    load, split = mx.gluon.utils.split_and_load, mx.gluon.utils.split_data
    both, one = [mx.cpu(0), mx.cpu(1)], [mx.cpu(0)]
    values = [np.arange(8.0).reshape(4, 2), [[1, 2], [3, 4]], (1, 2, 3, 4), mx.nd.arange(4)]
    values += [np.arange(8).astype(dtype) for dtype in ("float16", "float64", "int32", "uint8")]
    values += [mx.nd.arange(5), mx.nd.arange(4, dtype="int32"), mx.nd.sparse.csr_matrix(mx.nd.ones((4, 2)))]
    return results(
        *[lambda v=v: load(v, both) for v in values],
        *[lambda v=v: load(v, one) for v in [*values, 3, np.array(3)]],
        *[lambda v=v: load(v, both, even_split=False) for v in (mx.nd.arange(5), np.arange(5), [1, 2, 3])],
        lambda: load(mx.nd.arange(8).reshape((2, 4)), both, batch_axis=1),
        lambda: split(mx.nd.arange(7), 3, even_split=False),
        lambda: split(mx.nd.arange(7), 3),
        lambda: split(mx.nd.arange(12).reshape((3, 4)), 2, batch_axis=1),
    )


@program
def sample_weights_from_an_iterator(mx):
    data = np.arange(12, dtype="float32").reshape(6, 2)
    labels = {"label": np.arange(6, dtype="float32"), "weight": np.array([1, 0, 2, 0.5, 1, 1], dtype="float32")}
    batches = mx.io.NDArrayIter({"data": data}, labels, 4, last_batch_handle="pad")
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.One())
    found = []
    loss = mx.gluon.loss
    for each in (loss.L2Loss(), loss.L1Loss(), loss.HuberLoss(), loss.L2Loss(weight=3)):
        batches.reset()
        for batch in batches:
            label, weight = batch.label
            with mx.autograd.record():
                y = each(net(batch.data[0]), label, weight.reshape((-1, 1)))
            y.backward()
            found += [y, net.weight.grad(), batch.pad]
            found.append(outcome(lambda e=each, b=batch: e(net(b.data[0]), *b.label)))
    batches.reset()
    for batch in batches:
        label, weight = batch.label
        entropy = loss.SoftmaxCrossEntropyLoss()
        found += [entropy(batch.data[0], label % 2, weight.expand_dims(1))]
        found.append(outcome(lambda e=entropy, b=batch: e(b.data[0], b.label[0] % 2, b.label[1])))
    return found
