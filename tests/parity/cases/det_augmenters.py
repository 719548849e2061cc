"""mx.image.detection: augmenters of images and boxes, with the same draws."""

import random

import numpy as np

from parity.pictures import pixels, seed
from parity.spec import family, outcome

case, program = family(__name__)


def boxes(number):
    rng = np.random.RandomState(100 + number)
    corners = np.sort(rng.uniform(0, 1, (1 + number % 4, 2, 2)), axis=1).reshape(-1, 4)
    return np.concatenate([np.arange(len(corners))[:, None], corners], axis=1)


def moved(mx, make, times=12, sizes=((24, 36), (36, 24), (30, 30))):
    """What becomes of images and boxes: shapes, sums, labels, and the next random number."""
    found = []
    for number in range(times):
        seed(number)
        augmenter = make(mx.image)
        height, width = sizes[number % len(sizes)]
        source = mx.nd.array(pixels(number, height, width), dtype="uint8")
        image, label = augmenter(source, boxes(number))
        image = image.asnumpy()
        found += [np.array(image.shape), image[::5, ::5].astype("float32") / 255, image.astype("float64").sum()]
        found += [label, random.random()]
    return found + [str(make(mx.image).dumps())]


def det_program(name, make, **options):
    def run(mx):
        return moved(mx, make, **options)

    run.__name__ = name
    program(run)


det_program("borrowed", lambda I: I.DetBorrowAug(I.CastAug()), times=2)
det_program("flipped", lambda I: I.DetHorizontalFlipAug(0.5), times=4)
det_program("one_of_two", lambda I: I.DetRandomSelectAug([I.DetHorizontalFlipAug(1), I.DetBorrowAug(I.CastAug())], 0.3))
det_program("one_of_none", lambda I: I.DetRandomSelectAug([]), times=2)
det_program("cropped", lambda I: I.DetRandomCropAug())
det_program("cropped_to_cover", lambda I: I.DetRandomCropAug(min_object_covered=0.7), times=20)
det_program("cropped_and_dropped", lambda I: I.DetRandomCropAug(0.0, min_eject_coverage=0.8))
det_program("cropped_small", lambda I: I.DetRandomCropAug(0.2, (0.2, 4.0), (0.05, 0.3)), times=20)
det_program("cropped_to_an_area", lambda I: I.DetRandomCropAug(area_range=0.5), times=20)
det_program(
    "cropped_beyond", lambda I: I.DetRandomCropAug(aspect_ratio_range=(0.3, 3.0), area_range=(0.5, 2.0)), times=20
)
det_program("cropped_in_vain", lambda I: I.DetRandomCropAug(1.0, area_range=(0.01, 0.02), max_attempts=5))
det_program("padded", lambda I: I.DetRandomPadAug())
det_program("padded_in_shapes", lambda I: I.DetRandomPadAug((0.2, 4.0), (1.0, 4.0), pad_val=(1, 2, 3)), times=20)
det_program("padded_little", lambda I: I.DetRandomPadAug((0.5, 2.0), (1.0, 1.1), max_attempts=3), times=20)
det_program("padded_to_an_area", lambda I: I.DetRandomPadAug(area_range=2.0, pad_val=7))
det_program(
    "one_of_several_crops",
    lambda I: I.CreateMultiRandCropAugmenter(
        [0.1, 0.3, 0.5], area_range=[(0.1, 1.0), (0.2, 1.0), (0.5, 0.9)], skip_prob=0.2
    ),
)


@program
def cropped_around_all_of_float32_boxes(mx):
    """Those of ImageDetIter: a box that lies within a crop is covered by 1 exactly, which is not more than 1."""
    augmenter, found = mx.image.DetRandomCropAug(min_object_covered=1.0), []
    for number in range(30):
        seed(number)
        source = mx.nd.zeros((20 + number, 34, 3))
        image, label = augmenter(source, boxes(number).round(2).astype("float32"))
        found += [str(image.shape), label, random.random()]
    return found


@program
def usual_det_augmenters(mx):
    found = []
    everything = dict(rand_crop=0.6, rand_pad=0.5, rand_gray=0.2, rand_mirror=True, mean=True, std=True, brightness=0.1)
    everything.update(contrast=0.2, saturation=0.3, hue=0.1, pca_noise=0.1, inter_method=9, resize=26)
    everything.update(min_object_covered=[0.1, 0.5], area_range=(0.1, 2.0), max_attempts=20, pad_val=(1, 2, 3))
    for options in ({}, everything, dict(mean=np.array([1, 2, 3.0]))):
        augmenters = mx.image.CreateDetAugmenter((3, 7, 8), **options)
        found += [str([augmenter.dumps() for augmenter in augmenters])]
        for number in range(6):
            seed(number)
            image, label = mx.nd.array(pixels(number, 20, 24), dtype="uint8"), boxes(number)
            for augmenter in augmenters:
                image, label = augmenter(image, label)
            found += [image, label, random.random()]
    for options in (
        dict(mean=[1, 2, 3]),
        dict(no_such=1),
        dict(rand_crop=1, min_object_covered=[0.1] * 3, max_attempts=[1, 2]),
        dict(rand_pad=1, aspect_ratio_range=[(0.75, 1.33)] * 3),
    ):
        found.append(outcome(lambda options=options: mx.image.CreateDetAugmenter((3, 7, 8), **options)))
    return found


@program
def det_augmenters_refuse(mx):
    I = mx.image
    return [
        outcome(lambda: I.DetBorrowAug(3)),
        outcome(lambda: I.DetRandomSelectAug([I.CastAug()])),
        outcome(lambda: I.DetRandomPadAug(pad_val="x")),
        outcome(lambda: I.DetAugmenter()(1, 2)),
    ]
