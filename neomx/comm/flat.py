"""Flat, contiguous tensors as transports expect them, and notes that describe a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..base import MXNetError
from .transport import OPS

_PACK = 64 << 20  # bytes that are sent together


def call_note(call: str, tensor: torch.Tensor, how: str = "", what: str = "", any_rows: bool = False) -> bytes:
    """Describe a call, so that all members can check that they make the same one."""
    shape = f"(*{''.join(f', {n}' for n in tensor.shape[1:])})" if any_rows and tensor.dim() else tuple(tensor.shape)
    return f"{call} {what} {how} {tensor.dtype} {shape}".encode()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values as a flat tensor: a view, or a copy if the tensor is not contiguous."""
    if tensor.layout != torch.strided:
        raise MXNetError(f"expected a dense tensor, received one of layout {tensor.layout}: convert it first")
    return tensor.detach().contiguous().view(-1)


def packs(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Group tensors of one dtype and device, limited in size because each group is copied."""
    by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        pack = by_kind.setdefault((tensor.dtype, tensor.device), [])
        pack.append(tensor)
        if sum(each.nbytes for each in pack) > _PACK:
            yield by_kind.pop((tensor.dtype, tensor.device))
    yield from by_kind.values()


def whole(out: torch.Tensor, count: int) -> torch.Tensor:
    """Return `out` as a flat view. It must be contiguous and have `count` elements."""
    if not out.is_contiguous() or out.numel() != count:
        raise ValueError(f"expected a contiguous tensor of {count} elements, received one of shape {tuple(out.shape)}")
    return out.detach().view(-1)


def put_back(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Copy the result back to the tensor if `flat` is a copy of it."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))
    return tensor


def reducible(flat: torch.Tensor, op: str) -> tuple[torch.Tensor, str]:
    """Return a view as numbers, and the op for it: booleans are combined as 0 and 1."""
    if op not in OPS:
        raise ValueError(f"op must be one of {', '.join(OPS)}, received {op!r}")
    if flat.is_complex() and op in ("min", "max"):
        raise ValueError(f"{op} is not defined for complex numbers")
    if flat.dtype != torch.bool:
        return flat, op
    if op == "mean":
        raise ValueError("mean is not defined for booleans: convert them to numbers first")
    return flat.view(torch.uint8), {"sum": "max", "prod": "min"}.get(op, op)
