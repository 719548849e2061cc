"""The roll call: which processes joined the job, left it, or are gone without leaving."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

NOT_HEARD = "not heard from"
NO_ROOM = f"there are {(_MEMBERS := 1 << 16)} members already"


class MemberInfo(TypedDict):
    """What the roll call reports about a process."""

    host: str
    pid: int
    state: str  # 'here', 'left' or 'gone'
    why: str
    silent: float  # seconds since the last heartbeat


@dataclass(slots=True)
class Member:
    """A process in the roll call."""

    name: str
    host: str
    pid: int
    state: str = "here"  # or "left", or "gone"
    why: str = ""
    since: int = 0  # its place in the order in which members were lost
    token: str = ""  # identifies its connections

    @property
    def is_silent(self) -> bool:
        """Whether it counts as gone only because of missing heartbeats, so that it may return."""
        return self.state == "gone" and self.why.startswith(NOT_HEARD)

    def told(self, silent: float) -> MemberInfo:
        """Return what others may know about it, which sent its last heartbeat `silent` seconds ago."""
        return {"host": self.host, "pid": self.pid, "state": self.state, "why": self.why, "silent": silent}


def _member(told: dict[str, Any]) -> Member:
    member = Member(**told)
    for name, value in asdict(member).items():
        if type(value) is not (int if name in ("pid", "since") else str):
            raise TypeError(f"a member has {name} {value!r:.40}")
    return member


class Roll:
    """The members by name. Call its methods with the lock of the store held.

    It is part of what the replicas of a store agree on, so it does not use clocks.
    """

    def __init__(self, members: Iterable[dict[str, Any]] = ()) -> None:
        self._members = {member.name: member for member in map(_member, members)}
        self._lost = max((member.since for member in self._members.values()), default=0)

    def all(self) -> dict[str, Member]:
        """Return all that ever joined, by name."""
        return dict(self._members)

    def listed(self) -> list[dict[str, Any]]:
        """Return all members with all that is known about them, for a copy."""
        return [asdict(member) for member in self._members.values()]

    def present(self) -> list[Member]:
        """Return the members that are here."""
        return [member for member in self._members.values() if member.state == "here"]

    def named(self, name: str) -> Member:
        """Return the member of that name. Raises KeyError if there is none."""
        return self._members[name]

    def speaker(self, name: str, token: str) -> Member:
        """Return the member of that name after checking that the token belongs to it."""
        member = self.named(name)
        if not member.token or member.token != token:
            raise ValueError(f"{member.name} is another process")
        return member

    def with_token(self, token: object) -> Member | None:
        """Return the member whose connections have that token."""
        return next((member for member in self._members.values() if token and member.token == token), None)

    def has_room_for(self, name: str) -> bool:
        """Whether a member of that name can be added."""
        return len(self._members) < _MEMBERS or name in self._members

    def join(self, member: Member) -> str:
        """Add a member. Return the reason if it is refused."""
        before = self._members.get(member.name)
        if before is not None and before.state == "here" and before.token != member.token:
            return f"{member.name} is already connected, as process {before.pid} on {before.host}"
        if not self.has_room_for(member.name):
            return NO_ROOM
        self._members[member.name] = member
        return ""

    def gone(self) -> dict[str, str]:
        """Return the reasons why members are gone, by name."""
        return {m.name: m.why for m in self._members.values() if m.state == "gone"}

    def mark_gone(self, name: str, host: str, why: str) -> None:
        """Record that a process is gone, even if it never joined."""
        self._go(self._members.setdefault(name, Member(name, host, 0)), why)

    def lose(self, name: str, token: str, why: str) -> bool:
        """Record that a member is gone unless it has left meanwhile. Return whether the state changed."""
        member = self._members.get(name)
        if member is None or member.state != "here" or member.token != token:
            return False
        self._go(member, why)
        return True

    def _go(self, member: Member, why: str) -> None:
        if member.state != "gone":
            self._lost += 1
            member.since = self._lost
        member.state, member.why = "gone", why

    def come_back(self, name: str, token: str) -> None:
        """Record that a member is present again after a heartbeat, if it counted as gone because of its silence."""
        member = self._members.get(name)
        if member is not None and member.token == token and member.is_silent:
            member.state, member.why = "here", ""
