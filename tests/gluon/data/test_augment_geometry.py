"""Transforms that move pixels, compared with SciPy, and what they do to boxes and masks."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

import neomx as mx
from neomx.gluon.data.vision import transforms as T

# grid_sample computes positions in float32, as fractions of the side: 1e-7 of 40 pixels, times steps of up to 255.
TOLERANCE = 5e-3


def smooth(h=24, w=32, channels=3):
    y, x = np.mgrid[:h, :w]
    waves = [np.sin(x / (3 + c)) * np.cos(y / (4 - c)) for c in range(channels)]
    return (127 + 120 * np.stack(waves, 2)).astype("float32")


def nd(values):
    return mx.nd.array(values, dtype=values.dtype)


def by_scipy(image, back, fill=0.0):
    """Return the image moved by a matrix on (x, y, 1), whose origin is the corner of the upper left pixel."""
    h, w, _ = image.shape
    y, x = np.mgrid[:h, :w] + 0.5
    x, y, scale = np.tensordot(back, np.stack([x, y, np.ones_like(x)]), 1)
    x, y = x / scale - 0.5, y / scale - 0.5
    planes = [
        ndimage.map_coordinates(c, [y, x], order=1, mode="grid-constant", cval=fill) for c in np.moveaxis(image, 2, 0)
    ]
    return np.stack(planes, 2)


@pytest.mark.parametrize("fill", [0, 50])
@pytest.mark.parametrize(
    ("degrees", "translate", "scale", "shear"),
    [(30, 0, 1, 0), (0, 0, 1.3, 0), (0, 0, 1, -20), (-170, 0, 0.7, 25), (90, 0, 1, 0), (12, 0.2, 0.9, 7)],
)
def test_affine_agrees_with_scipy(degrees, translate, scale, shear, fill):
    image = smooth()
    h, w, _ = image.shape
    transform = T.RandomAffine((degrees,) * 2, translate, scale, (shear,) * 2, fill=fill)
    mx.random.seed(3)
    found = transform(nd(image)).asnumpy()
    mx.random.seed(3)
    drawn = mx.random.rng().uniform(size=5)[3:] * 2 - 1  # after the angles and the scale
    shift = drawn * translate * (w, h)

    def matrix(rows, offset=(0, 0)):
        return np.vstack([np.column_stack([rows, offset]), [0, 0, 1]])

    turn, slope = np.radians(degrees), np.tan(np.radians(shear))
    rotation = [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]  # counterclockwise, as y points down
    forward = matrix(np.eye(2), shift) @ matrix(np.eye(2), (w / 2, h / 2)) @ matrix(rotation)
    forward = forward @ matrix([[1, slope], [0, 1]]) @ matrix(np.eye(2) * scale) @ matrix(np.eye(2), (-w / 2, -h / 2))
    np.testing.assert_allclose(found, by_scipy(image, np.linalg.inv(forward), fill), atol=TOLERANCE)


def test_rotation_direction_is_that_of_imrotate():
    image = smooth(25, 25)
    found = T.RandomAffine((30, 30))(nd(image)).asnumpy()
    tensor = nd(np.ascontiguousarray(image.transpose(2, 0, 1)))
    np.testing.assert_allclose(found, T.Rotate(30)(tensor).asnumpy().transpose(1, 2, 0), atol=TOLERANCE)


def test_perspective_agrees_with_scipy_and_moves_corners_inward():
    image = smooth()
    h, w, _ = image.shape
    corners = np.array([[0, 0, 1], [w, 0, 1], [w, h, 1], [0, h, 1]])
    seen = []
    for seed in range(20):
        transform = T.RandomPerspective(0.6, fill=9)
        mx.random.seed(seed)
        found = transform(nd(image)).asnumpy()
        mx.random.seed(seed)
        back = transform._draw(h, w).back
        np.testing.assert_allclose(found, by_scipy(image, back, 9), atol=5 * TOLERANCE)  # the division adds rounding
        moved = corners @ np.linalg.inv(back).T
        moved = moved[:, :2] / moved[:, 2:]
        inward = (moved - corners[:, :2]) * [[1, 1], [-1, 1], [-1, -1], [1, -1]] / (w / 2, h / 2)
        assert (inward > -1e-9).all() and (inward < 0.6).all()
        seen.append(inward)
    assert 0.25 < np.mean(seen) < 0.35 and np.max(seen) > 0.55


@pytest.mark.parametrize(("alpha", "sigma"), [(30, 4), (8, 1.5), (300, 40)])
def test_elastic_deformation_agrees_with_scipy(alpha, sigma):
    image = smooth()
    h, w, _ = image.shape
    mx.random.seed(5)
    found = T.ElasticTransform(alpha, sigma, fill=7)(nd(image)).asnumpy()
    mx.random.seed(5)
    noise = mx.random.rng().uniform(-1, 1, (2, h, w))
    dx, dy = (alpha * ndimage.gaussian_filter(each, sigma, mode="reflect", truncate=4) for each in noise)
    y, x = np.mgrid[:h, :w]
    planes = [
        ndimage.map_coordinates(c, [y + dy, x + dx], order=1, mode="grid-constant", cval=7)
        for c in np.moveaxis(image, 2, 0)
    ]
    assert np.abs([dx, dy]).max() > 0.5
    np.testing.assert_allclose(found, np.stack(planes, 2), atol=2 * TOLERANCE)


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0, 2.7, 9.0])
def test_blur_agrees_with_scipy(sigma):
    image = smooth()
    found = T.GaussianBlur(sigma)(nd(image)).asnumpy()
    expected = np.stack([ndimage.gaussian_filter(c, sigma, mode="reflect") for c in np.moveaxis(image, 2, 0)], 2)
    np.testing.assert_allclose(found, expected, atol=1e-3)  # float32 sums of values up to 255
    whole = T.GaussianBlur(sigma)(nd(image.astype("uint8"))).asnumpy()
    assert whole.dtype == np.uint8 and np.abs(whole - found).max() < 2


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "float16"])
@pytest.mark.parametrize(
    "transform",
    [
        T.RandomAffine(),
        T.RandomPerspective(0),
        T.ElasticTransform(0),
        T.Pad(0),
        T.RandomCrop((32, 24)),
        T.GaussianBlur(0),
        T.RandAugment(0),
        T.AutoAugment([[("Rotate", 0.0, 9)]]),
        T.AutoAugment([[(name, 1.0, 0) for name in ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")]]),
        T.RandomGray(0),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_identity_is_exact(transform, dtype):
    image = nd(smooth().astype(dtype))
    found = transform(image)
    assert found.dtype is image.dtype
    np.testing.assert_array_equal(found.asnumpy(), image.asnumpy())
    if not isinstance(transform, T.Pad):
        found[:] = 0
        assert image.asnumpy().any(), "the result must not share the memory of the image"


def test_whole_pixels_move_exactly():
    image = smooth(20, 20).astype("uint8")
    quarter = T.RandomAffine((90, 90))(nd(image)).asnumpy()
    np.testing.assert_array_equal(quarter, np.rot90(image))
    padded = T.Pad((1, 2, 3, 4), fill=(7, 8, 9))(nd(image)).asnumpy()
    expected = np.stack(
        [np.pad(c, ((2, 4), (1, 3)), constant_values=7 + i) for i, c in enumerate(np.moveaxis(image, 2, 0))]
    )
    np.testing.assert_array_equal(padded, np.moveaxis(expected, 0, 2))


def test_random_crop_is_a_window_of_the_padded_image():
    image = smooth(10, 12).astype("uint8") + 1
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    places = set()
    for _ in range(200):
        found = T.RandomCrop((12, 10), 2)(nd(image)).asnumpy()
        (place,) = [(x, y) for x in range(5) for y in range(5) if np.array_equal(padded[y : y + 10, x : x + 12], found)]
        places.add(place)
    assert len(places) == 25
    assert T.RandomCrop(20)(nd(image)).shape == (20, 20, 3)  # enlarged


def test_batches_have_separate_random_numbers():
    batch = nd(np.stack([smooth()] * 3))
    for transform in (T.RandomAffine(40), T.RandAugment(), T.ElasticTransform(), T.CutOut(5), T.GaussianBlur()):
        found = transform(batch).asnumpy()
        assert found.shape == batch.shape and (found[0] != found[1]).any() and (found[1] != found[2]).any()


# ---- boxes and masks ----


def mask_box(mask):
    """Return xmin, ymin, xmax, ymax of the true pixels."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) if rows.size else None


STRAIGHT = {
    "flip": lambda: T.RandomFlipLeftRight(),
    "flip_down": lambda: T.RandomFlipTopBottom(),
    "resize": lambda: T.Resize((40, 30)),
    "shrink": lambda: T.Resize(20),
    "center": lambda: T.CenterCrop((20, 18), min_visible=0),
    "crop": lambda: T.CropResize(3, 4, 20, 19, (30, 25), min_visible=0),
    "random_crop": lambda: T.RandomCrop((25, 20), 4, min_visible=0),
    "resized_crop": lambda: T.RandomResizedCrop((24, 24), (0.3, 0.9), min_visible=0),
    "pad": lambda: T.Pad((3, 1, 0, 5)),
    "shift": lambda: T.RandomAffine(0, 0.3, min_visible=0),
}
TURNING = {
    "affine": lambda: T.RandomAffine(45, 0.1, (0.8, 1.2), 15, min_visible=0),
    "perspective": lambda: T.RandomPerspective(0.3, min_visible=0),
    "policy": lambda: T.RandAugment(3, 20, min_visible=0),
    "compose": lambda: T.Compose(
        [
            T.RandomFlipLeftRight(),
            T.RandomBrightness(0.2),
            T.RandomAffine(20, min_visible=0),
            T.GaussianBlur(),
            T.RandomApply(T.Pad(3), 0.5),
            T.ToTensor(),
            T.RandomRotation((-20, 20), zoom_out=True, rotate_with_proba=0.5, min_visible=0),
        ]
    ),
}


@st.composite
def scenes(draw):
    """An image of 32 x 28 with one object, as a box and as a mask, and a seed."""
    x, y = draw(st.integers(0, 18)), draw(st.integers(0, 16))
    box = x, y, draw(st.integers(x + 10, 32)), draw(st.integers(y + 10, 28))
    mask = np.zeros((28, 32), "uint8")
    mask[box[1] : box[3], box[0] : box[2]] = 200
    return np.array([box], "float32"), mask, draw(st.integers(0, 2**31))


def moved(transform, box, mask, seed, colors=False):
    """Return the moved box and the box of the moved mask; None if they vanish. The mask must match the image."""
    mx.random.seed(seed)
    np.random.seed(seed % 2**31)
    image = nd(np.repeat(mask[:, :, None], 3, 2))
    found, boxes, masks = transform(image, box, mask)
    assert set(np.unique(masks)) <= {0, 200}  # values are kept
    size = found.shape[:2] if found.shape[2] == 3 else found.shape[1:]
    assert masks.shape == size
    if not colors:  # the image shows the object, with a blurred outline
        shown = (found.asnumpy() > found.asnumpy().max() / 2).any(2 if found.shape[2] == 3 else 0)
        assert not (ndimage.binary_erosion(masks, iterations=2) & ~shown).any()
        assert not (shown & ~ndimage.binary_dilation(masks, iterations=2)).any() or not masks.any()
    if len(boxes):
        assert (boxes[0, :2] >= 0).all() and (boxes[0, [2, 3]] <= size[::-1]).all()
    return (boxes[0, :4] if len(boxes) else None), mask_box(masks), size


@pytest.mark.parametrize("name", STRAIGHT)
@settings(max_examples=25, deadline=None)
@given(scene=scenes())
def test_boxes_agree_with_masks(name, scene):
    """Without rotation, both boxes are equal up to the size of a pixel."""
    box, seen, _ = moved(STRAIGHT[name](), *scene)
    if seen is None:  # less than a pixel is left
        assert box is None or (box[2:] - box[:2]).min() <= 2
        return
    np.testing.assert_allclose(box, seen, atol=1.01)


@pytest.mark.parametrize("name", TURNING)
@settings(max_examples=25, deadline=None)
@given(scene=scenes())
def test_turned_boxes_contain_masks(name, scene):
    """A turned box is the box of its turned corners. It is that of the mask if all of it is in the image."""
    box, seen, (height, width) = moved(TURNING[name](), *scene, colors=name == "policy")
    if seen is None:
        return
    assert box is not None and (box[:2] <= seen[:2] + 1).all() and (box[2:] >= seen[2:] - 1).all()
    if (box[:2] > 0).all() and box[2] < width and box[3] < height and name != "compose":
        # A corner of 50 degrees reaches up to 2 pixels further than the last pixel whose center lies in it.
        np.testing.assert_allclose(box, seen, atol=2.5)


@settings(max_examples=25, deadline=None)
@given(scene=scenes())
def test_elastic_boxes_are_those_of_masks(scene):
    box, seen, _ = moved(T.ElasticTransform(40, 4, min_visible=0), *scene)
    np.testing.assert_array_equal(box, seen)


@pytest.mark.parametrize("zooms", [(False, False), (True, False), (False, True)])
def test_rotated_tensor_has_rotated_box_and_masks(zooms):
    mask = np.zeros((1, 30, 40), "float32")
    mask[0, 10:20, 14:30] = 1
    transform = T.Rotate(25, *zooms, min_visible=0)
    found, boxes, masks = transform(nd(mask), np.array([[14, 10, 30, 20, 5.0]]), mask.astype("int64"))
    assert masks.shape == (1, 30, 40) and masks.dtype == np.int64 and boxes[0, 4] == 5
    assert np.abs((found.asnumpy()[0] > 0.5) - masks[0]).mean() < 0.02
    np.testing.assert_allclose(boxes[0, :4], mask_box(masks[0]), atol=1.5)


def test_boxes_do_not_change_the_image():
    image, box = nd(smooth().astype("uint8")), np.array([[2.0, 3, 20, 20]])
    for make in (*STRAIGHT.values(), *TURNING.values(), T.ElasticTransform):
        transform = make()
        for seed in range(4):
            results = []
            for args in ((), (box,), (box, np.zeros((24, 32)))):
                mx.random.seed(seed)
                np.random.seed(seed)
                random.seed(seed)
                found = transform(image, *args)
                results.append((found[0] if args else found).asnumpy())
            np.testing.assert_array_equal(results[0], results[1])
            np.testing.assert_array_equal(results[0], results[2])


def test_boxes_that_are_hardly_visible_are_dropped_with_their_values():
    image = nd(smooth(20, 20))
    boxes = np.array(
        [[0, 0, 10, 10, 1, 11], [6, 0, 10, 10, 2, 12], [0, 0, 6, 6, 3, 13], [0, 0, 0, 5, 4, 14]], "float64"
    )

    def left(min_visible):
        crop = T.CropResize(5, 0, 15, 20, min_visible=min_visible)
        return crop(image, boxes)[1]

    np.testing.assert_array_equal(left(0.5), [[0, 0, 5, 10, 1, 11], [1, 0, 5, 10, 2, 12]])
    np.testing.assert_array_equal(left(0.51)[:, 4], [2])
    np.testing.assert_array_equal(left(0.1)[:, 4:], [[1, 11], [2, 12], [3, 13]])  # a box without area has nothing left
    assert left(0.1).dtype == np.float64 and boxes[0, 0] == 0
    none = T.CropResize(12, 12, 5, 5)(image, boxes)[1]
    assert none.shape == (0, 6) and T.Pad(1)(image, none)[1].shape == (0, 6)


def test_kinds_of_arrays_are_kept():
    image, boxes, masks = nd(smooth()), nd(np.array([[1, 2, 9, 9]], "int32")), nd(np.ones((24, 32, 5), "int32"))
    transform = T.RandomAffine(10)
    for first, second in ((boxes, masks), (boxes.asnumpy(), masks.asnumpy())):
        found = transform(image, first, second)
        assert [type(each) for each in found] == [mx.nd.NDArray, type(first), type(second)]
        assert found[1].dtype == np.float32 and found[2].dtype == np.int32 and found[2].shape == (24, 32, 5)
    unmoved = T.RandomApply(transform, 0)(image, boxes)[1]
    assert unmoved.dtype is np.float32 and unmoved.shape == (1, 4)  # a loader batches equal dtypes
    assert len(transform(image, boxes)) == len(transform(image, masks=masks)) == 2
    assert transform(image, masks=masks > 0)[1].shape == masks.shape
    assert isinstance(transform(image), mx.nd.NDArray)


def test_numpy_mode():
    with mx.util.np_shape(True), mx.util.np_array(True):
        image, masks = mx.np.array(smooth()), mx.np.ones((24, 32))
        for transform in (T.RandAugment(), T.RandomFlipLeftRight(), T.RandomCrop(20, 2), T.ElasticTransform()):
            found = transform(image, np.array([[1.0, 2, 9, 9]]), masks)
            assert isinstance(found[0], mx.np.ndarray) and isinstance(found[2], mx.np.ndarray)
            assert isinstance(transform(image), mx.np.ndarray)


def test_dataset_of_images_with_boxes():
    items = [(nd(smooth()), np.array([[1.0, 2, 9, 9, i]]), np.full((24, 32), i)) for i in range(4)]
    dataset = mx.gluon.data.SimpleDataset(items).transform(
        T.Compose([T.RandomFlipLeftRight(), T.Resize(16), T.ToTensor()])
    )
    images, boxes, masks = next(iter(mx.gluon.data.DataLoader(dataset, 4)))
    assert images.shape == (4, 3, 16, 16) and boxes.shape == (4, 1, 5) and masks.shape == (4, 16, 16)
    assert masks[3, 0, 0].asscalar() == 3 and {*boxes[:, 0, 0].asnumpy()} <= {0.5, 11.5}


# ---- errors ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandomAffine(-3), "degrees=-3: expected a number of at least 0"),
        (lambda: T.RandomAffine((5, -5)), r"degrees=\(5, -5\): expected a number between -360 and 360 or a range"),
        (lambda: T.RandomAffine(scale=0), "scale=0: expected a number"),
        (lambda: T.RandomAffine(scale=(1.2, 0.8)), "scale="),
        (lambda: T.RandomAffine(shear=90), "shear=90"),
        (lambda: T.RandomAffine(translate=1.5), "translate=1.5"),
        (lambda: T.RandomAffine(translate=(0.1, 0.1, 0.1)), "expected a number or a pair"),
        (lambda: T.RandomAffine(fill="red"), "fill='red': expected a number, or one number per channel"),
        (lambda: T.RandomAffine(min_visible=2), "min_visible=2: expected a number of at least 0 and at most 1"),
        (lambda: T.RandomAffine(float("nan")), "degrees=nan"),
        (lambda: T.RandomPerspective(0.7), "distortion=0.7"),
        (lambda: T.ElasticTransform(-1), "alpha=-1"),
        (lambda: T.ElasticTransform(1, -1), "sigma=-1"),
        (lambda: T.GaussianBlur((2, 1)), "sigma="),
        (lambda: T.Pad(-1), "pad=-1: expected whole numbers"),
        (lambda: T.Pad((1, 2, 3)), "pad="),
        (lambda: T.Pad(1.5), "pad=1.5"),
        (lambda: T.RandomCrop(0), "size=0: expected a positive size"),
        (lambda: T.CenterCrop(4, min_visible=-1), "min_visible=-1"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_images_boxes_and_masks():
    affine, image = T.RandomAffine(10), nd(smooth())
    with pytest.raises(TypeError, match="expected an image as an mx.nd or mx.np array, received ndarray"):
        affine(smooth())
    with pytest.raises(TypeError, match="expected an image of uint8 or floats from 0 to 255, received int32"):
        affine(nd(smooth().astype("int32")))
    for shape in ((4, 4), (0, 4, 3), (1, 1, 4, 4, 3)):
        with pytest.raises(ValueError, match=r"expected an image \(height, width, channels\)"):
            affine(mx.nd.NDArray(torch.zeros(shape)))
    with pytest.raises(ValueError, match="expected one number for each of the 3 channels"):
        T.RandomAffine(10, fill=(1, 2))(image)
    with pytest.raises(ValueError, match="boxes and masks belong to one image"):
        affine(nd(smooth()[None]), np.zeros((1, 4)))
    for boxes in (np.zeros(4), np.zeros((2, 3)), np.array([["a"] * 4]), np.zeros((1, 1, 4))):
        with pytest.raises(ValueError, match=r"boxes: expected numbers of shape \(n, 4 or more\)"):
            affine(image, boxes)
    for boxes in ([[5, 0, 4, 9]], [[0, 0, np.nan, 9]]):
        with pytest.raises(ValueError, match="boxes: expected xmin <= xmax and ymin <= ymax, received"):
            affine(image, np.array(boxes))
    for shape in ((24, 31), (3, 24, 32), (24,)):
        with pytest.raises(ValueError, match=r"masks: expected shape \(h, w\) or \(h, w, n\) with the height 24 and"):
            affine(image, masks=np.zeros(shape))
    with pytest.raises(TypeError, match="unexpected keyword"):
        affine(image, labels=1)
