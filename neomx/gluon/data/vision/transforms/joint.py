"""Transforms of an image together with its boxes and masks.

`transform(image, boxes, masks)` moves all of them in the same way. Boxes and masks are optional, and may be passed by
name. The result is a tuple of the image and whatever else was passed.

- `boxes` are rows (xmin, ymin, xmax, ymax, ...) in pixels. A pixel at column i spans x from i to i + 1, so the box of a
  whole image is (0, 0, width, height). Further columns, such as the class, stay with their box. Boxes are clipped to
  the image. A box is dropped if less than the fraction `min_visible` of its area is left.
- `masks` have the height and width of the image: (h, w), or (h, w, n) for n masks. A pixel of the result has the value
  of the nearest pixel (0 outside of the image), so masks of any dtype keep their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .....ndarray import NDArray
from ....nn import HybridSequential
from .pixels import Fill, fill_of, number, rounded

Tensor = torch.Tensor
Size = tuple[int, int]


class Joint:
    """Base of transforms that can be called with boxes and masks."""

    def __call__(self, image: Any, boxes: Any = None, masks: Any = None) -> Any:
        if boxes is None and masks is None:
            return super().__call__(image)  # type: ignore[misc]
        if boxes is not None:  # floats, whether they are moved or not, so that a loader can batch them
            if np.shape(boxes) == np.shape(image)[:2] and np.shape(image)[1] > 5:
                raise ValueError(
                    f"boxes: received an array with the height and width of the image, {np.shape(boxes)}. Pass "
                    "masks by name: transform(image, masks=mask)"
                )
            boxes = _like(_checked_boxes(boxes), boxes)
        return tuple(part for part in self.jointly(image, boxes, masks) if part is not None)

    def jointly(self, image: Any, boxes: Any, masks: Any) -> tuple[Any, Any, Any]:
        """Return the transformed image, boxes and masks; None for those that are None."""
        raise NotImplementedError


def jointly(transform: Any, image: Any, boxes: Any, masks: Any) -> tuple[Any, Any, Any]:
    """Apply a transform. One that does not move pixels changes only the image."""
    if isinstance(transform, Joint):
        return transform.jointly(image, boxes, masks)
    if isinstance(transform, HybridSequential):  # Compose creates them
        for child in transform._children.values():
            image, boxes, masks = jointly(child, image, boxes, masks)
        return image, boxes, masks
    return transform(image), boxes, masks


class Geometric(Joint):
    """Base of transforms that move pixels.

    A box is dropped if less than the fraction `min_visible` of its area is left.
    """

    min_visible = 0.1
    _axes = (0, 1)  # those of height and width

    def __init__(self, min_visible: float = 0.1):
        super().__init__()
        self.min_visible = number("min_visible", min_visible, 0, 1)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        """Return the transformed image, and where its pixels come from."""
        raise NotImplementedError

    def jointly(self, image: Any, boxes: Any, masks: Any) -> tuple[Any, Any, Any]:
        """Move the image, the boxes and the masks in the same way."""
        if not isinstance(image, NDArray) or len(image.shape) != 3:
            received = tuple(image.shape) if isinstance(image, NDArray) else type(image).__name__
            raise ValueError(f"boxes and masks belong to one image (height, width, channels), received {received}")
        height, width = (image.shape[axis] for axis in self._axes)
        planes = None if masks is None else _checked_masks(masks, self._axes, height, width)
        image, move = self._moved(image)
        if boxes is not None:
            boxes = _like(_left(_checked_boxes(boxes), move, self.min_visible), boxes)
        if planes is not None and planes.dim() == 3:
            masks = _like(move.nearest(planes.movedim(self._axes, (0, 1))).movedim((0, 1), self._axes), masks)
        elif planes is not None:
            masks = _like(move.nearest(planes), masks)
        return image, boxes, masks


# ---- boxes and masks as they are passed ----


def _checked_boxes(boxes: Any) -> np.ndarray:
    """Return boxes as an array of floats."""
    rows = np.array(boxes.asnumpy() if isinstance(boxes, NDArray) else boxes)
    if rows.ndim != 2 or rows.shape[1] < 4 or rows.dtype.kind not in "iuf":
        raise ValueError(
            f"boxes: expected numbers of shape (n, 4 or more), which are xmin, ymin, xmax and ymax in pixels and any "
            f"further values, received {rows.dtype} of shape {rows.shape}"
        )
    if rows.dtype.kind != "f":
        rows = rows.astype(np.float32)
    wrong = ~((rows[:, 0] <= rows[:, 2]) & (rows[:, 1] <= rows[:, 3]) & np.isfinite(rows[:, :4]).all(1))
    if wrong.any():
        raise ValueError(f"boxes: expected xmin <= xmax and ymin <= ymax, received {rows[wrong][0, :4].tolist()}")
    return rows


def _checked_masks(masks: Any, axes: Size, height: int, width: int) -> Tensor:
    planes = masks._data.detach() if isinstance(masks, NDArray) else torch.tensor(masks)
    shape = tuple(planes.shape)
    found = shape if len(shape) == 2 else tuple(shape[axis] for axis in axes) if len(shape) == 3 else None
    if found != (height, width):
        order = "(h, w) or (h, w, n)" if axes == (0, 1) else "(h, w) or (n, h, w)"
        raise ValueError(
            f"masks: expected shape {order} with the height {height} and width {width} of the image, received {shape}"
        )
    return planes


def _like(result: Any, given: Any) -> Any:
    """Return boxes or masks as the kind of array that was passed."""
    if isinstance(given, NDArray):
        if isinstance(result, np.ndarray):
            return given._kind(torch.from_numpy(result).to(given._data.device), given.context)
        return given._kind(result.contiguous(), given.context)
    return result.contiguous().numpy() if isinstance(result, Tensor) else result


def _left(rows: np.ndarray, move: Move, min_visible: float) -> np.ndarray:
    """Return the moved boxes that are visible enough, clipped to the image."""
    height, width = move.new
    moved, area = move.corners(rows[:, :4].astype(np.float64))
    clipped = np.clip(moved, 0, (width, height, width, height))
    visible = _areas(clipped)
    result = rows.copy()
    result[:, :4] = clipped
    return result[(visible > 0) & (visible >= min_visible * area)]


def _areas(corners: np.ndarray) -> np.ndarray:
    return (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])


# ---- where pixels come from ----


class Move:
    """Where the pixels of a result of size `new` come from in an image of size `old`, both (height, width)."""

    def __init__(self, old: Size, new: Size):
        self.old, self.new = old, new

    @property
    def identity(self) -> bool:
        """Whether the result is equal to the image."""
        raise NotImplementedError

    def grid(self, device: torch.device) -> Tensor:
        """Return (x, y) of the source of each pixel, as (height, width, 2): -1 to 1 spans the image."""
        raise NotImplementedError

    def corners(self, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the moved corners of boxes, and the areas that they would have in an unlimited image."""
        raise NotImplementedError

    def linear(self, data: Tensor, fill: Fill = 0) -> Tensor:
        """Return an image (h, w, c), interpolated linearly. Pixels from outside of it have the color `fill`."""
        around = fill_of(fill, data)
        if self.identity:
            return data.clone()
        filled = isinstance(fill, tuple) or fill != 0
        work = data.to(torch.promote_types(data.dtype, torch.float32))
        planes = (work - around if filled else work).movedim(-1, 0)[None]
        grid = self.grid(data.device).to(planes.dtype)[None]
        result = F.grid_sample(planes, grid, "bilinear", "zeros", align_corners=False)[0].movedim(0, -1)
        return rounded(result + around if filled else result, data).contiguous()

    def nearest(self, data: Tensor) -> Tensor:
        """Return masks (h, w, ...): each pixel is the nearest one of `data`, or 0 if it comes from outside."""
        if self.identity:
            return data.clone()
        height, width = self.old
        x, y = (self.grid(data.device) + 1).unbind(-1)
        x, y = (x * (width / 2)).floor().long(), (y * (height / 2)).floor().long()
        outside = (x < 0) | (x >= width) | (y < 0) | (y >= height)
        found = data[y.clamp_(0, height - 1), x.clamp_(0, width - 1)]
        return found.masked_fill(outside.view(*outside.shape, *[1] * (data.dim() - 2)), 0)


class MatrixMove(Move):
    """An affine or projective move. The 3 x 3 matrix `back` maps positions in the result to those in the image."""

    def __init__(self, back: np.ndarray, old: Size, new: Size):
        super().__init__(old, new)
        self.back = back

    @classmethod
    def none(cls, size: Size) -> MatrixMove:
        """Return the move that changes nothing."""
        return cls(np.eye(3), size, size)

    @classmethod
    def crop(cls, place: tuple[int, int, int, int], old: Size, new: Size) -> MatrixMove:
        """Return the move that resizes the rectangle (x, y, width, height) to `new`."""
        x, y, width, height = place
        return cls(np.array([[width / new[1], 0, x], [0, height / new[0], y], [0, 0, 1]]), old, new)

    @property
    def identity(self) -> bool:
        """Whether the result is equal to the image."""
        return self.old == self.new and np.array_equal(self.back, np.eye(3))

    def grid(self, device: torch.device) -> Tensor:
        """Return the source of each pixel."""
        matrix = _scaled(self.old) @ self.back
        if not matrix[2, :2].any():
            return _mapped(matrix[:2] / matrix[2, 2], self.new, device)
        found = _mapped(matrix, self.new, device)
        # Points at and behind the horizon have no source: 2 is outside of the image.
        return torch.where(found[..., 2:] > 1e-6, found[..., :2] / found[..., 2:], 2.0)

    def corners(self, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounding boxes of the four moved corners, and their areas."""
        points = np.stack([boxes[:, [0, 2, 2, 0]], boxes[:, [1, 1, 3, 3]], np.ones((len(boxes), 4))], 2)
        moved = points @ np.linalg.inv(self.back).T
        moved = moved[:, :, :2] / moved[:, :, 2:]
        found = np.concatenate([moved.min(1), moved.max(1)], 1)
        return found, _areas(found)


class FieldMove(Move):
    """A move by a field (height, width, 2) of displacements (x, y): the distance of each pixel to its source."""

    def __init__(self, field: Tensor):
        size = field.shape[0], field.shape[1]
        super().__init__(size, size)
        self._field = field

    @property
    def identity(self) -> bool:
        """Whether the result is equal to the image."""
        return not self._field.any()

    def grid(self, device: torch.device) -> Tensor:
        """Return the source of each pixel."""
        height, width = self.old
        shift = self._field * torch.tensor((2 / width, 2 / height))
        return (_mapped(_scaled(self.old)[:2], self.old, shift.device) + shift).to(device)

    def corners(self, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounding boxes of the pixels whose source is in a box, and the former areas of the boxes."""
        x, y = (_mapped(np.eye(2, 3), self.old, self._field.device) + self._field).numpy().transpose(2, 0, 1)
        low, high = boxes[:, :2, None, None], boxes[:, 2:, None, None]
        inside = (x >= low[:, 0]) & (x < high[:, 0]) & (y >= low[:, 1]) & (y < high[:, 1])
        xmin, xmax = _extent(inside.any(1))
        ymin, ymax = _extent(inside.any(2))
        return np.stack([xmin, ymin, xmax, ymax], 1).astype(np.float64), _areas(boxes)


def _extent(present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first true index of each row, and the index after the last one; two zeros if there is none."""
    any_ = present.any(1)
    return present.argmax(1), np.where(any_, present.shape[1] - present[:, ::-1].argmax(1), 0)


def _scaled(size: Size) -> np.ndarray:
    """Return the matrix from pixels to -1 to 1."""
    return np.array([[2 / size[1], 0, -1], [0, 2 / size[0], -1], [0, 0, 1]])


def _mapped(matrix: np.ndarray, size: Size, device: torch.device) -> Tensor:
    """Return `matrix` times (x, y, 1) for the centers of all pixels, as (height, width, rows of the matrix).

    Sums that broadcast take one thread. A product of matrices would wait for others, even for small images.
    """
    by_x, by_y, offset = torch.tensor(matrix.T, dtype=torch.float32, device=device)
    y, x = (torch.arange(0.5, length, device=device).unsqueeze(1) for length in size)
    return (y * by_y + offset).unsqueeze(1) + x * by_x
