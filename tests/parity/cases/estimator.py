"""gluon.contrib.estimator: the order of events, what a training comes to, what is logged, the files, the way back."""

import logging
import os
import re
import tempfile
import warnings
from functools import partial

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def loader(mx, samples=10, batch_size=4, seed=0):
    rng = np.random.RandomState(seed)
    x, y = rng.rand(samples, 3).astype("float32"), rng.randint(0, 2, samples).astype("float32")
    data = mx.gluon.data
    return data.DataLoader(data.ArrayDataset(mx.nd.array(x), mx.nd.array(y)), batch_size=batch_size)


def network(mx, ctx=None, seed=1, initialize=True):
    nn, rng = mx.gluon.nn, np.random.RandomState(seed)
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu", in_units=3), nn.Dense(2, in_units=4))
    if initialize:
        net.initialize(ctx=ctx)
        for layer in (net[0], net[1]):
            for param in (layer.weight, layer.bias):
                param.set_data(mx.nd.array(rng.normal(0, 0.5, param.shape)))
    return net


def estimator_of(mx, ctx=None, optimizer="sgd", rate=0.2, hybridize=True, net=None, loss=None, **kwargs):
    """An estimator of a small network, and the lines that it logs."""
    gluon = mx.gluon
    net = network(mx, ctx) if net is None else net
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": rate})
    loss = loss or gluon.loss.SoftmaxCrossEntropyLoss()
    est = gluon.contrib.estimator.Estimator(net, loss, trainer=trainer, context=ctx, **kwargs)
    return est, listen(est)


def listen(est):
    """What it logs, without times and places."""
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            text = re.sub(r"in [\d.]+s", "in Ts", record.getMessage())
            text = re.sub(r"total \d+s", "total Ts", re.sub(r"interval: [\d.]+s", "interval: Ts", text))
            lines.append(re.sub(r"\S*/(\S+-symbol.json)", r"DIR/\1", re.sub(r"model at \S+", "model at DIR", text)))

    est.logger.handlers = [Lines()]
    return lines


def shape_of(lines):
    """Lines without the values of metrics, which differ in their last digits."""
    return "\n".join(re.sub(r": -?\d+\.\d{4}", ": V", line) for line in lines)


def weights(est):
    return np.concatenate([p.data().asnumpy().ravel() for p in est.net.collect_params().values()])


def values(est):
    return np.array([m.get()[1] for m in est.train_metrics + est.val_metrics])


def tracer(mx, trace):
    """A class of handlers that note each call, and of handlers of MXNet's that do so too."""
    e = mx.gluon.contrib.estimator
    events = "train_begin train_end epoch_begin epoch_end batch_begin batch_end".split()

    class Traced(e.TrainBegin, e.TrainEnd, e.EpochBegin, e.EpochEnd, e.BatchBegin, e.BatchEnd):
        def __init__(self, name, priority=None, stop=()):
            self.name, self.stop = name, stop
            if priority is not None:
                self.priority = priority

    def noting(event):
        def method(self, est, *args, **kwargs):
            shapes = {k: [str(getattr(i, "shape", i)) for i in v] for k, v in sorted(kwargs.items())}
            trace.append("%s %s %s %s" % (self.name, event, args, shapes))
            return event in self.stop

        return method

    for event in events:
        setattr(Traced, event, noting(event))

    def also(kind):
        def traced(event):
            def method(self, est, *args, **kwargs):
                result = getattr(super(Sub, self), event)(est, *args, **kwargs)
                trace.append("%s %s -> %s" % (kind.__name__, event, result))
                return result

            return method

        class Sub(kind):
            pass

        for event in events:
            if hasattr(kind, event):
                setattr(Sub, event, traced(event))
        return Sub

    return Traced, also


@program
def default_metrics(mx):
    gluon, M = mx.gluon, mx.metric
    L, Estimator = gluon.loss, gluon.contrib.estimator.Estimator

    def names(loss, **kwargs):
        est, _ = estimator_of(mx, loss=loss, **kwargs)
        return str([[(type(m).__name__, m.name) for m in ms] for ms in (est.train_metrics, est.val_metrics)])

    sce = L.SoftmaxCrossEntropyLoss
    one = M.Accuracy()
    results = [names(loss()) for loss in (sce, L.L2Loss, L.L1Loss, L.SigmoidBCELoss, L.KLDivLoss)]
    results += [
        names(sce(), train_metrics=[]),
        names(sce(), val_metrics=[M.Accuracy()]),
        names(sce(), train_metrics=[M.Accuracy(), M.Loss()], val_metrics=[M.TopKAccuracy(2)]),
        names(sce(), train_metrics=M.CompositeEvalMetric([M.Accuracy(), M.Loss()])),
        names(sce(), train_metrics=(M.Accuracy(), M.Loss())),
        names(sce(), train_metrics=one),
        names(sce(), train_metrics=one),
        names(sce(), train_metrics=one, val_metrics=one),
    ]
    est, _ = estimator_of(mx)
    other, _ = estimator_of(mx, val_loss=L.L2Loss(), val_net=network(mx))
    results += [est.val_loss is est.loss, est.val_net is est.net, other.val_loss is other.loss]
    return results + [other.val_net is other.net, Estimator.logger is None, str(est.context)]


@program
def wrong_arguments(mx):
    gluon, M = mx.gluon, mx.metric
    L, e = gluon.loss, gluon.contrib.estimator
    sce, results = L.SoftmaxCrossEntropyLoss(), []
    wrong = [dict(train_metrics="acc"), dict(train_metrics=["acc"]), dict(val_metrics="acc"), dict(val_loss=3)]
    wrong += [
        dict(context="cpu"),
        dict(context=["cpu"]),
        dict(context=(mx.cpu(0), mx.cpu(1))),
        dict(context=mx.gpu(99)),
    ]
    wrong += [dict(batch_processor=3), dict(trainer="sgd"), dict(loss="l2"), dict(loss=[sce])]
    for kwargs in wrong:
        results.append(outcome(partial(e.Estimator, network(mx), **dict({"loss": sce}, **kwargs))))
    data, rows = loader(mx), [(mx.nd.zeros((2, 3)), mx.nd.zeros(2))]
    for kwargs in [
        dict(epochs=1, batches=1),
        dict(),
        dict(epochs=0),
        dict(batches=0),
        dict(train_data=rows, epochs=1),
        dict(val_data=rows, epochs=1),
        dict(epochs=1, event_handlers=[3]),
        dict(epochs=1, event_handlers=[e.MetricHandler([M.Accuracy()])]),
        dict(epochs=1, event_handlers=[e.LoggingHandler(metrics=[M.Accuracy()])]),
    ]:
        est, _ = estimator_of(mx)
        results.append(outcome(partial(est.fit, **dict({"train_data": data}, **kwargs))))
    est, _ = estimator_of(mx)
    results.append(outcome(lambda: est.evaluate(rows)))
    results.append(outcome(lambda: est.evaluate(data, event_handlers=[e.MetricHandler(est.train_metrics)])))
    for name in ("metric", "their_metrics", "_metrics", "monitor", "Metric"):
        handler = e.TrainBegin()
        setattr(handler, name, [M.Accuracy()])
        results.append(outcome(partial(est.fit, data, epochs=1, event_handlers=handler)))
    results.append(outcome(lambda: e.LoggingHandler(log_interval="x")))
    results.append(outcome(lambda: e.LoggingHandler(log_interval=1.5)))
    results.append(outcome(lambda: e.LoggingHandler(metrics="acc")))
    results.append(outcome(lambda: e.EarlyStoppingHandler(3)))
    results.append(outcome(lambda: e.CheckpointHandler(tempfile.gettempdir(), save_best=True)))
    return results


@program
def initialization(mx):
    gluon, init = mx.gluon, mx.init
    loss, Estimator = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.contrib.estimator.Estimator

    def made(initialized, caught, **kwargs):
        net = network(mx, initialize=False)
        if initialized == "whole":
            net.initialize(init.One())
        if initialized == "part":
            net[0].initialize(init.One())
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            est = Estimator(net, loss, **kwargs)
        caught.append(len(seen))
        rate = est.trainer.learning_rate
        return [net[0].weight.data().sum(), net[1].weight.data().sum(), rate, type(est.trainer.optimizer).__name__]

    caught = []
    results = made("", caught, initializer=init.Constant(2)) + made("whole", caught)
    results += made("whole", caught, initializer=init.Constant(2)) + made("part", caught, initializer=init.Constant(2))
    return results + [str(caught)]


@program
def events_in_order(mx):
    trace = []
    Traced, also = tracer(mx, trace)
    e = mx.gluon.contrib.estimator
    est, _ = estimator_of(mx)
    data = loader(mx)
    ours = [Traced("A"), Traced("B", 5), Traced("C", -5)]
    ours += [also(e.StoppingHandler)(), also(e.GradientUpdateHandler)(), also(e.MetricHandler)(est.train_metrics)]
    ours += [also(e.ValidationHandler)(data, est.evaluate), also(e.LoggingHandler)(metrics=est.train_metrics)]
    est.fit(data, val_data=data, epochs=2, event_handlers=ours)
    first, trace[:] = list(trace), []
    est.evaluate(data, event_handlers=[Traced("A"), Traced("B", 5), Traced("C", -5, stop=["batch_end", "epoch_end"])])
    return ["\n".join(first), "\n".join(trace), est.max_epoch, str(est.max_batch), est.batch_axis]


@program
def stopping(mx):
    results = []
    for kwargs, stop in [
        (dict(batches=5), []),
        (dict(epochs=2), ["batch_end"]),
        (dict(epochs=3), ["epoch_end"]),
        (dict(epochs=1), ["train_begin", "epoch_begin", "batch_begin"]),
    ]:
        trace = []
        Traced, _ = tracer(mx, trace)
        est, _ = estimator_of(mx)
        est.fit(loader(mx), event_handlers=[Traced("S", stop=stop), Traced("T", 1)], **kwargs)
        results.append("\n".join(trace))
    handler = mx.gluon.contrib.estimator.StoppingHandler(max_epoch=1)
    est, lines = estimator_of(mx)
    est.fit(loader(mx), epochs=3, event_handlers=handler)
    return results + [handler.max_epoch, handler.current_epoch, handler.current_batch, len(lines)]


@program
def a_training(mx):
    results = []
    for optimizer, rate in (("sgd", 0.2), ("adam", 0.05)):
        est, lines = estimator_of(mx, optimizer=optimizer, rate=rate)
        est.fit(loader(mx), val_data=loader(mx, seed=3), epochs=3)
        results += [weights(est), values(est), shape_of(lines)]
        est.evaluate(loader(mx, seed=4))
        results += [values(est), shape_of(lines)]
    return results


@program
def training_with_dropout_predicts_without(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.Dropout(0.9))
    net.initialize(mx.init.Constant(0.5))
    est, _ = estimator_of(mx, net=net)
    est.evaluate(loader(mx))
    return [values(est)[2:]]


@program
def several_contexts(mx):
    results = []
    for batch_axis, ctx in ((0, [mx.cpu(0), mx.cpu(1)]), (0, mx.cpu(1))):
        est, lines = estimator_of(mx, ctx=ctx, hybridize=False)
        est.fit(loader(mx), val_data=loader(mx, seed=3), epochs=2, batch_axis=batch_axis)
        ctx_of = est.net[0].weight.list_ctx()
        results += [est.net[1].weight.data(ctx_of[-1]), values(est), str(est.context), shape_of(lines)]
    return results


@program
def another_batch_axis(mx):
    gluon, rng, results = mx.gluon, np.random.RandomState(5), []
    rows, labels = mx.nd.array(rng.rand(15, 4, 3)), mx.nd.array(rng.rand(15, 4, 2))
    data = gluon.data.DataLoader(gluon.data.ArrayDataset(rows, labels), batch_size=5)
    for axis, ctx in ((0, [mx.cpu()]), (1, [mx.cpu()]), (1, [mx.cpu(0), mx.cpu(1)])):
        net = gluon.nn.Dense(2, in_units=3, flatten=False)
        net.initialize(mx.init.Constant(0.3), ctx=ctx)
        est, lines = estimator_of(mx, net=net, ctx=ctx, loss=gluon.loss.L2Loss(batch_axis=axis))
        log = gluon.contrib.estimator.LoggingHandler(1, est.train_metrics)
        est.fit(data, val_data=data, epochs=1, batch_axis=axis, event_handlers=[log])
        results += [net.weight.data(ctx[0]), values(est), shape_of(lines)]
    return results


@program
def logged_lines(mx):
    e, results = mx.gluon.contrib.estimator, []
    for make, kwargs in [
        (lambda est: e.LoggingHandler(), dict(epochs=1)),
        (lambda est: e.LoggingHandler(1), dict(epochs=1)),
        (lambda est: e.LoggingHandler(2, est.train_metrics), dict(epochs=2)),
        (lambda est: e.LoggingHandler(log_interval=2, metrics=est.train_metrics), dict(batches=5)),
        (lambda est: e.LoggingHandler(metrics=est.val_metrics + est.train_metrics, priority=1), dict(epochs=1)),
        (lambda est: e.LoggingHandler(metrics=est.val_metrics[0]), dict(epochs=1)),
        (lambda est: e.MetricHandler(est.train_metrics[:1]), dict(epochs=1)),
        (lambda est: e.MetricHandler(None), dict(epochs=1)),
    ]:
        est, lines = estimator_of(mx)
        est.fit(loader(mx), val_data=loader(mx, seed=3), event_handlers=[make(est)], **kwargs)
        results.append(shape_of(lines))
    return results


@program
def validation_periods(mx):
    e, results = mx.gluon.contrib.estimator, []
    data = loader(mx)
    for kwargs in [dict(batch_period=2, epoch_period=None), dict(epoch_period=2), dict(batch_period=3)]:
        est, lines = estimator_of(mx)
        est.fit(data, epochs=3, event_handlers=[e.ValidationHandler(data, est.evaluate, **kwargs)])
        results += [shape_of(lines), values(est)]
    calls = []
    est, _ = estimator_of(mx)
    own = e.ValidationHandler("data", lambda **k: calls.append(str(sorted(k.items()))), priority=3, event_handlers=[])
    est.fit(data, epochs=2, event_handlers=[own])
    return results + ["\n".join(calls), own.priority, own.current_batch, own.current_epoch]


@program
def own_batch_processor(mx):
    e, autograd = mx.gluon.contrib.estimator, mx.autograd

    class Doubled(e.BatchProcessor):
        def fit_batch(self, estimator, train_batch, batch_axis=0):
            data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
            with autograd.record():
                pred = [estimator.net(2 * x) for x in data]
                loss = [estimator.loss(a, b) for a, b in zip(pred, label)]
            for one in loss:
                one.backward()
            return data, label, pred, loss

    est, _ = estimator_of(mx, batch_processor=Doubled())
    est.fit(loader(mx), val_data=loader(mx), epochs=2)
    results = [weights(est), values(est)]
    plain, batch = e.BatchProcessor(), next(iter(loader(mx)))
    for call in (plain.fit_batch, plain.evaluate_batch):
        results += [parts[0] for parts in call(est, batch)]
    return results + [est.net[0].weight.grad()]


def checkpointed(mx, where, fit, hybridize=True, monitor=None, extra=(), **kwargs):
    est, lines = estimator_of(mx, optimizer="adam", rate=0.05, hybridize=hybridize)
    if monitor is not None:
        kwargs["monitor"] = est.val_metrics[monitor]
    handler = mx.gluon.contrib.estimator.CheckpointHandler(where, **kwargs)
    est.fit(loader(mx), val_data=loader(mx, seed=3), event_handlers=[handler] + list(extra), **fit)
    return est, lines, handler


@program
def checkpoint_files(mx):
    results = []
    for fit, kwargs in [
        (dict(epochs=7), dict()),
        (dict(epochs=2), dict(hybridize=False)),
        (dict(epochs=2), dict(batch_period=2, epoch_period=None, model_prefix="q", max_checkpoints=2)),
        (dict(epochs=2), dict(batch_period=2)),
        (dict(epochs=5), dict(epoch_period=2)),
        (dict(batches=5), dict(batch_period=1)),
        (dict(epochs=3), dict(save_best=True, monitor=1, mode="min")),
        (dict(epochs=3), dict(save_best=True, monitor=0, mode="max", max_checkpoints=1)),
        (dict(epochs=2), dict(max_checkpoints=0)),
        (dict(epochs=2), dict(epoch_period=0)),
    ]:
        with tempfile.TemporaryDirectory() as where:
            where = os.path.join(where, "new", "directory")
            est, lines, handler = checkpointed(mx, where, fit, **kwargs)
            results += [str(sorted(os.listdir(where))), str(handler.saved_checkpoints), shape_of(lines)]
            results += [handler.current_epoch, handler.current_batch, getattr(handler, "best", 0.0)]
    return results


@program
def the_best_checkpoint(mx):
    with tempfile.TemporaryDirectory() as where:
        est, lines, handler = checkpointed(mx, where, dict(epochs=4), save_best=True, monitor=1, mode="max")
        est.net.load_parameters(os.path.join(where, "model-best.params"))
        return [weights(est), handler.best]


@program
def resuming(mx):
    results = []
    for kwargs, unit, amounts in [
        (dict(), "epochs", (2, 4, 4, 3)),
        (dict(batch_period=2, epoch_period=None, max_checkpoints=2), "batches", (4, 8, 13, 4)),
    ]:
        with tempfile.TemporaryDirectory() as where:
            for amount in amounts:
                found = outcome(partial(checkpointed, mx, where, {unit: amount}, resume_from_checkpoint=True, **kwargs))
                results.append(str(sorted(os.listdir(where))))
                if isinstance(found, str):
                    results.append(found)
                else:
                    results += [weights(found[0]), values(found[0]), shape_of(found[1])]
                    results += [found[2].trained_epoch, found[2].trained_batch, str(found[2].saved_checkpoints)]
    return results


@program
def resuming_goes_wrong(mx):
    results = []
    both = dict(batch_period=2, resume_from_checkpoint=True)
    with tempfile.TemporaryDirectory() as where:
        results.append(outcome(lambda: checkpointed(mx, where, dict(epochs=2), **both)))
        results.append(outcome(lambda: checkpointed(mx, where, dict(batches=2), **both)))
        checkpointed(mx, where, dict(epochs=1))
        os.remove(os.path.join(where, "model-epoch0batch3.states"))
        results.append(outcome(lambda: checkpointed(mx, where, dict(epochs=2), resume_from_checkpoint=True)))
        open(os.path.join(where, "model-epoch9.params"), "w").close()
        results.append(outcome(lambda: checkpointed(mx, where, dict(epochs=2), resume_from_checkpoint=True)))
    return results


@program
def early_stopping(mx):
    e, results = mx.gluon.contrib.estimator, []
    up, down = [0.5, 0.6, 0.6, 0.5, 0.7, 0.8], [0.9, 0.85, 0.8, 0.75, 0.7, 0.8]

    class Fake(mx.metric.EvalMetric):
        value = 0

        def get(self):
            return self.name, self.value

    class Next(e.EpochEnd):
        priority = -10

        def __init__(self, metric, series):
            self.fake, self.left = metric, iter(series)

        def epoch_end(self, est, *args, **kwargs):
            self.fake.value = next(self.left)

    for series, kwargs in [
        (up, dict(mode="max")),
        (up, dict(mode="max", patience=1)),
        (up, dict(mode="max", patience=2)),
        (up, dict(mode="min", patience=2)),
        (up, dict(mode="max", patience=1, min_delta=0.1)),
        (down, dict(mode="min", patience=1, min_delta=0.1)),
        (down, dict(mode="min", patience=1, min_delta=-0.1)),
        (up, dict(mode="max", patience=3, baseline=0.55)),
        (up, dict(patience=2)),
        (up, dict(patience=2, mode="x")),
    ]:
        fake = Fake("validation fake")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            handler = e.EarlyStoppingHandler(fake, **kwargs)
        est, lines = estimator_of(mx)
        est.fit(loader(mx), epochs=6, event_handlers=[Next(fake, series), handler])
        results += [handler.wait, handler.stopped_epoch, handler.current_epoch, handler.stop_training, handler.best]
        results += [handler.min_delta, handler.monitor_op.__name__, len(seen), shape_of(lines)]
    return results


@program
def attributes_of_handlers(mx):
    e, acc = mx.gluon.contrib.estimator, mx.metric.Accuracy()
    results = [sorted(n for n in dir(e) if n[0].isupper())]
    with tempfile.TemporaryDirectory() as where:
        for handler in [
            e.StoppingHandler(3, 4),
            e.MetricHandler([acc]),
            e.ValidationHandler(1, 2),
            e.LoggingHandler(5),
            e.CheckpointHandler(where),
            e.EarlyStoppingHandler(acc, mode="max"),
            e.GradientUpdateHandler(),
        ]:
            plain = {k: v for k, v in vars(handler).items() if isinstance(v, (int, float, str, list, type(None)))}
            hidden = ("_", "model_dir", "best", "metrics", "log_interval_time")
            results.append(sorted((k, v) for k, v in plain.items() if not k.startswith(hidden)))
            results.append([kind.__name__ for kind in type(handler).__mro__])
    return results
