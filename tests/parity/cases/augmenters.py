"""mx.image: what is read, resized and cut, and every augmenter, with the same draws."""

import random

import numpy as np

from parity.pictures import fixture, pixels, png, seed
from parity.spec import family, outcome

case, program = family(__name__)


@program
def decoding(mx):
    found = []
    for name in ("colour.jpg", "turned.jpg", "grey.jpg", "alpha.png", "deep.png"):
        data = fixture(name)
        for flag in (1, 0):
            found += [mx.image.imdecode(data, flag=flag), mx.image.imdecode(data, flag, to_rgb=False)]
    found.append(mx.image.imdecode(np.frombuffer(png(pixels()), "uint8")))
    found.append(outcome(lambda: mx.image.imdecode(b"no picture")))
    found.append(outcome(lambda: mx.image.imdecode(b"")))
    found.append(outcome(lambda: mx.image.imdecode(fixture("colour.jpg"), flag=-1)))
    found.append(outcome(lambda: mx.image.imread("nowhere.jpg")))
    return found


@program
def resizing(mx):
    found = []
    floats = pixels(3).astype("float32")
    for interp in range(5):
        for width, height in ((9, 7), (16, 12), (30, 25), (8, 6), (20, 5)):
            found.append(mx.image.imresize(mx.nd.array(pixels(interp), dtype="uint8"), width, height, interp))
        found.append(mx.image.imresize(mx.nd.array(floats), 11, 9, interp=interp))
    for size, interp in ((5, 2), (20, 9), (8, 9), (7, 1)):
        found.append(mx.image.resize_short(mx.nd.array(pixels(), dtype="uint8"), size, interp))
    seed(1)
    for _ in range(5):
        found.append(mx.image.resize_short(mx.nd.array(pixels(), dtype="uint8"), 9, 10))
    found.append(random.random())
    found.append(outcome(lambda: mx.image.resize_short(mx.nd.array(pixels(), dtype="uint8"), 9, 7)))
    return found


@program
def cutting(mx):
    image, found = mx.nd.array(pixels(1, 20, 30), dtype="uint8"), []
    found += [mx.image.fixed_crop(image, 3, 4, 10, 9), mx.image.fixed_crop(image, 3, 4, 10, 9, (5, 12), 9)]
    found += [mx.image.scale_down((30, 20), (40, 10)), mx.image.scale_down((30, 20), (10, 50))]
    for size, interp in (((8, 6), 2), ((40, 6), 2), ((40, 50), 9), ((7, 33), 10)):
        seed(size[0])
        for call in (mx.image.random_crop, mx.image.center_crop):
            out, place = call(image, size, interp)
            found += [out, str(tuple(place))]
    for area, ratio in ((0.3, (0.75, 1.33)), ((0.1, 0.6), (0.5, 2.0)), (0.95, (4.0, 5.0))):
        seed(5)
        for _ in range(3):
            out, place = mx.image.random_size_crop(image, (9, 8), area, ratio)
            found += [out, str(tuple(place))]
    return found


def changed(mx, make, dtype="float32", times=4):
    """An augmenter's image for some seeds, what it tells of itself, and what comes next of the random numbers."""
    found = []
    for number in range(times):
        seed(number)
        augmenter = make()
        source = mx.nd.array(pixels(number), dtype=dtype)
        found += [augmenter(source).astype("float32") / 255, str(augmenter.dumps())]
        found += [np.array([random.random(), np.random.rand()])]
    return found


def augmenter_program(name, make, **options):
    def run(mx):
        return changed(mx, lambda: make(mx.image, mx), **options)

    run.__name__ = name
    program(run)


IN_BYTES = {"dtype": "uint8"}
augmenter_program("resize_aug", lambda I, mx: I.ResizeAug(7), **IN_BYTES)
augmenter_program("resize_aug_by_chance", lambda I, mx: I.ResizeAug(7, interp=10), **IN_BYTES)
augmenter_program("force_resize_aug", lambda I, mx: I.ForceResizeAug((9, 7), 9), **IN_BYTES)
augmenter_program("force_resize_aug_by_chance", lambda I, mx: I.ForceResizeAug((9, 7), 10), **IN_BYTES)
augmenter_program("random_crop_aug", lambda I, mx: I.RandomCropAug((9, 7)), **IN_BYTES)
augmenter_program("random_crop_aug_enlarged", lambda I, mx: I.RandomCropAug((20, 7), 10), **IN_BYTES)
augmenter_program("random_sized_crop", lambda I, mx: I.RandomSizedCropAug((9, 7), 0.2, (0.7, 1.4)), **IN_BYTES)
augmenter_program("random_sized_crop_range", lambda I, mx: I.RandomSizedCropAug((9, 7), (0.2, 0.4), (0.7, 1.4), 10))
augmenter_program("center_crop_aug", lambda I, mx: I.CenterCropAug((9, 7)), **IN_BYTES)
augmenter_program("brightness_aug", lambda I, mx: I.BrightnessJitterAug(0.4))
augmenter_program("contrast_aug", lambda I, mx: I.ContrastJitterAug(0.4))
augmenter_program("saturation_aug", lambda I, mx: I.SaturationJitterAug(0.4))
augmenter_program("hue_aug", lambda I, mx: I.HueJitterAug(0.4))
augmenter_program("color_jitter_aug", lambda I, mx: I.ColorJitterAug(0.4, 0.3, 0.2))
augmenter_program("color_jitter_aug_in_part", lambda I, mx: I.ColorJitterAug(0, 0.3, 0))
augmenter_program(
    "lighting_aug", lambda I, mx: I.LightingAug(0.3, np.array([50.0, 4, 1]), np.arange(9.0).reshape(3, 3))
)
augmenter_program("normalize_aug", lambda I, mx: I.ColorNormalizeAug(mx.nd.array([9, 8, 7]), mx.nd.array([2, 3, 4])))
augmenter_program("normalize_aug_of_numpy", lambda I, mx: I.ColorNormalizeAug(np.array([9.0, 8, 7]), None))
augmenter_program("gray_aug", lambda I, mx: I.RandomGrayAug(0.5))
augmenter_program("flip_aug", lambda I, mx: I.HorizontalFlipAug(0.5), **IN_BYTES)
augmenter_program("cast_aug", lambda I, mx: I.CastAug(), **IN_BYTES)
augmenter_program("cast_aug_to_half", lambda I, mx: I.CastAug(typ="float16"), **IN_BYTES)
augmenter_program("sequential_aug", lambda I, mx: I.SequentialAug([I.CastAug(), I.HorizontalFlipAug(0.5)]), **IN_BYTES)
augmenter_program(
    "random_order_aug",
    lambda I, mx: I.RandomOrderAug([I.BrightnessJitterAug(0.3), I.HorizontalFlipAug(0.5), I.ContrastJitterAug(0.2)]),
)


EVERYTHING = dict(resize=9, rand_crop=True, rand_mirror=True, mean=True, std=True, brightness=0.1, contrast=0.2)
EVERYTHING.update(saturation=0.3, hue=0.1, pca_noise=0.1, rand_gray=0.3, inter_method=10)


@program
def usual_augmenters(mx):
    found = []
    kinds = [{}, dict(rand_crop=True, rand_resize=True), EVERYTHING, dict(mean=np.array([1, 2, 3.0]), hue=0.2)]
    for options in kinds:
        augmenters = mx.image.CreateAugmenter((3, 7, 8), **options)
        found += [str([augmenter.dumps() for augmenter in augmenters])]
        for number in range(3):
            seed(number)
            image = mx.nd.array(pixels(number, 20, 24), dtype="uint8")
            for augmenter in augmenters:
                image = augmenter(image)
            found += [image, random.random()]
    for options in (dict(rand_resize=True), dict(mean=[1, 2, 3]), dict(std=np.ones(4)), dict(no_such=1)):
        found.append(outcome(lambda options=options: mx.image.CreateAugmenter((3, 7, 8), **options)))
    found.append(outcome(lambda: mx.image.Augmenter()(1)))
    found.append(outcome(lambda: mx.image.ColorNormalizeAug(True, None)(mx.nd.ones((2, 2, 3))).asnumpy()))
    return found


@program
def an_augmenter_of_ones_own(mx):
    class Shift(mx.image.Augmenter):
        def __init__(self, by, numbers):
            super(Shift, self).__init__(by=by, numbers=numbers)
            self.by = by

        def __call__(self, src):
            return src + self.by

    mine = Shift(3, np.array([1, 2]))
    both = mx.image.SequentialAug([mx.image.CastAug(), mine])
    return [mine.dumps(), str(both.dumps()), both(mx.nd.array(pixels(), dtype="uint8"))]
