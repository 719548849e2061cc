"""The messages between the replicas of a log, and their form on the wire."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...base import MXNetError
from ..wire import split_address


class Invalid(MXNetError):
    """A message that no correct replica sends."""


class Entry(NamedTuple):
    """An entry of the log: data for the application, or the voters from this entry on, or nothing."""

    term: int
    data: bytes = b""
    voters: tuple[str, ...] | None = None


class Candidacy(NamedTuple):
    """A replica asks for a vote in `term`, or only whether it would get one (`trial`).

    It is `urged` if the leader told it to.
    """

    term: int
    last: int
    last_term: int
    trial: bool
    urged: bool = False


class Vote(NamedTuple):
    """The answer to a Candidacy."""

    term: int
    granted: bool
    trial: bool


class Append(NamedTuple):
    """The leader's entries after index `prev`; without entries, a sign of life. `seq` numbers its messages."""

    term: int
    seq: int
    prev: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit: int


class Appended(NamedTuple):
    """The answer to an Append: the replica's log equals the leader's up to `up_to`, or only its committed part does."""

    term: int
    seq: int
    up_to: int
    matched: bool


class Piece(NamedTuple):
    """A piece of a snapshot of the application's state after the entry `up_to`, beginning at byte `offset`."""

    term: int
    seq: int
    up_to: int
    up_to_term: int
    voters: tuple[str, ...]
    total: int
    offset: int
    data: bytes


class Held(NamedTuple):
    """The answer to a Piece: the replica has the first `offset` bytes of the snapshot."""

    term: int
    seq: int
    up_to: int
    offset: int


class Urge(NamedTuple):
    """The leader tells a replica to become its successor now."""

    term: int


Message = Candidacy | Vote | Append | Appended | Piece | Held | Urge

# ---- on the wire ----

_KINDS: tuple[type[tuple[Any, ...]], ...] = (Candidacy, Vote, Append, Appended, Piece, Held, Urge)
_NUMBERS: dict[type[Any], int] = {Candidacy: 3, Vote: 1, Appended: 3, Held: 4, Urge: 1}  # how many come before flags
_MOST = 1 << 62  # above all terms and indices
_NAME = 400  # maximum characters of a replica's name
_VOTERS = 99
_ENTRIES = 1 << 12  # maximum entries in a message


def encode(message: Message) -> tuple[int, list[Any], list[bytes]]:
    """Return the kind, the JSON and the payload of the frame for a message."""
    kind = _KINDS.index(type(message))
    if isinstance(message, Append):
        entries = [[entry.term, len(entry.data), entry.voters] for entry in message.entries]
        return kind, list(message._replace(entries=entries)), [entry.data for entry in message.entries]  # type: ignore[arg-type]
    if isinstance(message, Piece):
        return kind, list(message[:-1]), [message.data]
    return kind, list(message), []


def decode(kind: int, said: Any, payload: bytes) -> Message:
    """Return the message in a frame. Raises Invalid if it has another form than those that `encode` makes."""
    try:
        made = _decoded(_KINDS[kind], said, payload)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise Invalid(f"a message of kind {kind} between replicas is invalid: {error!r:.200}") from error
    return made


def _decoded(kind: type[Any], said: Any, payload: bytes) -> Message:
    if not isinstance(said, list):
        raise TypeError(f"expected a list, received {said!r:.80}")
    if kind is Append:
        term, seq, prev, prev_term, entries, commit = said
        term, seq, prev, prev_term, commit = map(_number, (term, seq, prev, prev_term, commit))
        return Append(term, seq, prev, prev_term, _entries(entries, payload), commit)
    if kind is Piece:
        *numbers, voters, total, offset = said
        term, seq, up_to, up_to_term = map(_number, numbers)
        return Piece(term, seq, up_to, up_to_term, _voters(voters), _number(total), _number(offset), payload)
    if payload:
        raise ValueError(f"unexpected payload of {len(payload)} bytes")
    if len(said) != len(kind._fields):
        raise ValueError(f"expected {len(kind._fields)} fields, received {said!r:.80}")
    made: Message = kind(*map(_number, said[: _NUMBERS[kind]]), *map(_flag, said[_NUMBERS[kind] :]))
    return made


def _entries(told: Any, payload: bytes) -> tuple[Entry, ...]:
    if not isinstance(told, list) or len(told) > _ENTRIES:
        raise ValueError(f"expected a list of at most {_ENTRIES} entries")
    found, at = [], 0
    for term, size, voters in told:
        end = at + _number(size)
        found.append(Entry(_number(term), payload[at:end], None if voters is None else _voters(voters)))
        at = end
    if at != len(payload):
        raise ValueError(f"{len(payload)} bytes for entries of {at}")
    return tuple(found)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"expected a number up to {_MOST}, received {value!r:.40}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, received {value!r:.40}")
    return value


def _voters(told: Any) -> tuple[str, ...]:
    if not isinstance(told, list) or not 0 < len(told) <= _VOTERS or len(set(told)) < len(told):
        raise ValueError(f"expected 1 to {_VOTERS} voters, received {told!r:.80}")
    return tuple(replica_name(name) for name in told)


def address_of(name: str) -> str:
    """Return where a replica listens for the others, which is a part of its name."""
    return name.partition("@")[2]


def replica_name(value: Any) -> str:
    """Return the name of a replica: a random part, and its address. Raises ValueError or TypeError for other values."""
    if not isinstance(value, str) or len(value) > _NAME or not value.isprintable():
        raise TypeError(f"expected the name of a replica, received {value!r:.80}")
    split_address(address_of(value))
    return value
