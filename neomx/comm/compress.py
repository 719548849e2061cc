"""Gradients made small for the way: MXNet's 2bit and 1bit, whose error is kept as a residual, and fp16.

A compressor of one's own derives from `Compressor` and is registered:

    @mx.step.register_compressor
    class Signs(mx.step.Compressor):
        kind = "signs"

        def __init__(self, scale: float = 1.0): ...

        def encode(self, key, tensor): ...

        def decode(self, data, out): ...

    gluon.Trainer(..., kvstore="dist_sync", compression_params={"type": "signs", "scale": 0.1})
"""

from __future__ import annotations

import ast
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

import torch

from ..base import MXNetError, suggest


class Collectives(Protocol):
    """The workers among whom a compressor sums: a `comm.group.Group`."""

    rank: int
    size: int

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        """Every worker's tensor; the sizes of the first dimension may differ."""
        ...

    def all_reduce_(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """The sum over all workers, in place."""
        ...


class Compressor(ABC):
    """How gradients travel: encoded on a worker, decoded where they are summed.

    The parameters of `__init__` are what `compression_params` may say beside 'type'; each must be kept in an attribute
    of its own name, from which servers learn it.
    """

    kind: ClassVar[str]  # the 'type' in compression_params

    @property
    def params(self) -> dict[str, Any]:
        """The settings from which `make` builds its equal for decoding elsewhere."""
        return {"type": self.kind, **{name: getattr(self, name) for name in _parameters(type(self))}}

    @abstractmethod
    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """A key's gradient as bytes, a flat uint8 tensor of any size; what they omit may be kept for the next."""

    @abstractmethod
    def decode(self, data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the gradient that `data` stands for into `out`, of any shape with as many elements."""

    def take_back(self, key: Hashable) -> None:  # noqa: B027
        """The last `encode` of this key did not count: the gradient changed afterwards and is encoded again."""

    def state(self) -> dict[str, torch.Tensor]:
        """What must not be lost in a restart, such as what earlier gradients kept back."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from such a state."""
        if state:
            raise MXNetError(f"{self.kind} gradient compression keeps no state, received {', '.join(state)}")

    def sum_(
        self,
        keys: Sequence[Hashable],
        tensors: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
        group: Collectives,
        what: str,
    ) -> None:
        """Sum each key's gradient over all workers into `outs`. All workers call it with the same keys.

        Every worker's encoded gradients go to all, in one message. A method that sums in another way, such as
        one that multiplies low-rank factors and needs two collectives, overrides this.
        """
        sent = [self.encode(key, tensor) for key, tensor in zip(keys, tensors, strict=True)]
        for part in sent:
            if part.dtype != torch.uint8 or part.dim() != 1:
                raise MXNetError(
                    f"{type(self).__name__}.encode must return a flat uint8 tensor, received {part.dtype} of shape "
                    f"{tuple(part.shape)}. Use .view(torch.uint8)"
                )
        header = torch.tensor([part.numel() for part in sent]).view(torch.uint8)  # another worker's may differ
        everyone = group.all_gather(torch.cat([header.to(sent[0].device), *sent]), what=what)
        for out in outs:
            out.zero_()
        for message in everyone:
            lengths = message[: header.numel()].cpu().view(torch.int64).tolist()
            parts = message[header.numel() :].split_with_sizes(lengths)
            for part, out in zip(parts, outs, strict=True):
                out += self.decode(part, torch.empty_like(out))


def _parameters(kind: type[Compressor]) -> list[str]:
    """The names that compression_params may have for a kind beside 'type'."""
    return [name for name in inspect.signature(kind).parameters]


class Half(Compressor):
    """Each element rounded to float16; no residual."""

    kind = "fp16"

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Two bytes for each element."""
        return tensor.reshape(-1).to(torch.float16).view(torch.uint8)

    def decode(self, data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the halves into `out`, which has its own type."""
        data = _checked(data, out.numel(), 2 * out.numel(), self.kind)
        # A message's parts may begin at odd bytes, which a view as float16 does not allow.
        return out.copy_((data if data.data_ptr() % 2 == 0 else data.clone()).view(torch.float16).view(out.shape))


class _Bits(Compressor):
    """Few bits for each element; what they do not say is kept in residuals, two for each key.

    One is the residual now, the other that before the last gradient, to which `take_back` returns.
    """

    bits: ClassVar[int]

    def __init__(self, threshold: float = 0.5):
        self.threshold = float(torch.tensor(_threshold(self.kind, threshold), dtype=torch.float32))
        self.residuals: dict[Hashable, torch.Tensor] = {}
        self._before: dict[Hashable, torch.Tensor] = {}

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
        spare = self._before.get(key)
        now = torch.add(kept, flat, out=torch.empty_like(flat) if spare is None else spare)
        self.residuals[key], self._before[key] = now, kept
        return now

    def take_back(self, key: Hashable) -> None:
        """Return to the residual before the last gradient."""
        self.residuals[key], self._before[key] = self._before[key], self.residuals[key]

    def state(self) -> dict[str, torch.Tensor]:
        """The residuals, by their keys; ints and strings are told apart by `repr`."""
        return {repr(key): residual.clone() for key, residual in self.residuals.items()}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on with these residuals."""
        self.residuals = {ast.literal_eval(key): residual.clone() for key, residual in state.items()}
        self._before = {}

    def nbytes(self, count: int) -> int:
        """The bytes of `count` encoded elements."""
        return -(-count * self.bits // 8)

    def decode(self, data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the sent values into `out`."""
        values = _table(self.kind, self.threshold, data.device)
        data = _checked(data, out.numel(), self.nbytes(out.numel()), self.kind)
        return out.copy_(values.index_select(0, data.int()).view(-1)[: out.numel()].view(out.shape))


class TwoBit(_Bits):
    """+threshold, nothing or -threshold: from the threshold on, an element sends it and keeps the rest."""

    kind, bits = "2bit", 2

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Four elements in each byte."""
        kept = self._residual(key, tensor)
        signs = kept.ge(self.threshold).view(torch.int8) - kept.le(-self.threshold).view(torch.int8)
        kept.sub_(signs.to(kept.dtype), alpha=self.threshold)
        codes = _padded(signs.bitwise_and_(3), 4).view(torch.int32)
        return (codes | codes >> 6 | codes >> 12 | codes >> 18).bitwise_and_(0xFF).to(torch.uint8)


class OneBit(_Bits):
    """+1 above the threshold, -1 elsewhere."""

    kind, bits = "1bit", 1

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Eight elements in each byte."""
        kept = self._residual(key, tensor)
        above = kept.gt(self.threshold)
        kept.sub_(above.to(kept.dtype).mul_(2).sub_(1))
        codes = _padded(above.view(torch.int8), 8).view(torch.int64)
        # The product's top byte holds the lowest bit of each of the eight bytes.
        return (codes * 0x0102040810204080 >> 56).bitwise_and_(0xFF).to(torch.uint8)


BUILT_IN = (TwoBit, OneBit, Half)  # those that servers decode
KINDS: dict[str, type[Compressor]] = {kind.kind: kind for kind in BUILT_IN}
Kind = TypeVar("Kind", bound=type[Compressor])


def register(kind: Kind) -> Kind:
    """Let compression_params={'type': kind.kind} make compressors of this class. Servers know built-in ones only."""
    if not (isinstance(kind, type) and issubclass(kind, Compressor) and isinstance(getattr(kind, "kind", None), str)):
        raise TypeError(f"expected a class derived from Compressor, with its name in `kind`; received {kind!r:.80}")
    if inspect.isabstract(kind):
        raise TypeError(f"{kind.__name__} must define {', '.join(sorted(kind.__abstractmethods__))}")
    known = KINDS.get(kind.kind)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"{kind.__name__}: the kind {kind.kind!r} is that of {known.__name__}. Choose another name")
    KINDS[kind.kind] = kind
    return kind


def make(params: Any, before: Compressor | None = None) -> Compressor:
    """The compressor that compression_params ask for; it goes on with the residuals of the one before."""
    if not isinstance(params, dict):
        raise AssertionError(
            f"compression parameters are a dict as {{'type': '2bit', 'threshold': 0.5}}, not {params!r}"
        )
    if "type" not in params:
        raise MXNetError(f"compression parameters need a 'type', one of {', '.join(KINDS)}; received {params!r}")
    kind = params["type"]
    if not isinstance(kind, str) or kind not in KINDS:
        close = suggest(str(kind), KINDS)
        raise MXNetError(f"unknown type of gradient compression {kind!r}.{close} Expected one of {', '.join(KINDS)}")
    given = {name: value for name, value in params.items() if name != "type"}
    known = _parameters(KINDS[kind])
    if kind == "fp16":
        given.pop("threshold", None)  # MXNet's programs set it for all types
    unknown = [name for name in given if name not in known]
    if unknown:
        takes = f"'type' and {', '.join(map(repr, known))}" if known else "'type' only"
        raise MXNetError(f"{kind} gradient compression takes {takes}; unknown {unknown} in {params!r}")
    made = KINDS[kind](**given)
    if isinstance(made, _Bits) and isinstance(before, _Bits):
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
