"""Gradient compression: MXNet's 2bit and 1bit, which keep their error as a residual, and fp16.

To add a compressor, derive it from `Compressor` and register it:

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
    """The workers over which a compressor sums, such as a `comm.group.Group`."""

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        ...

    @property
    def size(self) -> int:
        """The number of workers."""
        ...

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        """Return the tensors of all workers, whose sizes may differ in the first dimension."""
        ...

    def all_reduce_(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """Sum over all workers, in place."""
        ...


class Compressor(ABC):
    """Base class of compressors: gradients are encoded on a worker and decoded where they are summed.

    The parameters of `__init__` are the settings that `compression_params` accepts besides 'type'. Each must be kept in
    an attribute of the same name, from which servers get its value.
    """

    kind: ClassVar[str]  # the 'type' in compression_params

    @property
    def params(self) -> dict[str, Any]:
        """The settings from which `make` builds an equivalent compressor for decoding elsewhere."""
        return {"type": self.kind, **{name: getattr(self, name) for name in _parameters(type(self))}}

    @abstractmethod
    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Encode the gradient of a key as a flat uint8 tensor of any size.

        The compressor may keep what the code omits, and add it to the next gradient.
        """

    @abstractmethod
    def decode(self, data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decode `data` into `out`, which has any shape with the same number of elements."""

    def take_back(self, key: Hashable) -> None:  # noqa: B027
        """Undo the last `encode` of this key: the gradient changed afterwards and is encoded again."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state to save in a checkpoint, such as residuals."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Restore a state returned by `state`."""
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

        Every worker's encoded gradients are sent to all workers in one message. Override this method for compressors
        that sum differently, for example by multiplying low-rank factors in two collectives.
        """
        sent = [self.encode(key, tensor) for key, tensor in zip(keys, tensors, strict=True)]
        for part in sent:
            if part.dtype != torch.uint8 or part.dim() != 1:
                raise MXNetError(
                    f"{type(self).__name__}.encode must return a flat uint8 tensor, received {part.dtype} of shape "
                    f"{tuple(part.shape)}. Use .view(torch.uint8)"
                )
        header = torch.tensor([part.numel() for part in sent]).view(torch.uint8)  # sizes may differ between workers
        everyone = group.all_gather(torch.cat([header.to(sent[0].device), *sent]), what=what)
        for out in outs:
            out.zero_()
        for message in everyone:
            lengths = message[: header.numel()].cpu().view(torch.int64).tolist()
            parts = message[header.numel() :].split_with_sizes(lengths)
            for part, out in zip(parts, outs, strict=True):
                out += self.decode(part, torch.empty_like(out))


def _parameters(kind: type[Compressor]) -> list[str]:
    """The names that compression_params accepts for a kind, besides 'type'."""
    return [name for name in inspect.signature(kind).parameters]


class Half(Compressor):
    """Rounds each element to float16, without a residual."""

    kind = "fp16"

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Encode each element in two bytes."""
        return tensor.reshape(-1).to(torch.float16).view(torch.uint8)

    def decode(self, data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decode into `out`, in the dtype of `out`."""
        data = _checked(data, out.numel(), 2 * out.numel(), self.kind)
        # A part of a message may start at an odd byte, where a view as float16 is not allowed.
        return out.copy_((data if data.data_ptr() % 2 == 0 else data.clone()).view(torch.float16).view(out.shape))


class _Bits(Compressor):
    """A few bits per element. The rest is kept in residuals, two for each key.

    One is the current residual, the other the one before the last gradient, which `take_back` restores.
    """

    bits: ClassVar[int]

    def __init__(self, threshold: float = 0.5):
        self.threshold = float(torch.tensor(_threshold(self.kind, threshold), dtype=torch.float32))
        self.residuals: dict[Hashable, torch.Tensor] = {}
        self._before: dict[Hashable, torch.Tensor] = {}

    def _residual(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Add this gradient to the key's residual and return it."""
        if tensor.dtype != torch.float32:
            raise MXNetError(
                f"key {key}: {self.kind} gradient compression expects float32, received {tensor.dtype}. "
                "Use {'type': 'fp16'}, or no compression"
            )
        flat = tensor.reshape(-1)
        kept = self.residuals.get(key)
        if kept is None:
            kept = self.residuals[key] = torch.zeros_like(flat)
        elif kept.numel() != flat.numel():
            raise MXNetError(f"key {key}: expected {kept.numel()} elements, as before, received {flat.numel()}")
        spare = self._before.get(key)
        now = torch.add(kept, flat, out=torch.empty_like(flat) if spare is None else spare)
        self.residuals[key], self._before[key] = now, kept
        return now

    def take_back(self, key: Hashable) -> None:
        """Restore the residual before the last gradient."""
        self.residuals[key], self._before[key] = self._before[key], self.residuals[key]

    def state(self) -> dict[str, torch.Tensor]:
        """Return the residuals by key. `repr` distinguishes ints from strings."""
        return {repr(key): residual.clone() for key, residual in self.residuals.items()}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Restore the residuals."""
        self.residuals = {ast.literal_eval(key): residual.clone() for key, residual in state.items()}
        self._before = {}

    def nbytes(self, count: int) -> int:
        """The number of bytes of `count` encoded elements."""
        return -(-count * self.bits // 8)

    def decode(self, data: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decode into `out`."""
        values = _table(self.kind, self.threshold, data.device)
        data = _checked(data, out.numel(), self.nbytes(out.numel()), self.kind)
        return out.copy_(values.index_select(0, data.int()).view(-1)[: out.numel()].view(out.shape))


class TwoBit(_Bits):
    """Encodes an element as +threshold, 0 or -threshold, and keeps the rest."""

    kind, bits = "2bit", 2

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Encode four elements in each byte."""
        kept = self._residual(key, tensor)
        signs = kept.ge(self.threshold).view(torch.int8) - kept.le(-self.threshold).view(torch.int8)
        kept.sub_(signs.to(kept.dtype), alpha=self.threshold)
        codes = _padded(signs.bitwise_and_(3), 4).view(torch.int32)
        return (codes | codes >> 6 | codes >> 12 | codes >> 18).bitwise_and_(0xFF).to(torch.uint8)


class OneBit(_Bits):
    """Encodes an element as +1 above the threshold, as -1 otherwise."""

    kind, bits = "1bit", 1

    def encode(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Encode eight elements in each byte."""
        kept = self._residual(key, tensor)
        above = kept.gt(self.threshold)
        kept.sub_(above.to(kept.dtype).mul_(2).sub_(1))
        codes = _padded(above.view(torch.int8), 8).view(torch.int64)
        # The top byte of the product contains the lowest bit of each of the eight bytes.
        return (codes * 0x0102040810204080 >> 56).bitwise_and_(0xFF).to(torch.uint8)


BUILT_IN = (TwoBit, OneBit, Half)  # the compressors that servers can decode
KINDS: dict[str, type[Compressor]] = {kind.kind: kind for kind in BUILT_IN}
Kind = TypeVar("Kind", bound=type[Compressor])


def register(kind: Kind) -> Kind:
    """Register a compressor for compression_params={'type': kind.kind}. Servers support only built-in compressors."""
    if not (isinstance(kind, type) and issubclass(kind, Compressor) and isinstance(getattr(kind, "kind", None), str)):
        raise TypeError(f"expected a subclass of Compressor with its name in `kind`, received {kind!r:.80}")
    if inspect.isabstract(kind):
        raise TypeError(f"{kind.__name__} must define {', '.join(sorted(kind.__abstractmethods__))}")
    known = KINDS.get(kind.kind)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"{kind.__name__}: the kind {kind.kind!r} is used by {known.__name__}. Choose another name")
    KINDS[kind.kind] = kind
    return kind


def make(params: Any, before: Compressor | None = None) -> Compressor:
    """Create the compressor for compression_params. It takes over the residuals of the compressor `before`."""
    if not isinstance(params, dict):
        raise AssertionError(
            f"compression parameters must be a dict such as {{'type': '2bit', 'threshold': 0.5}}, received {params!r}"
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
        raise MXNetError(f"{kind} gradient compression accepts {takes}; unknown {unknown} in {params!r}")
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
    """Pad codes to a multiple of `multiple`."""
    short = -codes.numel() % multiple
    return torch.nn.functional.pad(codes, (0, short)) if short else codes


def _checked(data: torch.Tensor, count: int, expected: int, kind: str) -> torch.Tensor:
    if data.numel() != expected:
        raise MXNetError(f"expected {expected} bytes for {count} elements of {kind}, received {data.numel()}")
    return data


@cache
def _table(kind: str, threshold: float, device: torch.device) -> torch.Tensor:
    """Return a table whose row b contains the values encoded in byte b."""
    byte = torch.arange(256).view(-1, 1)
    if kind == "1bit":
        values = (byte >> torch.arange(8) & 1) * 2.0 - 1
    else:
        codes = byte >> torch.arange(0, 8, 2)
        values = ((codes & 1) - (codes & 2)).float() * threshold
    return values.to(device)
