"""Error messages of image ops for invalid input."""

import numpy as np
import pytest

import neomx as mx

i, n = mx.nd.image, mx.nd._internal


def image(*shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


RGB = image(4, 4, 3)
FACTORS = {"min_factor": 0.5, "max_factor": 1}

CALLS = [
    (lambda: i.to_tensor(image(3, 3)), "expected an image (h, w, c)"),
    (lambda: i.normalize(image(3, 3), mean=0, std=1), "expected an image (channels, h, w)"),
    (lambda: i.normalize(image(4, 3, 3), mean=0, std=1), "expected 1 or 3 channels, got 4"),
    (lambda: i.normalize(image(3, 3, 3), mean=(0, 1), std=1), "mean=(0.0, 1.0): expected 1 or 3 values"),
    (lambda: i.normalize(image(3, 3, 3), mean=0), "std=(1.0, 1.0, 1.0, 1.0): expected 1 or 3 values"),
    (lambda: i.crop(RGB, x=-1, y=0, width=2, height=2), "within the image of width 4 and height 4"),
    (lambda: i.crop(RGB, x=0, y=3, width=2, height=2), "within the image"),
    (lambda: i.crop(RGB, x=0, y=0, width=0, height=2), "within the image"),
    (lambda: i.crop(RGB, x=0, y=0, width=2), "missing argument height"),
    (lambda: i.flip_left_right(image(1, 4, 4, 3)), "expected an image (height, width, 1 or 3 channels)"),
    (lambda: i.random_flip_top_bottom(image(4, 3)), "expected an image (height, width, 1 or 3 channels)"),
    (lambda: i.random_hue(image(4, 4, 2), **FACTORS), "1 or 3 channels"),
    (lambda: i.random_contrast(image(1, 4, 4, 3), **FACTORS), "1 or 3 channels"),
    (lambda: i.random_brightness(RGB, min_factor=-1, max_factor=1), "factors of at least 0"),
    (lambda: i.random_brightness(RGB, min_factor="much", max_factor=1), "expected a number"),
    (lambda: i.adjust_lighting(RGB, alpha=(1, 2)), "expected three values"),
    (lambda: i.random_color_jitter(image(4, 4), brightness=1, contrast=1, saturation=1, hue=1), "expected an image"),
    (lambda: i.resize(RGB), "size=(): expected a positive size or (width, height)"),
    (lambda: i.resize(RGB, size=(1, 2, 3)), "expected a positive size or (width, height)"),
    (lambda: i.resize(RGB, size=(0, 2)), "expected a positive size or (width, height)"),
    (lambda: i.resize(RGB, size=2, interp=6), "interp=6: expected 0 (nearest)"),
    (lambda: i.resize(image(4, 4, 3, dtype="int32"), size=2), "expected uint8 or floating-point images"),
    (lambda: n._cvimresize(image(4, 4), w=2, h=2), "expected an image (h, w, c)"),
    (lambda: n._cvimresize(image(0, 4, 3), w=2, h=2), "expected a nonempty image"),
    (lambda: n._cvimresize(RGB, w=0, h=2), "expected w and h of at least 1"),
    (lambda: n._cvcopyMakeBorder(RGB, top=-1, bot=0, left=0, right=0), "expected nonnegative borders"),
    (lambda: n._cvcopyMakeBorder(RGB, top=1, bot=0, left=0, right=0, type=7), "type=7: expected 0 to 4"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=range(len(CALLS)))
def test_error_states_what_was_expected(call, message):
    with pytest.raises(mx.MXNetError) as error:
        call()
    assert message in str(error.value)
