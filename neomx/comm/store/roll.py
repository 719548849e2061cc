"""The roll call: which processes joined the job, left it, or are gone without leaving."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypedDict

_NOT_HEARD = "not heard from"
_MEMBERS = 1 << 16
NO_ROOM = f"there are {_MEMBERS} members already"


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
    heard: float = field(default_factory=time.monotonic)
    since: float = 0.0  # when it was lost
    token: str = ""  # identifies its connections
    running: float = 0.0  # when another process of its host last saw it run

    def go(self, why: str) -> None:
        """Mark it as gone."""
        if self.state != "gone":
            self.since = time.monotonic()
        self.state, self.why = "gone", why

    def come_back(self) -> None:
        """Mark it as present again after a heartbeat."""
        self.state, self.why = "here", ""

    @property
    def is_silent(self) -> bool:
        """Whether it counts as gone only because of missing heartbeats, so that it may return."""
        return self.state == "gone" and self.why.startswith(_NOT_HEARD)

    def told(self) -> MemberInfo:
        """Return what others may know about it."""
        silent = time.monotonic() - self.heard
        return {"host": self.host, "pid": self.pid, "state": self.state, "why": self.why, "silent": silent}


class Roll:
    """The members by name. Call its methods with the lock of the store held."""

    def __init__(self, silence: float):
        """A member without a heartbeat for `silence` seconds is gone, unless it is known to run."""
        self.silence = silence
        self._members: dict[str, Member] = {}

    def all(self) -> dict[str, Member]:
        """Return all that ever joined, by name."""
        return dict(self._members)

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

    def beat(self, me: Member, running: Collection[str]) -> dict[str, int]:
        """Record a heartbeat of `me` and the members it saw `running`. Return the processes for it to check next."""
        now = time.monotonic()
        me.heard = now
        if me.is_silent:
            me.come_back()
        others = [m for m in self._members.values() if m.host == me.host and m is not me]
        for member in others:
            if member.name in running:
                member.running = now
                if member.is_silent:
                    member.come_back()
        return {m.name: m.pid for m in others if m.state != "left" and now - m.heard > self.silence / 4}

    def gone(self) -> dict[str, str]:
        """Return the reasons why members are gone, by name."""
        return {m.name: m.why for m in self._members.values() if m.state == "gone"}

    def mark_gone(self, name: str, why: str) -> None:
        """Record that a process is gone, even if it never joined."""
        self._members.setdefault(name, Member(name, socket.gethostname(), 0)).go(why)

    def lose(self, member: Member) -> bool:
        """Record that a member's connection broke. Return whether the state changed."""
        if member.state != "here" or self._members.get(member.name) is not member:
            return False
        member.go("its connection broke: the process died or its host is not reachable")
        return True

    def mark_silent(self) -> bool:
        """Mark members as gone that have been silent for too long. Return whether a state changed."""
        now, news = time.monotonic(), False
        for member in self._members.values():
            silent = now - member.heard
            if member.state == "here" and silent > self.silence and not self._runs(member, now):
                member.go(f"{_NOT_HEARD} for {silent:.0f} s: stopped, frozen, or its host is not reachable")
                news = True
        return news

    def forgive(self, seconds: float) -> None:
        """Extend the heartbeats of all members by the time for which this process itself did not run."""
        for member in self._members.values():
            member.heard += seconds
            member.running += seconds

    def _runs(self, member: Member, now: float) -> bool:
        """Whether a silent process is known to run, busy in code that blocks all of its threads.

        Its connection is open, otherwise it would be gone. Whether it is stopped can be seen on its own host only.
        """
        if member.host == socket.gethostname() and is_running(member.pid):
            return True
        return now - member.running < self.silence


def is_running(pid: int) -> bool:
    """Whether a process of this host exists and is not stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"T", b"t", b"Z", b"X")
    except (OSError, IndexError):
        return False
