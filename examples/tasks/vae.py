"""Draw digits with a variational autoencoder (https://arxiv.org/abs/1312.6114).

    neomx run -n 2 examples/tasks/vae.py --pictures drawn.png

The encoder maps a picture to a normal distribution of a few hidden numbers, and the decoder maps hidden numbers to a
picture. The metric is the negative evidence lower bound of test pictures in nats: the cost of a picture given its
hidden numbers (binary cross entropy), plus that of the hidden numbers (KL divergence). `score` is the inception score
of 1000 drawn digits, from 1 to 10: it is high if a classifier recognizes each picture clearly and sees all digits
equally often. `real` is the score of real digits.

All workers draw the noise of the whole batch and use their rows of it, so the result does not depend on the number of
workers. The digits are those included in neomx, or those of MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.digits import digits
from made.judge import inception_score, trained_judge, write_sheet
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH, HIDDEN = 50, 16


class VAE(gluon.HybridBlock):
    """Returns the negative evidence lower bound of each picture, with the given noise. `decoder` draws pictures."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.HybridSequential(), nn.HybridSequential()
        self.encoder.add(nn.Conv2D(16, 4, strides=2, padding=1), nn.Swish())
        self.encoder.add(nn.Conv2D(32, 4, strides=2, padding=1), nn.Swish())
        self.encoder.add(nn.Dense(128), nn.Swish(), nn.Dense(2 * HIDDEN))
        self.decoder.add(nn.Dense(128), nn.Swish(), nn.Dense(7 * 7 * 32), nn.Swish())
        self.decoder.add(nn.HybridLambda(lambda F, x: F.reshape(x, shape=(0, 32, 7, 7))))
        self.decoder.add(nn.Conv2DTranspose(16, 4, strides=2, padding=1), nn.Swish())
        self.decoder.add(nn.Conv2DTranspose(1, 4, strides=2, padding=1))  # before the sigmoid

    def hybrid_forward(self, F, x, noise):
        mean, log_variance = F.split(self.encoder(x), num_outputs=2, axis=1)
        hidden = mean + F.exp(log_variance / 2) * noise
        scores = self.decoder(hidden)
        picture_cost = F.relu(scores) - scores * x + F.Activation(-F.abs(scores), act_type="softrelu")
        hidden_cost = (F.square(mean) + F.exp(log_variance) - log_variance - 1) / 2
        return F.sum(picture_cost, axis=(1, 2, 3)) + F.sum(hidden_cost, axis=1)


def main():
    options = {"epochs": (25, 2), "count": (60000, 2500), "pictures": ("", "")}
    task = Task(__doc__, metric="negative ELBO in nats", target=115, short=230, lower=True, **options)
    train_x, train_y, test_x, _ = digits(task.options.data)
    train_x, train_y = train_x[: task.options.count], train_y[: task.options.count]
    train_x, test_x = (x[:, None] / np.float32(255) for x in (train_x, test_x[:1000]))
    judge = trained_judge(task, train_x, train_y, epochs=1 if task.options.short else 5)
    shard = mx.dist.shard(gluon.data.ArrayDataset(train_x), shuffle=True, seed=task.options.seed)
    batches = gluon.data.DataLoader(shard, task.part(BATCH), last_batch="discard")

    net = VAE()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")

    test_x, test_noise = nd.array(test_x), nd.random.normal(shape=(len(test_x), HIDDEN))
    for epoch in range(task.options.epochs):
        task.epoch(len(batches) * BATCH)
        total, seen = nd.zeros(1), 0
        for x in batches:
            noise = nd.random.normal(shape=(BATCH, HIDDEN))[task.rank :: task.workers]
            with autograd.record():
                loss = net(x, noise)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        cost = net(test_x, test_noise).mean().asscalar()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), test=cost)
    drawn = nd.sigmoid(net.decoder(nd.random.normal(shape=(1000, HIDDEN))))
    if task.options.pictures and task.rank == 0:
        write_sheet(task.options.pictures, drawn)
    task.finish(cost, score=inception_score(judge, drawn), real=inception_score(judge, test_x))


if __name__ == "__main__":
    main()
