"""Tensors as transports take them, flat and contiguous, and what a call says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..base import MXNetError
from .transport import OPS

_PACK = 64 << 20  # bytes that travel together


def call_note(call: str, tensor: torch.Tensor, how: str = "", what: str = "", any_rows: bool = False) -> bytes:
    """What a member says it is calling, so that all can see whether they call the same."""
    shape = f"(*{''.join(f', {n}' for n in tensor.shape[1:])})" if any_rows and tensor.dim() else tuple(tensor.shape)
    return f"{call} {what} {how} {tensor.dtype} {shape}".encode()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values in one row: the tensor's own memory, or a copy where they are scattered."""
    if tensor.layout != torch.strided:
        raise MXNetError(f"expected a dense tensor, received one of layout {tensor.layout}: convert it first")
    return tensor.detach().contiguous().view(-1)


def packs(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type and device together, as far as a copy of them may take memory."""
    by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        pack = by_kind.setdefault((tensor.dtype, tensor.device), [])
        pack.append(tensor)
        if sum(each.nbytes for each in pack) > _PACK:
            yield by_kind.pop((tensor.dtype, tensor.device))
    yield from by_kind.values()


def whole(out: torch.Tensor, count: int) -> torch.Tensor:
    """The memory of `out` in one row, which must have so many elements."""
    if not out.is_contiguous() or out.numel() != count:
        raise ValueError(f"expected memory in one piece for {count} elements, received the shape {tuple(out.shape)}")
    return out.detach().view(-1)


def put_back(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Write the result to the tensor if `flat` was a copy of it."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))
    return tensor


def reducible(flat: torch.Tensor, op: str) -> tuple[torch.Tensor, str]:
    """The same memory as numbers, and the op on those: booleans are combined as 0 and 1."""
    if op not in OPS:
        raise ValueError(f"op must be one of {', '.join(OPS)}, received {op!r}")
    if flat.is_complex() and op in ("min", "max"):
        raise ValueError(f"complex numbers have no {op}")
    if flat.dtype != torch.bool:
        return flat, op
    if op == "mean":
        raise ValueError("booleans have no mean: convert them to numbers first")
    return flat.view(torch.uint8), {"sum": "max", "prod": "min"}.get(op, op)
