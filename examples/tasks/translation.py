"""Translate numbers from English to German with an encoder, attention and a decoder.

    neomx run -n 2 examples/tasks/translation.py

German says the ones before the tens ("two and forty"), so the decoder attends to all states of the encoder. Beam search
finds the translation.

Metric: sequence accuracy, the share of test sentences whose whole translation is correct. Target: 0.97.
Real data: `--data DIR` with a file `pairs.txt`, a pair of sentences per line with a tab between them, as Tatoeba's.
"""

import pathlib

import numpy as np
from made import numbers
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn, rnn

PAD, BEGIN, END, UNKNOWN = range(4)


class Translator(gluon.HybridBlock):
    """A bidirectional GRU reads the sentence. Another GRU writes, and attends to the states of the first."""

    def __init__(self, source, target, units=96, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed_source, self.embed_target = nn.Embedding(source, units), nn.Embedding(target, units)
            self.encoder = rnn.GRU(units // 2, layout="NTC", bidirectional=True, input_size=units)
            self.decoder = rnn.GRU(units, layout="NTC", input_size=units)
            self.mix = nn.Dense(units, flatten=False, activation="tanh", in_units=2 * units)
            self.out = nn.Dense(target, flatten=False, in_units=units)

    def hybrid_forward(self, F, source, lengths, target):
        states = self.encoder(self.embed_source(source))
        written = self.decoder(self.embed_target(target))
        scores = F.batch_dot(written, states, transpose_b=True)  # (batch, target words, source words)
        lengths = F.broadcast_like(F.expand_dims(lengths, 1), target)
        read = F.batch_dot(F.softmax(scores, lengths, use_length=True), states)
        return self.out(self.mix(F.concat(written, read, dim=-1)))


def sentences(task):
    """Return pairs of sentences for training and for the test."""
    if task.options.data:
        lines = (pathlib.Path(task.options.data) / "pairs.txt").read_text().splitlines()
        found = [tuple(part.lower().split() for part in line.split("\t")[:2]) for line in lines]
        np.random.default_rng(0).shuffle(found)
    else:
        found = numbers.pairs(14_000, seed=0)
    test = len(found) // 7
    return found[test:][: task.options.samples], found[:test][: 150 if task.options.short else 1000]


def vocabulary(side):
    """Return {word: number} of all words of the sentences."""
    return {word: UNKNOWN + 1 + at for at, word in enumerate(sorted({word for words in side for word in words}))}


def padded(side, words, length, ends=False):
    """Return the numbers of the words, padded to the same length; with `ends`, between BEGIN and END."""
    rows = [[words.get(word, UNKNOWN) for word in sentence][: length - 2 * ends] for sentence in side]
    rows = [[BEGIN, *row, END] if ends else row for row in rows]
    return np.array([row + [PAD] * (length - len(row)) for row in rows], dtype="int32")


def beam_search(net, source, length, most, width=3):
    """Return the most probable words for one sentence."""
    beams = [(0.0, [BEGIN])]
    for _ in range(most):
        ended = [beam for beam in beams if beam[1][-1] == END]
        going = [beam for beam in beams if beam[1][-1] != END]  # all of the same length
        if not going:
            break
        repeated = [nd.broadcast_axis(each, axis=0, size=len(going)) for each in (source, length)]
        logits = net(*repeated, nd.array([words for _, words in going]))
        scores = nd.log_softmax(logits[:, -1]).asnumpy()
        for (score, words), row in zip(going, scores, strict=True):
            ended += [(score + row[word], [*words, int(word)]) for word in np.argsort(-row)[:width]]
        beams = sorted(ended, key=lambda beam: -beam[0] / len(beam[1]))[:width]
    return [word for word in beams[0][1] if word not in (BEGIN, END)]


def main():
    task = Task(__doc__, "sequence accuracy", 0.97, 0.3, epochs=(8, 5), samples=(12_000, 1500), batch=(64, 32))
    options = task.options
    train, test = sentences(task)
    words = [vocabulary(side) for side in zip(*train, strict=True)]
    longest = [max(map(len, side)) for side in zip(*train, strict=True)]
    longest[1] += 2  # BEGIN and END

    source = padded([pair[0] for pair in train], words[0], longest[0])
    target = padded([pair[1] for pair in train], words[1], longest[1], ends=True)
    dataset = gluon.data.ArrayDataset(source, (source != PAD).sum(axis=1).astype("float32"), target)
    shard = mx.dist.shard(dataset, shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")

    net = Translator(*(UNKNOWN + 1 + len(each) for each in words))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    rate = mx.lr_scheduler.CosineScheduler(options.epochs * len(loader), 0.004, 0.0002)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": rate}, kvstore="dist_sync")

    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for x, lengths, y in loader:
            with autograd.record():
                weight = nd.expand_dims(y[:, 1:] != PAD, axis=2).astype("float32")
                loss = loss_of(net(x, lengths, y[:, :-1]), y[:, 1:], weight)
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)))

    mine = test[task.rank :: task.workers]
    names = {number: word for word, number in words[1].items()}
    correct = 0
    for english, german in mine:
        row = padded([english], words[0], longest[0])
        found = beam_search(net, nd.array(row), nd.array([len(english)]), longest[1])
        correct += [names.get(word) for word in found] == german
    if task.rank == 0:
        print(" ".join(english), "->", " ".join(str(names.get(word)) for word in found))
    task.finish(mean_over_workers(correct, len(mine)))


if __name__ == "__main__":
    main()
