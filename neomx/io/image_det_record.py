"""ImageDetRecordIter: batches of images with bounding boxes, from RecordIO files."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import numpy as np

from ..base import MXNetError
from ..formats.records import RecordPosition, RecordSource
from ..recordio import IRHeader
from .arguments import DataPart, Names, Shape, check
from .det_augment import DetAugmentation
from .image_record import ImageRecordIter, Means, PictureDecoder
from .lists import read_list


@dataclass
class DetRecords:
    """The paths of the record files, and the arguments that control batching."""

    data_shape: Shape
    batch_size: int
    path_imgrec: str = "./data/imgrec.rec"
    path_imgidx: str = ""
    path_imglist: str = ""
    label_width: int = -1
    label_pad_width: int = 0
    label_pad_value: float = -1.0
    preprocess_threads: int = 4
    round_batch: bool = True
    shuffle: bool = False
    seed: int = 0
    shuffle_chunk_size: int = 0
    shuffle_chunk_seed: int = 0
    seed_aug: int | None = None
    dtype: str | None = None
    device_id: int = 0
    aug_seq: str = "det_aug_default"


@dataclass
class DetMeans(Means):
    """As Means; a standard deviation of 0 means no division."""

    std_r: float = 0.0
    std_g: float = 0.0
    std_b: float = 0.0
    std_a: float = 0.0
    max_random_contrast: ClassVar[float] = 0.0
    max_random_illumination: ClassVar[float] = 0.0


class ImageDetRecordIter(ImageRecordIter):
    """Iterate over batches of images with their objects, from a RecordIO file.

    The label of a record consists of the width of the header (2 or more), the width of an object (5 or more), the rest
    of the header, and the objects: class, left, top, right and bottom relative to the image size, then any further
    values. The label of a batch holds, for each image, its channels, height, width, the number of label values and
    these values, padded with `label_pad_value` to the longest label of the file or to `label_pad_width`. The arguments
    of `DetAugmentation` control how images and boxes are augmented.
    """

    takes = (DetRecords, DataPart, DetAugmentation, DetMeans, Names)
    gives_ids = True

    def _decoder(self, records: Any, augmentation: Any, normalization: Any, source: RecordSource) -> PictureDecoder:
        return ObjectDecoder(self._who, records, augmentation, normalization, source)


class ObjectDecoder(PictureDecoder):
    """Converts a record with objects to a sample."""

    def __init__(self, who: str, records: DetRecords, augmentation: Any, normalization: Any, source: RecordSource):
        lists = (
            {entry.number: entry.labels for entry in read_list(records.path_imglist)} if records.path_imglist else None
        )
        width = max(map(len, lists.values())) if lists else _longest(source)
        check(
            who,
            records.label_width in (-1, width),
            f"label_width={records.label_width} does not match the records, which have {width}; -1 accepts any width",
        )
        check(
            who,
            records.label_pad_width <= 0 or records.label_pad_width >= width,
            f"label_pad_width={records.label_pad_width} is less than the {width} labels of a record",
        )
        super().__init__(records, augmentation, normalization)
        self._labels, self._width = lists, max(width, records.label_pad_width)
        self.label_shape, self._pad_value = (4 + self._width,), records.label_pad_value

    def _put(self, header: IRHeader, encoded: bytes, data: np.ndarray, label: np.ndarray, random: Random) -> None:
        found = np.asarray(self._labels_of(header), np.float32)
        head, objects = _objects(found)
        pixels, objects = self._augmentation.apply(self._decode(encoded), objects, *self.shape[1:], random)
        labels = np.concatenate([head, objects.ravel()])
        height, width = pixels.shape[:2]
        label[0] = self._pad_value
        label[0, : 4 + len(labels)] = [self.shape[0], height, width, len(labels), *labels]
        whole = np.zeros((*self.shape[1:], pixels.shape[2]), np.uint8)  # the area around the image is black
        whole[:height, :width] = pixels
        self._normalize(whole, False, data, random)


def _objects(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the header of a record's label, and its objects, one per row."""
    head, width = (int(v) for v in labels[:2]) if len(labels) > 1 and np.isfinite(labels[:2]).all() else (0, 0)
    if head < 2 or width < 5 or len(labels) < head or (len(labels) - head) % width:
        raise MXNetError(
            "expected a label of a header (header width, object width, ...) and objects of at least 5 values, "
            f"received {labels.tolist()}"
        )
    return labels[:head], labels[head:].reshape(-1, width)


def _longest(source: RecordSource) -> int:
    """Return the largest number of label values of any record."""
    return max(map(_number_of_labels, source.one_pass(0)), default=0)


def _number_of_labels(place: RecordPosition) -> int:
    """Return the number of labels in a record's header, or 0 if the record is shorter; reading it raises the error."""
    head = place.file.begin(place.position, 4)
    number = max(struct.unpack("<I", head)[0], 1) if len(head) == 4 else 0
    return number if 4 * number <= place.file.length(place.position) else 0
