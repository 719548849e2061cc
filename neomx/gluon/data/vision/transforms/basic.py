"""Transforms of transforms, and conversions."""

from __future__ import annotations

from typing import Any

from .....ops.random import python_source
from ....block import Block, HybridBlock
from ....nn import HybridSequential, Lambda, Sequential
from .joint import Joint, jointly

__all__ = ["Cast", "Compose", "Normalize", "RandomApply", "ToTensor"]


class Compose(Joint, Sequential):
    """Applies several transforms (Blocks or functions) in sequence. Adjacent HybridBlocks run as one.

    Called with boxes or masks, it passes them through the transforms that move pixels.
    """

    def __init__(self, transforms: Any):
        super().__init__()
        hybrid: list[HybridBlock] = []
        for transform in [*transforms, None]:
            if isinstance(transform, HybridBlock):
                hybrid.append(transform)
                continue
            if len(hybrid) == 1:
                self.add(hybrid[0])
            elif hybrid:
                together = HybridSequential()
                together.add(*hybrid)
                together.hybridize()
                self.add(together)
            hybrid = []
            if transform is not None:
                self.add(transform if isinstance(transform, Block) else Lambda(transform))

    def jointly(self, image: Any, boxes: Any, masks: Any) -> tuple[Any, Any, Any]:
        """Apply all transforms to the image, and those that move pixels to the boxes and masks."""
        for transform in self._children.values():
            image, boxes, masks = jointly(transform, image, boxes, masks)
        return image, boxes, masks


class Cast(HybridBlock):
    """Casts the image to `dtype`."""

    def __init__(self, dtype: Any = "float32"):
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Cast `x`."""
        return F.cast(x, self._dtype)


class RandomApply(Joint, Sequential):
    """Applies a transform with probability `p`."""

    def __init__(self, transforms: Any, p: float = 0.5):
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, x: Any) -> Any:
        """Return the transformed `x`, or `x` itself."""
        return x if self.p < python_source().random() else self.transforms(x)

    def jointly(self, image: Any, boxes: Any, masks: Any) -> tuple[Any, Any, Any]:
        """Return what was passed, transformed or not."""
        if self.p < python_source().random():
            return image, boxes, masks
        return jointly(self.transforms, image, boxes, masks)


class ToTensor(HybridBlock):
    """Converts (h, w, channels) from 0 to 255 to float32 (channels, h, w) from 0 to 1. Accepts a batch (n, ...) too."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Convert `x`."""
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - `mean`) / `std` of an image (channels, h, w). Both are numbers, or tuples with one number per channel."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0):
        super().__init__()
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Normalize `x`."""
        return F.image.normalize(x, self._mean, self._std)
