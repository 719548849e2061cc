"""Reads the tensors of a checkpoint, written by any number of workers: only the needed slices, each verified."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..base import MXNetError
from ..formats import safetensors
from . import folder, manifest, regions
from .manifest import BLOCK, BlockThreads, DamagedError, File, Manifest, Slice
from .state import Content, Wanted
from .storage import Storage
from .subjects import Form


def read(storage: Storage, of: Manifest) -> Content:
    """Return the content of a checkpoint. Tensors are read when they are fetched."""
    files = Files(storage, of)
    forms = {name: Form(each.shape, each.dtype) for name, each in of.tensors.items()}
    return Content(of.step, of.workers, of.facts, forms, files.facts_of, files.read, of.layout)


def read_step(storage: Storage, step: int) -> Content:
    """Return the content of the checkpoint of a step."""
    return read(storage, manifest.read(storage, folder.name_of(step)))


@dataclass
class _Segment:
    """Consecutive bytes of a file that are needed, and where to."""

    begin: int
    into: memoryview

    @property
    def end(self) -> int:
        return self.begin + len(self.into)


@dataclass
class _Rest:
    """What to do when the bytes have arrived: copy a part of what was read."""

    into: torch.Tensor
    source: torch.Tensor


class Files:
    """The files of a checkpoint."""

    def __init__(self, storage: Storage, of: Manifest):
        self._storage, self._manifest = storage, of
        self._headers: dict[int, tuple[dict[str, str], dict[str, safetensors.Location]]] = {}

    def _file(self, rank: int) -> tuple[str, File]:
        name = self._manifest.part(rank)
        return f"{folder.name_of(self._manifest.step)}/{name}", self._manifest.files[name]

    def _header(self, rank: int) -> tuple[dict[str, str], dict[str, safetensors.Location]]:
        if rank not in self._headers:
            path, file = self._file(rank)
            manifest.check_size(self._storage, path, file)
            buffer = memoryview(bytearray(min(BLOCK, file.bytes)))

            def verified(begin: int, size: int) -> bytes:
                numbers = range(begin // BLOCK, -(-(begin + size) // BLOCK))
                blocks = [bytes(manifest.read_block(self._storage, path, file, each, buffer)) for each in numbers]
                return b"".join(blocks)[begin % BLOCK : begin % BLOCK + size]

            try:
                self._headers[rank] = safetensors.read_header(verified, file.bytes, self._storage.shown(path))
            except DamagedError:
                raise
            except MXNetError as error:
                raise DamagedError(str(error)) from error
        return self._headers[rank]

    def facts_of(self, rank: int) -> dict[str, Any]:
        """Return the facts about a worker, which are in its file."""
        return facts_in(self._header(rank)[0], self._storage.shown(self._file(rank)[0]))

    def read(self, wanted: Wanted) -> dict[str, torch.Tensor]:
        """Return tensors, or regions of them."""
        found: dict[str, torch.Tensor] = {}
        segments: dict[int, list[_Segment]] = {}
        rests: list[_Rest] = []
        for name, region in wanted.items():
            stored = self._manifest.tensors.get(name)
            if stored is None:
                raise DamagedError(f"the checkpoint of step {self._manifest.step} has no tensor {name!r:.200}")
            place = regions.whole(stored.shape) if region is None else region
            out = found[name] = torch.empty(regions.shape_of(place), dtype=stored.dtype)
            for cut in stored.slices:
                both = regions.overlap(place, cut.region)
                if both is not None:
                    begin, source = self._rows(name, cut, both, stored.dtype)
                    target = out[regions.within(both, place)]
                    if target.is_contiguous() and source.shape == target.shape:
                        source = target
                    else:
                        inner = tuple(
                            slice(None) if at == 0 else each for at, each in enumerate(regions.within(both, cut.region))
                        )
                        rests.append(_Rest(target, source[inner]))
                    segments.setdefault(cut.rank, []).append(_Segment(begin, safetensors.bytes_of(source)))
        self._read_all(segments)
        for rest in rests:
            rest.into.copy_(rest.source)
        for tensor in found.values():
            if tensor.dtype is torch.bool:  # in a file any nonzero byte means true; in torch only 1 does
                tensor.view(torch.uint8).clamp_(max=1)
        return found

    def _rows(self, name: str, cut: Slice, both: regions.Region, dtype: torch.dtype) -> tuple[int, torch.Tensor]:
        """Return where the rows of a file's slice with some elements begin, and memory for these rows."""
        entry = self._header(cut.rank)[1].get(name)
        shape = regions.shape_of(cut.region)
        if entry is None or entry.dtype is not dtype or entry.shape != shape:
            path = self._storage.shown(self._file(cut.rank)[0])
            raise DamagedError(f"{path}: {name!r:.200} is not as the manifest says: {dtype} of shape {shape}")
        if not shape:
            return entry.begin, torch.empty((), dtype=dtype)
        (start, stop), (first, _) = both[0], cut.region[0]
        row = math.prod(shape[1:]) * dtype.itemsize
        return entry.begin + (start - first) * row, torch.empty((stop - start, *shape[1:]), dtype=dtype)

    def _read_all(self, segments: dict[int, list[_Segment]]) -> None:
        """Read segments of files by blocks, in several threads."""
        with BlockThreads() as pool:

            def fill(rank: int, number: int, ordered: list[_Segment], begins: list[int]) -> None:
                path, file = self._file(rank)
                block = manifest.read_block(self._storage, path, file, number, pool.buffer())
                start = number * BLOCK
                at = max(bisect_right(begins, start) - 1, 0)
                while at < len(ordered) and ordered[at].begin < start + len(block):
                    each = ordered[at]
                    low, high = max(each.begin, start), min(each.end, start + len(block))
                    if low < high:
                        each.into[low - each.begin : high - each.begin] = block[low - start : high - start]
                    at += 1

            jobs = []
            for rank, mine in segments.items():
                ordered = sorted((each for each in mine if each.into), key=lambda each: each.begin)
                begins = [each.begin for each in ordered]
                for number in sorted(_blocks(ordered)):
                    jobs.append(pool.submit(fill, rank, number, ordered, begins))
            for job in jobs:
                job.result()


def _blocks(segments: Iterable[_Segment]) -> set[int]:
    return {number for each in segments for number in range(each.begin // BLOCK, -(-each.end // BLOCK))}


def facts_in(metadata: dict[str, str], path: str, name: str = "worker") -> dict[str, Any]:
    """Return JSON from the metadata of a part."""
    try:
        found = json.loads(metadata[name])
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: it has no facts about its worker: {error!s:.100}") from error
    if not isinstance(found, dict):
        raise DamagedError(f"{path}: the facts about its worker are not an object")
    return found
