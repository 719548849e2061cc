"""Learn to predict the next word of a text, and write new sentences.

    neomx run -n 2 examples/tasks/language_model.py                            # --network lstm or gpt2

The LSTM reads one sentence at a time, in batches of sentences of similar length. GPT-2 reads blocks of 64 words of the
whole text, and writes new sentences with a cache of what it has read.

Metric: perplexity per word of the test sentences. A model that knows the grammar of the generated sentences reaches
about 6.9, and one that knows only the frequencies of the words about 36. Target: 7.4.
Real data: `--data DIR` with `train.txt` and `test.txt`, a sentence of words separated by spaces on each line.
"""

import math
import pathlib

import numpy as np
from made.sentences import sentences
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon
from neomx.gluon import nn, rnn
from neomx.gluon.data import text
from neomx.gluon.model_zoo import transformer

END = 1  # the index of the period that ends every sentence; the text begins after one


class LSTM(gluon.HybridBlock):
    """Scores of the next word after each word of a sentence."""

    def __init__(self, words, units=128, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed, self.lstm = nn.Embedding(words, units), rnn.LSTM(units, layout="NTC", input_size=units)
            self.out = nn.Dense(words, flatten=False, in_units=units)

    def hybrid_forward(self, F, tokens):
        return self.out(self.lstm(self.embed(tokens)))


def loaded(task):
    """Return the sentences for training and for the test, and the perplexity of the latter's grammar."""
    if not task.options.data:
        return sentences(task.options.sentences, 1)[0], *sentences(300 if task.options.short else 2000, 2)
    files = [pathlib.Path(task.options.data) / name for name in ("train.txt", "test.txt")]
    return *(
        [line.split()[:127] + ["."] for line in file.read_text("utf-8").splitlines() if line] for file in files
    ), None


def batches(task, rows, batch):
    """Return a loader of (words, next words, weights) of this worker's part of all batches."""
    dataset = gluon.data.SimpleDataset(rows).transform(
        lambda row: (row[:-1], row[1:], np.ones(len(row) - 1, "float32"))
    )
    sampler = text.BucketSampler([len(row) for row in rows], task.part(batch), seed=task.options.seed)
    return gluon.data.DataLoader(dataset, batch_sampler=sampler, batchify_fn=text.Tuple(*[text.Pad()] * 3))


def loss_of(net, tokens, following, weights):
    """Return the sum of the losses of all words of each row."""
    return -(mx.nd.pick(mx.nd.log_softmax(net(tokens)), following) * weights).sum(axis=1)


def train(task, net, rows, batch):
    """Train the network. The loss is a mean over the words of all workers."""
    words = sum(len(row) - 1 for row in rows) / len(rows)  # in a row
    steps = task.options.epochs * -(-len(rows) // batch)
    rate = mx.lr_scheduler.PolyScheduler(steps, 3e-3, pwr=1, warmup_steps=steps // 20)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": rate}, kvstore="dist_sync")
    loader = batches(task, rows, batch)
    for epoch in range(task.options.epochs):
        task.epoch(len(rows))
        total = count = 0
        for tokens, following, weights in loader:
            with autograd.record():
                loss = loss_of(net, tokens, following, weights)
            loss.backward()
            trainer.step(batch * words)
            total, count = total + loss.sum().asscalar(), count + weights.sum().asscalar()
        task.report(epoch, perplexity=math.exp(mean_over_workers(total, count)))


def perplexity(task, net, rows):
    """Return the perplexity per word of sentences, of which each worker reads its part."""
    total = count = 0
    for tokens, following, weights in batches(task, rows, 100):
        total += loss_of(net, tokens, following, weights).sum().asscalar()
        count += weights.sum().asscalar()
    return math.exp(mean_over_workers(total, count))


def main():
    task = Task(
        __doc__,
        metric="perplexity",
        target=7.4,
        short=20.0,
        lower=True,
        network=["gpt2", "lstm"],
        epochs=(10, 3),
        sentences=(12000, 3000),
    )
    training, test, best = loaded(task)
    words = text.Vocabulary.of(training, most_freq_count=10000, reserved_tokens=["."])
    training, test = ([[END, *words.encode(row)] for row in part] for part in (training, test))
    if task.options.network == "gpt2":
        net = transformer.gpt2_tiny(len(words), units=96, dropout=0.0)
        rows, batch = text.cut_blocks([row[1:] for row in training], 65).tolist(), 8
    else:
        net, rows, batch = LSTM(len(words)), training, 32
    net.initialize()
    net.hybridize()
    train(task, net, rows, batch)
    if task.options.network == "gpt2" and task.rank == 0:
        (written,) = net.generate([[END]], 60, "sample", temperature=0.8, seed=task.options.seed)
        print(words.decode(written[1:]))
    task.finish(perplexity(task, net, test), **({"best": best} if best else {}))


if __name__ == "__main__":
    main()
