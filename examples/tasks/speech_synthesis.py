"""Speak strings of digits: from text to a mel spectrogram with durations, and to sound by the Griffin-Lim algorithm.

    neomx run -n 2 examples/tasks/speech_synthesis.py --wav digits.wav

An encoder reads the digits and predicts how many frames each one lasts. Its result is repeated for these frames, and a
decoder turns it into a mel spectrogram (as in FastSpeech, with convolutions). The voice is one of espeak-ng if it is
installed (`--sounds espeak`), and otherwise pairs of tones (`--sounds tones`). It falls from the first digit of a string
to the last, so the network must look at the neighbors of a digit.

Metric: mean absolute error of the mel spectrograms of strings that the training does not contain, in decibels, with the
real durations. Target: 3, with both kinds of sounds. The error of the durations is printed too, in frames.
Real data: `--data DIR` with the files {digit}_{speaker}_{number}.wav of the Free Spoken Digit Dataset; `--voice` selects
the speaker.
"""

import numpy as np
from made import spoken
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.gluon.data import audio
from neomx.gluon.data.audio import transforms

FFT, HOP, MELS = 512, 128, 60
DIGITS, FRAMES = 5, 40 * 5  # the most in a string, of which each digit has at most 40
END = 10  # the token after the last digit
DECIBELS = 20 / np.log(10)  # of a step of 1 in the logarithm of a magnitude
PLACES = 16  # numbers that describe the position of a frame within its digit

to_mel = transforms.MelSpectrogram(spoken.RATE, FFT, HOP, power=1, n_mels=MELS, log="natural")


class Synthesizer(gluon.HybridBlock):
    """Mel spectrograms (batch, mels, frames) and logarithms of durations (batch, digits).

    The inputs are digits (batch, digits), what `expansion` returns for their durations, and the positions of frames.
    """

    def __init__(self, units=128, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(END + 1, units)
            self.encoder = nn.HybridSequential()
            self.encoder.add(nn.Conv1D(units, 3, padding=1, activation="relu", in_channels=units))
            self.encoder.add(nn.Conv1D(units, 3, padding=1, activation="relu", in_channels=units))
            self.duration = nn.Dense(1, flatten=False, in_units=units)
            self.decoder = nn.HybridSequential()
            for channels in (units + PLACES, units, units):
                self.decoder.add(nn.Conv1D(units, 5, padding=2, activation="relu", in_channels=channels))
            self.decoder.add(nn.Conv1D(MELS, 5, padding=2, in_channels=units))

    def hybrid_forward(self, F, digits, expand, places):
        encoded = self.encoder(F.transpose(self.embed(digits), (0, 2, 1)))
        durations = self.duration(F.transpose(encoded, (0, 2, 1)))
        frames = F.concat(F.batch_dot(encoded, expand), places, dim=1)
        return 6 * self.decoder(frames) - 6, F.reshape(durations, (0, -1))


def expansion(durations):
    """Return which digit each frame belongs to, (batch, digits, FRAMES) of 0 and 1, and its position, (batch, ...)."""
    durations = np.asarray(durations, np.int64)
    expand = np.zeros((*durations.shape, FRAMES), np.float32)
    places = np.zeros((len(durations), PLACES, FRAMES), np.float32)
    waves = np.exp2(np.arange(PLACES // 2) / 2)[:, None]
    for row, counts in enumerate(durations):
        ends = np.minimum(counts.cumsum(), FRAMES)
        for digit, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            expand[row, digit, begin:end] = 1
            angles = np.pi * np.arange(end - begin) / 40 * waves
            places[row, :, begin:end] = np.concatenate((np.sin(angles), np.cos(angles)))
    return nd.array(expand), nd.array(places)


def recorded(options):
    """Return the recordings of each digit at the begin, in the middle and at the end of a string."""
    words = [[[] for _ in range(10)] for _ in range(3)]
    if options.data:
        for digit, speaker, _, path in spoken.recordings(options.data):
            if speaker == options.voice:
                for place in words:
                    place[digit].append(spoken.read(path))
        return words
    kind = spoken.chosen(options.sounds)
    for place, voice in zip(words, ((60, 170), (50, 170), (35, 140)), strict=True):
        for digit in range(10):
            place[digit].append(spoken.say(digit, spoken.Voice(options.voice, *voice), kind))
    return words


def strings(words, count, seed):
    """Return digits (count, DIGITS), durations, mel spectrograms (count, MELS, FRAMES) and masks (count, FRAMES)."""
    rng = np.random.default_rng(seed)
    digits, durations = np.full((count, DIGITS), END, np.float32), np.zeros((count, DIGITS), np.float32)
    sounds, masks = np.zeros((count, FRAMES * HOP - 1), np.float32), np.zeros((count, FRAMES), np.float32)
    for row in range(count):
        length = rng.integers(2, DIGITS, endpoint=True)
        at = 0
        for place, digit in enumerate(rng.integers(10, size=length)):
            word = rng.choice(len(same := words[0 if place == 0 else 2 if place == length - 1 else 1][digit]))
            word = same[word][: 36 * HOP]
            frames = -(-word.size // HOP) + 4  # with a pause
            sounds[row, at * HOP : at * HOP + word.size] = word
            digits[row, place], durations[row, place] = digit, frames
            at += frames
        masks[row, :at] = 1
    mels = np.concatenate([to_mel(nd.array(part)).asnumpy() for part in np.array_split(sounds, max(count // 50, 1))])
    return digits, durations, mels, masks


def speak(net, digits):
    """Return the sound of a string of digits with predicted durations."""
    tokens = nd.array([[*digits, *[END] * (DIGITS - len(digits))]])
    _, durations = net(tokens, *expansion(np.zeros((1, DIGITS))))
    counts = np.rint(np.exp(durations.asnumpy()))
    counts[:, len(digits) :] = 0
    mel, _ = net(tokens, *expansion(counts))
    mel = mel[:, :, : int(counts.sum())]
    magnitudes = transforms.InverseMelScale(FFT, spoken.RATE)(mel.exp())
    return transforms.GriffinLim(HOP)(magnitudes)[0]


def errors(net, test):
    """Return the errors of mel spectrograms in decibels and of durations in frames, over all workers."""
    totals = np.zeros(4)
    shard = mx.dist.shard(gluon.data.ArrayDataset(*test))
    for digits, durations, mels, masks in gluon.data.DataLoader(shard, 50):
        found, lasting = net(digits, *expansion(durations.asnumpy()))
        wrong = ((found - mels).abs().mean(axis=1) * masks).sum().asscalar()
        spoken_ = durations.asnumpy() > 0
        late = np.abs(np.exp(lasting.asnumpy()) - durations.asnumpy())[spoken_].sum()
        totals += wrong * DECIBELS, masks.sum().asscalar(), late, spoken_.sum()
    return mean_over_workers(*totals[:2]), mean_over_workers(*totals[2:])


def main():
    sizes = {"epochs": (30, 5), "samples": (640, 320), "batch": (16, 16), "sounds": ("auto", "auto")}
    more = {"voice": ("en-us", "en-us"), "wav": ("", "")}
    task = Task(__doc__, "mel error (dB)", 3.0, 8.0, lower=True, **sizes, **more)
    options = task.options
    words = recorded(options)
    train, test = strings(words, options.samples, 1), strings(words, 100, 2)
    seen = {tuple(row) for row in train[0]}
    new = np.array([tuple(row) not in seen for row in test[0]])
    test = [values[new] for values in test]

    shard = mx.dist.shard(gluon.data.ArrayDataset(*train), shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")
    net = Synthesizer()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    steps = options.epochs * len(loader)
    schedule = mx.lr_scheduler.CosineScheduler(steps, 0.002, warmup_steps=steps // 10)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": schedule}, kvstore="dist_sync")

    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for digits, durations, mels, masks in loader:
            expand, places = expansion(durations.asnumpy())
            with autograd.record():
                found, lasting = net(digits, expand, places)
                wrong = ((found - mels).abs().mean(axis=1) * masks).sum(axis=1) / masks.sum(axis=1)
                late = ((lasting - durations.maximum(1).log()) ** 2 * (durations > 0)).mean(axis=1)
                loss = wrong + late
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)))
    error, late = errors(net, test)
    if options.wav and task.rank == 0:
        audio.save(options.wav, 0.5 * speak(net, [3, 1, 4, 1, 5]), spoken.RATE)
    task.finish(error, duration_error=late)


if __name__ == "__main__":
    main()
