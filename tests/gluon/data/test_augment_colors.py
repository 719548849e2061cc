"""Transforms of colors and policies, compared with Pillow, and transforms that erase."""

import numpy as np
import pytest
from scipy import ndimage

import neomx as mx
from neomx.gluon.data.vision import transforms as T
from neomx.gluon.data.vision.transforms import policy

Image = pytest.importorskip("PIL.Image", reason="needs Pillow, which tensorboard installs")
from PIL import ImageEnhance, ImageOps  # noqa: E402


def photo(seed=0, h=24, w=20, channels=3, low=30, high=220):
    """A smooth random image that does not span all values."""
    noise = np.random.RandomState(seed).uniform(size=(h, w, channels))
    waves = ndimage.gaussian_filter(noise, (2, 2, 0.3))
    waves = (waves - waves.min()) / (waves.max() - waves.min())
    return (low + waves * (high - low)).astype("uint8")


IMAGES = {
    "photo": photo(),
    "large": photo(4, 48, 40),
    "noise": np.random.RandomState(1).randint(0, 256, (17, 13, 3)).astype("uint8"),
    "gray": photo(2, channels=1),
    "flat": np.full((5, 6, 3), 77, "uint8"),
    "two": np.repeat(np.eye(9, dtype="uint8")[:, :, None] * 250, 3, 2),
    "dot": np.full((1, 1, 3), 99, "uint8"),
    "row": photo(3, h=2, w=9),
}


def nd(values):
    return mx.nd.array(values, dtype=values.dtype)


def by_pillow(change, pixels):
    gray = pixels.shape[2] == 1
    result = change(Image.fromarray(pixels[:, :, 0] if gray else pixels))
    return np.asarray(result)[:, :, None] if gray else np.asarray(result)


CHANGES = {
    "autocontrast": (T.autocontrast, ImageOps.autocontrast),
    "equalize": (T.equalize, ImageOps.equalize),
    "invert": (T.invert, ImageOps.invert),
}
for bits in (1, 3, 4, 8):
    CHANGES[f"posterize_{bits}"] = lambda x, b=bits: T.posterize(x, b), lambda p, b=bits: ImageOps.posterize(p, b)
for threshold in (0, 100, 128, 256):
    CHANGES[f"solarize_{threshold}"] = (
        lambda x, t=threshold: T.solarize(x, t),
        lambda p, t=threshold: ImageOps.solarize(p, t),
    )
for factor in (0.0, 0.1, 0.7, 1.0, 1.5, 1.9):
    for name in ("Brightness", "Color", "Contrast", "Sharpness"):
        CHANGES[f"{name.lower()}_{factor}"] = (
            lambda x, f=factor, n=name: getattr(T, f"adjust_{n.lower()}")(x, f),
            lambda p, f=factor, n=name: getattr(ImageEnhance, n)(p).enhance(f),
        )


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("change", CHANGES)
def test_colors_equal_those_of_pillow(change, image):
    ours, theirs = CHANGES[change]
    found = ours(nd(IMAGES[image])).asnumpy()
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, by_pillow(theirs, IMAGES[image]))


@pytest.mark.parametrize("change", CHANGES)
def test_float_images_are_changed_in_the_same_way(change):
    """uint8 results are truncated (after rounded gray values), and clipped, so floats differ by up to 2."""
    ours, _ = CHANGES[change]
    pixels = photo()
    found, whole = ours(nd(pixels.astype("float32"))), ours(nd(pixels)).asnumpy()
    assert found.dtype is np.float32
    assert np.abs(found.asnumpy().clip(0, 255) - whole).max() <= 2
    batch = ours(nd(np.stack([pixels, pixels[::-1]]))).asnumpy()
    np.testing.assert_array_equal(batch[0], whole)


def test_random_gray():
    image = nd(photo())
    found = [T.RandomGray(0.3)(image).asnumpy() for _ in range(300)]
    gray = by_pillow(lambda p: p.convert("L").convert("RGB"), photo())
    kinds = [np.array_equal(each, gray) for each in found]
    assert all(kind or np.array_equal(each, photo()) for kind, each in zip(kinds, found, strict=True))
    assert 60 < sum(kinds) < 120  # 90 expected, with a standard deviation of 8


# ---- policies ----


def enhance(name, factor):
    return lambda p: getattr(ImageEnhance, name)(p).enhance(factor)


def test_operations_of_policies_have_the_published_strengths():
    """The operations at magnitude 6 of 9 (2/3 of the strongest). Signed ones give one of two results."""
    expected = {
        "Posterize": [lambda p: ImageOps.posterize(p, 5)],  # 8 - 2/3 * 4, rounded
        "Solarize": [lambda p: ImageOps.solarize(p, 256 / 3)],
        "AutoContrast": [ImageOps.autocontrast],
        "Equalize": [ImageOps.equalize],
        "Invert": [ImageOps.invert],
        "Identity": [lambda p: p],
    }
    for name in ("Brightness", "Color", "Contrast", "Sharpness"):
        expected[name] = [enhance(name, 0.4), enhance(name, 1.6)]
    assert expected.keys() == policy._COLORS.keys()
    image = photo()
    for name, changes in expected.items():
        transform = T.AutoAugment([[(name, 1.0, 6)]])
        found = {transform(nd(image)).asnumpy().tobytes() for _ in range(12)}
        assert found == {by_pillow(change, image).tobytes() for change in changes}, name


def test_moves_of_policies_have_the_published_strengths():
    """Compared with Pillow's bilinear transform, away from the border, which it treats in another way."""
    image = photo(h=40, w=40)
    h, w = image.shape[:2]
    backs = {
        "ShearX": lambda s: (1, 0.2 * s, 0, 0, 1, 0),
        "ShearY": lambda s: (1, 0, 0, 0.2 * s, 1, 0),
        "TranslateX": lambda s: (1, 0, 100 / 331 * s * w, 0, 1, 0),
        "TranslateY": lambda s: (1, 0, 0, 0, 1, 100 / 331 * s * h),
    }
    assert {*backs, "Rotate"} == policy._MOVES.keys()
    for name in policy._MOVES:
        transform = T.AutoAugment([[(name, 1.0, 6)]], fill=0)
        found = [transform(nd(image)).asnumpy().astype(int) for _ in range(12)]
        expected = []
        for sign in (-1, 1):
            picture = Image.fromarray(image)
            if name == "Rotate":
                turned = picture.rotate(20 * sign, Image.Resampling.BILINEAR)
            else:
                turned = picture.transform((w, h), Image.Transform.AFFINE, backs[name](sign), Image.Resampling.BILINEAR)
            expected.append(np.asarray(turned).astype(int))
        kinds = set()
        for each in found:
            inside = ndimage.binary_erosion(each.min(2) > 0, iterations=2)
            assert inside.mean() > 0.4
            differences = [np.abs(each - other)[inside].max() for other in expected]
            assert min(differences) <= 1 < max(differences), name
            kinds.add(int(np.argmin(differences)))
        assert kinds == {0, 1}


def test_published_policies_are_complete():
    """Rows from the tables of the paper, and sums over each table."""
    rows = {name: [[step for step in row] for row in table] for name, table in policy._POLICIES.items()}
    assert [len(table) for table in rows.values()] == [25, 25, 25]
    assert rows["imagenet"][0] == [("Posterize", 0.4, 8), ("Rotate", 0.6, 9)]
    assert rows["cifar10"][3] == [("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)]
    assert rows["svhn"][-1] == [("ShearX", 0.7, 2), ("Invert", 0.1, 0)]
    sums = {name: np.sum([step[1:] for row in table for step in row], 0).round(6) for name, table in rows.items()}
    assert {name: tuple(values) for name, values in sums.items()} == {
        "imagenet": (31.0, 159.0),
        "cifar10": (26.5, 187.0),
        "svhn": (32.9, 143.0),
    }
    for table in rows.values():
        assert all(len(row) == 2 for row in table)


def test_autoaugment_follows_probabilities():
    image, inverted = photo(), 255 - photo()
    transform = T.AutoAugment([[("Invert", 0.25, None)]])
    found = [np.array_equal(transform(nd(image)).asnumpy(), inverted) for _ in range(400)]
    assert 70 < sum(found) < 130  # 100 expected, with a standard deviation of 9
    rows = T.AutoAugment([[("Invert", 1.0, None)], [("Identity", 1.0, None)]])
    found = [np.array_equal(rows(nd(image)).asnumpy(), inverted) for _ in range(400)]
    assert 160 < sum(found) < 240


def test_randaugment_uses_all_operations_and_its_strength():
    transform = T.RandAugment(3, 12)
    steps = [transform._draw() for _ in range(300)]
    names = [name for row in steps for name, _ in row]
    assert {len(row) for row in steps} == {3} and {abs(strength) for row in steps for _, strength in row} == {0.4}
    counts = [names.count(name) for name in set(names)]
    assert set(names) == {*policy._MOVES, *policy._COLORS} - {"Invert"} and len(counts) == 14
    assert min(counts) > 36 and max(counts) < 96  # 64 expected, with a standard deviation of 8
    assert {strength > 0 for row in steps for _, strength in row} == {True, False}


@pytest.mark.parametrize("transform", [T.RandAugment(4, 30), *(T.AutoAugment(name) for name in policy._POLICIES)])
@pytest.mark.parametrize("image", ["photo", "gray", "flat", "dot", "row"])
def test_policies_accept_any_image(transform, image):
    for dtype in ("uint8", "float32", "float16"):
        for _ in range(10):
            found = transform(nd(IMAGES[image].astype(dtype)))
            assert found.shape == IMAGES[image].shape and np.isfinite(found.asnumpy()).all()


# ---- erasing ----


def test_cutout_erases_a_square_around_a_random_center():
    image = nd(np.full((9, 12, 2), 50, "uint8"))
    seen = np.zeros((9, 12))
    for _ in range(600):
        found = T.CutOut(5, fill=(1, 2))(image).asnumpy()
        erased = (found == (1, 2)).all(2)
        assert ((found == 50).all(2) ^ erased).all()
        rows, columns = np.flatnonzero(erased.any(1)), np.flatnonzero(erased.any(0))
        assert erased.sum() == rows.size * columns.size and 3 <= rows.size <= 5 and 3 <= columns.size <= 5
        seen[int(rows.mean().round()), int(columns.mean().round())] += 1
    assert (image.asnumpy() == 50).all()
    assert (seen[2:-2, 2:-2] > 0).all()  # any place
    several = T.CutOut((2, 3), count=4)(image).asnumpy()
    assert 6 < (several == 0).all(2).sum() <= 24


def test_random_erasing_has_its_area_and_ratio():
    image = nd(np.full((40, 60, 3), 50, "float32"))
    areas, ratios = [], []
    for _ in range(200):
        erased = T.RandomErasing((0.1, 0.3), (0.5, 2.0))(image).asnumpy()[:, :, 0] == 0
        rows, columns = np.flatnonzero(erased.any(1)), np.flatnonzero(erased.any(0))
        assert erased.sum() == rows.size * columns.size
        areas.append(erased.mean())
        ratios.append(columns.size / rows.size)
    assert 0.09 < min(areas) < 0.12 and 0.28 < max(areas) < 0.31
    assert 0.48 < min(ratios) < 0.6 and 1.7 < max(ratios) < 2.1
    noise = T.RandomErasing(1, 1.5, "noise")(image).asnumpy()
    assert 120 < noise.mean() < 136 and noise.min() < 2 and noise.max() > 253


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandAugment(-1), "num_ops=-1: expected a whole number of at least 0"),
        (lambda: T.RandAugment(1.5), "num_ops=1.5"),
        (lambda: T.RandAugment(2, 31), "magnitude=31: expected a number of at least 0 and at most 30"),
        (lambda: T.AutoAugment("mnist"), "policy='mnist': expected one of imagenet, cifar10, svhn, or a list of rows"),
        (lambda: T.AutoAugment([]), "policy: expected at least one row"),
        (lambda: T.AutoAugment([["Invert", 0.5]]), "expected .operation, probability, magnitude., received 'Invert'"),
        (lambda: T.AutoAugment([[("Wave", 0.5, 1)]]), "policy: unknown operation 'Wave', expected one of ShearX"),
        (lambda: T.AutoAugment([[("Rotate", 1.5, 1)]]), "policy: probability of Rotate=1.5"),
        (lambda: T.AutoAugment([[("Rotate", 0.5, 10)]]), "policy: magnitude of Rotate=10"),
        (lambda: T.CutOut(0), "size=0: expected a positive whole number"),
        (lambda: T.CutOut((2, 3, 4)), "size="),
        (lambda: T.CutOut(2, 0), "count=0: expected a whole number of at least 1"),
        (lambda: T.RandomErasing((0.5, 1.5)), "scale=.0.5, 1.5.: expected a number between 0 and 1"),
        (lambda: T.RandomErasing(ratio=(0, 1)), "ratio="),
        (lambda: T.RandomErasing(fill="blue"), "fill='blue'"),
        (lambda: T.RandomGray(1.1), "p=1.1: expected a number of at least 0 and at most 1"),
        (lambda: T.posterize(nd(photo()), 9), "bits=9: expected a whole number from 0 to 8"),
        (lambda: T.solarize(nd(photo()), -1), "threshold=-1"),
        (lambda: T.adjust_contrast(nd(photo()), -0.1), "factor=-0.1: expected a number of at least 0"),
        (lambda: T.adjust_color(nd(photo(channels=2)), 0.5), "expected an image with 1 or 3 channels, received 2"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
