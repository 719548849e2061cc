"""Forecast the next day of hourly series from the last eight days.

    neomx run -n 2 examples/tasks/time_series.py

The naive forecast is that the next day is like the day a week before. The network forecasts the difference from it, 24
hours at once.

Metric: mean absolute error on series that were not seen in training, divided by that of the naive forecast.
Target: at most 0.60.
Real data: `--data DIR` with `series.csv`, one series per column, one hour per row, as in the ElectricityLoad data set.
"""

import pathlib

import numpy as np
from made.series import series
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn, rnn

PAST, WEEK, FUTURE, STRIDE = 8 * 24, 7 * 24, 24, 12


def week_before(F, past):
    """Return the naive forecast."""
    return F.slice_axis(past, axis=1, begin=PAST - WEEK, end=PAST - WEEK + FUTURE)


class Forecaster(gluon.HybridBlock):
    """An LSTM that reads three hours per step. Its last state gives the forecast."""

    def __init__(self, units=64, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.lstm = rnn.LSTM(units, layout="NTC", input_size=3)
            self.out = nn.Dense(FUTURE)

    def hybrid_forward(self, F, past):
        states = self.lstm(F.reshape(past, (0, -1, 3)))
        return week_before(F, past) + self.out(F.slice_axis(states, axis=1, begin=-1, end=None))


def load(task):
    """Return series for training and for testing, (series, hours)."""
    if task.options.data:
        table = np.genfromtxt(pathlib.Path(task.options.data) / "series.csv", delimiter=",", skip_header=1)
        found = table[:, ~np.isnan(table).any(axis=0)].T.astype("float32")
        return found[: len(found) * 4 // 5], found[len(found) * 4 // 5 :]
    return series(task.options.series, 28 * 24, seed=0), series(60, 28 * 24, seed=1)


def windows(found):
    """Return pairs of past and future, normalized by the past's mean and scale, and the scale."""
    starts = range(0, found.shape[1] - PAST - FUTURE + 1, STRIDE)
    cut = np.concatenate([found[:, at : at + PAST + FUTURE] for at in starts])
    mean, scale = cut[:, :PAST].mean(axis=1, keepdims=True), cut[:, :PAST].std(axis=1, keepdims=True) + 1e-3
    cut = (cut - mean) / scale
    return cut[:, :PAST], cut[:, PAST:], scale


def main():
    task = Task(
        __doc__,
        "error by naive error",
        0.60,
        0.9,
        lower=True,
        epochs=(10, 2),
        series=(300, 60),
        batch=(64, 64),
    )
    options = task.options
    train, test = load(task)
    x, y, _ = windows(train)
    shard = mx.dist.shard(gluon.data.ArrayDataset(x, y), shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")

    net = Forecaster()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.L1Loss()
    schedule = mx.lr_scheduler.CosineScheduler(options.epochs * len(loader), 0.004, 0.0001)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": schedule}, kvstore="dist_sync")

    x, y, scale = (nd.array(each) for each in windows(test))
    naive = (abs(week_before(nd, x) - y) * scale).mean().asscalar()
    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for past, future in loader:
            with autograd.record():
                loss = loss_of(net(past), future)
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        error = (abs(net(x) - y) * scale).mean().asscalar() / naive
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)), error=error)
    task.finish(error)


if __name__ == "__main__":
    main()
