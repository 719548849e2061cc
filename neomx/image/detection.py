"""Object detection: augmenters that change bounding boxes together with the image, and ImageDetIter.

Labels are a numpy array with one row per object: its class, then xmin, ymin, xmax and ymax from 0 to 1, then any
further values.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats import picture
from ..ndarray import NDArray, array, flip, full, zeros
from ..ops.random import numpy_source, python_source, shuffled
from .augment import (
    _MEAN,
    _STD,
    Augmenter,
    CastAug,
    ForceResizeAug,
    ResizeAug,
    _colour_augmenters,
    _plain,
)
from .functions import _height_and_width, copyMakeBorder, fixed_crop
from .iterators import ImageIter

Range = tuple[float, float]


class DetAugmenter:
    """Base class of augmenters of an image and its objects. `dumps` returns the arguments passed to `__init__`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: _plain(value) for name, value in kwargs.items()}

    def dumps(self) -> Any:
        """Return the augmenter as JSON: its name and its arguments."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        """Return the changed image and labels."""
        raise NotImplementedError("Must override implementation.")


class DetBorrowAug(DetAugmenter):
    """Apply an Augmenter that does not move pixels, and leave the labels unchanged."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"Borrowing from invalid Augmenter: {type(augmenter).__name__}")
        super().__init__()
        self.augmenter = augmenter

    def dumps(self) -> list[Any]:
        """Return the name, and the `dumps` of the borrowed augmenter."""
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """Apply one of the augmenters, drawn for each image; with probability `skip_prob` none."""

    def __init__(self, aug_list: Any, skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        self.aug_list = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        if not all(isinstance(aug, DetAugmenter) for aug in self.aug_list):
            raise ValueError("Allow DetAugmenter in list only")
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> list[Any]:
        """Return the name, and the `dumps` of each augmenter."""
        return [type(self).__name__.lower(), [aug.dumps() for aug in self.aug_list]]

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        if python_source().random() < self.skip_prob:
            return src, label
        return shuffled(self.aug_list)[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Flip the image and boxes horizontally with probability `p`. Labels are changed in place."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        if python_source().random() < self.p:
            src = flip(src, axis=1)
            label[:, [1, 3]] = 1.0 - label[:, [3, 1]]
        return src, label


def _range(name: str, value: Any, least: float = 0.0) -> Range:
    """Return a range (from, to), from a pair or from one number for both."""
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(isinstance(end, (int, float, np.number)) for end in pair):
        raise TypeError(f"{name}={value}: expected a number or a range (from, to)")
    low, high = pair
    if not (low <= high and high > least):
        raise ValueError(f"{name}={value}: expected (from, to) with from <= to and to > {least:g}")
    return low, high


def _areas(boxes: np.ndarray) -> np.ndarray:
    """Return the areas of boxes (xmin, ymin, xmax, ymax, ...); 0 for boxes with negative width or height."""
    return np.maximum(0, boxes[:, 2] - boxes[:, 0]) * np.maximum(0, boxes[:, 3] - boxes[:, 1])


def _heights(smallest: float, largest: float, ratio: float) -> tuple[int, int]:
    """Return the heights of rectangles with these areas and this ratio of width to height."""
    return round(sqrt(smallest / ratio)), round(sqrt(largest / ratio))


def _height_at(width: int, ratio: float) -> int:
    """Return the greatest height of a rectangle whose rounded width is at most `width`."""
    return ceil((width + 0.5) / ratio) - 1


class DetRandomCropAug(DetAugmenter):
    """Crop a random rectangle that covers enough of every object it overlaps.

    Up to `max_attempts` rectangles with a width-to-height ratio in `aspect_ratio_range` and a fraction of the area in
    `area_range` are tried, until the objects in one are covered by more than `min_object_covered`. Objects with less
    than `min_eject_coverage` left are dropped. If no rectangle is found, the image is unchanged.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        self.aspect_ratio_range = _range("aspect_ratio_range", aspect_ratio_range)
        self.area_range = _range("area_range", area_range)
        super().__init__(
            min_object_covered=min_object_covered,
            aspect_ratio_range=self.aspect_ratio_range,
            area_range=self.area_range,
            min_eject_coverage=min_eject_coverage,
            max_attempts=max_attempts,
        )
        self.min_object_covered, self.min_eject_coverage = min_object_covered, min_eject_coverage
        self.max_attempts = max_attempts

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        height, width = src.shape[:2]
        for _ in range(self.max_attempts):
            place = self._propose(height, width)
            if place is None or not self._covers_enough(label, place, height, width):
                continue
            moved = self._moved(label, place, height, width)
            if len(moved):
                x, y, w, h = place
                return fixed_crop(src, x, y, w, h), moved
        return src, label

    def _propose(self, height: int, width: int) -> tuple[int, int, int, int] | None:
        """Return a random rectangle (x, y, width, height), or None if it does not fit."""
        smallest, largest = (share * height * width for share in self.area_range)
        ratio = python_source().uniform(*self.aspect_ratio_range)
        if ratio <= 0:
            return None
        low, high = _heights(smallest, largest, ratio)
        high = min(high, height, _height_at(width, ratio))
        low = min(low, high)
        h = python_source().randint(low, high) if low < high else low
        w = round(h * ratio)
        if w * h < smallest:
            h, w = h + 1, round((h + 1) * ratio)
        if w * h > largest:
            h, w = h - 1, round((h - 1) * ratio)
        if not (smallest <= w * h <= largest and 0 <= w <= width and 0 <= h <= height):
            return None
        y = python_source().randint(0, height - h)
        return python_source().randint(0, width - w), y, w, h

    def _covers_enough(self, label: np.ndarray, place: tuple[int, ...], height: int, width: int) -> bool:
        x, y, w, h = place
        if w * h < 2:
            return False
        boxes = label[:, 1:5]
        boxes = boxes[_areas(boxes) * width * height > 2]
        # Computed in the dtype of the labels, so that full coverage is exactly 1.
        low, high = np.array([[x / width, y / height], [(x + w) / width, (y + h) / height]], dtype=boxes.dtype)
        inside = np.concatenate([np.maximum(boxes[:, :2], low), np.minimum(boxes[:, 2:], high)], axis=1)
        covered = _areas(inside) / _areas(boxes)
        covered = covered[covered > 0]
        return covered.size > 0 and covered.min() > self.min_object_covered

    def _moved(self, label: np.ndarray, place: tuple[int, ...], height: int, width: int) -> np.ndarray:
        """Return the labels of the remaining objects, in coordinates of the rectangle."""
        x, y, w, h = place[0] / width, place[1] / height, place[2] / width, place[3] / height
        moved = label.copy()
        moved[:, [1, 3]] = (moved[:, [1, 3]] - x) / w
        moved[:, [2, 4]] = (moved[:, [2, 4]] - y) / h
        moved[:, 1:5] = np.clip(moved[:, 1:5], 0, 1)
        with np.errstate(invalid="ignore", divide="ignore"):  # boxes without area are dropped
            left = _areas(moved[:, 1:]) * w * h / _areas(label[:, 1:])
        return moved[(moved[:, 3] > moved[:, 1]) & (moved[:, 4] > moved[:, 2]) & (left > self.min_eject_coverage)]


class DetRandomPadAug(DetAugmenter):
    """Place the image at a random position in a larger one filled with `pad_val`.

    The larger image has a width-to-height ratio in `aspect_ratio_range`, and `area_range` times the area of the image.
    """

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        assert isinstance(pad_val, (int, float, list, tuple)), (
            f"pad_val={pad_val!r}: expected a number, or one for each channel"
        )
        self.aspect_ratio_range = _range("aspect_ratio_range", aspect_ratio_range)
        self.area_range = _range("area_range", area_range, least=1.0)
        super().__init__(
            aspect_ratio_range=self.aspect_ratio_range,
            area_range=self.area_range,
            max_attempts=max_attempts,
            pad_val=pad_val,
        )
        self.max_attempts, self.pad_val = max_attempts, pad_val

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        height, width = _height_and_width(src)
        for _ in range(self.max_attempts):
            place = self._propose(height, width)
            if place is None:
                continue
            x, y, w, h = place
            colour = self.pad_val if isinstance(self.pad_val, (list, tuple)) else (self.pad_val,)
            src = copyMakeBorder(src, y, h - y - height, x, w - x - width, type=0, values=tuple(colour))
            label = label.copy()
            label[:, [1, 3]] = (label[:, [1, 3]] * width + x) / w
            label[:, [2, 4]] = (label[:, [2, 4]] * height + y) / h
            break
        return src, label

    def _propose(self, height: int, width: int) -> tuple[int, int, int, int] | None:
        """Return the position of the image and the size of the larger one: (x, y, width, height)."""
        smallest, largest = (share * height * width for share in self.area_range)
        ratio = python_source().uniform(*self.aspect_ratio_range)
        if ratio <= 0:
            return None
        low, high = _heights(smallest, largest, ratio)
        if round(low * ratio) < width:
            low = _height_at(width, ratio)
        low = min(max(low, height), high)
        h = python_source().randint(low, high) if low < high else low
        w = round(h * ratio)
        if h - height < 2 or w - width < 2:  # too small to matter
            return None
        y = python_source().randint(0, h - height)
        return python_source().randint(0, w - width), y, w, h


# ---- lists of augmenters ----


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """Return a random selection of DetRandomCropAug; a list argument has one item for each of them."""
    given = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts)
    lists = [value if isinstance(value, list) else [value] for value in given]
    count = max(map(len, lists))
    assert all(len(values) in (1, count) for values in lists), (
        "list arguments must have the same length or length 1, received lengths "
        f"{', '.join(str(len(v)) for v in lists)}, expected 1 or {count}"
    )
    crops = [DetRandomCropAug(*(values[i % len(values)] for values in lists)) for i in range(count)]
    return DetRandomSelectAug(crops, skip_prob=skip_prob)


def CreateDetAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """Return the standard list of detection augmenters for images of `data_shape` (channels, height, width).

    `rand_crop` and `rand_pad` are probabilities. See `CreateAugmenter` and `CreateMultiRandCropAugmenter` for the
    others.
    """
    augmenters = list[DetAugmenter]()
    if resize > 0:
        augmenters.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        crop = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts)
        augmenters.append(CreateMultiRandCropAugmenter(*crop, skip_prob=1 - rand_crop))
    if rand_mirror > 0:
        augmenters.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:  # after cropping: padding makes objects smaller
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        augmenters.append(DetRandomSelectAug([pad], 1 - rand_pad))
    plain = [ForceResizeAug((data_shape[2], data_shape[1]), inter_method), CastAug()]
    mean, std = _MEAN if mean is True else mean, _STD if std is True else std
    plain += _colour_augmenters(mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray)
    return augmenters + [DetBorrowAug(augmenter) for augmenter in plain]


# ---- the iterator ----


class ImageDetIter(ImageIter):
    """Iterate over batches of images and their objects. Labels have shape (batch, objects, values), padded with -1.

    The label of an image consists of the header width (2 or more), the object width (5 or more), the rest of the
    header, and the objects: class, xmin, ymin, xmax, ymax, and further values. The sources are those of ImageIter.
    Other keyword arguments are passed to `CreateDetAugmenter`, unless `aug_list` is given.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
        path_imgrec: Any = None,
        path_imglist: Any = None,
        path_root: Any = None,
        path_imgidx: Any = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Any] | None = None,
        imglist: Sequence[Any] | None = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        self.check_data_shape(data_shape)
        super().__init__(
            batch_size=batch_size,
            data_shape=data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list,
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
        )
        self.label_shape = self._estimate_label_shape()
        self._set_label_shape(self.label_shape)

    def _estimate_label_shape(self) -> tuple[int, int]:
        """Return the largest number of objects of an image, and their width, by reading all labels."""
        shapes = set[tuple[int, int]]()
        self.reset()
        try:
            while True:
                shapes.add(self._parse_label(self.next_sample()[0]).shape)  # type: ignore[arg-type]
                if len({width for _, width in shapes}) > 1:
                    raise MXNetError(
                        f"the objects of {self._place()} differ in width from earlier ones: received, as (objects, "
                        f"width), are {sorted(shapes)}. Write all labels with one width"
                    )
        except StopIteration:
            pass
        self.reset()
        return max(shapes, default=(0, 5))

    def _set_label_shape(self, label_shape: tuple[int, int]) -> None:
        self.label_shape = tuple(label_shape)  # type: ignore[assignment]
        self.provide_label = [(self.provide_label[0][0], (self.batch_size, *self.label_shape))]

    def _parse_label(self, label: Any) -> np.ndarray:
        """Return the objects (count, width) of an image's label, without those of zero area."""
        raw = np.asarray(label.asnumpy() if isinstance(label, NDArray) else label).ravel()
        if raw.size < 7 or not np.isfinite(raw[:2]).all():
            raise RuntimeError(
                f"Label shape is invalid: {raw.shape}. The label of {self._place()} should have a header of 2 values "
                "or more, and 5 or more for each object"
            )
        header, width = int(raw[0]), int(raw[1])
        if width < 5 or header < 0 or (raw.size - header) % width != 0:
            raise RuntimeError(
                f"Label shape {raw.shape} inconsistent with annotation width {width}. The label of {self._place()} "
                f"should have a header of {header} values, as its first value says, and {width} for each object"
            )
        objects = raw[header:].reshape(-1, width)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        if not len(objects):
            raise RuntimeError(f"Encounter sample with no valid label: {self._place()} has no box with an area")
        return objects

    def _check_valid_label(self, label: np.ndarray) -> None:
        if label.ndim != 2 or label.shape[1] < 5:
            raise RuntimeError(f"Label with shape (1+, 5+) required, {label} received.")
        valid = (label[:, 0] >= 0) & (label[:, 3] > label[:, 1]) & (label[:, 4] > label[:, 2])
        if not valid.any():
            raise RuntimeError(f"Invalid label occurs: {label} has no object with an area")

    # ---- shapes ----

    def reshape(self, data_shape: Any = None, label_shape: Any = None) -> None:
        """Change the size of the images, or the maximum number of objects."""
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.data_shape = tuple(data_shape)
            self.provide_data = [(self.provide_data[0][0], (self.batch_size, *self.data_shape))]
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self._set_label_shape(label_shape)

    def check_label_shape(self, label_shape: Any) -> None:
        """Raise ValueError if label_shape is not (objects, width), is smaller, or has another width."""
        if not len(label_shape) == 2:
            raise ValueError(f"label_shape should have length 2, received {label_shape}")
        if label_shape[0] < self.label_shape[0]:
            raise ValueError(
                f"Attempts to reduce label count from {self.label_shape[0]} to {label_shape[0]}, not allowed."
            )
        if label_shape[1] != self.label_shape[1]:
            raise ValueError(f"label_shape object width inconsistent: {self.label_shape[1]} vs {label_shape[1]}.")

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Set both iterators, for example of training and validation, to the larger of their label shapes."""
        assert isinstance(it, ImageDetIter), f"Synchronize with invalid iterator: {type(it).__name__}"
        mine, theirs = self.label_shape, it.label_shape
        assert mine[1] == theirs[1], f"the object widths do not match: {mine[1]} and {theirs[1]}"
        most = max(mine[0], theirs[0])
        self.reshape(label_shape=(most, mine[1]))
        it.reshape(label_shape=(most, theirs[1]))
        if verbose and most > min(mine[0], theirs[0]):
            logging.info("Resized label_shape to (%d, %d).", most, mine[1])
        return it

    # ---- batches ----

    def _new_batch(self) -> tuple[NDArray, NDArray]:
        return zeros(self.provide_data[0][1]), full(self.provide_label[0][1], -1)

    def _samples(self) -> Iterator[tuple[NDArray, np.ndarray]]:
        """Yield augmented images and their objects; invalid ones are skipped."""
        while True:
            try:
                raw, encoded = self.next_sample()
            except StopIteration:
                return
            image = self.imdecode(encoded)
            try:
                self.check_valid_image(image)
                label = self._parse_label(raw)
                image, label = self.augmentation_transform(image, label)
                self._check_valid_label(label)
            except MXNetError:  # misuse of an op; augmenters reject an image by other RuntimeErrors
                raise
            except RuntimeError as error:
                logging.debug("Invalid image, skipping:  %s", error)
                continue
            yield image, label

    def _batchify(self, batch_data: NDArray, batch_label: NDArray, start: int = 0) -> int:
        count = start
        for image, label in self._samples():
            self._put(batch_data, count, self.postprocess_data(image))
            objects, width = label.shape
            batch_label[count] = -1
            batch_label[count, :objects, :width] = array(label)
            count += 1
            if count == self.batch_size:
                break
        if count == start:
            raise StopIteration
        return count

    def augmentation_transform(self, data: NDArray, label: np.ndarray) -> Any:  # type: ignore[override]
        """Return the image and its objects after all augmenters."""
        for augment in self.auglist:
            data, label = augment(data, label)
        return data, label

    def draw_next(
        self,
        color: Any = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: Any = None,
    ) -> Iterator[np.ndarray]:
        """Yield the next images (height, width, BGR) as uint8 with their boxes drawn.

        `mean` and `std` undo the normalization (True: that of ImageNet). `waitKey` shows each image in a window for
        this many milliseconds.
        """
        for image, label in self._samples():
            pixels = _shown(image.asnumpy(), mean, std, clip)
            for kind, *box in label[:, :5]:
                text = id2labels[int(kind)] if id2labels is not None and int(kind) in id2labels else None
                shade = color if color is not None else numpy_source().rand(3) * 255
                pixels = picture.draw_box(pixels, box, tuple(shade)[::-1], thickness, text)
            if waitKey is not None:
                picture.show(pixels, window_name, waitKey)
            yield pixels


def _shown(pixels: np.ndarray, mean: Any, std: Any, clip: bool) -> np.ndarray:
    """Undo the normalization of an image, and return it in OpenCV's color order."""
    if std is not None:
        pixels = pixels * np.asarray(_STD if std is True else std, np.float32)
    if mean is not None:
        pixels = pixels + np.asarray(_MEAN if mean is True else mean, np.float32)
    return (np.clip(pixels, 0, 255) if clip else pixels).astype(np.uint8)[:, :, ::-1]
