"""Draw the mel spectrogram of a made sound before and after augmentation: `python scripts/audio_picture.py`.

It writes docs/drawings/spec-augment.svg, which contains the spectrograms as PNG.
"""

from __future__ import annotations

import base64
import pathlib

import numpy as np

import neomx as mx
from neomx.formats import picture
from neomx.gluon.data.audio import transforms

TARGET = pathlib.Path(__file__).resolve().parents[1] / "docs" / "drawings" / "spec-augment.svg"
RATE, SECONDS = 16000, 2.0
WIDTH, HEIGHT, LEFT, TOP, GAP = 600, 160, 56, 54, 46  # pixels
COLORS = ((0, (12, 10, 36)), (0.3, (74, 28, 110)), (0.6, (190, 54, 92)), (0.85, (249, 150, 65)), (1, (252, 246, 190)))
STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #1f2430; }
    .head { font-size: 14px; font-weight: 600; }
    .small { fill: #555d70; font-size: 10px; }
    .end { text-anchor: end; }
    .frame { fill: none; stroke: #c9cfdb; }
    image { image-rendering: pixelated; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e3e6ef; }
      .small { fill: #aab2c5; }
      .frame { stroke: #4a5266; }
    }
"""


def voice() -> np.ndarray:
    """Return a sound like vowels: harmonics of a gliding pitch near resonances that move, in four syllables."""
    times = np.arange(int(RATE * SECONDS)) / RATE
    pitch = 120 + 30 * np.sin(2 * np.pi * 0.7 * times) + 10 * np.sin(2 * np.pi * 5 * times)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    resonances = (
        (500 + 250 * np.sin(2 * np.pi * 1.1 * times), 90, 1.0),
        (1500 + 600 * np.cos(2 * np.pi * 0.8 * times), 140, 0.5),
        (2700 + 300 * np.sin(2 * np.pi * 0.5 * times), 200, 0.25),
        (4200 + 200 * np.cos(2 * np.pi * 0.9 * times), 300, 0.1),
    )
    sound = np.zeros_like(times)
    for number in range(1, 45):
        strength = sum(share / (1 + ((number * pitch - at) / width) ** 2) for at, width, share in resonances)
        sound += (strength + 0.003) * np.sin(number * phase)
    syllables = np.clip(1.6 * np.sin(np.pi * 2 * times) ** 2, 0, 1) ** 2
    return (0.2 * sound * syllables).astype(np.float32)


def image(decibels: np.ndarray, low: float, high: float) -> str:
    """Return a spectrogram as a PNG in base64, with low frequencies at the bottom."""
    levels = np.clip((decibels[::-1] - low) / (high - low), 0, 1)
    stops, colors = zip(*COLORS, strict=True)
    pixels = np.stack([np.interp(levels, stops, each) for each in zip(*colors, strict=True)], -1)
    return base64.b64encode(picture.encode(pixels.round().astype(np.uint8), 9, ".png")).decode()


def panel(title: str, decibels: np.ndarray, top: int, limits: tuple[float, float]) -> str:
    """Return one spectrogram with its title and axes."""
    bottom = top + HEIGHT
    marks = [
        f'<text class="small" x="{LEFT + WIDTH * at / SECONDS:g}" y="{bottom + 14}">{at:g} s</text>' for at in (0, 1)
    ]
    return "\n  ".join(
        (
            f'<text x="{LEFT}" y="{top - 8}">{title}</text>',
            f'<image x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{image(decibels, *limits)}"/>',
            f'<rect class="frame" x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}"/>',
            f'<text class="small end" x="{LEFT - 6}" y="{top + 10}">8 kHz</text>',
            f'<text class="small end" x="{LEFT - 6}" y="{bottom}">0 Hz</text>',
            *marks,
            f'<text class="small end" x="{LEFT + WIDTH}" y="{bottom + 14}">{SECONDS:g} s</text>',
        )
    )


def main() -> None:
    mx.random.seed(2)
    sound = mx.nd.array(voice())
    spectrum = transforms.MelSpectrogram(RATE, 512, 160, n_mels=80, log="db")
    plain = spectrum(sound)
    changed = transforms.SpecAugment((2, 12), (2, 25))(plain)
    limits = float(plain.min().asscalar()), float(plain.max().asscalar())
    width, height = LEFT + WIDTH + 14, TOP + 2 * HEIGHT + GAP + 24
    first = panel("MelSpectrogram", plain.asnumpy(), TOP, limits)
    second = panel("SpecAugment((2, 12), (2, 25))", changed.asnumpy(), TOP + HEIGHT + GAP, limits)
    TARGET.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title desc">\n'
        f'  <title id="title">A mel spectrogram before and after SpecAugment</title>\n'
        f'  <desc id="desc">In the second one, two bands of frequencies and two of time are hidden.</desc>\n'
        f"  <style>{STYLE}  </style>\n"
        f'  <text class="head" x="{LEFT}" y="22">A mel spectrogram before and after SpecAugment</text>\n'
        f"  {first}\n  {second}\n</svg>\n"
    )
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
