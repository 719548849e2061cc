"""Pictures for the programs, made with numpy and zlib alone, since MXNet's virtual environment has no OpenCV."""

import os
import random
import struct
import zlib

import numpy as np

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "pictures")


def fixture(name):
    with open(os.path.join(FIXTURES, name), "rb") as file:
        return file.read()


def pixels(number=0, height=12, width=16):
    """A picture of uint8, another for each number."""
    y, x = np.mgrid[:height, :width]
    return ((x * 7 + y * 13 + number * 29)[:, :, None] * np.array([1, 2, 3]) % 256).astype("uint8")


def png(values):
    """The picture as a PNG file."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def seed(number):
    """All that augmenters draw from."""
    random.seed(number)
    np.random.seed(number)
