"""Learn to tell topics of sentences in one language, and tell them in another language.

    neomx run -n 2 examples/tasks/across_languages.py                          # --pieces bpe, wordpiece or words

The network is trained on English labels only. The other language has roots in common with English but no word, so a
network that knows whole words can only guess (`--pieces words`). What it learns about sub-words that both languages
share holds for the other language, too.

Metric: accuracy on sentences of the other language; one of six topics is correct, so guessing gives 0.17. Target: 0.9.
Real data: `--data DIR` with `source.tsv` and `target.tsv`, a topic, a tab and a sentence on each line.
"""

import pathlib

from made import languages
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon
from neomx.gluon import nn
from neomx.gluon.data import text


class Topics(gluon.HybridBlock):
    """The mean of the vectors of all pieces of a sentence, and two layers."""

    def __init__(self, pieces, topics, units=64, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(pieces, units)
            self.hidden, self.out = nn.Dense(units, "relu", in_units=units), nn.Dense(topics, in_units=units)

    def hybrid_forward(self, F, tokens, lengths):
        total = F.SequenceMask(self.embed(tokens), lengths, True, axis=1).sum(axis=1)
        return self.out(self.hidden(F.broadcast_div(total, F.cast(lengths, "float32").expand_dims(1))))


def read(path, numbers):
    """Return the sentences of a file and the numbers of their topics."""
    lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    return [row.lower().split() for _, row in lines], [numbers.setdefault(topic, len(numbers)) for topic, _ in lines]


def loaded(task):
    """Return sentences with topics: English for training and for a test, and those of the other language."""
    if task.options.data:
        numbers = {}
        files = [pathlib.Path(task.options.data) / name for name in ("source.tsv", "target.tsv")]
        (rows, topics), other = (read(file, numbers) for file in files)
        return (rows[::2], topics[::2]), (rows[1::2], topics[1::2]), other
    test = 500 if task.options.short else 2000
    return (
        languages.sentences(task.options.samples, "english", 1),
        languages.sentences(test, "english", 2),
        languages.sentences(test, "neighbor", 3),
    )


def pieces_of(task, *sides):
    """Return what splits a sentence into pieces, learned from sentences without topics in both languages."""
    kind = task.options.pieces
    if kind == "words":
        return text.Vocabulary.of([row for side in sides for row in side])
    return text.SubwordTokenizer.train((" ".join(row) for side in sides for row in side), task.options.tokens, kind)


def batches(task, pieces, rows, topics, batch):
    """Return a loader of this worker's part of all batches, each of sentences of similar length."""
    rows = [pieces.encode(" ".join(row)) for row in rows]
    dataset = gluon.data.ArrayDataset(rows, topics)
    sampler = text.BucketSampler([len(row) for row in rows], task.part(batch), buckets=4, seed=task.options.seed)
    batchify = text.Tuple(text.Pad(ret_length=True), text.Stack())
    return gluon.data.DataLoader(dataset, batch_sampler=sampler, batchify_fn=batchify)


def accuracy(task, net, pieces, rows, topics):
    """Return the share of sentences whose topic is found."""
    correct = count = 0
    for (tokens, lengths), topic in batches(task, pieces, rows, topics, 200):
        correct += (net(tokens, lengths).argmax(axis=1) == topic.astype("float32")).sum().asscalar()
        count += len(topic)
    return mean_over_workers(correct, count)


def main(batch=32):
    task = Task(
        __doc__,
        metric="accuracy",
        target=0.9,
        short=0.7,
        pieces=["bpe", "wordpiece", "words"],
        tokens=(450, 450),
        epochs=(12, 3),
        samples=(4000, 1500),
    )
    training, test, other = loaded(task)
    pieces = pieces_of(task, training[0], other[0])
    net = Topics(len(pieces), max(training[1]) + 1)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")
    loader = batches(task, pieces, *training, batch)
    for epoch in range(task.options.epochs):
        task.epoch(len(training[0]))
        total = count = 0
        for (tokens, lengths), topic in loader:
            with autograd.record():
                loss = loss_of(net(tokens, lengths), topic)
            loss.backward()
            trainer.step(batch)
            total, count = total + loss.sum().asscalar(), count + len(loss)
        task.report(epoch, loss=mean_over_workers(total, count))
    task.finish(accuracy(task, net, pieces, *other), english=accuracy(task, net, pieces, *test))


if __name__ == "__main__":
    main()
