"""Random image ops: distribution of results, reproducibility by seed, unchanged shape and dtype."""

import numpy as np
import pytest

import neomx as mx

image = mx.nd.image
GREY = np.ones((2, 2, 3), "float32")
COLOURS = np.arange(24, dtype="float32").reshape(2, 4, 3) / 24

CALLS = {
    "random_brightness": {"min_factor": 0.5, "max_factor": 2},
    "random_contrast": {"min_factor": 0.5, "max_factor": 2},
    "random_saturation": {"min_factor": 0.5, "max_factor": 2},
    "random_hue": {"min_factor": 0.5, "max_factor": 2},
    "random_lighting": {"alpha_std": 0.1},
    "random_color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.3},
    "random_flip_left_right": {},
    "random_flip_top_bottom": {},
}


def draws(call, count=1500):
    return np.array([call().asnumpy() for _ in range(count)])


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
def test_shape_dtype_and_seed(name, dtype):
    data = mx.nd.array(COLOURS * 255, dtype=dtype)
    call = getattr(image, name)
    mx.random.seed(3)
    first = [call(data, **CALLS[name]) for _ in range(8)]
    mx.random.seed(3)
    again = [call(data, **CALLS[name]) for _ in range(8)]
    for a, b in zip(first, again, strict=True):
        assert a.shape == data.shape and a.dtype == data.dtype
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    assert len({a.asnumpy().tobytes() for a in first}) > 1
    np.testing.assert_array_equal(data.asnumpy(), mx.nd.array(COLOURS * 255, dtype=dtype).asnumpy())


def test_brightness_is_uniform():
    mx.random.seed(0)
    factors = draws(lambda: image.random_brightness(mx.nd.array(GREY), min_factor=0.5, max_factor=2))[:, 0, 0, 0]
    assert factors.min() >= 0.5 and factors.max() <= 2
    assert factors.mean() == pytest.approx(1.25, abs=0.05) and factors.std() == pytest.approx(1.5 / 12**0.5, abs=0.03)


def test_color_jitter_with_brightness_only():
    mx.random.seed(0)
    jitter = {"brightness": 0.4, "contrast": 0, "saturation": 0, "hue": 0}
    factors = draws(lambda: image.random_color_jitter(mx.nd.array(GREY), **jitter))[:, 0, 0, 0]
    assert factors.min() >= 0.6 and factors.max() <= 1.4
    assert factors.mean() == pytest.approx(1, abs=0.03) and factors.std() == pytest.approx(0.8 / 12**0.5, abs=0.02)


def test_color_jitter_without_arguments_is_identity():
    # MXNet leaves the result uninitialized in this case.
    data = mx.nd.array(COLOURS)
    result = image.random_color_jitter(data, brightness=0, contrast=0, saturation=0, hue=0)
    np.testing.assert_array_equal(result.asnumpy(), COLOURS)
    result[:] = 0
    np.testing.assert_array_equal(data.asnumpy(), COLOURS)


def test_color_jitter_order_is_random():
    # Brightness and hue do not commute with clipping at 255, so the order determines which values appear.
    mx.random.seed(0)
    data = mx.nd.array(np.full((1, 1, 3), (200, 100, 50)), dtype="uint8")
    jitter = {"brightness": 0.9, "contrast": 0.9, "saturation": 0, "hue": 0}
    values = draws(lambda: image.random_color_jitter(data, **jitter), 300)
    assert len(np.unique(values.reshape(300, -1), axis=0)) > 100


def test_lighting_is_normal():
    mx.random.seed(0)
    moves = draws(lambda: image.random_lighting(mx.nd.array(GREY), alpha_std=0.1), 3000)[:, 0, 0] - 1
    assert moves.mean(0) == pytest.approx(np.zeros(3), abs=0.25)
    assert moves[:, 0].std() == pytest.approx(3.17, rel=0.06)
    assert np.corrcoef(moves[:, 0], moves[:, 1])[0, 1] > 0.9  # mostly brightness


@pytest.mark.parametrize(("name", "axis"), [("random_flip_left_right", 1), ("random_flip_top_bottom", 0)])
def test_half_of_the_images_are_flipped(name, axis):
    mx.random.seed(0)
    results = draws(lambda: getattr(image, name)(mx.nd.array(COLOURS)), 600)
    flipped = (results == np.flip(COLOURS, axis)).all((1, 2, 3))
    assert (flipped | (results == COLOURS).all((1, 2, 3))).all()
    assert flipped.mean() == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("name", ["saturation", "hue"])
def test_color_ops_leave_one_channel_unchanged(name):
    data = mx.nd.array(COLOURS[:, :, :1])
    result = getattr(image, f"random_{name}")(data, min_factor=0.5, max_factor=0.5)
    np.testing.assert_array_equal(result.asnumpy(), data.asnumpy())
    np.testing.assert_array_equal(image.adjust_lighting(data, alpha=(1, 2, 3)).asnumpy(), data.asnumpy())


def test_flip_of_odd_width():
    # MXNet leaves the middle column uninitialized.
    data = np.arange(27, dtype="float32").reshape(3, 3, 3)
    np.testing.assert_array_equal(image.flip_left_right(mx.nd.array(data)).asnumpy(), data[:, ::-1])
    np.testing.assert_array_equal(image.flip_top_bottom(mx.nd.array(data)).asnumpy(), data[::-1])


def test_gradients_of_to_tensor_and_resize():
    # MXNet's gradients fail; these are the derivatives.
    x = mx.nd.array(np.zeros((2, 4, 3), "float32"))
    x.attach_grad()
    with mx.autograd.record():
        y = image.to_tensor(x)
    y.backward(mx.nd.array(np.arange(24).reshape(3, 2, 4) * 255))
    np.testing.assert_allclose(x.grad.asnumpy(), np.arange(24).reshape(3, 2, 4).transpose(1, 2, 0), rtol=1e-6)
    for interp in range(6):
        with mx.autograd.record():
            y = image.resize(x, size=(5, 3), interp=interp)
        y.backward()
        assert x.grad.asnumpy().sum() == pytest.approx(45, rel=1e-5)  # each pixel is a mean with weights of sum 1
