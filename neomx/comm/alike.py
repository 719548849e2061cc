"""Checks that values are the same on all workers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import zip_longest

import torch

from ..base import MXNetError
from .group import Group


def check_alike(group: Group, lines: Sequence[str], what: str) -> None:
    """Raise on every worker if `lines`, which describe `what`, are not the same on all workers."""
    if group.size == 1:
        return
    text = "\n".join(lines)
    digests = group.all_gather_small(torch.tensor([zlib.crc32(text.encode())]), what)
    if len(set(digests.flatten().tolist())) == 1:
        return
    texts = [
        bytes(each.tolist()).decode().split("\n")
        for each in group.all_gather(torch.tensor(list(text.encode()), dtype=torch.uint8), what)
    ]
    other = next(rank for rank in range(group.size) if texts[rank] != texts[0])
    pairs = zip_longest(texts[0], texts[other], fillvalue="")
    mine, theirs = next((a, b) for a, b in pairs if a != b)
    raise MXNetError(f"{what} must be the same on all workers: {_difference(mine, theirs, other)}")


def _difference(mine: str, theirs: str, other: int) -> str:
    if not mine:
        return f"worker {other} has {theirs}, which worker 0 does not have"
    if not theirs:
        return f"worker 0 has {mine}, which worker {other} does not have"
    return f"worker 0 has {mine}, worker {other} has {theirs} instead"


def described(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[str]:
    """Return a line with the name, shape and dtype of each tensor."""
    return [
        f"{name} {tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in zip(names, tensors, strict=True)
    ]
