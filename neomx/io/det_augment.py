"""The augmentation that ImageDetRecordIter applies to an image and the bounding boxes of its objects."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from ..base import MXNetError
from ..formats import picture
from .arguments import Floats, Shape
from .augment import chosen_method

_MODES = ("force", "shrink", "fit")


@dataclass
class DetAugmentation:
    """Color changes, mirroring, padding, cropping and resizing, in the order of the fields, each only if requested."""

    resize: int = -1
    max_random_hue: int = 0
    random_hue_prob: float = 0.0
    max_random_saturation: int = 0
    random_saturation_prob: float = 0.0
    max_random_illumination: int = 0
    random_illumination_prob: float = 0.0
    max_random_contrast: float = 0.0
    random_contrast_prob: float = 0.0
    rand_mirror_prob: float = 0.0
    rand_pad_prob: float = 0.0
    max_pad_scale: float = 1.0
    rand_crop_prob: float = 0.0
    num_crop_sampler: int = 1
    min_crop_scales: Floats = (0.0,)
    max_crop_scales: Floats = (1.0,)
    min_crop_aspect_ratios: Floats = (1.0,)
    max_crop_aspect_ratios: Floats = (1.0,)
    min_crop_overlaps: Floats = (0.0,)
    max_crop_overlaps: Floats = (1.0,)
    min_crop_sample_coverages: Floats = (0.0,)
    max_crop_sample_coverages: Floats = (1.0,)
    min_crop_object_coverages: Floats = (0.0,)
    max_crop_object_coverages: Floats = (1.0,)
    max_crop_trials: Shape = (25,)
    crop_emit_mode: str = "center"
    emit_overlap_thresh: float = 0.3
    resize_mode: str = "force"
    fill_value: int = 127
    inter_method: int = 1

    def check(self, who: str) -> None:
        """Raise MXNetError if the arguments are invalid or cannot be combined."""
        if self.resize_mode not in _MODES:
            raise MXNetError(f"{who}: resize_mode must be one of {_MODES}, received {self.resize_mode!r}")
        if self.crop_emit_mode not in ("center", "overlap"):
            raise MXNetError(f"{who}: crop_emit_mode must be 'center' or 'overlap', received {self.crop_emit_mode!r}")
        if self.rand_crop_prob > 0:
            if not self.max_crop_trials:
                raise MXNetError(f"{who}: expected at least one value for max_crop_trials, received none")
            if min(self.min_crop_aspect_ratios, default=1) < 0:
                raise MXNetError(f"{who}: min_crop_aspect_ratios={self.min_crop_aspect_ratios} must not be negative")
            for name, (low, high) in self._bounds().items():
                if len(low) != self.num_crop_sampler or len(high) != self.num_crop_sampler:
                    raise MXNetError(f"{who}: expected {self.num_crop_sampler} values of min_ and max_crop_{name}")
                if any(a > b for a, b in zip(low, high, strict=True)):
                    raise MXNetError(f"{who}: min_crop_{name}={low} exceeds max_crop_{name}={high}")

    def _bounds(self) -> dict[str, tuple[Floats, Floats]]:
        names = ("scales", "aspect_ratios", "overlaps", "sample_coverages", "object_coverages")
        return {name: (getattr(self, f"min_crop_{name}"), getattr(self, f"max_crop_{name}")) for name in names}

    def apply(
        self, pixels: np.ndarray, objects: np.ndarray, height: int, width: int, random: Random
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the image, no larger than (height, width), and its objects (class, left, top, right, bottom, ...)."""
        if self.resize > 0:
            edge = min(pixels.shape[:2])
            pixels = self._resized(
                pixels, pixels.shape[1] * self.resize // edge, pixels.shape[0] * self.resize // edge, random
            )
        pixels = self._colour(pixels, random)
        if random.random() < self.rand_mirror_prob:
            pixels = pixels[:, ::-1]
            objects = _boxes(
                objects, lambda box: np.stack([1 - box[:, 2], box[:, 1], 1 - box[:, 0], box[:, 3]], axis=1)
            )
        if random.random() < self.rand_pad_prob:
            pixels, objects = self._padded(pixels, objects, random)
        if random.random() < self.rand_crop_prob:
            pixels, objects = self._cropped(pixels, objects, random)
        return self._fitted(np.ascontiguousarray(pixels), height, width, random), objects

    def _resized(self, pixels: np.ndarray, width: int, height: int, random: Random) -> np.ndarray:
        if pixels.shape[:2] == (height, width):
            return pixels
        method = chosen_method(self.inter_method, pixels, width, height, random)
        return picture.resize(pixels, width, height, method)

    def _colour(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        chances = (
            (self.random_hue_prob, self.max_random_hue),
            (self.random_illumination_prob, self.max_random_illumination),
            (self.random_saturation_prob, self.max_random_saturation),
        )
        moves = [random.randint(-most, most) if random.random() < chance else 0 for chance, most in chances]
        if any(moves) and pixels.shape[2] == 3:
            moved = picture.convert(np.ascontiguousarray(pixels), "RGB2HLS").astype(np.int16) + np.array(moves)
            pixels = picture.convert(np.clip(moved, 0, (180, 255, 255)).astype(np.uint8), "HLS2RGB")
        if random.random() < self.random_contrast_prob:
            share = 1 + random.uniform(-self.max_random_contrast, self.max_random_contrast)
            pixels = np.clip(np.rint(pixels * np.float32(share)), 0, 255).astype(np.uint8)
        return pixels

    def _padded(self, pixels: np.ndarray, objects: np.ndarray, random: Random) -> tuple[np.ndarray, np.ndarray]:
        """Place the image in a larger one. Borders are rounded to whole pixels, box coordinates not, as in MXNet."""
        height, width = pixels.shape[:2]
        scale = random.uniform(1, max(self.max_pad_scale, 1))
        left, top = random.uniform(0, scale - 1), random.uniform(0, scale - 1)
        above, below = int(top * height), int((scale - 1 - top) * height)
        before, behind = int(left * width), int((scale - 1 - left) * width)
        larger = picture.pad(np.ascontiguousarray(pixels), above, below, before, behind, fill=self.fill_value)
        return larger, _boxes(objects, lambda box: (box + [left, top, left, top]) / scale)

    def _cropped(self, pixels: np.ndarray, objects: np.ndarray, random: Random) -> tuple[np.ndarray, np.ndarray]:
        """Return a random crop that satisfies one of the samplers, or the unchanged image."""
        samplers = list(range(self.num_crop_sampler))
        random.shuffle(samplers)
        for sampler in samplers:
            for _ in range(self.max_crop_trials[min(sampler, len(self.max_crop_trials) - 1)]):
                box = self._draw(sampler, pixels.shape[1] / pixels.shape[0], random)
                if self._fulfils(sampler, box, objects[:, 1:5]):
                    kept = self._kept(box, objects)
                    if len(kept):
                        return _cut(pixels, box), kept
        return pixels, objects

    def _draw(self, sampler: int, shape: float, random: Random) -> np.ndarray:
        """Draw a crop box in relative coordinates of an image with this aspect ratio; the crop's ratio is in pixels."""
        bounds = self._bounds()
        scale = max(random.uniform(*(side[sampler] for side in bounds["scales"])), 1e-3)
        low, high = (side[sampler] / shape for side in bounds["aspect_ratios"])
        aspect = random.uniform(max(low, scale * scale), min(high, 1 / (scale * scale)))
        width, height = min(scale * math.sqrt(aspect), 1.0), min(scale / math.sqrt(aspect), 1.0)
        left, top = random.uniform(0, 1 - width), random.uniform(0, 1 - height)
        return np.array([left, top, left + width, top + height])

    def _fulfils(self, sampler: int, box: np.ndarray, boxes: np.ndarray) -> bool:
        """Return whether the crop covers at least one object as far as the sampler requires."""
        boxes = boxes.astype(np.float64)  # as the crop, so that an object inside it has a coverage of exactly 1
        common, own, area = _common_area(box, boxes), _area(boxes), _area(box[None])[0]
        shares = {
            "overlaps": common / np.maximum(own + area - common, 1e-12),
            "sample_coverages": common / max(area, 1e-12),
            "object_coverages": common / np.maximum(own, 1e-12),
        }
        good = np.ones(len(boxes), bool)
        for name, share in shares.items():
            low, high = (side[sampler] for side in self._bounds()[name])
            good &= (share >= low) & (share <= high)
        return bool(good.any())

    def _kept(self, box: np.ndarray, objects: np.ndarray) -> np.ndarray:
        """Return the objects that the crop keeps, in coordinates of the crop."""
        boxes = objects[:, 1:5]
        if self.crop_emit_mode == "center":
            middles = (boxes[:, :2] + boxes[:, 2:]) / 2
            inside = ((middles >= box[:2]) & (middles <= box[2:])).all(1)
        else:
            inside = _common_area(box, boxes) > self.emit_overlap_thresh * _area(boxes)
        size = np.tile(box[2:] - box[:2], 2)
        return _boxes(objects[inside], lambda kept: np.clip((kept - np.tile(box[:2], 2)) / size, 0, 1))

    def _fitted(self, pixels: np.ndarray, height: int, width: int, random: Random) -> np.ndarray:
        if self.resize_mode == "force":
            return self._resized(pixels, width, height, random)
        old = np.array(pixels.shape[:2], np.float32)  # in float32, as in MXNet, where 44 * (60 / 44) is 60
        ratio = min(np.array((height, width), np.float32) / old)
        if self.resize_mode == "shrink":
            ratio = min(ratio, np.float32(1))
        down, across = (old * ratio).astype(int)
        return self._resized(pixels, max(across, 1), max(down, 1), random)


def _boxes(objects: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    changed = objects.copy()
    changed[:, 1:5] = change(objects[:, 1:5])
    return changed


def _area(boxes: np.ndarray) -> np.ndarray:
    return np.maximum(boxes[:, 2] - boxes[:, 0], 0) * np.maximum(boxes[:, 3] - boxes[:, 1], 0)


def _common_area(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    return _area(np.concatenate([np.maximum(boxes[:, :2], box[:2]), np.minimum(boxes[:, 2:], box[2:])], axis=1))


def _cut(pixels: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Return the pixels of a crop. Its origin and size are truncated to integers, as in MXNet."""
    size = np.array(pixels.shape[1::-1])
    left, top = (box[:2] * size).astype(int)
    width, height = np.maximum(((box[2:] - box[:2]) * size).astype(int), 1)
    return pixels[top : top + height, left : left + width]
