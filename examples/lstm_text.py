"""A recurrent network learns a poem letter by letter, and recites it from its first words."""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn, rnn

# Lewis Carroll, Jabberwocky (1871)
POEM = """'Twas brillig, and the slithy toves
Did gyre and gimble in the wabe:
All mimsy were the borogoves,
And the mome raths outgrabe.

"Beware the Jabberwock, my son!
The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun
The frumious Bandersnatch!"
"""


class Model(gluon.Block):
    """Predicts scores for the next letter. It takes and returns its state, so that a text can be split into pieces."""

    def __init__(self, letters, size=128, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(letters, 16)
            self.lstm = rnn.LSTM(size, input_size=16)
            self.scores = nn.Dense(letters, flatten=False)

    def forward(self, x, state):
        h, state = self.lstm(self.embedding(x), state)
        return self.scores(h), state


def recite(model, start, length, letters):
    """Return `start` followed by the most probable letters."""
    text, state = start, model.lstm.begin_state(batch_size=1)
    x = nd.array([[letters.index(letter)] for letter in start])
    while len(text) < length:
        scores, state = model(x, state)
        x = scores[-1:].argmax(axis=2)
        text += letters[int(x[0, 0].asscalar())]
    return text


def main(epochs=40, steps=32, rate=0.01):
    mx.random.seed(7)
    letters = sorted(set(POEM))
    text = nd.array([letters.index(letter) for letter in POEM]).expand_dims(1)  # (time, batch of one)

    model = Model(len(letters))
    model.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": rate})
    for epoch in range(epochs):
        state, losses = model.lstm.begin_state(batch_size=1), []
        for at in range(0, len(POEM) - 1, steps):
            x, y = text[at : at + steps], text[at + 1 : at + steps + 1]
            x = x[: len(y)]
            state = [part.detach() for part in state]  # truncate backpropagation to `steps` letters
            with autograd.record():
                scores, state = model(x, state)
                loss = loss_of(scores.reshape((-1, len(letters))), y.reshape(-1))
            loss.backward()
            gluon.utils.clip_global_norm([param.grad() for param in model.collect_params().values()], 5.0 * len(y))
            trainer.step(len(y))
            losses.append(loss.mean().asscalar())
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1}: perplexity {np.exp(np.mean(losses)):.3f}")
    recited = recite(model, POEM[:10], len(POEM), letters)
    print(recited)
    return np.exp(np.mean(losses)), recited


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    main(**vars(parser.parse_args()))
