"""The values of the store by key, with quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...base import MXNetError
from .protocol import KEY_LIMIT

_KEYS, _BYTES = 1 << 20, 1 << 30  # limits of the whole store
_KEYS_EACH, _BYTES_EACH = 1 << 17, 1 << 28  # limits of one member
HOST = 0  # the owner of values set by the hosting process; differs from all tokens

Owner = str | int | None  # the token of the client that set a value, HOST, or None if members share it


class OverQuota(MXNetError):
    """A value exceeds a quota of the store."""


@dataclass(slots=True)
class _Entry:
    value: bytes
    owner: Owner = None


class Values:
    """Values by key, with quotas."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0
        self._of: dict[Owner, list[int]] = {}  # keys and bytes, by owner

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def owner(self, key: str) -> Owner:
        """Return the owner of a value."""
        entry = self._entries.get(key)
        return None if entry is None else entry.owner

    def listed(self) -> Iterator[tuple[str, Owner, bytes]]:
        """Yield all keys with the owners of their values and the values."""
        for key, entry in self._entries.items():
            yield key, entry.owner, entry.value

    def become(self, other: Values) -> None:
        """Replace all values with those of another object, which must not be used any more."""
        self._entries, self._bytes, self._of = other._entries, other._bytes, other._of

    def lacking(self, keys: Iterable[str]) -> list[str]:
        """Return the keys without values."""
        return sorted(key for key in keys if key not in self._entries)

    def wait_for(self, keys: Iterable[str]) -> Callable[[], bool]:
        """Return a function for use at every change that tells whether all keys have, or had, values."""
        left = list(keys)

        def are_there() -> bool:
            while left and left[-1] in self._entries:
                left.pop()
            return not left

        return are_there

    def put(self, key: str, value: bytes, owner: Owner, limited: bool = True) -> None:
        """Set a value. Raises OverQuota if it exceeds a quota."""
        old = self._entries.get(key)
        size = len(key) + len(value)
        keys, room = self._of.get(owner, [0, 0])
        mine = old is not None and old.owner == owner
        grown = size - (0 if old is None else len(key) + len(old.value))
        if limited and (
            len(key) > KEY_LIMIT
            or len(self) + (old is None) > _KEYS
            or self._bytes + grown > _BYTES
            or keys + (not mine) > _KEYS_EACH
            or room + (grown if mine else size) > _BYTES_EACH
        ):
            raise OverQuota(
                f"the job's store has no room for {len(value)} bytes under {key!r:.80}: it has {len(self)} keys and "
                f"{self._bytes} bytes, of which this process set {keys} and {room}; the limit of a process is "
                f"{_KEYS_EACH} and {_BYTES_EACH}"
            )
        self.pop(key)
        self._entries[key] = _Entry(value, owner)
        self._count(owner, 1, size)

    def pop(self, key: str) -> bool:
        """Delete a value. Return whether there was one."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._count(old.owner, -1, -len(key) - len(old.value))
        return old is not None

    def _count(self, owner: Owner, keys: int, size: int) -> None:
        self._bytes += size
        now = self._of.setdefault(owner, [0, 0])
        now[0] += keys
        now[1] += size
        if not now[0]:
            del self._of[owner]
