"""mx.image and gluon.data.vision.transforms: what is exact, and what follows Python's or numpy's random numbers."""

import random

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def pixels(*shape, seed=0):
    return np.random.RandomState(seed).randint(0, 256, shape).astype("uint8")


def smooth(h, w):
    """An image whose pixels are close to their neighbours', so that resizing it is not a matter of rounding."""
    y, x = np.mgrid[:h, :w]
    return np.stack([x * 5 + y, y * 6 + 3, (x + y) * 3], 2).astype("uint8")


def photo(mx, h=12, w=16):
    return mx.nd.array(smooth(h, w), dtype="uint8")


def tensor(mx, *shape):
    return mx.nd.array(np.random.RandomState(1).uniform(size=shape))


@program
def exact_transforms(mx):
    T = mx.gluon.data.vision.transforms
    im, batch = photo(mx), mx.nd.array(pixels(2, 12, 16, 3), dtype="uint8")
    t = tensor(mx, 3, 5, 4)
    results = [
        T.Cast()(im),
        T.Cast("float16")(im),
        T.Cast("int32")(im),
        T.ToTensor()(im),
        T.ToTensor()(batch),
        T.ToTensor()(im.astype("float32")),
        T.Normalize()(t),
        T.Normalize(0.5, 2.0)(t),
        T.Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 4.0))(t),
        T.Normalize(mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 4.0])(tensor(mx, 2, 3, 5, 4)),
        T.CenterCrop(5)(im),
        T.CenterCrop((5, 7))(im),
        T.CenterCrop([5, 7])(im),
        T.CropResize(1, 2, 5, 4)(im),
        T.CropResize(1, 2, 5, 4)(batch),
        T.CropResize(x=1, y=2, width=5, height=4, size=(3, 6), interpolation=0)(im),
        T.Resize(6, interpolation=0)(im),
        T.Resize((5, 7), interpolation=0)(batch),
        T.Resize(6, keep_ratio=True, interpolation=0)(im),
        T.Resize((5, 7), keep_ratio=True, interpolation=0)(im),
        T.Resize(6)(im.astype("float32")),
        T.Resize(20, interpolation=2)(im.astype("float32") / 255),
        T.Rotate(30)(t),
        T.Rotate(-70, zoom_in=True)(t),
        T.Rotate(200, False, True)(tensor(mx, 2, 3, 5, 4)),
        T.RandomApply(T.CropResize(0, 0, 3, 3), p=1.0)(im),
        T.RandomApply(T.CropResize(0, 0, 3, 3), p=0.0)(im).shape,
    ]
    for name in ("Brightness", "Contrast", "Saturation"):
        results.append(getattr(T, "Random" + name)(0.0)(im.astype("float32")))
    return results


@program
def composed_transforms(mx):
    T = mx.gluon.data.vision.transforms
    im = photo(mx)
    steps = [
        [],
        [T.ToTensor()],
        [T.CropResize(0, 0, 8, 8), T.ToTensor(), T.Normalize(0.5, 0.25)],
        [T.CropResize(1, 1, 9, 9), T.CenterCrop(5), T.Cast(), T.ToTensor()],
        [T.CenterCrop(5), T.CenterCrop(3)],
    ]
    results = []
    for each in steps:
        compose = T.Compose(each)
        results += [compose(im), [type(child).__name__ for child in compose._children.values()], len(compose)]
    results.append(T.Compose([T.ToTensor(), T.Cast("float64"), lambda x: x * 2])(im))
    dataset = mx.gluon.data.ArrayDataset(mx.nd.array(pixels(6, 8, 8, 3), dtype="uint8"), np.arange(6))
    chain = dataset.transform_first(T.Compose([T.CenterCrop(4), T.ToTensor(), T.Normalize(0.5, 0.5)]))
    for data, label in mx.gluon.data.DataLoader(chain, 4):
        results += [data, label]
    return results


@program
def transforms_refuse(mx):
    T = mx.gluon.data.vision.transforms
    im, t = photo(mx), tensor(mx, 3, 5, 4)
    return [
        outcome(lambda: T.RandomRotation((50, -50))),
        outcome(lambda: T.RandomRotation((-50, 50), rotate_with_proba=2)),
        outcome(lambda: T.Rotate(30)(im)),
        outcome(lambda: T.Rotate(30, True, True)(t)),
        outcome(lambda: T.RandomRotation((-5, 5))(im)),
        outcome(lambda: T.ToTensor()(im, im)),
        outcome(lambda: T.ToTensor()(im.asnumpy())),
        outcome(lambda: T.CropResize(10, 2, 50, 4)(im).asnumpy()),
        outcome(lambda: T.Compose([T.ToTensor(), T.RandomFlipLeftRight()])(im).asnumpy()),
    ]


def cut(mx, x):
    image = mx.image
    return [
        outcome(lambda: image.center_crop(x, (2, 2))),
        outcome(lambda: image.random_crop(x, (2, 2))),
        outcome(lambda: image.random_size_crop(x, (2, 2), 1.0, (1, 1))),
        outcome(lambda: image.resize_short(x, 4)),
        outcome(lambda: image.DetRandomPadAug(area_range=(3, 4))(x, np.array([[0, 0.1, 0.1, 0.9, 0.9]]))),
        outcome(lambda: mx.gluon.data.vision.transforms.CenterCrop(2)(x)),
    ]


@program
def crops_are_of_one_image(mx):
    return cut(mx, mx.nd.ones((8, 8))) + cut(mx, mx.nd.ones((2, 8, 8, 3)))


@program
def random_transforms_that_use_python_and_numpy(mx):
    T = mx.gluon.data.vision.transforms
    im, t = photo(mx).astype("float32"), tensor(mx, 3, 5, 4)
    random.seed(3)
    np.random.seed(4)
    results = [T.RandomResizedCrop(6, interpolation=1)(im) for _ in range(8)]
    results += [T.RandomResizedCrop((5, 7), (0.3, 0.5), (0.5, 2.0))(im) for _ in range(4)]
    results += [T.RandomApply(T.CropResize(0, 0, 3, 3))(im).shape for _ in range(12)]
    results += [T.RandomRotation((-60, 60))(t) for _ in range(3)]
    results += [T.RandomRotation((-60, 60), True, rotate_with_proba=0.5)(t) for _ in range(6)]
    results += [T.RandomRotation((-60, 60), zoom_out=True)(tensor(mx, 2, 3, 5, 4))]
    return results


@program
def crops(mx):
    image = mx.image
    im = photo(mx)
    random.seed(0)
    results = [
        image.fixed_crop(im, 1, 2, 3, 2),
        image.fixed_crop(im, 1, 2, 3, 2, size=(3, 2)),
        image.fixed_crop(im, 13, 2, 5, 2),
        image.fixed_crop(im.astype("float32"), 1, 2, 8, 6, size=(4, 3), interp=9),
        image.resize_short(im.astype("float32"), 6),
        image.resize_short(im.astype("float32"), 18, interp=1),
        image.resize_short(im.astype("float32").swapaxes(0, 1), 6, interp=3),
        image.imresize(im.astype("float32"), 4, 3),
        image.imresize(im.astype("float32"), 24, 20, 4),
        image.imresize(im, w=8, h=5, interp=0),
        [image.scale_down(*s) for s in (((10, 5), (20, 20)), ((640, 480), (720, 120)), ((360, 1000), (480, 500)))],
        image.copyMakeBorder(im, 1, 2, 3, 0, 0, 7.0),
        [
            image.image._get_interp_method(i, s)
            for i in (0, 1, 4, 9)
            for s in ((), (4, 4, 8, 8), (8, 8, 4, 4), (4, 8, 8, 4))
        ],
        outcome(lambda: image.image._get_interp_method(7)),
        outcome(lambda: image.imresize(im, 4, 3, 9).asnumpy()),
    ]
    for size in ((4, 4), (3, 5), (20, 4)):
        for crop in (image.center_crop, image.random_crop):
            cut, place = crop(im.astype("float32"), size)
            results += [cut, place]
    for area in (0.5, (0.1, 1.0), (0.05, 0.1), (0.99, 1.0)):
        for ratio in ((0.75, 1.33), (0.2, 5.0)):
            results += [image.random_size_crop(im.astype("float32"), (4, 3), area, ratio)[1] for _ in range(4)]
    results.append(image.random_size_crop(im, (4, 3), area=1, ratio=(0.75, 1.33), min_area=0.3)[1])
    results.append(outcome(lambda: image.random_size_crop(im, (4, 3), 0.5, (0.75, 1.33), other=1)))
    return results


@program
def colours_and_turning(mx):
    image = mx.image
    x, four = photo(mx).astype("float32"), tensor(mx, 2, 3, 5, 4)
    changed = x.copy()
    normal = image.color_normalize(changed, mx.nd.array([1, 2, 3]), mx.nd.array([2, 4, 8]))
    np.random.seed(2)
    return [
        normal,
        changed,
        image.color_normalize(x.copy(), 1.5),
        image.color_normalize(x.copy(), None, 2.0),
        image.imrotate(four, 30),
        image.imrotate(four, mx.nd.array([10, 200])),
        image.imrotate(four, mx.nd.array([10, 200]), zoom_in=True),
        image.imrotate(four[0], 90),
        image.imrotate(four[0], 100.5, zoom_out=True),
        image.random_rotate(four[0], (10, 20)),
        image.random_rotate(four, (-90, 20), zoom_in=True),
        outcome(lambda: image.imrotate(four.astype("uint8"), 30)),
        outcome(lambda: image.imrotate(four[0, 0], 30)),
        outcome(lambda: image.imrotate(four, mx.nd.array([1, 2, 3]))),
        outcome(lambda: image.imrotate(four[0], mx.nd.array([1]))),
        outcome(lambda: image.imrotate(four, 30, True, True)),
    ]


@program
def decoding_refuses(mx):
    image = mx.image
    return [
        outcome(lambda: image.imdecode(b"")),
        outcome(lambda: image.imdecode(b"no image").asnumpy()),
        outcome(lambda: image.imdecode("text")),
        outcome(lambda: image.imdecode([1, 2])),
        outcome(lambda: image.imread("/no/such/file.png").asnumpy()),
    ]
