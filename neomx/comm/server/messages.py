"""Messages between workers and servers: kinds of frames, and validation of received data.

A frame's JSON identifies slots by number (assigned by the server to segments of keys). Its payload is raw memory. Data
from a peer is used only after validation by one of the functions here.
"""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..wire import Refused
from ..world import World

# Requests of workers.
DECLARE = 1  # keys and their segments; worker 0 sends the initial values
ATTACH = 2  # the memory of a chunk that both sides share
PUSH = 3  # gradients of slots: in shared memory, or as the payload
COMMIT = 4  # these slots' gradients are complete for this step
PULL = 5  # report when slots are readable; values are sent if memory is not shared
PUSH_ROWS = 6  # some rows of one slot's gradient
PULL_ROWS = 7  # some rows of one slot
PUSH_CODED = 8  # one slot's gradient, compressed
OPTIMIZER = 9  # the optimizer that applies pushes
STATES = 10  # get the optimizer's states
RESTORE = 11  # set the optimizer's states
BYE = 12  # this worker disconnects
RESUME = 13  # after a broken connection: report the memory, and which commits were applied
SETTLE = 14  # a step of an elastic job counts: apply its offers
# Actions of worker 0 that run once.
SET_OPTIMIZER, LOAD_STATES = "set_optimizer", "load_optimizer_states"
# From a server to the next one in the chain of a shard.
SPACE = 16  # a store without its arrays
FILL = 17  # weights and states of some slots
FULL = 18  # the next server has everything
UPDATE = 19  # gradients of a round, or those that one worker has committed
KEYS = 20  # keys that worker 0 has declared
ONCE = 21  # an action of worker 0
JOINED = 22  # a worker starts, with its counts
LEFT = 23  # a worker has closed its store
MEMORY = 24  # shared memory with gradients
OFFER = 28  # gradients of a round, which are applied if their step counts
GENERATION = 29  # the workers of an elastic job have changed
# From a server to the previous one.
FOLLOW = 25  # send operations, after filling this server if it is new
HELD = 26  # the operations of a store that were applied
MAPPED = 27  # shared memory can be read
# Replies of servers.
DONE = 32
READY = 33
FAILED = 34
MOVED = 35  # another server leads this shard, or will soon

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
Settings = dict[str, Any]  # of an optimizer, in JSON: numbers by name, or lists of (key, number)


class SparseRows(NamedTuple):
    """Some rows of an array: their indices in ascending order, and their values."""

    indices: torch.Tensor
    values: torch.Tensor


class Segment(NamedTuple):
    """The elements [start, stop) of a flattened array, on one server."""

    server: int
    start: int
    stop: int


@dataclass(frozen=True)
class KeySpec:
    """A key, its array, and the segments that store it: whole rows on several servers, or the whole array on one.

    A later generation replaces an earlier one.
    """

    key: Key
    shape: tuple[int, ...]
    dtype: torch.dtype
    segments: tuple[Segment, ...]
    generation: int = 0
    row_sparse: bool = False  # whether workers declared it row-sparse; optimizers then update it by rows

    @property
    def name(self) -> tuple[Key, int]:
        """The unique identifier of the spec."""
        return self.key, self.generation

    @property
    def size(self) -> int:
        """The number of elements of the whole array."""
        return math.prod(self.shape)

    @property
    def row(self) -> int:
        """The number of elements of a row."""
        return math.prod(self.shape[1:])

    def rows_of(self, segment: Segment) -> slice:
        """The rows of a segment of a split array."""
        return slice(segment.start // self.row, segment.stop // self.row)

    def shape_of(self, segment: Segment) -> tuple[int, ...]:
        """The shape of a segment."""
        if len(self.segments) == 1:
            return self.shape
        rows = self.rows_of(segment)
        return (rows.stop - rows.start, *self.shape[1:])

    def told(self) -> list[Any]:
        """Return the spec as JSON for a frame."""
        segments = [list(segment) for segment in self.segments]
        return [self.key, list(self.shape), NAMES[self.dtype], segments, self.generation, self.row_sparse]

    @staticmethod
    def heard(told: Any, servers: int) -> KeySpec:
        """Validate a spec from a frame and return it."""
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
                raise ValueError(f"row_sparse must be a bool, received {row_sparse!r:.40}")
            if not isinstance(key, (int, str)) or isinstance(key, bool) or len(spec.shape) > 32:
                raise ValueError("expected an int or a string as key, and at most 32 dimensions")
            list(map(whole, spec.shape))
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"invalid declaration of a key: {told!r:.120} ({error!r:.80})") from None
        ends = [0, *(segment.stop for segment in spec.segments)]
        fits = all(segment.start == end for segment, end in zip(spec.segments, ends[:-1], strict=True))
        holders = [segment.server for segment in spec.segments]
        split = len(spec.segments) > 1
        if split and (not spec.size or any(segment.start % spec.row for segment in spec.segments)):
            raise Refused(f"the segments of key {key!r:.40}, of shape {spec.shape}, split its rows: {segments!r:.120}")
        if not fits or ends[-1] != spec.size or len({*holders}) < len(holders) or max(holders, default=0) >= servers:
            raise Refused(
                f"the segments of key {key!r:.40} do not cover an array of shape {spec.shape}: {segments!r:.120}"
            )
        return spec


def host_of(world: World) -> dict[str, Any]:
    """Describe where a process runs."""
    return {"node": world.node, "host": socket.gethostname()}


def service_name(number: int, address: str) -> str:
    """Return the name of the service that a worker connects to, known to both sides."""
    return f"server {number} at {address}"


def are_near(one: Any, other: Any) -> bool:
    """Whether two processes are on one host, by their nodes, or by host names if the launcher did not set nodes."""
    nodes = [each.get("node") for each in (one, other)]
    if all(type(node) is int and node >= 0 for node in nodes):
        return bool(nodes[0] == nodes[1])
    return bool(one.get("host") == other.get("host"))


def whole(value: Any) -> int:
    """Validate that a JSON value is a nonnegative int."""
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a nonnegative integer, received {value!r:.40}")
    return value


def field(meta: Any, name: str, kind: Any) -> Any:
    """Return a field of a received message after checking its type."""
    value = meta.get(name) if isinstance(meta, dict) else None
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise Refused(f"a frame contains {meta!r:.80}: expected the field {name!r}")
    return value


def settings(said: Any) -> Settings:
    """Validate the settings of an optimizer that a worker sent: numbers by name, or lists of (key, number)."""
    pairs = [pair for value in _values(said) if isinstance(value, list) for pair in value]
    sound = all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], (int, str)) for pair in pairs)
    plain = [value for value in _values(said) if not isinstance(value, list)] + (
        [pair[1] for pair in pairs] if sound else []
    )
    if any(_is_unsound(value) for value in plain):
        raise Refused(f"settings of an optimizer must be finite and fit in 64 bits, received {said!r:.120}")
    if not sound or not all(value is None or isinstance(value, (bool, int, float)) for value in plain):
        raise Refused(f"settings must be numbers, or lists of (key, number), received {said!r:.120}")
    return dict(said)


def news(told: Settings, current: Settings) -> Settings:
    """Return the settings that differ from those told before, and add them to these."""
    nothing = object()
    changed = {
        name: value
        for name, value in current.items()
        if (known := told.get(name, nothing)) is not value and known != value
    }
    told.update(changed)
    return changed


def _is_unsound(value: Any) -> bool:
    if isinstance(value, int):
        return not -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) and not math.isfinite(value)


def _values(said: Any) -> list[Any]:
    if not isinstance(said, dict):
        raise Refused(f"settings must be numbers by name, received {said!r:.80}")
    return list(said.values())
