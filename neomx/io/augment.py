"""The augmentation that ImageRecordIter applies to an image between decoding and batching."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np

from ..base import MXNetError
from ..formats import picture

_NO_LIMIT = 1e10
_TRIALS = 10  # attempts to draw an area and an aspect ratio that fit into the image
# PCA of the RGB colors of ImageNet: the eigenvalues and eigenvectors along which PCA noise is added.
_EIGENVALUES = np.array([55.46, 4.794, 1.148], np.float32)
_EIGENVECTORS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]], np.float32
)
# MXNet applies the gray weights in BGR order to pixels in RGB order.
_GREY = np.array([0.114, 0.587, 0.299], np.float32)


@dataclass
class Augmentation:
    """Resizing, cropping and color augmentation. Steps run in the order of the fields, each only if requested."""

    resize: int = -1
    max_rotate_angle: int = 0
    rotate: int = -1
    max_aspect_ratio: float = 0.0
    min_aspect_ratio: float | None = None
    max_shear_ratio: float = 0.0
    max_random_scale: float = 1.0
    min_random_scale: float = 1.0
    max_img_size: float = _NO_LIMIT
    min_img_size: float = 0.0
    pad: int = 0
    random_resized_crop: bool = False
    max_random_area: float = 1.0
    min_random_area: float = 1.0
    max_crop_size: int = -1
    min_crop_size: int = -1
    rand_crop: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    pca_noise: float = 0.0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    fill_value: int = 255
    inter_method: int = 1

    def check(self, who: str) -> None:
        """Raise MXNetError if the arguments are invalid or cannot be combined."""
        if self.inter_method not in (0, 1, 2, 3, 4, 9, 10):
            raise MXNetError(f"{who}: inter_method must be 0, 1, 2, 3, 4, 9 or 10, received {self.inter_method}")
        sized = self.max_crop_size != -1 or self.min_crop_size != -1
        scaled = self.max_random_scale != 1 or self.min_random_scale != 1
        if self.random_resized_crop and (sized or scaled or self.rand_crop):
            raise MXNetError(
                f"{who}: random_resized_crop chooses position and size itself: omit min_random_scale, "
                "max_random_scale, min_crop_size, max_crop_size and rand_crop"
            )
        if sized and not 0 < self.min_crop_size <= self.max_crop_size:
            raise MXNetError(
                f"{who}: min_crop_size and max_crop_size must be positive and in this order, received "
                f"{self.min_crop_size} and {self.max_crop_size}"
            )

    def apply(self, pixels: np.ndarray, height: int, width: int, random: Random) -> np.ndarray:
        """Return the augmented image, of shape (height, width, channels)."""
        if self.resize > 0:
            pixels = self._short_edge(pixels, random)
        if self._warps():
            pixels = self._warp(pixels, random)
        if self.pad > 0:
            pixels = picture.pad(pixels, self.pad, self.pad, self.pad, self.pad, fill=self.fill_value)
        return self._colour(self._crop(pixels, height, width, random), random)

    def _resized(self, pixels: np.ndarray, width: int, height: int, random: Random) -> np.ndarray:
        if pixels.shape[:2] == (height, width):
            return pixels
        method = chosen_method(self.inter_method, pixels, width, height, random)
        return picture.resize(pixels, width, height, method)

    def _short_edge(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        height, width = pixels.shape[:2]
        if height > width:
            return self._resized(pixels, self.resize, height * self.resize // width, random)
        return self._resized(pixels, width * self.resize // height, self.resize, random)

    def _warps(self) -> bool:
        turned = self.max_rotate_angle > 0 or self.rotate > 0 or self.max_shear_ratio > 0
        scaled = self.max_random_scale != 1 or self.min_random_scale != 1
        stretched = not self.random_resized_crop and (self.max_aspect_ratio != 0 or self.min_aspect_ratio is not None)
        return turned or scaled or stretched or self.max_img_size != _NO_LIMIT or self.min_img_size != 0

    def _aspect(self, random: Random) -> float:
        low = 1 - self.max_aspect_ratio if self.min_aspect_ratio is None else self.min_aspect_ratio
        high = 1 + self.max_aspect_ratio if self.min_aspect_ratio is None else self.max_aspect_ratio
        return random.uniform(low, high)

    def _warp(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        """Rotate, shear, scale and stretch the image about its center."""
        height, width = pixels.shape[:2]
        degrees = self.rotate if self.rotate > 0 else random.randint(-self.max_rotate_angle, self.max_rotate_angle)
        shear = random.uniform(-self.max_shear_ratio, self.max_shear_ratio)
        scale = random.uniform(self.min_random_scale, self.max_random_scale)
        aspect = 1.0 if self.random_resized_crop else self._aspect(random)
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        across = 2 * scale / (1 + aspect)
        down = aspect * across
        matrix = np.array(
            [[across * cos - shear * sin * down, across * sin + shear * cos * down, 0], [-sin * down, cos * down, 0]],
            np.float32,
        )
        size = [max(self.min_img_size, min(self.max_img_size, scale * edge)) for edge in (width, height)]
        matrix[:, 2] = (np.array(size) - matrix[:, :2] @ np.array([width, height])) / 2
        new_width, new_height = (int(edge) for edge in size)
        method = chosen_method(self.inter_method, pixels, new_width, new_height, random)
        return picture.warp(pixels, matrix, new_width, new_height, 1 if method == 3 else method, fill=self.fill_value)

    def _crop(self, pixels: np.ndarray, height: int, width: int, random: Random) -> np.ndarray:
        if self.random_resized_crop and (self.max_random_area != 1 or self.min_random_area != 1):
            piece = self._piece_of_area(pixels, random)
            if piece is not None:
                return self._resized(piece, width, height, random)
        if self.max_crop_size > 0:
            size = random.randint(self.min_crop_size, self.max_crop_size)
            if min(pixels.shape[:2]) < self.max_crop_size:
                raise MXNetError(f"max_crop_size={self.max_crop_size} exceeds the image size {pixels.shape[:2]}")
            return self._resized(self._cut(pixels, size, size, random), width, height, random)
        return self._cut(self._at_least(pixels, height, width, random), height, width, random)

    def _at_least(self, pixels: np.ndarray, height: int, width: int, random: Random) -> np.ndarray:
        """Enlarge the image if it is smaller than (height, width). Sizes are computed in float32, as in MXNet."""
        method = chosen_method(self.inter_method, pixels, width, height, random)
        if pixels.shape[0] < height:
            across = int(np.float32(height) / np.float32(pixels.shape[0]) * np.float32(pixels.shape[1]))
            pixels = picture.resize(pixels, across, height, method)
        if pixels.shape[1] < width:
            down = int(np.float32(width) / np.float32(pixels.shape[1]) * np.float32(pixels.shape[0]))
            pixels = picture.resize(pixels, width, down, method)
        return pixels

    def _piece_of_area(self, pixels: np.ndarray, random: Random) -> np.ndarray | None:
        height, width = pixels.shape[:2]
        for _ in range(_TRIALS):
            area = random.uniform(self.min_random_area, self.max_random_area) * height * width
            aspect = self._aspect(random)
            across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < across <= width and 0 < down <= height:
                top, left = random.randint(0, height - down), random.randint(0, width - across)
                return pixels[top : top + down, left : left + across]
        return None

    def _cut(self, pixels: np.ndarray, height: int, width: int, random: Random) -> np.ndarray:
        below, right = pixels.shape[0] - height, pixels.shape[1] - width
        top = random.randint(0, below) if self.rand_crop else below // 2
        left = random.randint(0, right) if self.rand_crop else right // 2
        return pixels[top : top + height, left : left + width]

    def _colour(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        changes = [
            change
            for change, amount in (
                (self._brighter, self.brightness),
                (self._contrasted, self.contrast),
                (self._saturated, self.saturation),
            )
            if amount > 0
        ]
        random.shuffle(changes)
        for change in changes:
            pixels = change(pixels, random)
        if pixels.shape[2] >= 3:
            if self.random_h or self.random_s or self.random_l:
                pixels = self._tinted(pixels, random)
            if self.pca_noise > 0:
                noise = _EIGENVECTORS @ (_EIGENVALUES * [random.gauss(0, self.pca_noise) for _ in range(3)])
                pixels = _bytes(pixels[:, :, :3] + noise.astype(np.float32))
        return pixels

    def _brighter(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        return _bytes(pixels * np.float32(1 + random.uniform(-self.brightness, self.brightness)))

    def _contrasted(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        share = np.float32(1 + random.uniform(-self.contrast, self.contrast))
        return _bytes(pixels * share + (1 - share) * _grey(pixels).mean())

    def _saturated(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        share = np.float32(1 + random.uniform(-self.saturation, self.saturation))
        return _bytes(pixels * share + (1 - share) * _grey(pixels)[:, :, None])

    def _tinted(self, pixels: np.ndarray, random: Random) -> np.ndarray:
        amounts = [random.randint(-amount, amount) for amount in (self.random_h, self.random_l, self.random_s)]
        moved = picture.convert(np.ascontiguousarray(pixels), "RGB2HLS").astype(np.int16) + np.array(amounts, np.int16)
        return picture.convert(np.clip(moved, 0, (180, 255, 255)).astype(np.uint8), "HLS2RGB")


def chosen_method(method: int, pixels: np.ndarray, width: int, height: int, random: Random) -> int:
    """Return the interpolation method: 10 draws one, 9 selects one by whether the image is enlarged or shrunk."""
    if method == 10:
        return random.randrange(5)
    if method != 9:
        return method
    old_height, old_width = pixels.shape[:2]
    if width > old_width and height > old_height:
        return 2
    return 3 if width < old_width and height < old_height else 1


def _grey(pixels: np.ndarray) -> np.ndarray:
    return pixels[:, :, :3] @ _GREY if pixels.shape[2] >= 3 else pixels[:, :, 0].astype(np.float32)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
