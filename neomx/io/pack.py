"""`neomx pack`: a folder of pictures, or lists of them, into RecordIO files, as MXNet's im2rec does."""

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
  neomx pack data/cats photos --recursive              photos/*/*.jpg, a label for each folder: data/cats.rec
  neomx pack data/cats photos --recursive --list --train-ratio 0.9     the lists data/cats_train.lst and _val.lst only
  neomx pack data/cats_train.lst photos --resize 256 --num-thread 4    what the list says, the shorter edge 256 pixels
  neomx pack data/cats photos --pass-through           the files as they are

Without lists data/cats*.lst they are made first, from the folder. Beside a .rec file there is its index, .idx.
Pictures that cannot be read are named and left out; the exit code is then 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("prefix", help="what the names of lists and record files begin with, or one list (.lst)")
    add("root", help="the folder with the pictures")
    lists = parser.add_argument_group("lists").add_argument
    lists("--list", action="store_true", help="make lists of the folder's pictures and stop")
    lists("--recursive", action="store_true", help="look into folders below, each a label")
    lists("--exts", nargs="+", default=[".jpeg", ".jpg", ".png"], metavar="EXT", help="endings of pictures' names")
    lists("--chunks", type=int, default=1, metavar="N", help="cut the list in N")
    lists("--train-ratio", type=float, default=1.0, metavar="R", help="share of pictures to train with")
    lists("--test-ratio", type=float, default=0.0, metavar="R", help="share of pictures to test with")
    lists("--no-shuffle", dest="shuffle", action="store_false", help="keep the order of the folder")
    lists("--seed", type=int, default=100, help="of the shuffled order (default %(default)s)")
    records = parser.add_argument_group("records").add_argument
    records("--pass-through", action="store_true", help="take the files as they are")
    records("--resize", type=int, default=0, metavar="PIXELS", help="size of the shorter edge")
    records("--center-crop", action="store_true", help="cut to a square")
    records("--quality", type=int, help="of JPEG, 1 to 100 (default 95), or compression of PNG, 0 to 9 (default 3)")
    records("--encoding", choices=(".jpg", ".png"), default=".jpg", help="the kind of pictures in the records")
    records("--color", type=int, choices=(-1, 0, 1), default=1, help="1 in colour, 0 in grey, -1 as they are")
    records("--pack-label", action="store_true", help="all labels of the list, not only the first")
    records("--num-thread", type=int, default=1, metavar="N", help="threads that read and encode")


def main(options: argparse.Namespace) -> int:
    """Make lists, record files or both."""
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
        raise MXNetError(f"{options.root} is no folder")


def _lists_of(prefix: str) -> list[str]:
    """The lists that there are."""
    if prefix.endswith(".lst"):
        if not os.path.exists(prefix):
            raise MXNetError(f"there is no list {prefix}")
        return [prefix]
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"(_\d+)?(_train|_val|_test)?\.lst")
    names = sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []
    return [os.path.join(folder, found) for found in names if pattern.fullmatch(found)]


def _make_lists(options: argparse.Namespace) -> list[str]:
    entries, labels = entries_of_folder(options.root, [ext.lower() for ext in options.exts], options.recursive)
    if not entries:
        deeper = "" if options.recursive else "; --recursive looks into the folders below"
        raise MXNetError(f"there is no picture ({', '.join(options.exts)}) in {options.root}{deeper}")
    if options.recursive:
        for folder, label in labels.items():
            print(f"label {label}: {folder}")
    prefix = options.prefix.removesuffix(".lst")
    lists = split(entries, options.chunks, options.train_ratio, options.test_ratio, options.shuffle, options.seed)
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    for name, part in lists.items():
        write_list(f"{prefix}{name}.lst", part)
        print(f"{prefix}{name}.lst: {len(part)} pictures")
    return [f"{prefix}{name}.lst" for name in lists]


def _pack_list(path: str, options: argparse.Namespace) -> int:
    """Write the records of a list and their index; returns how many pictures had to be left out."""
    entries, base = read_list(path), path.removesuffix(".lst")
    bar, skipped, position = Bar(len(entries), "pictures"), 0, 0
    # The records are the inner file: if the disk is full it is for them, and then the old index stays as well.
    with replacing(base + ".idx") as index, replacing(base + ".rec") as records:
        for done, (entry, made) in enumerate(_in_order(entries, lambda e: _record(e, options), options.num_thread), 1):
            if isinstance(made, MXNetError):
                skipped += 1
                bar.say(f"{entry.path} is left out: {made}")
            else:
                records.write(made)
                index.write(f"{entry.number}\t{position}\n".encode())
                position += len(made)
            bar.show(done)
    bar.erase()
    print(f"{base}.rec: {len(entries) - skipped} pictures" + (f", {skipped} left out" if skipped else ""))
    return skipped


def _in_order(items: Iterable[T], work: Callable[[T], R], threads: int) -> Iterator[tuple[T, R]]:
    """What threads make of the items, in their order, a little ahead of what was taken."""
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
    """The record of a picture as it stands in the file, or why there is none."""
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
    """The picture cut, sized and encoded as the options ask."""
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
