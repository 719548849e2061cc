"""A small GPT-2 learns a poem byte by byte, recites it, and makes up lines like its own."""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon.model_zoo import transformer

# William Blake, The Tyger (1794)
POEM = """Tyger Tyger, burning bright,
In the forests of the night;
What immortal hand or eye,
Could frame thy fearful symmetry?

In what distant deeps or skies,
Burnt the fire of thine eyes?
On what wings dare he aspire?
What the hand, dare seize the fire?
"""


def continued(net, start, length, **options):
    """`start`, and so many bytes that the net puts after it."""
    (tokens,) = net.generate([list(start.encode())], length, **options)
    return bytes(tokens).decode(errors="replace")


def main(steps=120, batch=8, window=64, rate=2e-3, seed=3):
    mx.random.seed(seed)
    rng = np.random.default_rng(seed)
    text = np.frombuffer(POEM.encode(), dtype="uint8").astype("int32")

    net = transformer.gpt2_tiny(vocab_size=256, max_length=len(text), dropout=0.0)
    net.initialize()
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate})
    for step in range(steps):
        starts = rng.integers(0, len(text) - window, batch)
        rows = nd.array([text[at : at + window + 1] for at in starts], dtype="int32")
        with autograd.record():
            loss = loss_of(net(rows[:, :-1]), rows[:, 1:])
        loss.backward()
        trainer.step(batch)
        if (step + 1) % 40 == 0:
            print(f"step {step + 1}: loss {loss.mean().asscalar():.3f}")
    recited = continued(net, POEM[:20], 40)
    print(recited)
    print(continued(net, "What the", 40, method="sample", temperature=0.8, top_k=20, seed=seed))
    return loss.mean().asscalar(), recited


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    main(**vars(parser.parse_args()))
