"""`neomx pack`: pack a folder of images, or image lists, into RecordIO files, as MXNet's im2rec does."""

from __future__ import annotations

import argparse
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..bar import Bar
from ..base import MXNetError
from ..formats import picture
from ..formats.atomic import replacing
from ..formats.records import encode as encode_record
from ..recordio import IRHeader, pack
from .lists import ListedImage, entries_of_folder, read_list, split, write_list

T = TypeVar("T")
R = TypeVar("R")

EPILOG = """examples:
  neomx pack data/cats photos --recursive              pack photos/*/*.jpg into data/cats.rec, a label per folder
  neomx pack data/cats photos --recursive --list --train-ratio 0.9     only write data/cats_train.lst and _val.lst
  neomx pack data/cats_train.lst photos --resize 256 --num-thread 4    pack a list, with the shorter edge 256 pixels
  neomx pack data/cats photos --pass-through           store the files unchanged

If there are no lists data/cats*.lst, they are created from the folder first. Each .rec file gets an index, .idx.
Images that cannot be read are reported and skipped; the exit code is then 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to the parser."""
    add = parser.add_argument
    add("prefix", help="prefix of the names of list and record files, or the path of one list (.lst)")
    add("root", help="the folder with the images")
    lists = parser.add_argument_group("lists").add_argument
    lists("--list", action="store_true", help="only create lists of the images in the folder")
    lists("--recursive", action="store_true", help="include subfolders; each folder gets a label")
    lists("--exts", nargs="+", default=[".jpeg", ".jpg", ".png"], metavar="EXT", help="file name extensions of images")
    lists("--chunks", type=int, default=1, metavar="N", help="split the list into N parts")
    lists("--train-ratio", type=float, default=1.0, metavar="R", help="fraction of images for training")
    lists("--test-ratio", type=float, default=0.0, metavar="R", help="fraction of images for testing")
    lists("--no-shuffle", dest="shuffle", action="store_false", help="keep the order of the files in the folder")
    lists("--seed", type=int, default=100, help="seed for shuffling (default %(default)s)")
    records = parser.add_argument_group("records").add_argument
    records("--pass-through", action="store_true", help="store the files unchanged")
    records("--resize", type=int, default=0, metavar="PIXELS", help="resize the shorter edge to this size")
    records("--center-crop", action="store_true", help="crop the center to a square")
    records("--quality", type=int, help="JPEG quality, 1 to 100 (default 95), or PNG compression, 0 to 9 (default 3)")
    records("--encoding", choices=(".jpg", ".png"), default=".jpg", help="image format of the records")
    records("--color", type=int, choices=(-1, 0, 1), default=1, help="1: color, 0: gray, -1: as in the file")
    records("--pack-label", action="store_true", help="store all labels of the list, not only the first")
    records("--num-thread", type=int, default=1, metavar="N", help="number of threads that read and encode")


def main(options: argparse.Namespace) -> int:
    """Run `neomx pack`: create lists, record files or both."""
    _check(options)
    lists = _lists_of(options.prefix)
    if options.list or not lists:
        lists = _make_lists(options)
    if options.list:
        return 0
    return 1 if sum([_pack_list(path, options) for path in lists]) else 0


def _check(options: argparse.Namespace) -> None:
    highest = 100 if options.encoding == ".jpg" else 9
    if options.quality is None:
        options.quality = 95 if options.encoding == ".jpg" else 3
    lowest_and_highest = {
        "quality": (0, highest),
        "chunks": (1, None),
        "num_thread": (1, None),
        "resize": (0, None),
        "train_ratio": (0, 1),
        "test_ratio": (0, 1 - options.train_ratio),
    }
    for name, (low, high) in lowest_and_highest.items():
        value = getattr(options, name)
        if value < low or (high is not None and value > high + 1e-9):
            bounds = f"at least {low}" if high is None else f"between {low} and {high:g}"
            raise MXNetError(f"--{name.replace('_', '-')} must be {bounds}, received {value}")
    if not os.path.isdir(options.root):
        raise MXNetError(f"{options.root} is not a folder")


def _lists_of(prefix: str) -> list[str]:
    """Return the paths of the existing lists."""
    if prefix.endswith(".lst"):
        if not os.path.exists(prefix):
            raise MXNetError(f"list {prefix} does not exist")
        return [prefix]
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"(_\d+)?(_train|_val|_test)?\.lst")
    names = sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []
    return [os.path.join(folder, found) for found in names if pattern.fullmatch(found)]


def _make_lists(options: argparse.Namespace) -> list[str]:
    entries, labels = entries_of_folder(options.root, [ext.lower() for ext in options.exts], options.recursive)
    if not entries:
        deeper = "" if options.recursive else "; pass --recursive to include subfolders"
        raise MXNetError(f"no image ({', '.join(options.exts)}) in {options.root}{deeper}")
    if options.recursive:
        for folder, label in labels.items():
            print(f"label {label}: {folder}")
    prefix = options.prefix.removesuffix(".lst")
    lists = split(entries, options.chunks, options.train_ratio, options.test_ratio, options.shuffle, options.seed)
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    for name, part in lists.items():
        write_list(f"{prefix}{name}.lst", part)
        print(f"{prefix}{name}.lst: {len(part)} images")
    return [f"{prefix}{name}.lst" for name in lists]


def _pack_list(path: str, options: argparse.Namespace) -> int:
    """Write the records of a list and their index; return the number of skipped images."""
    entries, base = read_list(path), path.removesuffix(".lst")
    bar, skipped, position = Bar(len(entries), "images"), 0, 0
    # The record file is the inner one: if the disk is full it fails first, and the old index is kept as well.
    with replacing(base + ".idx") as index, replacing(base + ".rec") as records:
        for done, (entry, made) in enumerate(_in_order(entries, lambda e: _record(e, options), options.num_thread), 1):
            if isinstance(made, MXNetError):
                skipped += 1
                bar.say(f"{entry.path} is skipped: {made}")
            else:
                records.write(made)
                index.write(f"{entry.number}\t{position}\n".encode())
                position += len(made)
            bar.show(done)
    bar.erase()
    print(f"{base}.rec: {len(entries) - skipped} images" + (f", {skipped} skipped" if skipped else ""))
    return skipped


def _in_order(items: Iterable[T], work: Callable[[T], R], threads: int) -> Iterator[tuple[T, R]]:
    """Apply `work` to the items in threads and yield the results in order, computing a few items ahead."""
    pool, waiting = ThreadPoolExecutor(threads), deque[tuple[T, Future[R]]]()
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) > 4 * threads:
                item, future = waiting.popleft()
                yield item, future.result()
        while waiting:
            item, future = waiting.popleft()
            yield item, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _record(entry: ListedImage, options: argparse.Namespace) -> bytes | MXNetError:
    """Return the encoded record of an image, or the error if it cannot be read."""
    label: Any = list(entry.labels) if options.pack_label and len(entry.labels) > 1 else entry.labels[0]
    try:
        with open(os.path.join(options.root, entry.path), "rb") as file:
            content = file.read()
        encoded = content if options.pass_through else _encoded(content, options)
    except OSError as error:
        return MXNetError(error.strerror or str(error))
    except MXNetError as error:
        return error
    return encode_record(pack(IRHeader(0, label, entry.number, 0), encoded))


def _encoded(content: bytes, options: argparse.Namespace) -> bytes:
    """Return the image cropped, resized and encoded according to the options."""
    pixels = picture.decode(content, options.color, bgr=True)
    height, width = pixels.shape[:2]
    if options.center_crop:
        edge = min(height, width)
        top, left = (height - edge) // 2, (width - edge) // 2
        pixels = pixels[top : top + edge, left : left + edge]
        height = width = edge
    if options.resize:
        edge = min(height, width)
        pixels = picture.resize(pixels, width * options.resize // edge, height * options.resize // edge)
    return picture.encode(pixels, options.quality, options.encoding, bgr=True)
