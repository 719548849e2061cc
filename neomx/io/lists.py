"""Image list files (.lst): each line has an index, one or more labels and a path, separated by tabs."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..base import MXNetError
from ..formats.atomic import replacing
from ..formats.text import numbered_lines


@dataclass(frozen=True)
class ListedImage:
    """An entry of an image list."""

    number: int
    labels: tuple[float, ...]
    path: str


def read_list(path: str) -> list[ListedImage]:
    """Return the entries of a list file."""
    return [_entry(path, number, line) for number, line in numbered_lines(path)]


def _entry(path: str, number: int, line: str) -> ListedImage:
    try:
        first, *labels, name = line.split("\t")
        if labels:
            return ListedImage(int(float(first)), tuple(float(label) for label in labels), name)
    except (ValueError, OverflowError):
        pass
    raise MXNetError(
        f"{path}, line {number}: expected an index, one or more labels and a path, separated by tabs, received "
        f"{line!r:.200}"
    )


def write_list(path: str, entries: Sequence[ListedImage]) -> None:
    """Write entries to a list file."""
    with replacing(path) as file:
        for entry in entries:
            labels = "\t".join(f"{label:f}" for label in entry.labels)
            file.write(f"{entry.number}\t{labels}\t{entry.path}\n".encode())


def entries_of_folder(root: str, endings: Sequence[str], recursive: bool) -> tuple[list[ListedImage], dict[str, int]]:
    """Return the images in a folder, and the label of each folder that contains images.

    With `recursive` subfolders are included and each folder gets its own label; otherwise all labels are 0.
    """
    if not os.path.isdir(root):
        raise MXNetError(f"{root} is not a folder")
    paths, labels = [], dict[str, int]()
    for folder, below, names in os.walk(root, followlinks=True):
        below.sort()
        for name in sorted(names):
            if name.lower().endswith(tuple(endings)):
                inside = os.path.relpath(folder, root)
                labels.setdefault(inside, len(labels))
                paths.append((os.path.normpath(os.path.join(inside, name)), labels[inside]))
        if not recursive:
            break
    return [ListedImage(i, (float(label),), path) for i, (path, label) in enumerate(paths)], labels


def split(
    entries: Sequence[ListedImage], chunks: int, train: float, test: float, shuffle: bool, seed: int
) -> dict[str, list[ListedImage]]:
    """Split the entries into lists, by the suffix of the list's name: '', '_train', '_0_val', ..."""
    entries = list(entries)
    if shuffle:
        random.Random(seed).shuffle(entries)
        entries = [replace(entry, number=i) for i, entry in enumerate(entries)]
    lists = {}
    for chunk in range(chunks):
        part = entries[len(entries) * chunk // chunks : len(entries) * (chunk + 1) // chunks]
        name = f"_{chunk}" if chunks > 1 else ""
        tests, trains = int(len(part) * test), int(len(part) * train)
        if train == 1:
            lists[name] = part
            continue
        pieces = {"test": part[:tests], "train": part[tests : tests + trains], "val": part[tests + trains :]}
        lists |= {f"{name}_{kind}": piece for kind, piece in pieces.items() if piece}
    return lists
