"""Draw digits with a diffusion model: DDPM (https://arxiv.org/abs/2006.11239), sampled in few steps with DDIM.

    neomx run -n 2 examples/tasks/diffusion.py --pictures drawn.png

A picture of 14x14 pixels becomes noise in 200 small steps. The network learns to predict the picture from a noisy one,
the number of steps, and the wanted digit. (DDPM predicts the noise instead, which needs more training.) To draw, DDIM
(https://arxiv.org/abs/2010.02502) starts with noise and removes it in 20 larger steps.

The metric is the inception score of 500 drawn digits, from 1 to 10: it is high if a classifier recognizes each picture
clearly and sees all digits equally often. `real` is the score of real digits, and `wanted` is the share of pictures in
which the classifier sees the wanted digit.

All workers draw the noise of the whole batch and use their rows of it, so the result does not depend on the number of
workers. The digits are those included in neomx, or those of MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.digits import digits
from made.judge import inception_score, share_recognized, trained_judge, write_sheet
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH, STEPS, CHANNELS = 50, 200, 24

TIME = np.arange(STEPS + 1) / STEPS  # from 0 for the picture to 1 for noise
# The part of the variance that belongs to the picture after each step.
CLEAN = np.clip(np.cos(TIME * np.pi / 2) ** 2, 2e-3, 1).astype("float32")
# Waves of the time with different lengths, from which the network can compute any function of it.
ANGLES = np.outer(TIME, np.pi * 2.0 ** np.arange(8))
WAVES = np.hstack([np.sin(ANGLES), np.cos(ANGLES)]).astype("float32")


class Residual(gluon.HybridBlock):
    """Two convolutions whose result is added to the input, and a vector that is added between them."""

    def __init__(self, channels):
        super().__init__()
        self.first, self.second = nn.HybridSequential(), nn.HybridSequential()
        self.first.add(nn.GroupNorm(4), nn.Swish(), nn.Conv2D(channels, 3, padding=1))
        self.second.add(nn.GroupNorm(4), nn.Swish(), nn.Conv2D(channels, 3, padding=1))
        self.vector = nn.Dense(channels)

    def hybrid_forward(self, F, x, vector):
        middle = F.broadcast_add(self.first(x), F.reshape(self.vector(vector), shape=(0, 0, 1, 1)))
        return x + self.second(middle)


class Denoiser(gluon.HybridBlock):
    """A U-Net on two sizes that removes the noise from a picture, given the waves of the time and the digit."""

    def __init__(self):
        super().__init__()
        self.time, self.digit = nn.Dense(64), nn.Embedding(10, 64, weight_initializer=mx.init.Normal(1))
        self.enter = nn.Conv2D(CHANNELS, 3, padding=1)
        self.large, self.reduce = Residual(CHANNELS), nn.Conv2D(2 * CHANNELS, 3, strides=2, padding=1)
        self.small, self.smaller = Residual(2 * CHANNELS), Residual(2 * CHANNELS)
        self.whole = nn.HybridSequential()
        self.whole.add(nn.Dense(128), nn.Swish(), nn.Dense(2 * CHANNELS * 7 * 7))
        self.enlarge = nn.Conv2DTranspose(CHANNELS, 2, strides=2)
        self.combine, self.last = nn.Conv2D(CHANNELS, 1), Residual(CHANNELS)
        self.leave = nn.Conv2D(1, 3, padding=1)

    def hybrid_forward(self, F, x, waves, digit):
        vector = F.LeakyReLU(self.time(waves) + self.digit(digit), act_type="gelu")
        large = self.large(self.enter(x), vector)
        small = self.small(self.reduce(large), vector)
        small = self.smaller(small + F.reshape_like(self.whole(small), small), vector)
        both = self.combine(F.concat(self.enlarge(small), large, dim=1))
        return self.leave(self.last(both, vector))


def draw(net, noise, wanted, jumps=20):
    """Return pictures with values from 0 to 1, in which noise is removed in this many steps."""
    x = noise
    times = np.linspace(STEPS, 0, jumps + 1).round().astype(int)
    for now, then in zip(times, times[1:], strict=False):
        clean = net(x, nd.array(WAVES[[now] * len(x)]), wanted)
        noise = (x - CLEAN[now] ** 0.5 * clean) / (1 - CLEAN[now]) ** 0.5
        x = CLEAN[then] ** 0.5 * clean + (1 - CLEAN[then]) ** 0.5 * noise
    return (x + 1) / 2


def reduced(pixels):
    """Return pictures (n, 1, 14, 14) with values from 0 to 1, each of which is the mean of four pixels."""
    return pixels.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5)).astype("float32") / 255


def main():
    options = {"epochs": (12, 1), "count": (60000, 2500), "pictures": ("", "")}
    task = Task(__doc__, metric="inception score", target=6, short=1.2, **options)
    train_x, train_y, test_x, _ = digits(task.options.data)
    train_x, train_y = reduced(train_x[: task.options.count]), train_y[: task.options.count]
    judge = trained_judge(task, train_x, train_y, epochs=1 if task.options.short else 5)
    data = gluon.data.ArrayDataset(2 * train_x - 1, train_y)
    shard = mx.dist.shard(data, shuffle=True, seed=task.options.seed)
    batches = gluon.data.DataLoader(shard, task.part(BATCH), last_batch="discard")

    net = Denoiser()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    schedule = mx.lr_scheduler.CosineScheduler(task.options.epochs * len(batches), base_lr=3e-3, final_lr=1e-4)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": schedule}, kvstore="dist_sync")
    loss_of = gluon.loss.L2Loss()

    shares, waves = nd.array(CLEAN).reshape((-1, 1, 1, 1)), nd.array(WAVES)
    for epoch in range(task.options.epochs):
        task.epoch(len(batches) * BATCH)
        total, seen = nd.zeros(1), 0
        for x, y in batches:
            noise = nd.random.normal(shape=(BATCH, *x.shape[1:]))[task.rank :: task.workers]
            step = nd.random.randint(1, STEPS + 1, shape=BATCH)[task.rank :: task.workers]
            noisy = shares[step].sqrt() * x + (1 - shares[step]).sqrt() * noise
            with autograd.record():
                loss = loss_of(net(noisy, waves[step], y), x)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen))
    wanted = np.arange(500) % 10
    drawn = draw(net, nd.random.normal(shape=(500, 1, 14, 14)), nd.array(wanted))
    if task.options.pictures and task.rank == 0:
        write_sheet(task.options.pictures, drawn)
    real = inception_score(judge, nd.array(reduced(test_x[:500])))
    task.finish(inception_score(judge, drawn), real=real, wanted=share_recognized(judge, drawn, wanted))


if __name__ == "__main__":
    main()
