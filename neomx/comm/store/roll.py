"""The roll call: who joined the job, who left it, and who is gone without having left."""

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
    """What the roll call tells of a process."""

    host: str
    pid: int
    state: str  # 'here', 'left' or 'gone'
    why: str
    silent: float  # seconds since the last sign of life


@dataclass(slots=True)
class Member:
    """A process in the roll call."""

    name: str
    host: str
    pid: int
    state: str = "here"  # or "left", or "gone"
    why: str = ""
    heard: float = field(default_factory=time.monotonic)
    since: float = 0.0  # when it went
    token: str = ""  # what its connections say, and no other's
    running: float = 0.0  # when another process of its host last saw it run

    def go(self, why: str) -> None:
        """It is gone."""
        if self.state != "gone":
            self.since = time.monotonic()
        self.state, self.why = "gone", why

    def come_back(self) -> None:
        """It counted as gone, and gives signs of life again."""
        self.state, self.why = "here", ""

    @property
    def is_silent(self) -> bool:
        """Whether it counts as gone only because nothing is heard from it: it may come back."""
        return self.state == "gone" and self.why.startswith(_NOT_HEARD)

    def told(self) -> MemberInfo:
        """What others are told of it."""
        silent = time.monotonic() - self.heard
        return {"host": self.host, "pid": self.pid, "state": self.state, "why": self.why, "silent": silent}


class Roll:
    """The members by name. Its methods are called under the lock of the store that keeps it."""

    def __init__(self, silence: float):
        """A member that gives no sign of life for `silence` seconds is gone, unless it is known to run."""
        self.silence = silence
        self._members: dict[str, Member] = {}

    def all(self) -> dict[str, Member]:
        """All that ever joined, by name."""
        return dict(self._members)

    def named(self, name: str) -> Member:
        """The member of that name; raises KeyError if there is none."""
        return self._members[name]

    def speaker(self, name: str, token: str) -> Member:
        """The member of that name, if its connections carry that token: nobody speaks for another."""
        member = self.named(name)
        if not member.token or member.token != token:
            raise ValueError(f"{member.name} is another process")
        return member

    def with_token(self, token: object) -> Member | None:
        """The member whose connections carry that token."""
        return next((member for member in self._members.values() if token and member.token == token), None)

    def has_room_for(self, name: str) -> bool:
        """Whether a member of that name can be entered."""
        return len(self._members) < _MEMBERS or name in self._members

    def join(self, member: Member) -> str:
        """Enter a member; why it is refused, if it is."""
        before = self._members.get(member.name)
        if before is not None and before.state == "here" and before.token != member.token:
            return f"{member.name} is here already, as process {before.pid} on {before.host}"
        if not self.has_room_for(member.name):
            return NO_ROOM
        self._members[member.name] = member
        return ""

    def beat(self, me: Member, running: Collection[str]) -> dict[str, int]:
        """Note that `me` is alive, and the members that it saw `running`; returns the processes to look at next."""
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
        """Why members are gone, by name."""
        return {m.name: m.why for m in self._members.values() if m.state == "gone"}

    def mark_gone(self, name: str, why: str) -> None:
        """Note that a process is gone, even if it never joined."""
        self._members.setdefault(name, Member(name, socket.gethostname(), 0)).go(why)

    def lose(self, member: Member) -> bool:
        """Note that a member's connection broke; whether that is news."""
        if member.state != "here" or self._members.get(member.name) is not member:
            return False
        member.go("its connection broke: the process died or its host is cut off")
        return True

    def mark_silent(self) -> bool:
        """Note who has been silent for too long; whether there is news."""
        now, news = time.monotonic(), False
        for member in self._members.values():
            silent = now - member.heard
            if member.state == "here" and silent > self.silence and not self._runs(member, now):
                member.go(f"{_NOT_HEARD} for {silent:.0f} s: stopped, frozen, or its host is cut off")
                news = True
        return news

    def forgive(self, seconds: float) -> None:
        """If this process did not run for so long, it is not the members that were silent."""
        for member in self._members.values():
            member.heard += seconds
            member.running += seconds

    def _runs(self, member: Member, now: float) -> bool:
        """Whether a silent process is known to run: it is busy in code that lets none of its threads say so.

        Its connection is open, else it would be gone. Whether it was stopped is seen here, or by another of its host.
        """
        if member.host == socket.gethostname() and is_running(member.pid):
            return True
        return now - member.running < self.silence


def is_running(pid: int) -> bool:
    """Whether a process of this host is there and was not stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"T", b"t", b"Z", b"X")
    except (OSError, IndexError):
        return False
