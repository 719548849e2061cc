"""Recognize strings of spoken digits with convolutions, a bidirectional LSTM and CTC.

    neomx run -n 2 examples/tasks/speech_recognition.py

The sounds are words of espeak-ng in many voices if it is installed (`--sounds espeak`), and otherwise pairs of tones
(`--sounds tones`). Each epoch joins them to new strings, adds noise, and hides parts of the spectrogram. CTC learns
which digits a string has without knowing where they are.

Metric: word error rate for voices that the training does not contain. Target: 0.03, with both kinds of sounds.
Real data: `--data DIR` with the files {digit}_{speaker}_{number}.wav of the Free Spoken Digit Dataset. Those with a
number below 5 are the test.
"""

import numpy as np
from made import spoken
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn, rnn
from neomx.gluon.data.audio import transforms

BLANK = 10


class Strings(gluon.data.Dataset):
    """`count` random strings of 2 to `digits` recorded digits: (sound, digits padded with -1)."""

    def __init__(self, words, count, digits):
        self.words, self.count, self.digits = words, count, digits  # words[digit] has the recordings of a digit

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = mx.random.rng()  # that of the sample: the same for any number of workers
        sound, at, label = np.zeros(int(0.8 * self.digits * spoken.RATE), np.float32), 0, []
        for digit in rng.integers(10, size=rng.integers(2, self.digits, endpoint=True)):
            at += rng.integers(400, 1600)  # a pause
            word = self.words[digit][rng.integers(len(self.words[digit]))]
            if at + word.size > sound.size:
                break
            sound[at : at + word.size] = word * rng.uniform(0.5, 1)
            at += word.size
            label.append(digit)
        return nd.array(sound), np.array(label + [-1] * (self.digits - len(label)), np.float32)


class Recognizer(gluon.HybridBlock):
    """Scores of the digits and of the blank, (batch, steps, 11), from spectrograms (batch, mels, frames)."""

    def __init__(self, units=64, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.convolutions = nn.HybridSequential()
            for _ in range(3):
                self.convolutions.add(nn.Conv1D(units, 5, strides=2, padding=2, activation="relu"), nn.GroupNorm(1))
            self.lstm = rnn.LSTM(units, bidirectional=True, input_size=units, layout="NTC")
            self.scores = nn.Dense(BLANK + 1, flatten=False, in_units=3 * units)

    def hybrid_forward(self, F, x):
        found = F.transpose(self.convolutions((x + 30) / 20), (0, 2, 1))  # decibels
        return self.scores(F.concat(found, self.lstm(found), dim=2))


def recorded(options):
    """Return the recordings of each digit for training and for testing."""
    train, test = ([[] for _ in range(10)] for _ in range(2))
    if options.data:
        for digit, _, number, path in spoken.recordings(options.data):
            (test if number < 5 else train)[digit].append(spoken.read(path))
        return train, test
    kind = spoken.chosen(options.sounds)
    for at, voice in enumerate(spoken.VOICES[: options.voices]):
        for digit in range(10):
            (test if at % 5 == 4 else train)[digit].append(spoken.say(digit, voice, kind))
    return train, test


def greedy(scores):
    """Return the digits of the best path: repetitions count once, and blanks not at all."""
    best = scores.argmax(axis=1)
    return [int(each) for each, before in zip(best, [BLANK, *best], strict=False) if each != before and each != BLANK]


def word_errors(net, loader):
    """Return the word error rate over all workers."""
    errors = words = 0
    for x, y in loader:
        for scores, label in zip(net(x).asnumpy(), y.asnumpy(), strict=True):
            wanted = [int(digit) for digit in label if digit >= 0]
            errors, words = errors + spoken.edit_distance(greedy(scores), wanted), words + len(wanted)
    return mean_over_workers(errors, words)


def main():
    sizes = {"epochs": (12, 6), "samples": (1280, 320), "batch": (16, 16), "voices": (20, 5), "digits": (5, 2)}
    task = Task(__doc__, "word error rate", 0.03, 0.3, lower=True, sounds=("auto", "auto"), **sizes)
    options = task.options
    train, test = recorded(options)
    spectrum = transforms.MelSpectrogram(spoken.RATE, 256, 100, n_mels=40, log="db")
    augment = transforms.Compose([transforms.AddNoise((10, 40)), spectrum, transforms.SpecAugment((1, 4), (1, 8))])
    plain = transforms.Compose([transforms.AddNoise(20), spectrum])

    strings = Strings(train, options.samples, options.digits).transform_first(augment)
    shard = mx.dist.shard(strings, shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")
    strings = Strings(test, 100 if options.short else 400, options.digits).transform_first(plain)
    tests = gluon.data.DataLoader(mx.dist.shard(strings, seed=options.seed + 1), 50)
    net = Recognizer()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.CTCLoss(layout="NTC", label_layout="NT")
    steps = options.epochs * len(loader)
    schedule = mx.lr_scheduler.CosineScheduler(steps, 0.003, warmup_steps=steps // 10)
    # Gradients of CTC are large while the network learns that most steps are blank. Clipped, they do not slow Adam.
    adam = {"lr_scheduler": schedule, "clip_gradient": 0.005}
    trainer = gluon.Trainer(net.collect_params(), "adam", adam, kvstore="dist_sync")

    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for x, y in loader:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)))
    task.finish(word_errors(net, tests))


if __name__ == "__main__":
    main()
