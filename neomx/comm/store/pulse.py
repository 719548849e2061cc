"""The heartbeats of the members, as heard by the process that serves them.

This is what one process knows, not what the replicas of a store agree on. A process that begins to serve gives every
member some time to connect.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from .roll import NOT_HEARD, Member

RETURN = 1.5  # seconds to connect again, for members of a host from which nobody is connected
GRACE = 1.0  # seconds to connect to a process that begins to serve, before anything is concluded
BROKE = "its connection broke: the process died or its host is not reachable"


@dataclass(slots=True)
class _Beats:
    """What was heard from a member."""

    token: str
    heard: float = field(default_factory=time.monotonic)
    running: float = -math.inf  # when another process of its host, or this one, last saw it run
    ended: bool = False  # whether it was seen to have ended since it lost its connection
    connection: object = None  # on which it sends its heartbeats
    absent: float | None = None  # since when it has none
    judged: float = -math.inf  # from when on it may count as ended while it has none
    asked: dict[str, str] = field(default_factory=dict)  # members whose process it was asked to check, and their tokens


class Pulse:
    """The heartbeats by member. Call its methods with the lock of the store held."""

    def __init__(self, silence: float):
        """A member without a heartbeat for `silence` seconds is gone, unless it is known to run."""
        self.silence = silence
        self._of: dict[str, _Beats] = {}

    def begin(self, members: list[Member]) -> None:
        """Begin to serve these members, which have to connect."""
        now = time.monotonic()
        self._of = {m.name: _Beats(m.token, now, absent=now, judged=now + GRACE) for m in members}

    def silent(self, member: Member) -> float:
        """Return the seconds since the last heartbeat."""
        beats = self._of.get(member.name)
        return time.monotonic() - beats.heard if beats is not None and beats.token == member.token else 0.0

    def beat(self, me: Member, connection: object) -> None:
        """Record a heartbeat."""
        beats = self._beats(me)
        beats.heard = time.monotonic()
        beats.connection, beats.absent, beats.ended = connection, None, False

    def note(self, me: Member, running: Collection[str]) -> list[str]:
        """Record which of the processes that `me` was asked to check it saw `running`. Return these."""
        now = time.monotonic()
        asked, self._of[me.name].asked = self._of[me.name].asked, {}
        for name, token in asked.items():
            beats = self._of.get(name)
            if beats is not None and beats.token == token:
                beats.ended = name not in running
                beats.running = beats.running if beats.ended else now
        return [name for name in asked if name in running]

    def look(self, me: Member, members: dict[str, Member]) -> dict[str, int]:
        """Return the processes of its host that `me` should check: those that are silent, and those not connected."""
        now = time.monotonic()
        found = {}
        for member in members.values():
            if member.host == me.host and member is not me and member.state != "left":
                beats = self._of.get(member.name)
                if beats is None or beats.absent is not None or now - beats.heard > self.silence / 4:
                    found[member.name] = member
        self._of[me.name].asked = {name: member.token for name, member in found.items()}
        return {name: member.pid for name, member in found.items()}

    def end(self, name: str, connection: object) -> str | None:
        """Record that a member's connection ended. Return its token, or None if it has another connection."""
        beats = self._of.get(name)
        if beats is None or beats.connection is not connection:
            return None
        beats.connection, beats.absent, beats.ended = None, time.monotonic(), False
        return beats.token

    def lost(self, members: list[Member]) -> Iterator[tuple[Member, str]]:
        """Yield the members that are lost, of those that are here, and the reasons."""
        now, host = time.monotonic(), socket.gethostname()
        hosts = {m.host for m in members if self._beats(m).absent is None}  # that can be reached
        for member in members:
            beats = self._beats(member)
            silent = now - beats.heard
            if beats.absent is None and silent <= self.silence:
                continue
            if member.host == host and is_running(member.pid):
                beats.running = now
            elif beats.absent is not None and now > beats.judged and (member.host == host or beats.ended):
                yield member, BROKE
            elif beats.absent is not None and hosts and member.host not in hosts and now - beats.absent > RETURN:
                yield member, f"{NOT_HEARD} since its connection broke: its host is not reachable"
            elif silent > self.silence <= now - beats.running:
                yield member, f"{NOT_HEARD} for {silent:.0f} s: stopped, frozen, or its host is not reachable"

    def forgive(self, seconds: float) -> None:
        """Extend the heartbeats of all members by the time for which this process itself did not run."""
        for beats in self._of.values():
            beats.heard += seconds
            beats.running += seconds
            if beats.absent is not None:
                beats.absent += seconds

    def _beats(self, member: Member) -> _Beats:
        beats = self._of.get(member.name)
        if beats is None or beats.token != member.token:
            beats = self._of[member.name] = _Beats(member.token)
        return beats


def is_running(pid: int) -> bool:
    """Whether a process of this host exists and is not stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"T", b"t", b"Z", b"X")
    except (OSError, IndexError):
        return False
