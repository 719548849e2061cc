"""ImageIter: batches of augmented images from a RecordIO file, a list file or a list."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats.text import numbered_lines
from ..io.io import DataBatch, DataIter
from ..ndarray import NDArray, array, empty, transpose, zeros
from ..recordio import MXIndexedRecordIO, MXRecordIO, unpack
from .augment import CreateAugmenter
from .functions import imdecode

__all__ = ["ImageIter"]

_LABEL_DTYPES = ("int32", "float32", "int64", "float64")
_LAST_BATCH = ("pad", "discard", "roll_over")


class ImageIter(DataIter):
    """Iterate over batches (data (batch, 3, height, width), label) of images in a `.rec` file or in a folder.

    Pass one source: `path_imgrec` (with `path_imgidx` to shuffle or to split among `num_parts`), or `path_root` with a
    list file `path_imglist` (lines of index, labels and file name, separated by tabs) or with `imglist` (items of label
    and file name). Other keyword arguments are passed to `CreateAugmenter`, unless `aug_list` is given. The last batch
    is padded from the beginning ('pad'), dropped ('discard'), or kept for the start of the next epoch ('roll_over').
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
        label_width: int = 1,
        path_imgrec: str | os.PathLike[str] | None = None,
        path_imglist: str | os.PathLike[str] | None = None,
        path_root: str | os.PathLike[str] | None = None,
        path_imgidx: str | os.PathLike[str] | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Any] | None = None,
        imglist: Sequence[Any] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size)
        assert path_imgrec or path_imglist or isinstance(imglist, list), (
            "ImageIter needs a source: path_imgrec, or path_imglist or imglist with path_root"
        )
        assert dtype in _LABEL_DTYPES, f"{dtype} label not supported: expected one of {', '.join(_LABEL_DTYPES)}"
        if last_batch_handle not in _LAST_BATCH:
            raise ValueError(f"last_batch_handle={last_batch_handle!r}: expected one of {', '.join(_LAST_BATCH)}")
        if batch_size < 1:
            raise MXNetError(f"batch_size={batch_size}: expected at least 1")
        self.imgrec, self.imgidx = self._open_records(path_imgrec, path_imgidx)
        listed = self._read_list(path_imglist, imglist, dtype)
        self.imglist = None if listed is None else dict(listed)
        self.path_root, self.label_width = path_root, label_width
        self.check_data_shape(data_shape)
        self.data_shape = tuple(data_shape)
        self.provide_data = [(data_name, (batch_size, *self.data_shape))]
        self.provide_label = [(label_name, (batch_size, label_width) if label_width > 1 else (batch_size,))]
        self.shuffle, self.last_batch_handle = shuffle, last_batch_handle
        self.seq = self._order([key for key, _ in listed or ()], shuffle, part_index, num_parts)
        self.num_image = None if self.seq is None else len(self.seq)
        self._keys = list(self.seq or ())  # in the original order
        self._places = np.arange(len(self._keys))  # of the keys in `seq`, among these
        self.auglist: list[Any] = list(CreateAugmenter(data_shape, **kwargs) if aug_list is None else aug_list)
        self.cur = 0
        self._exhausted = False
        self._left_over: tuple[NDArray, NDArray, int] | None = None  # an incomplete batch and its number of images
        self.reset()

    # ---- the source ----

    def _open_records(self, path: Any, path_idx: Any) -> tuple[MXRecordIO | None, list[Any] | None]:
        if not path:
            return None, None
        logging.info("%s: loading recordio %s...", type(self).__name__, path)
        if path_idx:
            records = MXIndexedRecordIO(path_idx, path, "r")
            return records, list(records.keys)
        return MXRecordIO(path, "r"), None

    def _read_list(self, path: Any, items: Any, dtype: str) -> list[tuple[Any, tuple[NDArray, str]]] | None:
        """Return (key, (label, file name)) of each line of a list file, or item of a list."""
        if path:
            logging.info("%s: loading image list %s...", type(self).__name__, path)
            os.stat(path)  # raises FileNotFoundError, as in MXNet
            lines = [_list_line(path, number, line, dtype) for number, line in numbered_lines(os.fspath(path))]
            _warn_of_repeated(path, [key for key, _ in lines])
            return lines
        if not isinstance(items, list):
            return None
        logging.info("%s: loading image list...", type(self).__name__)
        return [(str(number), _list_item(number, item, dtype)) for number, item in enumerate(items, 1)]

    def _order(self, listed: list[Any], shuffle: bool, part_index: int, num_parts: int) -> list[Any] | None:
        """Return the keys of this part of the images; None to read them in file order."""
        if self.imgrec is None:
            keys = listed
        elif self.imgidx is not None:
            keys = self.imgidx
        else:
            assert not shuffle and num_parts == 1, (
                "ImageIter needs the index of a .rec file, path_imgidx, to shuffle or split it"
            )
            return None
        assert 0 <= part_index < num_parts, f"part_index={part_index}: expected a value from 0 to {num_parts - 1}"
        size = len(keys) // num_parts
        return keys if num_parts == 1 else keys[part_index * size : (part_index + 1) * size]

    # ---- iteration ----

    def reset(self) -> None:
        """Start an epoch, with the images left over from the last one for 'roll_over'."""
        if not self._restarts():
            return
        if self.seq is not None and self.shuffle:
            order = list(range(len(self.seq)))
            random.shuffle(order)
            self._places = self._places[order]
            self.seq[:] = [self.seq[i] for i in order]
        if self._left_over is None:
            self._rewind()
        self._exhausted = False

    def hard_reset(self) -> None:
        """Start an epoch, and drop the images left over from the last one."""
        self._keeps_position, self._left_over = False, None
        self.reset()

    def _position(self) -> dict[str, Any]:
        state = {"images": len(self._keys), "cur": self.cur, "exhausted": self._exhausted, "places": self._places}
        if self._left_over is None:
            return state
        data, label, count = self._left_over
        return {**state, "left": {"data": data.asnumpy(), "label": label.asnumpy(), "count": count}}

    def _go_to(self, state: dict[str, Any]) -> None:
        if state["images"] != len(self._keys):
            raise MXNetError(
                f"the position is in {state['images']} images, but this iterator has {len(self._keys)}. Create the "
                "iterator as for the run that saved the position"
            )
        self._rewind()
        self.cur, self._exhausted = int(state["cur"]), bool(state["exhausted"])
        if self.seq is not None:
            self._places = np.asarray(state["places"])
            self.seq[:] = [self._keys[i] for i in self._places.tolist()]
        elif self.imgrec is not None:
            for _ in range(self.cur):
                self.imgrec.read()
        left = state.get("left")
        self._left_over = left and (array(left["data"]), array(left["label"]), int(left["count"]))

    def _rewind(self) -> None:
        self.cur = 0
        if self.seq is None and self.imgrec is not None:
            self.imgrec.reset()

    def next_sample(self) -> tuple[Any, bytes]:
        """Return the label and the encoded bytes of the next image, or raise StopIteration at the end."""
        if self._exhausted:
            raise StopIteration
        if self.seq is None:
            record = self.imgrec.read()  # type: ignore[union-attr]
        elif self.cur < len(self.seq):
            key = self.seq[self.cur]
            if self.imgrec is None:
                self.cur += 1
                label, name = self.imglist[key]  # type: ignore[index]
                return label, self.read_image(name)
            record = self.imgrec.read_idx(key)  # type: ignore[attr-defined]
        else:
            record = None
        if record is None:
            if self.last_batch_handle != "discard":
                self._rewind()
            raise StopIteration
        self.cur += 1
        header, encoded = unpack(record)
        if self.seq is None or self.imglist is None:
            return header.label, encoded
        return self.imglist[key][0], encoded

    def next(self) -> DataBatch:
        """Return the next batch."""
        try:
            batch = self._next()
        except StopIteration:
            self._note(False)
            raise
        self._note(True)
        return batch

    def _next(self) -> DataBatch:
        begun, self._left_over = self._left_over, None
        if begun is not None:
            data, label, count = begun
        else:
            data, label = self._new_batch()
            count = self._batchify(data, label)
        pad = self.batch_size - count
        if pad and self.last_batch_handle == "discard":
            raise StopIteration
        if pad and self.last_batch_handle == "roll_over" and begun is None:
            self._left_over = data, label, count
            raise StopIteration
        while count < self.batch_size:  # several passes if there are few images
            count = self._batchify(data, label, count)
        if pad and self.last_batch_handle == "pad":
            self._exhausted = True
        return DataBatch([data], [label], pad=pad)

    def _new_batch(self) -> tuple[NDArray, NDArray]:
        return zeros(self.provide_data[0][1]), empty(self.provide_label[0][1])

    def _batchify(self, batch_data: NDArray, batch_label: NDArray, start: int = 0) -> int:
        """Fill a batch from row `start` while there are images; return the number of images in it."""
        count = start
        while count < self.batch_size:
            try:
                label, encoded = self.next_sample()
            except StopIteration:
                if count == start:  # no image, or no valid one
                    raise
                return count
            image = self.imdecode(encoded)
            try:
                self.check_valid_image(image)
            except RuntimeError as error:
                logging.debug("Invalid image, skipping:  %s", error)
                continue
            self._put(batch_data, count, self.postprocess_data(self.augmentation_transform(image)))
            self._put_label(batch_label, count, label)
            count += 1
        return count

    def _put(self, batch_data: NDArray, place: int, image: NDArray) -> None:
        if image.shape != batch_data.shape[1:]:
            raise ValueError(
                f"the image of {self._place()} has shape {image.shape} after augmentation, expected "
                f"data_shape={batch_data.shape[1:]}: end the augmenters with a crop or a resize to that size"
            )
        batch_data.to_torch()[place].copy_(image.to_torch())

    def _put_label(self, batch_label: NDArray, place: int, label: Any) -> None:
        values = np.asarray(label.asnumpy() if isinstance(label, NDArray) else label, dtype=np.float32).reshape(-1)
        if len(values) not in (1, self.label_width):
            raise ValueError(
                f"the label of {self._place()} has {len(values)} values, expected label_width={self.label_width}"
            )
        batch_label.to_torch()[place] = array(values if self.label_width > 1 else values[:1]).to_torch()

    def _place(self) -> str:
        """Describe the image that was read last, for messages."""
        if self.seq is None:
            return f"record number {self.cur} of {self.imgrec.uri}"  # type: ignore[union-attr]
        key = self.seq[self.cur - 1]
        return f"index: {key}" if self.imgrec is not None else f"filename: {self.imglist[key][1]}"  # type: ignore[index]

    # ---- methods that subclasses may override ----

    def check_data_shape(self, data_shape: Any) -> None:
        """Raise ValueError if data_shape is not (3, height, width)."""
        if not len(data_shape) == 3:
            raise ValueError(f"data_shape should have length 3, with dimensions CxHxW, received {data_shape}")
        if not data_shape[0] == 3:
            raise ValueError(f"This iterator expects inputs to have 3 channels, received data_shape={data_shape}")

    def check_valid_image(self, data: Any) -> None:
        """Raise RuntimeError if this image should be skipped."""
        if len(data[0].shape) == 0:
            raise RuntimeError("Data shape is wrong")

    def imdecode(self, s: bytes) -> NDArray:
        """Decode the bytes of a file to an image (height, width, 3)."""
        try:
            return imdecode(s)
        except MXNetError as error:
            raise MXNetError(f"Broken image {self._place()}, {error}") from error

    def read_image(self, fname: str) -> bytes:
        """Return the bytes of an image file in `path_root`."""
        with open(os.path.join(self.path_root or "", fname), "rb") as file:
            return file.read()

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """Return the image after all augmenters."""
        for augment in self.auglist:
            data = augment(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """Return the image in the layout of a batch: (channels, height, width)."""
        return transpose(datum, axes=(2, 0, 1))


def _label(values: Any, dtype: str) -> NDArray:
    return array(np.array(values, dtype=np.float64).reshape(-1), dtype=dtype)


def _list_line(path: Any, number: int, line: str, dtype: str) -> tuple[int, tuple[NDArray, str]]:
    try:
        key, *labels, name = line.strip().split("\t")
        return int(key), (_label([float(label) for label in labels], dtype), name)
    except ValueError:
        raise MXNetError(
            f"{path}, line {number}: expected an index, labels and a file name, separated by tabs, received {line!r}"
        ) from None


def _warn_of_repeated(path: Any, keys: list[int]) -> None:
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    if repeated:
        logging.warning(
            "%s: index %d occurs in several lines, and so do %d others: for each of them, the image of its last line "
            "is read. Give each line a unique index",
            path,
            repeated[0],
            len(repeated) - 1,
        )


def _list_item(number: int, item: Any, dtype: str) -> tuple[NDArray, str]:
    """Return the label and name of an item (label or labels, name) or (label, label, ..., name)."""
    *labels, name = item
    try:
        return _label(labels[0] if len(labels) == 1 else labels, dtype), name
    except (ValueError, TypeError):
        raise MXNetError(f"imglist, item {number}: expected (label or labels, file name), received {item!r}") from None
