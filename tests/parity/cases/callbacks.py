"""mx.callback, mx.model's checkpoints and mx.mon.Monitor: what is logged by a clock of our own, what is written."""

import logging
import os
import tempfile
import time

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


class Lines(logging.Handler):
    """What is logged meanwhile, and the time by a clock that a program sets."""

    def __init__(self):
        super().__init__()
        self.lines, self.now = [], 1000.0

    def emit(self, record):
        self.lines.append(record.levelname + " " + record.getMessage())

    def __enter__(self):
        root = logging.getLogger()
        self._before, self._time = (root.handlers, root.level), time.time
        root.handlers, time.time = [self], lambda: self.now
        root.setLevel(logging.INFO)
        return self

    def __exit__(self, *exc):
        root = logging.getLogger()
        root.handlers, time.time = self._before[0], self._time
        root.setLevel(self._before[1])

    def text(self):
        return "\n".join(self.lines)


def after(mx, epoch, nbatch, metric):
    return mx.model.BatchEndParam(epoch=epoch, nbatch=nbatch, eval_metric=metric, locals=None)


def update(mx, metric, seed):
    rng = np.random.RandomState(seed)
    metric.update([mx.nd.array(rng.randint(0, 2, 4))], [mx.nd.array(rng.rand(4, 2))])


def speed(mx, batches, metric="acc", epochs=2, seconds=0.25, **kwargs):
    """The lines of a Speedometer, and what is left in the metric."""
    metric = metric and mx.metric.create(metric)
    meter = mx.callback.Speedometer(**kwargs)
    with Lines() as log:
        for epoch in range(epochs):
            for n in batches:
                log.now += seconds * (1 + n % 3)
                if metric is not None:
                    update(mx, metric, n)
                meter(after(mx, epoch, n, metric))
    left = [metric.num_inst, metric.global_num_inst] if metric is not None and hasattr(metric, "num_inst") else []
    return [log.text(), left, meter.last_count, meter.init]


@program
def speedometer(mx):
    return [
        speed(mx, range(12), batch_size=4, frequent=5),
        speed(mx, range(12), batch_size=4, frequent=5, auto_reset=False),
        speed(mx, range(12), batch_size=128, frequent=3, metric=None),
        speed(mx, range(1, 4), batch_size=1, frequent=1),
        speed(mx, [0, 3, 10, 2, 5, 10], batch_size=7, frequent=5),
        speed(mx, range(6), batch_size=4, frequent=2, seconds=0),
        speed(mx, range(60), batch_size=4, epochs=1),
        speed(mx, range(4), batch_size=4, frequent=2, metric=["acc", "ce"])[0],
        outcome(lambda: speed(mx, range(3), batch_size=4, frequent=0)),
    ]


@program
def log_train_metric(mx):
    results = []
    for period, auto_reset in ((1, False), (2, True), (3, False)):
        metric, callback = mx.metric.create("acc"), mx.callback.log_train_metric(period, auto_reset)
        with Lines() as log:
            for n in range(7):
                update(mx, metric, n)
                callback(after(mx, 2, n, metric))
            callback(after(mx, 2, 0, None))
        results.append([log.text(), metric.num_inst, metric.global_num_inst])
    results.append(outcome(lambda: mx.callback.log_train_metric(0)(after(mx, 0, 1, None))))
    return results


@program
def log_validation(mx):
    callback, metric = mx.callback.LogValidationMetricsCallback(), mx.metric.create(["acc", "ce"])
    update(mx, metric, 1)
    with Lines() as log:
        callback(after(mx, 4, 0, metric))
        callback(after(mx, 5, 0, None))
    return [log.text()]


@program
def progress_bar(mx):
    with Lines() as log:
        for total, length in ((7, 80), (3, 10), (2, 5), (1, 1)):
            for n in range(total + 2):
                mx.callback.ProgressBar(total, length)(after(mx, 0, n, None))
        mx.callback.ProgressBar(total=4)(after(mx, 0, 1, None))
    return [log.text(), outcome(lambda: mx.callback.ProgressBar(0)(after(mx, 0, 1, None)))]


def network(mx):
    return mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")


def arrays(mx):
    rng = np.random.RandomState(3)
    return {"fc_weight": mx.nd.array(rng.rand(2, 3)), "fc_bias": mx.nd.array(rng.rand(2))}, {"state": mx.nd.ones(1)}


@program
def checkpoints(mx):
    results = []
    for period in (1, 3, 0, -2):
        with tempfile.TemporaryDirectory() as directory, Lines() as log:
            callback = mx.callback.do_checkpoint(os.path.join(directory, "net"), period)
            for epoch in range(4):
                callback(epoch, network(mx), *arrays(mx))
            results += [log.text().replace(directory, "DIR"), sorted(os.listdir(directory))]
    return results


@program
def checkpoints_come_back(mx):
    with tempfile.TemporaryDirectory() as directory, Lines():
        prefix = os.path.join(directory, "net")
        mx.model.save_checkpoint(prefix, 12, network(mx), *arrays(mx))
        symbol, arguments, states = mx.model.load_checkpoint(prefix, 12)
        again = mx.model.load_params(prefix, 12)
        mx.callback.save_checkpoint(os.path.join(directory, "bare"), 1, None, *arrays(mx), remove_amp_cast=False)
        return [
            symbol.list_arguments(),
            sorted(arguments),
            arguments["fc_weight"],
            sorted(states),
            [sorted(part) for part in again],
            sorted(os.listdir(directory)),
            outcome(lambda: mx.model.load_checkpoint(prefix, 13)),
            outcome(lambda: mx.model.load_checkpoint(os.path.join(directory, "bare"), 1)),
        ]


@program
def module_checkpoint(mx):
    calls = []

    class Module:
        def save_checkpoint(self, *args, **kwargs):
            calls.append(str((args, sorted(kwargs))))

    for period, states in ((1, False), (2, True), (0, True)):
        callback = mx.callback.module_checkpoint(Module(), "net", period, states)
        for epoch in range(4):
            callback(epoch)
        callback(3, None, None, None)
    return [calls]


def executor(mx):
    x = mx.sym.Activation(network(mx), act_type="relu", name="act")
    made = x.simple_bind(mx.cpu(), data=(3, 4))
    for array in made.arg_dict.values():
        array[:] = np.arange(array.size).reshape(array.shape) / array.size
    return made


def watched(mx, batches=3, count=1, **kwargs):
    monitor, executors = mx.mon.Monitor(**kwargs), [executor(mx) for _ in range(count)]
    results = []
    for each in executors:
        monitor.install(each)
    for _ in range(batches):
        monitor.tic()
        for each in executors:
            each.forward(is_train=True)
        for step, name, text in monitor.toc():
            values = text.strip("\t").strip("[]").replace("\t", " ").split()
            results.append([step, name, text.count("\t"), ["%.4f" % float(value) for value in values]])
    return results


@program
def monitor(mx):
    return [
        watched(mx, interval=2),
        watched(mx, interval=1, batches=1, sort=True, pattern=".*weight|.*output"),
        watched(mx, interval=1, batches=1, count=2, pattern="fc_.*"),
        watched(mx, interval=1, batches=1, pattern="fc_weight", stat_func=lambda a: [a.max(), a.min()]),
        watched(mx, interval=1, batches=1, pattern="fc_weight", stat_func=lambda a: a.reshape((-1,))[:3]),
        watched(mx, interval=1, batches=1, pattern="weight"),
        outcome(lambda: watched(mx, interval=1, pattern="fc_weight", stat_func=lambda a: 3.0)),
        outcome(lambda: watched(mx, interval=0)),
    ]


@program
def monitor_prints(mx):
    monitor, watched_executor = mx.mon.Monitor(1, pattern="fc_bias", stat_func=lambda a: a.max() / 3), executor(mx)
    monitor.install(watched_executor)
    with Lines() as log:
        monitor.tic()
        watched_executor.forward()
        monitor.toc_print()
        monitor.toc_print()
    return [log.text(), monitor.activated, monitor.step]


@program
def learning_rate_schedules_tell(mx):
    stops = mx.lr_scheduler.FactorScheduler(2, 0.5, stop_factor_lr=0.2, base_lr=1.0)
    steps = mx.lr_scheduler.MultiFactorScheduler([2, 4], 0.1, base_lr=1.0)
    with Lines() as lines:
        rates = [schedule(n) for schedule in (stops, steps) for n in range(12)]
    return [rates, lines.text()]
