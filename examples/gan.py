"""A generative adversarial network: one network draws handwritten digits, the other tells them from real ones."""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.sample import digits


def make_generator():
    net = nn.HybridSequential()
    net.add(nn.Dense(128, activation="relu"), nn.BatchNorm(), nn.Dense(256, activation="relu"), nn.BatchNorm())
    net.add(nn.Dense(784, activation="tanh"))
    return net


def make_critic():
    net = nn.HybridSequential()
    net.add(nn.Dense(256), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Dense(128), nn.LeakyReLU(0.2), nn.Dense(1))
    return net


def shown(picture):
    """Render an image in characters."""
    rows = picture.reshape((28, 28)).asnumpy()[::2]
    return "\n".join("".join(" .:+#"[int((ink + 1) * 2.4)] for ink in row) for row in rows)


def recognised(pictures, images, labels, digit):
    """Return the fraction of images that are closer to the mean of this digit than to the means of the others."""
    masks = [nd.array(labels == other) for other in range(10)]
    means = [nd.contrib.boolean_mask(images, mask).mean(axis=0) for mask in masks]
    distances = nd.stack(*[((pictures - mean) ** 2).sum(axis=1) for mean in means], axis=1)
    return (distances.argmin(axis=1) == digit).mean().asscalar()


def main(epochs=30, batch=50, size=32, digit=3):
    mx.random.seed(7)
    np.random.seed(7)  # for the order of the loader
    images, labels, _, _ = digits()
    images = nd.array(images).reshape((-1, 784)) / 127.5 - 1
    real = nd.contrib.boolean_mask(images, nd.array(labels == digit))
    batches = gluon.data.DataLoader(real, batch, shuffle=True, last_batch="discard")
    generator, critic = make_generator(), make_critic()
    trainers = []
    for net in (generator, critic):
        net.initialize(mx.init.Normal(0.05))
        net.hybridize()
        trainers.append(gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3, "beta1": 0.5}))
    draw, judge = trainers
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    ones, zeros = nd.ones(batch), nd.zeros(batch)
    for epoch in range(epochs):
        for x in batches:
            noise = nd.random.normal(shape=(batch, size))
            with autograd.record():
                drawn = generator(noise)
                # detach: the critic's gradients must not reach the generator.
                critic_loss = loss_of(critic(x), ones) + loss_of(critic(drawn.detach()), zeros)
            critic_loss.backward()
            judge.step(batch)
            with autograd.record():
                generator_loss = loss_of(critic(generator(noise)), ones)
            generator_loss.backward()
            draw.step(batch)
        losses = critic_loss.mean().asscalar(), generator_loss.mean().asscalar()
        print("epoch {:2}: critic's loss {:.3f}, generator's {:.3f}".format(epoch + 1, *losses))
    drawn = generator(nd.random.normal(shape=(500, size)))
    share = recognised(drawn, images, labels, digit)
    variety = (drawn - drawn.mean(axis=0)).norm().asscalar() / 500**0.5
    print(shown(drawn[0]))
    print(f"{share:.0%} look like a {digit}; they differ from their mean by {variety:.1f} on average")
    return share, variety


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    main(**vars(parser.parse_args()))
