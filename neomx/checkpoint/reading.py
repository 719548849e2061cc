"""Reads the files of a checkpoint, written by any number of workers."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import torch

from ..base import MXNetError
from ..formats.safetensors import Archive
from . import manifest
from .folder import path_of
from .manifest import DamagedError, Manifest, part_name
from .state import Content


def read(directory: str, of: Manifest) -> Content:
    """Return the content of a checkpoint. Tensors are read when they are accessed."""
    folder = path_of(directory, of.step)
    archives = []
    try:
        for rank in range(of.workers):
            archives.append(Archive(f"{folder}/{part_name(rank, of.workers)}"))
        of_workers = [_facts(archive) for archive in archives]
    except MXNetError as error:
        raise DamagedError(f"the checkpoint {folder} cannot be read: {error}") from error
    tensors: Mapping[str, torch.Tensor] = ChainMap(*archives)  # type: ignore[arg-type]
    return Content(of.step, of.workers, tensors, of.facts, of_workers)


def read_step(directory: str, step: int) -> Content:
    """Return the content of the checkpoint of a step."""
    return read(directory, manifest.read(path_of(directory, step)))


def _facts(archive: Archive) -> dict[str, Any]:
    try:
        found = json.loads(archive.metadata["worker"])
    except (KeyError, ValueError, RecursionError) as error:
        raise MXNetError(f"{archive.path}: it has no facts about its worker: {error!s:.100}") from error
    if not isinstance(found, dict):
        raise MXNetError(f"{archive.path}: the facts about its worker are not an object")
    return found
