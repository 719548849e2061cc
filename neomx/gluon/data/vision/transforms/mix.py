"""MixUp and CutMix: samples that are mixed from two, with soft labels.

Both have two forms. `x, y = mix(x, y)` mixes the samples of a batch with each other, which is fast. `MixedDataset`
mixes each item of a dataset with another one.

The batch form depends on the batch: the partners of a sample are the other samples of this worker's batch. Two workers
with 16 samples each therefore train on other mixtures than one worker with 32. The partner of an item of a
`MixedDataset` is drawn from the whole dataset by the item's own random numbers, so that the mixtures are the same for
any number of workers and loader processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .....ndarray import NDArray
from .....ops.random import rng
from ...dataset import Dataset
from .pixels import number, whole

Tensor = torch.Tensor

__all__ = ["CutMix", "MixUp", "MixedDataset"]


class _Mix:
    """Base of both ways to mix. `_mixed` returns the mixed data and the share of the first samples in them."""

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None, per_sample: bool = False):
        self._alpha = number("alpha", alpha, 0, above=True)
        self._num_classes = None if num_classes is None else whole("num_classes", num_classes, 1)
        self._per_sample = per_sample

    def __call__(self, x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
        """Return a batch of mixed samples, and their soft labels (n, classes) as float32."""
        data, labels = _data(x), self._soft(_data(y))
        if data.dim() < 2 or len(data) != len(labels):
            raise ValueError(
                f"expected a batch (n, ...) and its n labels, received shapes {tuple(x.shape)} and {tuple(y.shape)}"
            )
        random = rng()
        order = torch.from_numpy(random.permutation(len(data))).to(data.device)
        mixed, labels = self._both(data, data[order], labels, labels[order.to(labels.device)], random)
        return x._kind(mixed, x.context), y._kind(labels, y.context)

    def of_items(self, item: Any, other: Any) -> tuple[NDArray, NDArray]:
        """Return an item (x, y) of a dataset mixed with another one."""
        for each in (item, other):
            if not isinstance(each, tuple) or len(each) != 2:
                raise ValueError(f"expected a dataset of items (x, y), received an item of type {type(each).__name__}")
        (x, y), (other_x, other_y) = item, other
        data, other_data = _data(x), _data(other_x)
        if data.shape != other_data.shape:
            shapes = f"{tuple(data.shape)} and {tuple(other_data.shape)}"
            raise ValueError(f"cannot mix samples of different shapes {shapes}: resize them before")
        labels, other_labels = (
            self._soft(torch.tensor(_values(each), device=data.device)[None]) for each in (y, other_y)
        )
        mixed, soft = self._both(data[None], other_data[None], labels, other_labels, rng())
        return x._kind(mixed[0], x.context), x._kind(soft[0], x.context)

    def _both(
        self, data: Tensor, other: Tensor, labels: Tensor, other_labels: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the mixed data and the mixed labels of two batches."""
        shares = random.beta(self._alpha, self._alpha, len(data) if self._per_sample else 1)
        mixed, shares = self._mixed(data, other, shares, random)
        share = torch.from_numpy(shares).to(labels).unsqueeze(1)
        return mixed, labels * share + other_labels * (1 - share)

    def _mixed(self, data: Tensor, other: Tensor, shares: np.ndarray, random: Any) -> tuple[Tensor, np.ndarray]:
        raise NotImplementedError

    def _soft(self, labels: Tensor) -> Tensor:
        """Return labels as (n, classes): the indices of classes become rows with a single 1."""
        if labels.dim() == 2 and labels.is_floating_point():
            if self._num_classes not in (None, labels.shape[1]):
                raise ValueError(f"expected soft labels of {self._num_classes} classes, received {labels.shape[1]}")
            return labels.float()
        if labels.dim() != 1:
            raise ValueError(
                "expected labels as the indices of classes (n,) or as floats (n, classes), received "
                f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}"
            )
        if self._num_classes is None:
            raise ValueError("num_classes must be specified for labels that are the indices of classes")
        index = labels.long()
        if not bool(((index == labels) & (index >= 0) & (index < self._num_classes)).all()):
            raise ValueError(f"expected labels from 0 to {self._num_classes - 1}, received {labels.tolist()}")
        return torch.nn.functional.one_hot(index, self._num_classes).float()


def _data(array: Any) -> Tensor:
    if not isinstance(array, NDArray):
        raise TypeError(f"expected an mx.nd or mx.np array, received {type(array).__name__}")
    return array._data.detach()


def _values(label: Any) -> np.ndarray:
    values = label.asnumpy() if isinstance(label, NDArray) else np.asarray(label)
    return values.reshape(()) if values.size == 1 else values


class MixUp(_Mix):
    """Mixes samples as share * a + (1 - share) * b, with their labels.

    The share is drawn from Beta(`alpha`, `alpha`): one for the batch, or one for each sample with `per_sample`.
    `num_classes` is needed if labels are the indices of classes. Samples of whole numbers become float32.
    """

    def _mixed(self, data: Tensor, other: Tensor, shares: np.ndarray, random: Any) -> tuple[Tensor, np.ndarray]:
        if not data.is_floating_point():
            data, other = data.float(), other.float()
        share = torch.from_numpy(shares).to(data).view(-1, *[1] * (data.dim() - 1))
        return data * share + other * (1 - share), shares


class CutMix(_Mix):
    """Replaces a rectangle of each image with that of another one, and mixes their labels by area.

    The area is a share drawn from Beta(`alpha`, `alpha`), and its center any pixel: one rectangle for the batch, or one
    for each sample with `per_sample`. The rectangle is clipped to the image. `num_classes` is needed if labels are the
    indices of classes. `layout` is "CHW" for images (channels, h, w), or "HWC".
    """

    def __init__(
        self, alpha: float = 1.0, num_classes: int | None = None, per_sample: bool = False, layout: str = "CHW"
    ):
        super().__init__(alpha, num_classes, per_sample)
        if layout not in ("CHW", "HWC"):
            raise ValueError(f"layout={layout!r}: expected 'CHW' or 'HWC'")
        self._layout = layout

    def _mixed(self, data: Tensor, other: Tensor, shares: np.ndarray, random: Any) -> tuple[Tensor, np.ndarray]:
        if data.dim() != 4:
            raise ValueError(
                f"CutMix expects images ({', '.join(self._layout.lower())}), received {tuple(data.shape[1:])}"
            )
        inside, area = [], np.ones_like(shares)
        for length in data.shape[2:] if self._layout == "CHW" else data.shape[1:3]:
            center, half = random.integers(length, size=len(shares)), np.sqrt(1 - shares) * length / 2
            low, high = np.rint((center - half).clip(0, length)), np.rint((center + half).clip(0, length))
            pixel = np.arange(length)
            inside.append((pixel >= low[:, None]) & (pixel < high[:, None]))
            area = area * (high - low) / length
        mask = torch.from_numpy(inside[0][:, :, None] & inside[1][:, None, :]).to(data.device)
        return torch.where(mask.unsqueeze(1 if self._layout == "CHW" else 3), other, data), 1 - area


class MixedDataset(Dataset):
    """The items (x, y) of a dataset, each mixed by a MixUp or CutMix with an item drawn from the whole dataset.

    The items are mixed on access. The partner and the share depend on the item's own random numbers: with
    `mx.dist.shard(MixedDataset(...), seed=...)` they are the same for any number of workers.
    """

    def __init__(self, dataset: Any, mix: _Mix):
        if not isinstance(mix, _Mix):
            raise TypeError(f"mix: expected a MixUp or a CutMix, received {type(mix).__name__}")
        self._dataset, self._mix = dataset, mix

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, idx: int) -> tuple[NDArray, NDArray]:
        item = self._dataset[idx]
        return self._mix.of_items(item, self._dataset[int(rng().integers(len(self)))])
