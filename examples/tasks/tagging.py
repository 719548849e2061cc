"""Find names of people, places and companies in sentences with a bidirectional LSTM and a CRF.

    neomx run -n 2 examples/tasks/tagging.py

The LSTM scores the tags of each word. The conditional random field (CRF) adds a score for each pair of adjacent tags,
so the network is trained on, and finds, the best tags of a whole sentence.

Metric: F1 of whole entities in test sentences, half of whose names are new. Target: 0.94.
Real data: `--data DIR` with train.txt and test.txt as in CoNLL-2003 (a word and its tag per line, empty lines between
sentences).
"""

import collections
import pathlib

import numpy as np
from made import entities
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn, rnn

PAD, UNKNOWN = 0, 1


class Tagger(gluon.HybridBlock):
    """Scores of the tags of each word, (words, batch, tags)."""

    def __init__(self, words, tags, units=48, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(words, units)
            self.lstm = rnn.LSTM(units, bidirectional=True, input_size=units + 2)
            self.score = nn.Dense(tags, flatten=False, in_units=2 * units)

    def hybrid_forward(self, F, words, shape):
        inputs = F.concat(self.embed(words), shape, dim=-1)
        return self.score(self.lstm(F.transpose(inputs, (1, 0, 2))))


class CRF(gluon.HybridBlock):
    """The negative log likelihood of tags (batch, words), from scores (words, batch, tags)."""

    def __init__(self, tags, length, **kwargs):
        super().__init__(**kwargs)
        self._tags, self._length = tags, length
        with self.name_scope():
            self.follow = self.params.get("follow", shape=(tags, tags), init="zeros")  # from the row to the column

    def hybrid_forward(self, F, scores, tags, mask, follow):
        """Return one number per sentence; `mask` (batch, words) is 0 for padding."""
        chosen = F.sum(F.pick(F.transpose(scores, (1, 0, 2)), tags) * mask, axis=1)
        pair = F.slice_axis(tags, axis=1, begin=0, end=-1) * self._tags + F.slice_axis(tags, axis=1, begin=1, end=None)
        moved = F.take(F.reshape(follow, (-1,)), pair) * F.slice_axis(mask, axis=1, begin=1, end=None)
        steps = F.split(scores, axis=0, num_outputs=self._length, squeeze_axis=True)
        masks = F.split(mask, axis=1, num_outputs=self._length)
        total = steps[0]  # the log of the sum over all ways to reach each tag
        for step, valid in zip(steps[1:], masks[1:], strict=True):
            ways = F.broadcast_add(F.expand_dims(total, 2), F.expand_dims(follow, 0))
            reached = log_sum_exp(F, ways, axis=1) + step
            total = F.where(F.broadcast_like(valid, total), reached, total)
        return log_sum_exp(F, total, axis=1) - chosen - F.sum(moved, axis=1)


def log_sum_exp(F, x, axis):
    """Return log(sum(exp(x))) along an axis, without overflow."""
    most = F.max(x, axis=axis, keepdims=True)
    return F.log(F.sum(F.exp(F.broadcast_sub(x, most)), axis=axis)) + F.squeeze(most, axis=axis)


def best_tags(scores, follow):
    """Viterbi: return the most probable tags of one sentence from its scores (words, tags)."""
    total, back = scores[0], []
    for step in scores[1:]:
        ways = total[:, None] + follow
        back.append(ways.argmax(axis=0))
        total = ways.max(axis=0) + step
    tags = [int(total.argmax())]
    for pointers in reversed(back):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1]


def found_entities(tags):
    """Return (first word, last word, kind) of each entity."""
    found = []
    for at, tag in enumerate(tags):
        if tag.startswith("B-") or (tag.startswith("I-") and (at == 0 or tags[at - 1][2:] != tag[2:])):
            found.append((at, at, tag[2:]))
        elif tag.startswith("I-"):
            found[-1] = (found[-1][0], at, tag[2:])
    return set(found)


def read(path):
    """Return the sentences of a CoNLL file."""
    parts = pathlib.Path(path).read_text().strip().split("\n\n")
    rows = [[line.split() for line in part.splitlines() if not line.startswith("-DOCSTART-")] for part in parts]
    return [([row[0] for row in each], [row[-1] for row in each]) for each in rows if each]


def arrays(sentences, words, tags, length):
    """Return words, two features of their spelling, tags and mask, padded or cut to the same length."""
    shape = (len(sentences), length)
    number, spelling, tag, mask = np.zeros(shape), np.zeros((*shape, 2)), np.zeros(shape), np.zeros(shape)
    for row, (each, marked) in enumerate(sentences):
        each, marked = each[:length], marked[:length]
        number[row, : len(each)] = [words.get(word, UNKNOWN) for word in each]
        spelling[row, : len(each)] = [(word[0].isupper(), word in words) for word in each]
        tag[row, : len(each)] = [tags.index(name) for name in marked]
        mask[row, : len(each)] = 1
    return [array.astype("float32") for array in (number, spelling, tag, mask)]


def main():
    task = Task(__doc__, "entity F1", 0.94, 0.8, epochs=(12, 4), samples=(6000, 1500), batch=(64, 32))
    options = task.options
    if options.data:
        train, test = (read(pathlib.Path(options.data) / f"{name}.txt") for name in ("train", "test"))
    else:
        train = entities.sentences(options.samples, seed=1)
        test = entities.sentences(300 if options.short else 1000, seed=2, unseen=0.5)
    counts = collections.Counter(word for each, _ in train for word in each)
    known = sorted(word for word, count in counts.items() if count > 2)  # other names are unknown, as in the test
    words = {word: UNKNOWN + 1 + at for at, word in enumerate(known)}
    tags = sorted({tag for _, marked in train for tag in marked})
    length = min(max(len(each) for each, _ in train), 60)

    dataset = gluon.data.ArrayDataset(*arrays(train, words, tags, length))
    shard = mx.dist.shard(dataset, shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")
    net, crf = Tagger(UNKNOWN + 1 + len(words), len(tags)), CRF(len(tags), length)
    for block in (net, crf):
        block.initialize(mx.init.Xavier())
        block.hybridize()
    params = {**net.collect_params(), **crf.collect_params()}
    trainer = gluon.Trainer(params, "adam", {"learning_rate": 0.003}, kvstore="dist_sync")

    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for x, spelling, y, mask in loader:
            with autograd.record():
                loss = crf(net(x, spelling), y, mask)
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)))

    x, spelling, _, _ = map(nd.array, arrays(test, words, tags, length))
    scores, follow = net(x, spelling).transpose((1, 0, 2)).asnumpy(), crf.follow.data().asnumpy()
    right = predicted = real = 0
    for row, (each, marked) in enumerate(test):
        found = found_entities([tags[tag] for tag in best_tags(scores[row, : len(each)], follow)])
        wanted = found_entities(marked[:length])
        right, predicted, real = right + len(found & wanted), predicted + len(found), real + len(wanted)
    task.finish(2 * right / (predicted + real), precision=right / max(predicted, 1), recall=right / real)


if __name__ == "__main__":
    main()
