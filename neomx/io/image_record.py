"""ImageRecordIter: batches of images from RecordIO files, decoded ahead of time by threads."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats import picture
from ..formats.records import RecordPosition, RecordSource
from ..ndarray import array, load, save
from ..recordio import IRHeader, unpack
from .arguments import DataPart, Names, Shape, check, read
from .augment import Augmentation
from .dealt import Samples
from .io import DataBatch
from .lists import read_list
from .pipeline import RecordPipeline
from .reader import MXDataIter


@dataclass
class Records:
    """The paths of the record files, and the arguments that control batching."""

    path_imgrec: str
    data_shape: Shape
    batch_size: int
    path_imgidx: str = ""
    path_imglist: str = ""
    label_width: int = 1
    preprocess_threads: int = 4
    round_batch: bool = True
    shuffle: bool = False
    seed: int = 0
    shuffle_chunk_size: int = 0
    shuffle_chunk_seed: int = 0
    seed_aug: int | None = None
    dtype: str | None = None
    device_id: int = 0
    aug_seq: str = "aug_default"


@dataclass
class Means:
    """The mean to subtract from the pixels, the standard deviation to divide by, and the scale to multiply with."""

    mean_img: str = ""
    mean_r: float = 0.0
    mean_g: float = 0.0
    mean_b: float = 0.0
    mean_a: float = 0.0
    scale: float = 1.0
    std_r: float = 1.0
    std_g: float = 1.0
    std_b: float = 1.0
    std_a: float = 1.0

    def mean(self, channels: int) -> np.ndarray:
        """Return the mean of each channel, of a shape that broadcasts to (channels, height, width)."""
        return self._of_channels("mean", channels)

    def factor(self, channels: int) -> np.ndarray:
        """Return the factor of each channel."""
        std = self._of_channels("std", channels)
        return self.scale / np.where(std > 0, std, 1)

    def _of_channels(self, name: str, channels: int) -> np.ndarray:
        values = [getattr(self, f"{name}_{colour}") for colour in "rgba"]
        return np.array(values[:channels], np.float32).reshape(-1, 1, 1)


@dataclass
class Normalization(Means):
    """Mirroring, mean subtraction, contrast, illumination and scaling, in this order."""

    mirror: bool = False
    rand_mirror: bool = False
    max_random_contrast: float = 0.0
    max_random_illumination: float = 0.0


class ImageRecordIter(MXDataIter):
    """Iterate over batches (batch_size, channels, height, width) of RGB images from the RecordIO file `path_imgrec`.

    `path_imgrec` may also be a folder, or several files separated by ';'. `preprocess_threads` threads decode up to
    `prefetch_buffer` batches ahead. Each image is resized so that its shorter edge has `resize` pixels, augmented by
    the arguments of `Augmentation`, cropped to `data_shape` (channels, height, width) at the center (anywhere with
    `rand_crop`) and normalized by the arguments of `Normalization`. Labels come from the records, or from the list file
    `path_imglist`.

    With `num_parts` only the part `part_index` is read; each record belongs to exactly one part. With `shuffle` the
    order changes every epoch: the order of the whole part if there is an index, `path_imgidx`, else of chunks of
    `shuffle_chunk_size` megabytes. With `round_batch` the last batch is filled with records of the next pass and the
    next epoch continues after them; without it, the last batch is filled with zeros.
    """

    takes: tuple[type, ...] = (Records, DataPart, Augmentation, Normalization, Names)
    dtype: str | None = None
    gives_ids = False  # whether `DataBatch.index` holds the ids of the records

    def __init__(self, **given: Any) -> None:
        records, part, augmentation, normalization, names = read(self._who, given, *self.takes)
        super().__init__(records.batch_size, names)
        records.dtype = self.dtype or records.dtype or "float32"
        self._check(records)
        part = self._part(part, given)
        augmentation.check(self._who)
        source = RecordSource(
            records.path_imgrec,
            records.path_imgidx,
            part.num_parts,
            part.part_index,
            records.shuffle,
            (records.seed, records.shuffle_chunk_seed),
            records.shuffle_chunk_size << 20,
        )
        decoder = self._decoder(records, augmentation, normalization, source)
        self._work = RecordPipeline(self._who, source, decoder, records, names.prefetch_buffer, self.gives_ids)
        weakref.finalize(self, self._work.close)
        if normalization.mean_img:
            decoder.mean = _mean_image(normalization.mean_img, decoder, self._work)
        self._describe(decoder.shape, decoder.label_shape, np.dtype(records.dtype).type, np.float32)
        if self.is_dealt:
            self._deal(self._samples(records, source, names.prefetch_buffer))
        self.reset()

    def _samples(self, records: Any, source: RecordSource, ahead: int) -> Samples:
        """Return all records, to be dealt to the workers of an elastic job."""
        every = source.numbered()
        check(self._who, len(every) > 0, f"no records in {source.uri}")
        return Samples(
            len(every),
            self.batch_size,
            lambda numbers, seeds: self._work.make([every[number] for number in numbers], seeds),
            records.shuffle,
            abs(records.seed),
            threads=max(records.preprocess_threads, 1),
            ahead=max(ahead, 1),
        )

    def _decoder(self, records: Any, augmentation: Any, normalization: Any, source: RecordSource) -> PictureDecoder:
        return PictureDecoder(records, augmentation, normalization)

    def _check(self, records: Any) -> None:
        shape, dtypes = records.data_shape, ("float32", "uint8", "int8")
        good = len(shape) == 3 and shape[0] in (1, 3, 4) and min(shape) > 0
        check(self._who, good, f"data_shape must be (channels: 1, 3 or 4, height, width), received {shape}")
        check(self._who, records.dtype in dtypes, f"dtype must be one of {dtypes}, received {records.dtype!r}")
        lowest = type(records).label_width
        check(
            self._who,
            records.label_width >= min(lowest, 1),
            f"label_width must be at least {lowest}, received {records.label_width}",
        )
        check(self._who, records.aug_seq == type(records).aug_seq, f"unknown augmenter aug_seq={records.aug_seq!r}")
        check(self._who, records.path_imgrec != "", "path_imgrec must name a record file, received ''")

    def _start(self) -> Any:
        return self._work.start()

    def _start_at(self, start: Any) -> None:
        self._work.start_at(start)

    def _epoch(self, skip: int = 0) -> Iterator[DataBatch]:
        return self._work.epoch(skip)


class ImageRecordUInt8Iter(ImageRecordIter):
    """ImageRecordIter with dtype='uint8': the pixels are not normalized."""

    dtype = "uint8"


class ImageRecordInt8Iter(ImageRecordIter):
    """ImageRecordIter with dtype='int8': the mean is subtracted and the result clipped to [-128, 127]."""

    dtype = "int8"


class ImageRecordIter_v1(ImageRecordIter):
    """ImageRecordIter whose batches carry the ids of the records as their index."""

    gives_ids = True


class ImageRecordUInt8Iter_v1(ImageRecordIter_v1):
    """ImageRecordUInt8Iter whose batches carry the ids of the records as their index."""

    dtype = "uint8"


class PictureDecoder:
    """Converts a record to a sample: writes pixels and labels into rows of two arrays. Safe to use from any thread."""

    def __init__(self, records: Any, augmentation: Any, normalization: Any):
        self.shape, self.dtype = records.data_shape, np.dtype(records.dtype)
        self.label_shape: tuple[int, ...] = () if records.label_width == 1 else (records.label_width,)
        self._width = records.label_width
        self._labels = _labels_by_number(records.path_imglist, self._width) if records.path_imglist else None
        self._augmentation, self._normalization = augmentation, normalization
        self._seed = records.seed_aug or 0
        channels = self.shape[0]
        self._flag = {1: 0, 3: 1, 4: -1}[channels]
        self.mean, self.factor = normalization.mean(channels), normalization.factor(channels)

    def fill(self, place: RecordPosition, epoch: int, data: np.ndarray, label: np.ndarray, i: int) -> int:
        """Write the sample of a record to row `i` and return the record's id."""
        header = None
        try:
            header, encoded = unpack(place.read())
            # Each record seeds its own random numbers, so that results do not depend on threads or parts.
            random = Random(hash((self._seed, epoch, place.position)))
            self._put(header, encoded, data[i], label[i : i + 1], random)
        except (MXNetError, OSError) as error:
            record = f"record {header.id}" if header else "the record"
            raise MXNetError(f"{record} of {place.file.path} (at byte {place.position}): {error}") from error
        return int(header.id)

    def _put(self, header: IRHeader, encoded: bytes, data: np.ndarray, label: np.ndarray, random: Random) -> None:
        found = self._labels_of(header)
        if len(found) != self._width:
            raise MXNetError(f"expected label_width={self._width} labels, but the record has {len(found)}")
        label[0] = found if self.label_shape else found[0]
        pixels = self._augmentation.apply(self._decode(encoded), self.shape[1], self.shape[2], random)
        normal = self._normalization
        mirrored = normal.mirror or (normal.rand_mirror and random.random() < 0.5)
        self._normalize(pixels[:, ::-1] if mirrored else pixels, mirrored, data, random)

    def _labels_of(self, header: IRHeader) -> Any:
        found: Any = np.atleast_1d(header.label) if self._labels is None else self._labels.get(header.id)
        if found is None:
            raise MXNetError("the list path_imglist has no label for this record")
        return found

    def _decode(self, encoded: bytes) -> np.ndarray:
        pixels = picture.decode(encoded, self._flag)
        if pixels.shape[2] != self.shape[0]:
            raise MXNetError(
                f"data_shape={self.shape} needs {self.shape[0]} channels, but the image has {pixels.shape[2]}"
            )
        return pixels

    def _normalize(self, pixels: np.ndarray, mirrored: bool, out: np.ndarray, random: Random) -> None:
        mean = self.mean[:, :, ::-1] if mirrored else self.mean
        planes = pixels.transpose(2, 0, 1)
        if self.dtype == np.uint8:
            out[...] = planes
        elif self.dtype == np.int8:
            out[...] = np.clip(planes - np.floor(mean + 0.5), -128, 127)
        else:
            out[...] = planes
            if mean.any():
                out -= mean
            self._scale(out, random)

    def _scale(self, out: np.ndarray, random: Random) -> None:
        normal = self._normalization
        if normal.max_random_contrast or normal.max_random_illumination:
            contrast = random.uniform(-normal.max_random_contrast, normal.max_random_contrast)
            light = random.uniform(-normal.max_random_illumination, normal.max_random_illumination)
            out *= np.float32(1 + contrast)
            out += np.float32(light)
        if (self.factor != 1).any():
            out *= self.factor


def _labels_by_number(path: str, width: int) -> dict[int, tuple[float, ...]]:
    """Return the labels of a list file by record id."""
    entries = read_list(path)
    for entry in entries:
        if len(entry.labels) < width:
            raise MXNetError(f"{path}: expected label_width={width} labels in each line, received {entry.labels}")
    return {entry.number: entry.labels[:width] for entry in entries}


def _mean_image(path: str, decoder: PictureDecoder, work: RecordPipeline) -> np.ndarray:
    """Return the mean image stored in a file, after computing and writing it if the file does not exist."""
    if not os.path.exists(path):
        decoder.mean, factor = np.zeros((1, 1, 1), np.float32), decoder.factor
        decoder.factor, total, count = np.ones_like(factor), np.zeros(decoder.shape), 0
        for batch in work.epoch():
            data: Any = batch.data
            whole = data[0].asnumpy()[: work.size - (batch.pad or 0)]
            total, count = total + whole.sum(0, dtype=np.float64), count + len(whole)
        decoder.factor = factor
        save(path, {"mean_img": array(total / count)})
        work.forget()
    loaded: Any = load(path)
    mean = (loaded["mean_img"] if isinstance(loaded, dict) else loaded[0]).asnumpy()
    if mean.shape != decoder.shape:
        raise MXNetError(f"the mean image {path} has shape {mean.shape}, expected data_shape={decoder.shape}")
    return mean
