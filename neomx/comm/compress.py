"""Gradients made small for the way: MXNet's 2bit and 1bit, whose error stays behind as a residual, and fp16."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import cache
from typing import Any

import torch

from ..base import MXNetError, suggest


class Compressor:
    """What all kinds share: a gradient becomes few bytes on a worker, and floats again where it is summed."""

    kind: str
    ratio: int  # elements of float32 in the bytes of one

    def __init__(self, threshold: float = 0.5):
        self.threshold = float(torch.tensor(threshold, dtype=torch.float32))
        self.residuals: dict[Hashable, torch.Tensor] = {}

    @property
    def params(self) -> dict[str, Any]:
        """The settings by which `make` builds its equal for decoding elsewhere."""
        return {"type": self.kind, "threshold": self.threshold}

    def nbytes(self, count: int) -> int:
        """The bytes of `count` encoded elements."""
        return -(-4 * count // self.ratio)

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """The gradient in few bytes; what they do not say is kept for the key's next gradient."""
        raise NotImplementedError

    def decode(self, data: torch.Tensor, count: int, out: torch.Tensor) -> torch.Tensor:
        """Write the `count` elements that `data` stands for into `out`, of any shape with so many elements."""
        raise NotImplementedError


class Half(Compressor):
    """Each element rounded to float16; no residual."""

    kind, ratio = "fp16", 2

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """The gradient as float16, flat."""
        return tensor.reshape(-1).to(torch.float16)

    def decode(self, data: torch.Tensor, count: int, out: torch.Tensor) -> torch.Tensor:
        """Write the halves into `out`, which has its own type."""
        return out.copy_(_checked(data.reshape(-1), count, count, self.kind).view(out.shape))


class _Bits(Compressor):
    """Few bits for each element, four or eight elements to a byte."""

    def _residual(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """The key's residual with this gradient added."""
        if tensor.dtype != torch.float32:
            raise MXNetError(
                f"key {key}: {self.kind} gradient compression is for float32, received {tensor.dtype}. "
                "Use {'type': 'fp16'}, or no compression"
            )
        flat = tensor.reshape(-1)
        kept = self.residuals.get(key)
        if kept is None:
            kept = self.residuals[key] = torch.zeros_like(flat)
        elif kept.numel() != flat.numel():
            raise MXNetError(f"key {key}: {kept.numel()} elements were compressed before, now {flat.numel()}")
        return kept.add_(flat)

    def decode(self, data: torch.Tensor, count: int, out: torch.Tensor) -> torch.Tensor:
        """Write the sent values into `out`."""
        values = _table(self.kind, self.threshold, data.device)
        data = _checked(data, count, self.nbytes(count), self.kind)
        return out.copy_(values.index_select(0, data.int()).view(-1)[:count].view(out.shape))


class TwoBit(_Bits):
    """+threshold, nothing or -threshold: from the threshold on, an element sends it and keeps the rest."""

    kind, ratio = "2bit", 16

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Four elements in each byte."""
        kept = self._residual(key, tensor)
        signs = kept.ge(self.threshold).view(torch.int8) - kept.le(-self.threshold).view(torch.int8)
        kept.sub_(signs.to(kept.dtype), alpha=self.threshold)
        codes = _padded(signs.bitwise_and_(3), 4).view(torch.int32)
        return (codes | codes >> 6 | codes >> 12 | codes >> 18).bitwise_and_(0xFF).to(torch.uint8)


class OneBit(_Bits):
    """+1 above the threshold, -1 elsewhere."""

    kind, ratio = "1bit", 32

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Eight elements in each byte."""
        kept = self._residual(key, tensor)
        above = kept.gt(self.threshold)
        kept.sub_(above.to(kept.dtype).mul_(2).sub_(1))
        codes = _padded(above.view(torch.int8), 8).view(torch.int64)
        # The product's top byte holds the lowest bit of each of the eight bytes.
        return (codes * 0x0102040810204080 >> 56).bitwise_and_(0xFF).to(torch.uint8)


KINDS: dict[str, type[Compressor]] = {kind.kind: kind for kind in (TwoBit, OneBit, Half)}


def make(params: Any, before: Compressor | None = None) -> Compressor:
    """The compressor that `set_gradient_compression` asks for; it goes on with the residuals of the one before."""
    if not isinstance(params, dict):
        raise AssertionError(
            f"compression parameters are a dict as {{'type': '2bit', 'threshold': 0.5}}, not {params!r}"
        )
    unknown = [name for name in params if name not in ("type", "threshold")]
    if "type" not in params or unknown:
        wrong = f"unknown {unknown}" if unknown else "no 'type'"
        raise MXNetError(f"compression parameters are 'type' and 'threshold', received {params!r}: {wrong}")
    kind = params["type"]
    if not isinstance(kind, str) or kind not in KINDS:
        close = suggest(str(kind), KINDS)
        raise MXNetError(f"unknown type of gradient compression {kind!r}.{close} Expected one of {', '.join(KINDS)}")
    made = KINDS[kind](_threshold(kind, params.get("threshold", 0.5)))
    if before is not None:
        made.residuals = before.residuals
    return made


def _threshold(kind: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise MXNetError(f"the threshold of gradient compression must be a number, received {value!r}") from None
    if kind == "2bit" and not number > 0:
        raise MXNetError(f"the threshold of 2bit gradient compression must be greater than 0, received {number}")
    if not math.isfinite(number):
        raise MXNetError(f"the threshold of gradient compression must be finite, received {number}")
    return number


def _padded(codes: torch.Tensor, multiple: int) -> torch.Tensor:
    """Codes up to a multiple of so many."""
    short = -codes.numel() % multiple
    return torch.nn.functional.pad(codes, (0, short)) if short else codes


def _checked(data: torch.Tensor, count: int, expected: int, kind: str) -> torch.Tensor:
    if data.numel() != expected:
        raise MXNetError(f"{count} elements of {kind} are {expected} long, received {data.numel()}")
    return data


@cache
def _table(kind: str, threshold: float, device: torch.device) -> torch.Tensor:
    """Row b: the values that the byte b stands for."""
    byte = torch.arange(256).view(-1, 1)
    if kind == "1bit":
        values = (byte >> torch.arange(8) & 1) * 2.0 - 1
    else:
        codes = byte >> torch.arange(0, 8, 2)
        values = ((codes & 1) - (codes & 2)).float() * threshold
    return values.to(device)
