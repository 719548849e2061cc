"""Speak strings of digits: from text to a mel spectrogram with durations, and to sound by the Griffin-Lim algorithm.

    neomx run -n 2 examples/tasks/speech_synthesis.py --wav digits.wav

An encoder reads the digits and predicts how many frames each one lasts. Its result is repeated for these frames, and a
decoder turns it into a mel spectrogram (as in FastSpeech, with convolutions). The voice is one of espeak-ng if it is
installed (`--sounds espeak`), and otherwise pairs of tones (`--sounds tones`). It falls from the first digit of a
string to the last, so the network must look at the neighbors of a digit.

Metric: mean absolute error of the mel spectrograms of strings that the training does not contain, in decibels, with
the real durations. Target: 1, with both kinds of sounds. The error of the durations is printed too, in frames.
Real data: `--data DIR` with the files {digit}_{speaker}_{number}.wav of the Free Spoken Digit Dataset; `--voice NAME`
selects the speaker. No two recordings of a person are equal, so their error is larger.
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
LONGEST = 40  # frames of a digit with the pause after it
END = 10  # the token after the last digit
SILENCE = -7.0  # the logarithm of magnitudes that are not heard, 60 dB below a loud sound
DECIBELS = 20 / np.log(10)  # of a step of 1 in the logarithm of a magnitude
PLACES = 16  # numbers that describe the position of a frame within its digit

to_mel = transforms.MelSpectrogram(spoken.RATE, FFT, HOP, power=1, n_mels=MELS, log="natural")


class Synthesizer(gluon.HybridBlock):
    """Mel spectrograms (batch, mels, frames) and logarithms of durations (batch, digits).

    The inputs are digits (batch, digits), and what `expansion` returns for their durations.
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
        return 3 * self.decoder(frames) - 5, 3 + F.reshape(durations, (0, -1))


def expansion(durations):
    """Return which digit each frame belongs to, (batch, digits, frames) of 0 and 1, and its position, (batch, ...)."""
    durations = np.asarray(durations, np.int64)
    count = LONGEST * durations.shape[1]
    expand = np.zeros((*durations.shape, count), np.float32)
    places = np.zeros((len(durations), PLACES, count), np.float32)
    waves = np.exp2(np.arange(PLACES // 2) / 2)[:, None]
    for row, counts in enumerate(durations):
        ends = np.minimum(counts.cumsum(), count)
        for digit, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            expand[row, digit, begin:end] = 1
            angles = np.pi * np.arange(end - begin) / LONGEST * waves
            places[row, :, begin:end] = np.concatenate((np.sin(angles), np.cos(angles)))
    return nd.array(expand), nd.array(places)


def recorded(options):
    """Return the recordings of each digit at the beginning, in the middle and at the end of a string."""
    words = [[[] for _ in range(10)] for _ in range(3)]
    if options.data:
        for digit, _, _, path in spoken.recordings(options.data, options.voice):
            for place in words:
                place[digit].append(spoken.read(path))
        return words
    kind = spoken.chosen(options.sounds)
    for place, voice in zip(words, ((60, 170), (50, 170), (35, 140)), strict=True):
        for digit in range(10):
            place[digit].append(spoken.say(digit, spoken.Voice(options.voice, *voice), kind))
    return words


def strings(words, count, most, seed):
    """Return digits (count, most), durations, mel spectrograms (count, MELS, frames) and masks (count, frames)."""
    rng = np.random.default_rng(seed)
    digits, durations = np.full((count, most), END, np.float32), np.zeros((count, most), np.float32)
    frames = LONGEST * most
    sounds, masks = np.zeros((count, frames * HOP - 1), np.float32), np.zeros((count, frames), np.float32)
    for row in range(count):
        length, at = rng.integers(2, most, endpoint=True), 0
        for place, digit in enumerate(rng.integers(10, size=length)):
            choices = words[0 if place == 0 else 2 if place == length - 1 else 1][digit]
            word = choices[rng.integers(len(choices))][: (LONGEST - 4) * HOP]
            lasting = -(-word.size // HOP) + 4
            sounds[row, at * HOP : at * HOP + word.size] = word
            digits[row, place], durations[row, place] = digit, lasting
            at += lasting
        masks[row, :at] = 1
    mels = [np.maximum(to_mel(nd.array(sounds[at : at + 50])).asnumpy(), SILENCE) for at in range(0, count, 50)]
    return digits, durations, np.concatenate(mels), masks


def speak(net, digits):
    """Return the sound of a string of digits with predicted durations."""
    tokens = nd.array([digits])
    _, durations = net(tokens, *expansion(np.zeros((1, len(digits)))))
    counts = np.rint(np.exp(durations.asnumpy()))
    mel, _ = net(tokens, *expansion(counts))
    mel = mel[:, :, : int(counts.sum())]
    magnitudes = transforms.InverseMelScale(FFT, spoken.RATE)(mel.exp())
    return transforms.GriffinLim(HOP)(magnitudes)[0]


def errors(net, digits, durations, mels, masks):
    """Return the mean errors of mel spectrograms, in decibels, and of durations, in frames."""
    found, logs = (each.asnumpy() for each in net(nd.array(digits), *expansion(durations)))
    wrong = np.abs(found - mels).mean(axis=1)[masks > 0]
    return wrong.mean() * DECIBELS, np.abs(np.exp(logs) - durations)[durations > 0].mean()


def main():
    sizes = {"epochs": (20, 6), "samples": (640, 320), "batch": (16, 8), "digits": (5, 3)}
    more = {"sounds": ("auto", "auto"), "voice": ("en-us", "en-us"), "wav": ("", "")}
    task = Task(__doc__, "mel error (dB)", 1.0, 5.0, lower=True, **sizes, **more)
    options = task.options
    words = recorded(options)
    train, test = (strings(words, n, options.digits, n) for n in (options.samples, 100))
    seen = {tuple(row) for row in train[0]}
    new = np.array([tuple(row) not in seen for row in test[0]])

    shard = mx.dist.shard(gluon.data.ArrayDataset(*train), shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")
    net = Synthesizer()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    steps = options.epochs * len(loader)
    schedule = mx.lr_scheduler.CosineScheduler(steps, 0.003, warmup_steps=steps // 10)
    adam = {"lr_scheduler": schedule, "epsilon": 1e-5}  # a small one would enlarge rounding errors of tiny gradients
    trainer = gluon.Trainer(net.collect_params(), "adam", adam, kvstore="dist_sync")

    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for digits, durations, mels, masks in loader:
            expand, places = expansion(durations.asnumpy())
            with autograd.record():
                found, logs = net(digits, expand, places)
                wrong = ((found - mels).abs().mean(axis=1) * masks).sum(axis=1) / masks.sum(axis=1)
                loss = wrong + ((logs - nd.maximum(durations, 1).log()) ** 2 * (durations > 0)).sum(axis=1)
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)))
    error, late = errors(net, *(values[new] for values in test))
    if options.wav and task.rank == 0:
        audio.save(options.wav, speak(net, [3, 1, 4, 1, 5]), spoken.RATE)
    task.finish(error, duration_error=late)


if __name__ == "__main__":
    main()
