"""Draw docs/drawings/augmentation.png: each image transform on one picture, with its boxes and masks.

    python scripts/draw_augmentation.py [FILE]

It needs Pillow, which draws the captions. The same code always draws the same pixels.
"""

from __future__ import annotations

import pathlib
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import neomx as mx
from neomx.gluon.data.vision import transforms as T

FILE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "drawings" / "augmentation.png"
SIDE, GAP, CAPTION, HEADING, COLUMNS = 96, 8, 18, 26, 8

MOVES: dict[str, Any] = {
    "(picture)": T.Pad(0),
    "flip": T.RandomFlipLeftRight(),
    "RandomCrop": T.RandomCrop(SIDE, 14),
    "RandomResizedCrop": T.RandomResizedCrop(SIDE, (0.4, 0.6)),
    "Pad": T.Compose([T.Pad(12, fill=(180, 180, 180)), T.Resize(SIDE)]),
    "RandomAffine": T.RandomAffine(25, 0.1, (0.8, 1.1), 15),
    "RandomPerspective": T.RandomPerspective(0.5),
    "ElasticTransform": T.ElasticTransform(60, 5),
}
COLOR: dict[str, Callable[[Any], Any]] = {
    "RandomColorJitter": T.RandomColorJitter(0.4, 0.4, 0.4, 0.1),
    "RandomGray": T.RandomGray(1),
    "GaussianBlur": T.GaussianBlur(2),
    "brightness 0.5": lambda x: T.adjust_brightness(x, 0.5),
    "contrast 0.4": lambda x: T.adjust_contrast(x, 0.4),
    "color 1.9": lambda x: T.adjust_color(x, 1.9),
    "sharpness 4": lambda x: T.adjust_sharpness(x, 4),
    "autocontrast": lambda x: T.autocontrast(T.adjust_contrast(x, 0.6)),
    "equalize": T.equalize,
    "posterize 2": lambda x: T.posterize(x, 2),
    "solarize 128": lambda x: T.solarize(x, 128),
    "invert": T.invert,
    "CutOut": T.CutOut(36),
    "RandomErasing": T.RandomErasing((0.1, 0.3), fill="noise"),
    "MixUp": lambda x: mixed(T.MixUp(1.0, 2), x),
    "CutMix": lambda x: mixed(T.CutMix(1.0, 2, layout="HWC"), x),
}
POLICIES: dict[str, Any] = {
    "RandAugment 9": T.RandAugment(2, 9),
    "RandAugment 9 ": T.RandAugment(2, 9),
    "RandAugment 20": T.RandAugment(2, 20),
    "RandAugment 20 ": T.RandAugment(2, 20),
    "imagenet": T.AutoAugment("imagenet"),
    "cifar10": T.AutoAugment("cifar10"),
    "svhn": T.AutoAugment("svhn"),
    "svhn ": T.AutoAugment("svhn"),
}
# The seed of a picture is chosen by eye: the default shows some transforms in a form that changes little.
SEEDS = {"flip": 3, "RandomColorJitter": 1, "CutOut": 3, "RandomErasing": 4, "RandomCrop": 4, "MixUp": 5}
SEEDS |= {"RandAugment 9": 7, "RandAugment 9 ": 3, "RandAugment 20": 11, "RandAugment 20 ": 9}
SEEDS |= {"imagenet": 12, "cifar10": 8, "svhn": 6}


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Return a picture of a house, and the mask of the house."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    picture = np.stack([120 + 90 * y, 170 + 50 * y, 235 - 20 * y], 2)
    house = ((x > 0.2) & (x < 0.58) & (y > 0.48) & (y < 0.8)) | ((y > 0.26) & (y < 0.5) & (abs(x - 0.39) < y - 0.24))
    areas = [
        ((x - 0.82) ** 2 + (y - 0.18) ** 2 < 0.01, (250, 215, 80)),
        (y > 0.72 + 0.08 * np.sin(5 * x + 1), (95, 160, 70)),
        ((abs(x - 0.78) < 0.025) & (y > 0.55) & (y < 0.82), (110, 75, 45)),
        ((x - 0.78) ** 2 + (y - 0.5) ** 2 < 0.017, (45, 115, 55)),
        (house, (200, 90, 70)),
        (house & (y < 0.5), (120, 60, 55)),
        ((abs(x - 0.3) < 0.045) & (abs(y - 0.6) < 0.045), (250, 240, 190)),
        ((abs(x - 0.47) < 0.04) & (y > 0.62) & (y < 0.8), (90, 60, 50)),
    ]
    for where, color in areas:
        picture[where] = color
    return picture.astype("uint8"), house.astype("uint8")


def night() -> np.ndarray:
    """Return a picture to mix with: mountains at night."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    picture = np.stack([20 + 30 * y, 25 + 35 * y, 70 + 60 * y], 2)
    picture[(x - 0.3) ** 2 + (y - 0.25) ** 2 < 0.016] = 240, 240, 225
    picture[y > 0.55 + 0.35 * abs(x - 0.6)] = 60, 65, 85
    return picture.astype("uint8")


def mixed(mix: Any, image: Any) -> Any:
    """Return the picture mixed with the other one."""
    return mix.of_items((image, 0), (mx.nd.array(night(), dtype="uint8"), 1))[0]


def seed(name: str) -> None:
    """Seed all generators that transforms draw from outside of a loader."""
    number = SEEDS.get(name, sum(name.encode()))
    mx.random.seed(number)
    random.seed(number)
    np.random.seed(number)


def tile(name: str, transform: Any, with_boxes: bool) -> Image.Image:
    """Return one transformed picture with its caption."""
    picture, mask = scene()
    image = mx.nd.array(picture, dtype="uint8")
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    boxes = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], "float32")
    seed(name)
    if with_boxes:
        image, boxes, mask = transform(image, boxes, mask)
    else:
        image = transform(image)
    pixels = image.asnumpy().clip(0, 255).astype("uint8")
    if with_boxes:
        outline = mask - np.minimum.reduce([np.roll(mask, shift, axis) for shift in (-1, 1) for axis in (0, 1)])
        pixels[outline > 0] = 255, 255, 255
    shown = Image.new("RGB", (SIDE + GAP, SIDE + CAPTION), "white")
    shown.paste(Image.fromarray(pixels), (GAP // 2, 0))
    draw = ImageDraw.Draw(shown)
    for left, top, right, bottom in boxes if with_boxes else ():
        draw.rectangle((left + GAP // 2, top, right - 1 + GAP // 2, bottom - 1), outline=(220, 0, 160))
    draw.text(((SIDE + GAP) / 2, SIDE + 3), name.strip(), "black", ImageFont.load_default(10), anchor="ma")
    return shown


def sheet() -> Image.Image:
    """Return all pictures, in three groups."""
    groups = {
        "Transforms that move pixels, with a box (magenta) and the outline of a mask (white)": (MOVES, True),
        "Colors, erased parts and mixed pictures": (COLOR, False),
        "RandAugment with two magnitudes, and AutoAugment with its three policies": (POLICIES, True),
    }
    heights = [HEADING + -(-len(group) // COLUMNS) * (SIDE + CAPTION) for group, _ in groups.values()]
    result = Image.new("RGB", (COLUMNS * (SIDE + GAP), sum(heights) + GAP), "white")
    top = 0
    for (heading, (group, with_boxes)), height in zip(groups.items(), heights, strict=True):
        ImageDraw.Draw(result).text((GAP // 2, top + 7), heading, "black", ImageFont.load_default(13))
        for i, (name, transform) in enumerate(group.items()):
            place = i % COLUMNS * (SIDE + GAP), top + HEADING + i // COLUMNS * (SIDE + CAPTION)
            result.paste(tile(name, transform, with_boxes), place)
        top += height
    return result


def main(file: str | pathlib.Path = FILE) -> None:
    """Write the drawing to a file."""
    sheet().save(file, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
