"""Draw digits with a generative adversarial network: DCGAN, or a conditional one that draws the digit you want.

    neomx run -n 2 examples/tasks/gan.py --network conditional --pictures drawn.png

A generator draws digits from noise, and a critic learns to tell them from real ones. Each has a Trainer of its own. The
metric is the inception score of 1000 drawn digits, from 1 to 10: it is high if a classifier recognizes each picture
clearly and sees all digits equally often. `real` is the score of real digits. For the conditional network, `wanted` is
the share of pictures in which the classifier sees the wanted digit.

All workers draw the noise of the whole batch and use their rows of it, and SyncBatchNorm computes the statistics of the
whole batch. So the result does not depend on the number of workers. The digits are those included in neomx, or those of
MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.digits import digits
from made.judge import inception_score, share_recognized, trained_judge, write_sheet
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.gluon.contrib.nn import SyncBatchNorm

BATCH, NOISE = 50, 32


def make_generator():
    """Return a network from noise, with the wanted digits if conditional, to pictures with values from 0 to 1."""
    net = nn.HybridSequential()
    net.add(nn.Dense(7 * 7 * 48), nn.HybridLambda(lambda F, x: F.reshape(x, shape=(0, 48, 7, 7))))
    net.add(SyncBatchNorm(), nn.Activation("relu"))
    net.add(nn.Conv2DTranspose(32, 4, strides=2, padding=1), SyncBatchNorm(), nn.Activation("relu"))
    net.add(nn.Conv2DTranspose(1, 4, strides=2, padding=1), nn.Activation("sigmoid"))
    return net


class Critic(gluon.HybridBlock):
    """Scores pictures: high means real. A conditional one also scores how well each picture matches a digit."""

    def __init__(self, conditional):
        super().__init__()
        self.features = nn.HybridSequential()
        self.features.add(nn.Conv2D(32, 4, strides=2, padding=1), nn.LeakyReLU(0.2))
        self.features.add(nn.Conv2D(64, 4, strides=2, padding=1), nn.LeakyReLU(0.2))
        self.features.add(nn.Dense(64), nn.LeakyReLU(0.2))
        self.score = nn.Dense(1)
        self.match = nn.Dense(64, use_bias=False) if conditional else None

    def hybrid_forward(self, F, x, digit=None):
        features = self.features(x)
        score = self.score(features)
        return score if digit is None else score + F.sum(self.match(digit) * features, axis=1, keepdims=True)


def main():
    options = {"epochs": (15, 2), "count": (60000, 4000), "network": ["dcgan", "conditional"], "pictures": ("", "")}
    task = Task(__doc__, metric="inception score", target=5, short=1.2, **options)
    conditional, count = task.options.network == "conditional", task.options.count
    train_x, train_y, test_x, _ = digits(task.options.data)
    train_x, train_y = train_x[:count, None] / np.float32(255), train_y[:count]
    judge = trained_judge(task, train_x, train_y, epochs=1 if task.options.short else 5)
    shard = mx.dist.shard(gluon.data.ArrayDataset(train_x, train_y), shuffle=True, seed=task.options.seed)
    batches = gluon.data.DataLoader(shard, task.part(BATCH), last_batch="discard")

    generator, critic = make_generator(), Critic(conditional)
    trainers = []
    for net in (generator, critic):
        net.initialize(mx.init.Normal(0.05))
        net.hybridize()
        settings = {"learning_rate": 1e-3, "beta1": 0.5}
        trainers.append(gluon.Trainer(net.collect_params(), "adam", settings, kvstore="dist_sync"))
    drawing, judging = trainers
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()

    wanted = np.arange(1000) % 10
    noise_to_show = nd.random.normal(shape=(1000, NOISE))
    for epoch in range(task.options.epochs):
        task.epoch(len(batches) * BATCH)
        totals, seen = nd.zeros(2), 0
        for x, y in batches:
            condition = [nd.one_hot(y, 10)] if conditional else []
            noise = nd.random.normal(shape=(BATCH, NOISE))[task.rank :: task.workers]
            with autograd.record():
                drawn = generator(nd.concat(noise, *condition, dim=1))
                # detach: the critic's gradients must not reach the generator.
                real, fake = critic(x, *condition), critic(drawn.detach(), *condition)
                critic_loss = loss_of(real, nd.ones_like(real)) + loss_of(fake, nd.zeros_like(fake))
            critic_loss.backward()
            judging.step(BATCH)
            with autograd.record():
                fake = critic(generator(nd.concat(noise, *condition, dim=1)), *condition)
                generator_loss = loss_of(fake, nd.ones_like(fake))
            generator_loss.backward()
            drawing.step(BATCH)
            totals, seen = totals + nd.concat(critic_loss.sum(), generator_loss.sum(), dim=0), seen + len(x)
        condition = [nd.one_hot(nd.array(wanted), 10)] if conditional else []
        drawn = generator(nd.concat(noise_to_show, *condition, dim=1))
        score = inception_score(judge, drawn)
        critic_loss, generator_loss = (mean_over_workers(total, seen) for total in totals.asnumpy())
        task.report(epoch + 1, critic=critic_loss, generator=generator_loss, score=score)
    if task.options.pictures and task.rank == 0:
        write_sheet(task.options.pictures, drawn)
    more = {"wanted": share_recognized(judge, drawn, wanted)} if conditional else {}
    task.finish(score, real=inception_score(judge, nd.array(test_x[:1000, None] / np.float32(255))), **more)


if __name__ == "__main__":
    main()
