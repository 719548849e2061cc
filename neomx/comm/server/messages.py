"""What workers and servers say to each other: kinds of frames, and how what a peer said is checked.

A frame's JSON names slots (numbers that the server gave to segments of keys); its payload is memory. Nothing that comes
from a peer is used before it went through one of the functions here.
"""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..wire import Refused
from ..world import World

# What workers ask for.
DECLARE = 1  # keys and where their segments are; worker 0 brings the first values
ATTACH = 2  # which memory of a chunk both sides share
PUSH = 3  # gradients of slots: in shared memory, or as the payload
COMMIT = 4  # these slots' gradients are complete for this step
PULL = 5  # tell when slots may be read; the values follow where memory is not shared
PUSH_ROWS = 6  # some rows of one slot's gradient
PULL_ROWS = 7  # some rows of one slot
PUSH_CODED = 8  # one slot's gradient, compressed
OPTIMIZER = 9  # the rule by which pushes update
STATES = 10  # give the optimizer's states
RESTORE = 11  # take the optimizer's states
BYE = 12  # this worker is done
# What servers answer.
DONE = 32
READY = 33
FAILED = 34

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
Key = int | str
Settings = dict[str, Any]  # of an optimizer, as JSON has them: numbers by name, or lists of (key, number)


class SparseRows(NamedTuple):
    """Some rows of an array: their numbers, rising, and their values."""

    indices: torch.Tensor
    values: torch.Tensor


class Segment(NamedTuple):
    """The elements [start, stop) of a flattened array, on one server."""

    server: int
    start: int
    stop: int


@dataclass(frozen=True)
class KeySpec:
    """A key, its array, and the segments it is kept in: whole rows, on a server each, or all of it on one server.

    A later generation takes the place of an earlier one.
    """

    key: Key
    shape: tuple[int, ...]
    dtype: torch.dtype
    segments: tuple[Segment, ...]
    generation: int = 0
    row_sparse: bool = False  # whether workers gave it by rows, as which optimizers update it

    @property
    def name(self) -> tuple[Key, int]:
        """What tells it from all others."""
        return self.key, self.generation

    @property
    def size(self) -> int:
        """How many elements the whole array has."""
        return math.prod(self.shape)

    @property
    def row(self) -> int:
        """How many elements a row of the array has."""
        return math.prod(self.shape[1:])

    def rows_of(self, segment: Segment) -> slice:
        """The rows of the array that a segment consists of, where the array is split."""
        return slice(segment.start // self.row, segment.stop // self.row)

    def shape_of(self, segment: Segment) -> tuple[int, ...]:
        """The shape in which a segment is kept."""
        if len(self.segments) == 1:
            return self.shape
        rows = self.rows_of(segment)
        return (rows.stop - rows.start, *self.shape[1:])

    def told(self) -> list[Any]:
        """As a frame has it."""
        segments = [list(segment) for segment in self.segments]
        return [self.key, list(self.shape), NAMES[self.dtype], segments, self.generation, self.row_sparse]

    @staticmethod
    def heard(told: Any, servers: int) -> KeySpec:
        """As it came in a frame, checked."""
        try:
            key, shape, dtype, segments, generation, row_sparse = told
            spec = KeySpec(
                key,
                tuple(shape),
                DTYPES[dtype],
                tuple(Segment(*map(whole, segment)) for segment in segments),
                whole(generation),
                row_sparse,
            )
            if not isinstance(row_sparse, bool):
                raise ValueError(f"expected whether it is row_sparse, received {row_sparse!r:.40}")
            if not isinstance(key, (int, str)) or isinstance(key, bool) or len(spec.shape) > 32:
                raise ValueError("a key is an int or a string, of an array of at most 32 dimensions")
            list(map(whole, spec.shape))
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"no declaration of a key: {told!r:.120} ({error!r:.80})") from None
        ends = [0, *(segment.stop for segment in spec.segments)]
        fits = all(segment.start == end for segment, end in zip(spec.segments, ends[:-1], strict=True))
        holders = [segment.server for segment in spec.segments]
        split = len(spec.segments) > 1
        if split and (not spec.size or any(segment.start % spec.row for segment in spec.segments)):
            raise Refused(f"the segments of key {key!r:.40}, of shape {spec.shape}, cut its rows: {segments!r:.120}")
        if not fits or ends[-1] != spec.size or len({*holders}) < len(holders) or max(holders, default=0) >= servers:
            raise Refused(
                f"the segments of key {key!r:.40} do not make up an array of shape {spec.shape}: {segments!r:.120}"
            )
        return spec


def host_of(world: World) -> dict[str, Any]:
    """What a process says of where it is."""
    return {"node": world.node, "host": socket.gethostname()}


def service_name(number: int, address: str) -> str:
    """What a worker's connection to a server is for, as both of them know it."""
    return f"server {number} at {address}"


def are_near(one: Any, other: Any) -> bool:
    """Whether two processes are on one host: by their nodes, or by names where a launcher told no nodes."""
    nodes = [each.get("node") for each in (one, other)]
    if all(type(node) is int and node >= 0 for node in nodes):
        return bool(nodes[0] == nodes[1])
    return bool(one.get("host") == other.get("host"))


def whole(value: Any) -> int:
    """A number of JSON that is an int, and not negative."""
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number, received {value!r:.40}")
    return value


def field(meta: Any, name: str, kind: Any) -> Any:
    """A field of what a peer said, of that type."""
    value = meta.get(name) if isinstance(meta, dict) else None
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise Refused(f"a frame says {meta!r:.80}: expected {name!r} in it")
    return value


def settings(said: Any) -> Settings:
    """Settings of an optimizer as a worker sent them: numbers by name, or lists of (key, number)."""
    pairs = [pair for value in _values(said) if isinstance(value, list) for pair in value]
    sound = all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], (int, str)) for pair in pairs)
    plain = [value for value in _values(said) if not isinstance(value, list)] + (
        [pair[1] for pair in pairs] if sound else []
    )
    if any(_is_unsound(value) for value in plain):
        raise Refused(f"settings of an optimizer must be finite and fit 64 bits, received {said!r:.120}")
    if not sound or not all(value is None or isinstance(value, (bool, int, float)) for value in plain):
        raise Refused(f"settings must be numbers, or lists of keys and numbers, received {said!r:.120}")
    return dict(said)


def _is_unsound(value: Any) -> bool:
    if isinstance(value, int):
        return not -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) and not math.isfinite(value)


def _values(said: Any) -> list[Any]:
    if not isinstance(said, dict):
        raise Refused(f"settings must be numbers by name, received {said!r:.80}")
    return list(said.values())
