"""Tell good film reviews from bad ones, with few labels.

    neomx run -n 2 examples/tasks/text_classification.py                       # --network bert, textcnn or pooling

Negation turns the meaning of words around, so it is not enough to count words (`--network pooling`). TextCNN sees up to
four words at once. BERT first learns the language from reviews without labels, by predicting masked words, and is then
fine-tuned on few labels. With `--pretraining 0` it skips the first part.

Metric: accuracy on the test reviews. Target: 0.95, for TextCNN 0.9, and for pooling 0.65.
Real data: `--data DIR`, the directory of IMDB's reviews with train/pos, train/neg, train/unsup, test/pos and test/neg.
"""

import pathlib

from made.reviews import reviews
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon
from neomx.gluon import nn
from neomx.gluon.data import text
from neomx.gluon.model_zoo import transformer

LONGEST = 128  # words of a review


class Pooling(gluon.HybridBlock):
    """The mean of word vectors, which does not depend on the order of the words."""

    def __init__(self, words, units=64, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed, self.out = nn.Embedding(words, units), nn.Dense(2, in_units=units)

    def hybrid_forward(self, F, tokens, types, lengths):  # as BERT, which also has types of tokens
        total = F.SequenceMask(self.embed(tokens), lengths, True, axis=1).sum(axis=1)
        return self.out(F.broadcast_div(total, F.cast(lengths, "float32").expand_dims(1)))


class TextCNN(gluon.HybridBlock):
    """Convolutions over two, three and four words, and the maximum of each filter (Kim 2014)."""

    def __init__(self, words, units=64, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed, self.out = nn.Embedding(words, units), nn.Dense(2, in_units=3 * units)
            self.convs = nn.HybridSequential()
            for width in (2, 3, 4):
                self.convs.add(nn.Conv1D(units, width, padding=width - 1, activation="relu", in_channels=units))

    def hybrid_forward(self, F, tokens, types, lengths):  # as BERT, which also has types of tokens
        x = F.SequenceMask(self.embed(tokens), lengths, True, axis=1).transpose((0, 2, 1))
        # Mask what follows a review: its length depends on the other reviews of the batch.
        found = [F.SequenceMask(conv(x).transpose((0, 2, 1)), lengths, True, axis=1) for conv in self.convs]
        return self.out(F.concat(*[each.max(axis=1) for each in found], dim=1))


def read(directory, *labels):
    """Return the words and labels of the reviews in the subdirectories of IMDB's data."""
    found = [(path, label) for label, name in enumerate(labels) for path in sorted((directory / name).glob("*.txt"))]
    if not found:
        raise SystemExit(f"{directory} has no files such as {labels[0]}/1.txt; see --help")
    words = [path.read_text("utf-8").lower().replace(".", " . ").replace("<br />", " ").split() for path, _ in found]
    return words, [label for _, label in found]


def loaded(task):
    """Return reviews without labels, for training and for the test; the latter two with labels."""
    if task.options.data:
        root = pathlib.Path(task.options.data)
        return read(root / "train", "unsup"), read(root / "train", "neg", "pos"), read(root / "test", "neg", "pos")
    counts = task.options.unlabeled, task.options.labeled, 500 if task.options.short else 2000
    return [reviews(count, seed) for seed, count in enumerate(counts)]


def batches(task, rows, batch, *more, transform=None, shuffle=True):
    """Return a loader of this worker's part of all batches, each of reviews of similar length."""
    sampler = text.BucketSampler([len(row) for row in rows], task.part(batch), shuffle=shuffle, seed=task.options.seed)
    dataset = gluon.data.ArrayDataset(rows, *more) if more else gluon.data.SimpleDataset(rows).transform(transform)
    batchify = text.Tuple(text.Pad(ret_length=True), *([text.Stack()] if more else [text.Pad(), text.Pad()]))
    return gluon.data.DataLoader(dataset, batch_sampler=sampler, batchify_fn=batchify)


def pretrain(task, bert, words, rows, batch=32):
    """Teach BERT the language: it predicts masked words of reviews without labels."""
    net = transformer.BERTMaskedLM(bert)
    net.initialize()
    net.hybridize()
    steps = task.options.pretraining * -(-len(rows) // batch)
    rate = mx.lr_scheduler.PolyScheduler(max(steps, 1), 3e-3, pwr=1, warmup_steps=steps // 20)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": rate}, kvstore="dist_sync")
    loader = batches(task, rows, batch, transform=text.MaskTokens(words, p=0.3))
    for epoch in range(task.options.pretraining):
        task.epoch(len(rows))
        total = count = 0
        for (tokens, lengths), labels, weights in loader:
            weights = mx.nd.broadcast_div(weights, weights.sum(axis=1, keepdims=True))  # each review counts equally
            with autograd.record():
                loss = -(mx.nd.pick(mx.nd.log_softmax(net(tokens, None, lengths)), labels) * weights).sum(axis=1)
            loss.backward()
            trainer.step(batch, ignore_stale_grad=True)  # the classifier's state of the whole review is not used
            total, count = total + loss.sum().asscalar(), count + len(loss)
        task.report(epoch, masked_loss=mean_over_workers(total, count))


def train(task, net, rows, labels, rate, batch=32):
    """Train a classifier."""
    net.hybridize()
    first = len(task.curve)  # after the epochs of pretraining
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate}, kvstore="dist_sync")
    loader = batches(task, rows, batch, labels)
    for epoch in range(task.options.epochs):
        task.epoch(len(rows))
        total = count = 0
        for (tokens, lengths), label in loader:
            with autograd.record():
                loss = loss_of(net(tokens, None, lengths), label)
            loss.backward()
            trainer.step(batch)
            total, count = total + loss.sum().asscalar(), count + len(loss)
        task.report(first + epoch, loss=mean_over_workers(total, count))


def accuracy(task, net, rows, labels):
    """Return the share of reviews that are classified correctly."""
    correct = count = 0
    for (tokens, lengths), label in batches(task, rows, 200, labels, shuffle=False):
        correct += (net(tokens, None, lengths).argmax(axis=1) == label.astype("float32")).sum().asscalar()
        count += len(label)
    return mean_over_workers(correct, count)


def main():
    task = Task(
        __doc__,
        metric="accuracy",
        target=0.95,
        short=0.75,
        network=["bert", "textcnn", "pooling"],
        pretraining=(20, 1),
        epochs=(20, 8),
        unlabeled=(8000, 500),
        labeled=(200, 600),
    )
    unlabeled, training, test = loaded(task)
    words = text.Vocabulary.of(unlabeled[0] + training[0], most_freq_count=20000, reserved_tokens=["[MASK]", "[CLS]"])
    rows = [[words.encode(["[CLS]", *row][:LONGEST]) for row in part] for part, _ in (unlabeled, training, test)]
    network, rate = task.options.network, 2e-3
    if network == "bert":
        bert = transformer.bert_tiny(len(words), units=64, max_length=LONGEST, dropout=0.0)
        pretrain(task, bert, words, rows[0])
        net, rate = transformer.BERTClassifier(bert, dropout=0.0), 5e-4
        net.head.initialize()
    else:
        net = {"textcnn": TextCNN, "pooling": Pooling}[network](len(words))
        net.initialize(mx.init.Xavier())
        task.target = task.target if task.options.short else {"textcnn": 0.9, "pooling": 0.65}[network]
    train(task, net, rows[1], training[1], rate)
    task.finish(accuracy(task, net, rows[2], test[1]))


if __name__ == "__main__":
    main()
