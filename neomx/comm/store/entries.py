"""The entries of one replica's log, of which the first ones may have been dropped."""

from __future__ import annotations

from .messages import Entry


class Entries:
    """Entries by index, from 1 on, and the voters that they define."""

    def __init__(self, voters: tuple[str, ...]):
        """Before the first entry, there are these `voters`."""
        self.base = self._base_term = 0  # the index and the term of the last entry that was dropped
        self.size = 0  # bytes of those that are kept
        self._kept: list[Entry] = []
        self._voters: list[tuple[int, tuple[str, ...]]] = [(0, voters)]  # with the indices from which on they vote

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.base + len(self._kept)

    @property
    def voters(self) -> tuple[str, ...]:
        """The voters as of the last entry."""
        return self._voters[-1][1]

    @property
    def changed(self) -> int:
        """The index of the last change of the voters."""
        return self._voters[-1][0]

    def voters_at(self, index: int) -> tuple[str, ...]:
        """Return the voters as of an entry that has not been dropped."""
        return next(voters for changed, voters in reversed(self._voters) if changed <= index)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, or None if this replica does not have it."""
        if index == self.base:
            return self._base_term
        return self._kept[index - self.base - 1].term if self.base < index <= self.last else None

    def get(self, index: int) -> Entry | None:
        """Return an entry, or None if this replica does not have it or dropped it."""
        return self._kept[index - self.base - 1] if self.base < index <= self.last else None

    def between(self, first: int, last: int) -> list[Entry]:
        """Return the entries from one index up to another one, none of which has been dropped."""
        return self._kept[first - self.base - 1 : last - self.base]

    def store(self, entry: Entry) -> None:
        """Add an entry at the end."""
        self._kept.append(entry)
        self.size += len(entry.data)
        if entry.voters is not None:
            self._voters.append((self.last, entry.voters))

    def cut(self, index: int) -> None:
        """Drop the entries from an index on."""
        self.size -= sum(len(entry.data) for entry in self.between(index, self.last))
        del self._kept[index - self.base - 1 :]
        while self.changed >= index:
            self._voters.pop()

    def drop(self, index: int) -> None:
        """Drop the entries up to an index."""
        if index <= self.base:
            return
        self._base_term = self._kept[index - self.base - 1].term
        self.size -= sum(len(entry.data) for entry in self.between(self.base + 1, index))
        del self._kept[: index - self.base]
        self.base = index
        while len(self._voters) > 1 and self._voters[1][0] <= index:
            self._voters.pop(0)

    def begin(self, index: int, term: int, voters: tuple[str, ...]) -> None:
        """Begin after an entry that is known only from a snapshot, without those that do not follow it."""
        if self.term_at(index) == term:
            self.drop(index)
        else:
            self.base, self._base_term = index, term
            self._kept, self.size, self._voters = [], 0, []
        self._voters = [(index, voters), *(config for config in self._voters if config[0] > index)]
