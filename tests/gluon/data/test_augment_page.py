"""The page on augmentation: it lists every transform, and its drawing is up to date."""

import re

import numpy as np
import pytest
from doc_pages import DOCS

from neomx.gluon.data.vision import transforms


def test_every_transform_is_listed():
    page = (DOCS / "augmentation.md").read_text()
    assert set(transforms.__all__) - {*re.findall(r"\w+", page)} == {"Cast"}


def test_drawing_is_that_of_the_script(tmp_path):
    """Pixels may differ by rounding, and captions by the version of the font."""
    Image = pytest.importorskip("PIL.Image", reason="needs Pillow, which tensorboard installs")
    from scripts import draw_augmentation

    draw_augmentation.main(tmp_path / "new.png")
    old, new = (
        np.asarray(Image.open(file).convert("RGB")).astype(int)
        for file in (draw_augmentation.FILE, tmp_path / "new.png")
    )
    assert old.shape == new.shape and (np.abs(old - new) > 8).mean() < 0.02, "run scripts/draw_augmentation.py"
    assert draw_augmentation.FILE.stat().st_size < 100_000
