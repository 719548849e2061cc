"""Forecast time series with an LSTM or with dilated convolutions (TCN).

    neomx run -n 2 examples/tasks/time_series.py --network tcn

The network reads seven seasons of a series, such as days with 24 hours, and predicts the next one. The last fifth of
each series is for testing. The metric is the mean absolute error relative to that of a naive forecast, which repeats
the last season or the one seven seasons ago, whichever is better.

The series are made: they have a pattern for each day, a pattern for the days of the week, a trend and noise. `--data`
reads the columns of all CSV files in a directory instead; `--season` is then the number of rows of a season.
"""

import numpy as np
from made.series import made_series, read_series, windows
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn, rnn

BATCH, SEASONS = 50, 7


class LSTM(gluon.HybridBlock):
    """Reads one season in each step. Its last output is what the next season adds to the last one."""

    def __init__(self, season):
        super().__init__()
        self.lstm, self.change = rnn.LSTM(128, layout="NTC"), nn.Dense(season)

    def hybrid_forward(self, F, x):
        last, read = (F.slice_axis(each, axis=1, begin=-1, end=None) for each in (x, self.lstm(x)))
        return F.flatten(last) + self.change(read)


class TCN(gluon.HybridBlock):
    """Convolutions over seasons. Each output depends on the inputs up to its season, the last one on all seven."""

    def __init__(self, season):
        super().__init__()
        self.near = nn.Conv1D(128, 3, padding=2, activation="tanh")
        self.far = nn.Conv1D(128, 3, dilation=2, padding=4, activation="tanh")
        self.change = nn.Dense(season)

    def hybrid_forward(self, F, x):
        # The padding is on both sides of the seasons. Outputs after the last season are cut off.
        read = F.slice_axis(self.near(F.transpose(x, axes=(0, 2, 1))), axis=2, begin=0, end=SEASONS)
        read = read + F.slice_axis(self.far(read), axis=2, begin=0, end=SEASONS)
        last = F.slice_axis(x, axis=1, begin=-1, end=None)
        return F.flatten(last) + self.change(F.slice_axis(read, axis=2, begin=-1, end=None))


def examples(all_series, season, step):
    """Return seasons to read (n, SEASONS, season), scaled to mean 0 and variance 1, and the next season (n, season)."""
    parts = windows(all_series, (SEASONS + 1) * season, step)
    read = parts[:, :-season]
    scaled = (parts - read.mean(axis=1, keepdims=True)) / (read.std(axis=1, keepdims=True) + 1e-6)
    scaled = scaled.reshape(-1, SEASONS + 1, season)
    return scaled[:, :-1], scaled[:, -1]


def main():
    networks = {"lstm": LSTM, "tcn": TCN}
    options = {"epochs": (15, 3), "count": (100, 20), "season": (24, 24), "network": list(networks)}
    task = Task(__doc__, metric="relative error", target=0.85, short=1.5, lower=True, **options)
    season, seed = task.options.season, task.options.seed
    all_series = read_series(task.options.data) if task.options.data else made_series(task.options.count, seed)
    train, test = [], []
    for series in all_series:
        cut = len(series) * 4 // 5
        train.append(series[:cut])
        test.append(series[max(cut - SEASONS * season, 0) :])  # the network reads what is before the first test
    train_x, train_y = examples(train, season, step=max(season // 4, 1))
    test_x, test_y = examples(test, season, step=season)
    data = gluon.data.ArrayDataset(train_x, train_y)
    batches = gluon.data.DataLoader(mx.dist.shard(data, shuffle=True, seed=seed), task.part(BATCH))

    net = networks[task.options.network](season)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.L1Loss()
    steps = task.options.epochs * -(-len(data) // BATCH)
    schedule = mx.lr_scheduler.CosineScheduler(steps, base_lr=5e-3, final_lr=1e-4)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": schedule}, kvstore="dist_sync")

    naive = min(np.abs(test_x[:, ago] - test_y).mean() for ago in (-1, -SEASONS))
    test_x = nd.array(test_x)
    for epoch in range(task.options.epochs):
        task.epoch(len(data))
        total, seen = nd.zeros(1), 0
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        error = np.abs(net(test_x).asnumpy() - test_y).mean() / naive
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), error=error)
    task.finish(error)


if __name__ == "__main__":
    main()
