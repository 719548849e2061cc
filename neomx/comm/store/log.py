"""A replicated log: replicas that may crash agree on one sequence of entries, in the style of the Raft algorithm.

`Log` is the part of one replica, as a state machine without threads, clocks and sockets. Its inputs are messages of
other replicas, the time, and proposals. Its outputs are messages to send (`messages`) and entries to apply
(`committed`). The caller passes messages on; they may be lost, repeated, reordered and delayed.

Replicas elect a leader for a term. Only the leader adds entries. An entry is committed once a majority of the voters
has it. These statements hold whatever fails, and independently of clocks:

- a term has at most one leader;
- if two logs have an entry of the same term at the same index, they are equal up to there;
- a committed entry is in the logs of all later leaders, so all replicas apply the same entries in the same order;
- a read that `is_confirmed` sees every entry that was committed before it began.

Clocks matter only for progress: while a majority of the voters can exchange messages, they have a leader soon.

A log is in memory only. A replica must never vote twice in a term, so a process that starts again takes part under a
new name, with an empty log. The old name never votes again: messages to it are not delivered to its successor. The
leader sends a new replica all entries before that replica becomes a voter (`teach`, `change`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

from .entries import Entries
from .messages import Append, Appended, Candidacy, Entry, Held, Invalid, Message, Piece, Urge, Vote

FOLLOWER, CANDIDATE, LEADER = "follower", "candidate", "leader"
_TERMS = 1 << 20  # a message may be so many terms ahead: an honest one is rarely more than one
_NEVER = -math.inf
_BEATS = 64  # of the leader that are remembered, with their times


@dataclass(frozen=True)
class Pace:
    """Times in seconds, and sizes."""

    beat: float = 0.1  # between two messages of the leader
    shortest: float = 0.6  # silence of the leader after which a replica may ask for votes; chosen anew each time
    longest: float = 1.2
    hurry: float = 0.15  # at most so long after the connection to the leader broke
    entries: int = 256  # in one message
    size: int = 1 << 22  # bytes of the entries in one message, unless one entry is larger
    piece: int = 1 << 20  # bytes of a snapshot in one message
    keep: int = 1024  # applied entries that are kept for replicas that lag behind
    keep_size: int = 1 << 26  # bytes of these


@dataclass(slots=True)
class _Snapshot:
    """A snapshot on its way to a replica, or the part of it that has arrived."""

    term: int  # of its last entry at the sender, of the sender at the receiver
    index: int
    voters: tuple[str, ...]
    data: bytes | bytearray
    offset: int = 0


@dataclass(slots=True)
class _Peer:
    """What the leader knows about another replica."""

    next: int  # index of the entry to send next
    heard: float  # when the last message was sent that it answered, at the earliest
    match: int = 0  # its log equals the leader's up to here
    acked: int = 0  # the highest `seq` it answered
    reset: int = 0  # answers to messages up to this `seq` say nothing about `next`
    snapshot: _Snapshot | None = None


@dataclass(slots=True)
class _Reads:
    """Reads that wait for the confirmation that this replica still leads."""

    wanted: int = -1  # the last ticket
    round: int = -1  # `seq` before the current round of messages that confirm reads


class Log:
    """One replica's part of the log."""

    def __init__(
        self,
        me: str,
        founds: bool,
        snapshot: Callable[[], bytes],
        restore: Callable[[bytes], None],
        random: Random,
        now: float,
        pace: Pace | None = None,
    ):
        """The replica `me` is the only voter if it `founds` the log. Otherwise a leader has to `teach` it.

        `snapshot()` returns the application's state after the entries returned by `committed` so far, and `restore`
        replaces that state. It raises Invalid if the data is damaged.
        """
        self.me = me
        self.role = FOLLOWER
        self.term = 0
        self.leader: str | None = None
        self.commit = self.applied = 0
        self.messages: list[tuple[str, Message]] = []  # to send; the caller empties it
        self._pace = Pace() if pace is None else pace
        self._random, self._snapshot, self._restore = random, snapshot, restore
        self._entries = Entries((me,) if founds else ())
        self._voted_for: str | None = None
        self._votes: set[str] | None = None  # in the current candidacy, or the trial of one
        self._heard_leader = _NEVER
        self._deadline = now if founds else self._later(now)
        self._peers: dict[str, _Peer] = {}
        self._first = 0  # the leader's first entry
        self._seq = 0
        self._beats: deque[tuple[int, float]] = deque(maxlen=_BEATS)  # `seq` at the times of the last beats
        self._reads = _Reads()
        self._arriving: _Snapshot | None = None

    # ---- what the caller may know ----

    @property
    def voters(self) -> tuple[str, ...]:
        """The replicas whose votes count, as of the last entry of this log."""
        return self._entries.voters

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self._entries.last

    @property
    def is_ready(self) -> bool:
        """Whether this replica leads and knows all committed entries."""
        return self.role == LEADER and self.commit >= self._first

    @property
    def may_change(self) -> bool:
        """Whether the leader may change the voters now."""
        return self.is_ready and self._entries.changed <= self.commit

    @property
    def deadline(self) -> float:
        """When to call `tick` next."""
        return self._deadline

    @property
    def learners(self) -> list[str]:
        """The replicas that the leader teaches and that are not voters."""
        return [name for name in self._peers if name not in self.voters]

    def heard(self, name: str) -> float:
        """Until when another replica certainly ran: when this leader sent the last message that it answered.

        An answer that arrives late, because this process or the network stood still, does not say more.
        """
        return self._peers[name].heard

    def is_caught_up(self, name: str) -> bool:
        """Whether a replica has all entries that are committed."""
        return name in self._peers and self._peers[name].match >= self.commit

    # ---- inputs ----

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now < self._deadline:
            return
        if self.role != LEADER:
            self._deadline = self._later(now)
            if self.me in self.voters:
                self._campaign(now, trial=True)
        elif self._has_quorum(now):
            self._beat(now)
        else:
            self._follow(self.term, None, now)

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Handle a message of another replica. Raises Invalid if no correct replica could have sent it."""
        if message.term > self.term + _TERMS and self.term:
            raise Invalid(f"{sender} is in term {message.term}, and this replica in term {self.term}")
        if isinstance(message, Candidacy):
            self._hear_candidacy(sender, message, now)
        elif isinstance(message, Vote):
            self._hear_vote(sender, message, now)
        elif isinstance(message, (Append, Piece)):
            self._hear_leader(sender, message, now)
        elif message.term > self.term:
            self._follow(message.term, None, now)
        elif message.term < self.term:
            pass  # an answer to an earlier leader
        elif isinstance(message, Urge):
            if sender == self.leader and self.me in self.voters:
                self._campaign(now, trial=False, urged=True)
        elif self.role == LEADER and sender in self._peers:
            self._hear_answer(sender, self._peers[sender], message, now)

    def propose(self, data: bytes, now: float) -> int | None:
        """Add an entry and return its index, or None if this replica does not lead.

        It is committed unless another leader is elected: then the index may get an entry of another term.
        """
        if self.role != LEADER:
            return None
        self._add(Entry(self.term, data), now)
        return self.last

    def read(self, now: float) -> tuple[int, int] | None:
        """Begin to confirm that this replica leads. Return a ticket for `is_confirmed`, or None if it does not lead."""
        if not self.is_ready:
            return None
        ticket = self.term, self._seq
        self._reads.wanted = self._seq
        self._confirm(now)
        return ticket

    def is_confirmed(self, ticket: tuple[int, int]) -> bool:
        """Whether no other replica led before the ticket was given: a majority has answered later messages."""
        return self.role == LEADER and self.term == ticket[0] and self._acked() > ticket[1]

    def teach(self, name: str, now: float) -> None:
        """Begin to send the log to a replica that is not a voter yet."""
        if self.role == LEADER and name not in self._peers and name != self.me:
            self._peers[name] = _Peer(self.last + 1, now)
            self._send(name, self._peers[name], now)

    def forget(self, name: str) -> None:
        """Stop sending the log to a replica that is not a voter."""
        if name not in self.voters:
            self._peers.pop(name, None)

    def change(self, voters: Collection[str], now: float) -> int | None:
        """Change the voters: add or remove one, or any number if this replica is the only voter.

        Any majority before and after the change must have a member in common. Return the index of the entry, or None
        if this replica does not lead, or does not know yet that the change before was committed.
        """
        if not self.may_change:
            return None
        new, old = set(voters), set(self.voters)
        assert new and (len(new ^ old) == 1 or old == {self.me} < new), f"cannot change {old} to {new}"
        self._add(Entry(self.term, voters=tuple(sorted(new))), now)
        return self.last

    def suspect(self, name: str, now: float) -> None:
        """Note that the connection to a replica broke. If it leads, it has probably ended."""
        if self.role == FOLLOWER and name == self.leader:
            self._heard_leader = _NEVER
            self._deadline = min(self._deadline, now + self._random.random() * self._pace.hurry)

    # ---- outputs ----

    def committed(self) -> list[tuple[int, Entry]]:
        """Return the entries that were committed since the last call. The caller must apply them now."""
        if self.applied == self.commit:
            return []
        first, self.applied = self.applied + 1, self.commit
        entries = self._entries.between(first, self.commit)
        self._trim()
        return list(enumerate(entries, first))

    # ---- elections ----

    @property
    def _last_term(self) -> int:
        term = self._entries.term_at(self.last)
        assert term is not None
        return term

    def _later(self, now: float) -> float:
        return now + self._random.uniform(self._pace.shortest, self._pace.longest)

    def _is_majority(self, names: set[str]) -> bool:
        return 2 * len(names.intersection(self.voters)) > len(self.voters)

    def _follow(self, term: int, leader: str | None, now: float) -> None:
        """Become a follower, in this term or a later one."""
        if term > self.term:
            self.term, self._voted_for = term, None
            self._arriving = None
        if self.role == LEADER:
            self._peers = {}
            self._deadline = self._later(now)
        self.role, self.leader, self._votes = FOLLOWER, leader, None

    def _campaign(self, now: float, trial: bool, urged: bool = False) -> None:
        """Ask for votes. A trial shows whether it would succeed, so that terms do not grow in vain."""
        self.leader = None
        self._votes = {self.me}
        self.role = FOLLOWER
        if not trial:
            self.role, self.term, self._voted_for = CANDIDATE, self.term + 1, self.me
            self._deadline = self._later(now)
        asked = Candidacy(self.term + trial, self.last, self._last_term, trial, urged)
        self.messages += [(name, asked) for name in self.voters if name != self.me]
        self._count(now, trial)

    def _count(self, now: float, trial: bool) -> None:
        assert self._votes is not None
        if self._is_majority(self._votes):
            if trial:
                self._campaign(now, trial=False)
            else:
                self._lead(now)

    def _hears_leader(self, now: float) -> bool:
        return self.role == LEADER or self.leader is not None and now - self._heard_leader < self._pace.shortest

    def _hear_candidacy(self, sender: str, asked: Candidacy, now: float) -> None:
        if asked.term >= self.term and not asked.urged and self._hears_leader(now):
            return  # a replica that does not hear the leader does not end its term
        if asked.trial:
            granted = asked.term > self.term and self._is_current(asked)
            answer = Vote(asked.term if granted else self.term, granted, True)
        else:
            if asked.term > self.term:
                self._follow(asked.term, None, now)
            granted = asked.term == self.term and self._may_vote_for(sender) and self._is_current(asked)
            if granted:
                self._voted_for, self._deadline = sender, self._later(now)
            answer = Vote(self.term, granted, False)
        self.messages.append((sender, answer))

    def _may_vote_for(self, candidate: str) -> bool:
        """Whether this replica has not voted for another one in this term."""
        return self._voted_for in (None, candidate)

    def _is_current(self, asked: Candidacy) -> bool:
        """Whether the log of a candidate has everything that may be committed as far as this replica knows."""
        return (asked.last_term, asked.last) >= (self._last_term, self.last)

    def _hear_vote(self, sender: str, vote: Vote, now: float) -> None:
        if vote.granted and self._votes is not None and vote.trial == (self.role == FOLLOWER):
            if vote.term == self.term + vote.trial:
                self._votes.add(sender)
                self._count(now, vote.trial)
        elif vote.term > self.term and not vote.granted:
            self._follow(vote.term, None, now)

    # ---- leading ----

    def _lead(self, now: float) -> None:
        self.role, self.leader, self._votes = LEADER, self.me, None
        self._peers = {name: _Peer(self.last + 1, now) for name in self.voters if name != self.me}
        self._first, self._reads = self.last + 1, _Reads()
        self._beats.clear()
        self._beats.append((self._seq, now))
        self._deadline = now + self._pace.beat
        self._add(Entry(self.term), now)  # commits what earlier leaders left

    def _has_quorum(self, now: float) -> bool:
        heard = {name for name, peer in self._peers.items() if now - peer.heard < self._pace.longest}
        return self._is_majority(heard | {self.me})

    def _beat(self, now: float) -> None:
        """Send a sign of life to all, with whatever they lack."""
        self._deadline = now + self._pace.beat
        self._beats.append((self._seq, now))
        for name, peer in self._peers.items():
            self._send(name, peer, now)

    def _add(self, entry: Entry, now: float) -> None:
        waiting = [(name, peer) for name, peer in self._peers.items() if peer.next == self.last + 1]
        self._entries.store(entry)
        for name in self.voters if entry.voters is not None else ():
            if name != self.me and name not in self._peers:
                self._peers[name] = _Peer(self.last, now)
        for name, peer in waiting:
            self._send(name, peer, now)
        self._advance(now)

    def _send(self, name: str, peer: _Peer, now: float) -> None:
        """Send the next entries, or a piece of a snapshot if they were dropped."""
        self._seq += 1
        if peer.snapshot is not None or peer.next <= self._entries.base:
            self._send_piece(name, peer)
            return
        prev = peer.next - 1
        entries = self._batch(peer.next)
        peer.next += len(entries)
        term = self._entries.term_at(prev)
        assert term is not None
        self.messages.append((name, Append(self.term, self._seq, prev, term, entries, self.commit)))

    def _batch(self, first: int) -> tuple[Entry, ...]:
        entries = self._entries.between(first, first + self._pace.entries - 1)
        size = 0
        for number, entry in enumerate(entries):
            size += len(entry.data)
            if number and size > self._pace.size:
                return tuple(entries[:number])
        return tuple(entries)

    def _send_piece(self, name: str, peer: _Peer) -> None:
        if peer.snapshot is None:
            term, voters = self._entries.term_at(self.applied), self._entries.voters_at(self.applied)
            peer.snapshot = _Snapshot(term or 0, self.applied, voters, self._snapshot())
        sent = peer.snapshot
        data = bytes(sent.data[sent.offset : sent.offset + self._pace.piece])
        piece = Piece(self.term, self._seq, sent.index, sent.term, sent.voters, len(sent.data), sent.offset, data)
        self.messages.append((name, piece))

    def _hear_answer(self, sender: str, peer: _Peer, answer: Message, now: float) -> None:
        """Handle what a replica answered to this leader in this term."""
        if not isinstance(answer, (Appended, Held)) or answer.seq > self._seq:
            raise Invalid(f"{sender} answered a message that this replica has not sent: {answer!r:.80}")
        peer.heard = max(peer.heard, next((time for seq, time in reversed(self._beats) if seq < answer.seq), _NEVER))
        peer.acked = max(peer.acked, answer.seq)
        if isinstance(answer, Held):
            self._hear_held(sender, peer, answer, now)
        elif answer.up_to > self.last:
            raise Invalid(f"{sender} claims {answer.up_to} entries, and there are {self.last}")
        elif answer.matched:
            peer.match = max(peer.match, answer.up_to)
            peer.next = max(peer.next, peer.match + 1)
            if peer.snapshot is not None and peer.snapshot.index <= peer.match:
                peer.snapshot = None
            self._advance(now)
        elif answer.seq > peer.reset:
            peer.next, peer.reset = max(peer.match, answer.up_to) + 1, self._seq
        if self.role != LEADER:
            return
        if isinstance(answer, Appended) and peer.snapshot is None and peer.next <= self.last:
            self._send(sender, peer, now)
        self._confirm(now)

    def _hear_held(self, sender: str, peer: _Peer, answer: Held, now: float) -> None:
        sent = peer.snapshot
        if sent is None or answer.up_to != sent.index or answer.seq <= peer.reset:
            return
        if answer.offset >= len(sent.data) > 0:
            raise Invalid(f"{sender} claims {answer.offset} bytes of a snapshot of {len(sent.data)}")
        if answer.offset != sent.offset:
            sent.offset, peer.reset = answer.offset, self._seq
            self._send(sender, peer, now)

    def _acked(self) -> float:
        """The highest `seq` such that a majority has answered it or a later message of this leader."""
        answered = [math.inf if name == self.me else self._peers[name].acked for name in self.voters]
        return sorted(answered, reverse=True)[len(answered) // 2]

    def _confirm(self, now: float) -> None:
        """Send messages whose answers confirm the reads that wait, unless earlier ones have not been answered yet."""
        if self._reads.wanted >= self._acked() > self._reads.round:
            self._reads.round = self._seq
            self._beat(now)

    def _advance(self, now: float) -> None:
        """Commit what a majority has. Entries of earlier terms are committed only together with one of this term."""
        matched = sorted(self.last if name == self.me else self._peers[name].match for name in self.voters)
        index = matched[(len(matched) - 1) // 2]
        if index > self.commit and self._entries.term_at(index) == self.term:
            self.commit = index
            if self._entries.changed <= index and self.me not in self.voters:
                self._hand_over(now)

    def _hand_over(self, now: float) -> None:
        """End leading, because this replica is no longer a voter."""
        self._beat(now)  # they learn what is committed
        best = max(self.voters, key=lambda name: self._peers[name].match)
        self.messages.append((best, Urge(self.term)))
        self._follow(self.term, None, now)

    # ---- following ----

    def _hear_leader(self, sender: str, message: Append | Piece, now: float) -> None:
        if message.term < self.term:
            self.messages.append((sender, Appended(self.term, message.seq, 0, False)))
            return
        if message.term == self.term and (self.role == LEADER or self.leader not in (None, sender)):
            raise Invalid(f"{sender} and {self.leader} both lead in term {self.term}")
        self._follow(message.term, sender, now)
        self._heard_leader, self._deadline = now, self._later(now)
        answer = self._take(message) if isinstance(message, Append) else self._take_piece(message)
        self.messages.append((sender, answer))

    def _take(self, sent: Append) -> Appended:
        """Take over the leader's entries, if this log has what comes before them."""
        skipped = max(0, self._entries.base - sent.prev)  # entries that were committed and dropped here
        prev = sent.prev + skipped
        if len(sent.entries) < skipped:
            return Appended(self.term, sent.seq, sent.prev + len(sent.entries), True)
        if not skipped and not self._has(prev, sent.prev_term):
            return Appended(self.term, sent.seq, self.commit, False)
        for index, entry in enumerate(sent.entries[skipped:], prev + 1):
            if index <= self.last and self._entries.term_at(index) != entry.term:
                if index <= self.commit:
                    raise Invalid(f"a leader replaces the entry {index}, and {self.commit} are committed")
                self._entries.cut(index)
            if index > self.last:
                self._entries.store(entry)
        end = sent.prev + len(sent.entries)
        self.commit = max(self.commit, min(sent.commit, end))
        return Appended(self.term, sent.seq, end, True)

    def _has(self, index: int, term: int) -> bool:
        return self._entries.term_at(index) == term

    def _take_piece(self, sent: Piece) -> Appended | Held:
        """Collect the pieces of a snapshot, and replace the state with it."""
        if sent.up_to <= self.commit:
            return Appended(self.term, sent.seq, sent.up_to, True)
        kept = self._arriving
        if kept is None or kept.index != sent.up_to:
            kept = self._arriving = _Snapshot(self.term, sent.up_to, sent.voters, bytearray())
        data = kept.data
        assert isinstance(data, bytearray)
        if sent.offset == len(data):
            if len(data) + len(sent.data) > sent.total or not sent.data and sent.total:
                raise Invalid(f"a piece of {len(sent.data)} bytes does not fit into a snapshot of {sent.total}")
            data += sent.data
        if len(data) < sent.total:
            return Held(self.term, sent.seq, sent.up_to, len(data))
        self._arriving = None
        self._restore(bytes(data))
        self._entries.begin(sent.up_to, sent.up_to_term, sent.voters)
        self.commit = self.applied = sent.up_to
        return Appended(self.term, sent.seq, sent.up_to, True)

    def _trim(self) -> None:
        """Drop applied entries, so that a bounded number is kept for replicas that lag behind."""
        entries = self._entries
        while entries.size > self._pace.keep_size and entries.base < self.applied:
            entries.drop(entries.base + 1)
        if len(entries) > 2 * self._pace.keep:
            entries.drop(min(self.applied, entries.last - self._pace.keep))
