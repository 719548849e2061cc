"""mx.test_utils: what examples take from it."""

from __future__ import annotations

import os

import numpy as np

from .context import num_gpus
from .gluon import utils
from .gluon.data.vision import MNIST


def download(
    url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False, retries: int = 5
) -> str:
    """Fetch `url` into the file `fname` (the last part of the address) in `dirname`, and give the file's name.

    A file that is there is kept unless `overwrite` is set.
    """
    name = os.path.join(dirname or "", fname or url.split("/")[-1])
    return utils.download(url, name, overwrite=overwrite, retries=retries)


def list_gpus() -> list[int]:
    """The numbers of the GPUs that are here."""
    return list(range(num_gpus()))


def get_mnist(sample: bool = False) -> dict[str, np.ndarray]:
    """MNIST's digits: `train_data` and `test_data` (n, 1, 28, 28) in [0, 1], `train_label` and `test_label`.

    `sample=True` gives the 5,000 and 1,000 that come with neomx; otherwise missing files are downloaded.
    """
    arrays: dict[str, np.ndarray] = {}
    for kind in ("train", "test"):
        images, labels = MNIST(train=kind == "train", sample=sample)[:]
        arrays[f"{kind}_data"] = images.asnumpy().transpose(0, 3, 1, 2).astype(np.float32) / 255
        arrays[f"{kind}_label"] = labels.astype(np.int8)
    return arrays
