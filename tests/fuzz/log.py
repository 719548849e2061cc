"""A simulator of the replicated log: random schedules of crashes, delays, losses and partitions, with a seed.

`python tests/fuzz/log.py --cases 300000 --seed 1`. Each case runs replicas with the store's own commands, the choice of
voters included, and clients that repeat requests, on a simulated network with simulated clocks. It checks:

- election safety: a term has at most one leader;
- log matching: entries of the same index and term have the same content and the same predecessor;
- leader completeness: a leader has all entries that were committed in earlier terms;
- state machine safety: all replicas apply the same entry at the same index;
- linearizability: what clients read, and what their requests returned, is what one register or counter for each key
  would have returned, in an order that respects time;
- progress: when faults have ended, a write and a read succeed. Crashes of more replicas than the log survives are part
  of some cases; these check everything except progress.

Each case depends only on the seed and its number: `--seed 1 --first 17 --cases 1` repeats one.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from neomx.comm.store.entries import Entries
from neomx.comm.store.log import FOLLOWER, LEADER, Log, Pace
from neomx.comm.store.messages import Entry
from neomx.comm.store.state import State, pack, unpack
from neomx.comm.store.steward import Steward

PACE = Pace(beat=1.0, shortest=3.0, longest=6.0, hurry=0.5, entries=3, size=400, piece=150, keep=2, keep_size=600)
FAULTS = 30.0  # time during which things fail
CALM = 400.0  # time within which a write and a read must succeed afterwards
PATIENCE = 4.0  # after which a client repeats a request


class Violation(AssertionError):
    """A guarantee of the log does not hold."""


class WatchedEntries(Entries):
    """Entries that are compared with those of other replicas."""

    chain: dict[tuple[int, int], Any]  # the entry by index and term, with the term of the one before

    def store(self, entry: Entry) -> None:
        before = self.term_at(self.last)
        super().store(entry)
        here = (before, entry.data, entry.voters)
        if self.chain.setdefault((self.last, entry.term), here) != here:
            raise Violation(f"log matching: two entries {self.last} of term {entry.term}")


class Node:
    """A replica, its copy of the state, and its clock."""

    def __init__(self, world: World, name: str, founds: bool):
        rng = world.rng
        self.name = name
        self.rate, self.shift = rng.uniform(0.9, 1.1), rng.uniform(0, 50)
        self.state = world.state()
        self.log = world.make(
            name, founds, lambda: self.state.snapshot(), lambda data: self.state.restore(data), rng,
            self.clock(world.now), PACE,
        )  # fmt: skip
        self.log._entries.__class__ = WatchedEntries
        self.log._entries.chain = world.chain
        self.steward = Steward(world.wanted, 8.0)
        self.role = FOLLOWER
        self.paused = 0.0  # until when it does not run
        self.timer = 0.0  # when its timer is set to
        self.waiting: dict[int, tuple[int, Client, int]] = {}  # by index: the term, the client, its attempt
        self.reads: list[tuple[Any, Client, int, Any]] = []

    def clock(self, now: float) -> float:
        return now * self.rate + self.shift


class Client:
    """A process that writes and reads, one request after the other."""

    def __init__(self, world: World, name: str):
        self.world, self.name = world, name
        self.number = 0
        self.attempt = 0
        self.request: dict[str, Any] | None = None
        self.began = 0.0
        self.target = ""
        self.answers = 0


class World:
    """One case."""

    def __init__(self, seed: int, make: type[Log] = Log, state: type[State] = State, forgetful: bool = False):
        self.rng = rng = random.Random(seed)
        self.make, self.state, self.forgetful = make, state, forgetful
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.ties = itertools.count()
        self.chain: dict[tuple[int, int], Any] = {}
        self.leaders: dict[int, str] = {}
        self.applied: dict[int, Any] = {}  # entries, with the lowest known term in which they were committed
        self.history: dict[str, list[list[Any]]] = {}  # by key: [what, argument, result, began, ended]
        self.wanted = rng.choice((3, 3, 3, 5))
        self.survives = rng.random() < 0.7  # whether only as much fails as the log survives
        self.loss, self.copies = rng.choice((0.0, 0.05, 0.3)), rng.choice((0.0, 0.1))
        self.slow = rng.choice((0.05, 0.3, 2.0))
        self.apart: dict[str, int] = {}  # the side of a partition on which a node is
        self.one_way = False
        self.failing = True
        self.names = itertools.count()
        self.nodes: dict[str, Node] = {}
        self.start_node(True)
        for _ in range(rng.randint(self.wanted - 1, self.wanted + 1)):
            self.start_node(False)
        self.clients = [Client(self, f"c{n}") for n in range(rng.randint(2, 4))]

    # ---- events ----

    def at(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.ties), act, args))

    def step(self) -> None:
        self.now, _, act, args = heapq.heappop(self.events)
        act(*args)

    def run(self) -> None:
        rng = self.rng
        for client in self.clients:
            self.at(rng.uniform(0, 5), self.begin, client)
        self.at(rng.uniform(3, 10), self.fault)
        while self.now < FAULTS:
            self.step()
        self.failing = False
        self.apart = {}
        self.loss = self.copies = 0.0
        self.slow = min(self.slow, 0.3)
        for node in self.nodes.values():
            node.paused = min(node.paused, self.now + 1.0)
        before = {client: client.answers for client in self.clients}
        while any(client.answers < count + 4 for client, count in before.items()):
            if not self.survives and self.now > FAULTS + 30:
                break
            if self.now > FAULTS + CALM:
                raise Violation(f"progress: {self.describe()}")
            self.step()
        for key, operations in self.history.items():
            if not is_linearizable(operations):
                raise Violation(f"linearizability of {key}: {operations}")

    def describe(self) -> str:
        return "; ".join(
            f"{n.name} {n.log.role} term {n.log.term} commit {n.log.commit}/{n.log.last} {n.log.voters}"
            for n in self.nodes.values()
        )

    # ---- the network ----

    def delay(self) -> float:
        spread = self.rng.random()
        return spread * self.slow * (10 if spread > 0.97 and self.failing else 1) + 0.01

    def is_cut(self, one: str, other: str) -> bool:
        sides = self.apart
        if not sides or sides.get(one, 0) == sides.get(other, 0):
            return False
        return not self.one_way or sides.get(one, 0) == 1

    def post(self, sender: str, target: str, message: Any) -> None:
        if self.loss and self.rng.random() < self.loss:
            return
        self.at(self.delay(), self.deliver, sender, target, message)
        if self.copies and self.rng.random() < self.copies:
            self.at(3 * self.delay(), self.deliver, sender, target, message)

    def deliver(self, sender: str, target: str, message: Any) -> None:
        node = self.nodes.get(target)
        if node is None or self.is_cut(sender, target):
            return
        if node.paused > self.now:
            self.at(node.paused - self.now, self.deliver, sender, target, message)
            return
        node.log.receive(sender, message, node.clock(self.now))
        self.after(node)

    # ---- replicas ----

    def start_node(self, founds: bool, name: str = "") -> Node:
        number = next(self.names)
        node = Node(self, name or f"n{number}@h{number % 3}:1", founds)
        self.nodes[node.name] = node
        self.arm(node)
        self.at(0.5, self.offer, node)
        return node

    def offer(self, node: Node) -> None:
        """Ask the leader to let this node keep the log, until it does."""
        if self.nodes.get(node.name) is not node:
            return
        for other in self.nodes.values():
            is_reached = other.paused <= self.now and not self.is_cut(node.name, other.name)
            if is_reached and other.log.is_ready and node.name not in other.state.replicas:
                command = {"do": "offer", "replica": node.name, "address": ""}
                other.log.propose(pack(command, b""), other.clock(self.now))
                self.after(other)
        self.at(5.0, self.offer, node)

    def arm(self, node: Node) -> None:
        when = max((node.log.deadline - node.shift) / node.rate, node.paused, self.now)
        if not node.timer <= when or node.timer <= self.now:
            node.timer = when
            self.at(when - self.now + 1e-6, self.tick, node, when)

    def tick(self, node: Node, when: float) -> None:
        if self.nodes.get(node.name) is not node or node.timer != when:
            return
        if node.paused <= self.now:
            now = node.clock(self.now)
            node.log.tick(now)
            if node.log.role == LEADER:
                for name in node.steward.tend(node.log, node.state.replicas, now):
                    node.log.propose(pack({"do": "withdraw", "replica": name}, b""), now)
            self.after(node)
        node.timer = 0.0
        self.arm(node)

    def after(self, node: Node) -> None:
        log = node.log
        if log.role != node.role:
            node.role = log.role
            if log.role == LEADER:
                self.check_leader(log)
            else:
                self.release(node)
        for index, entry in log.committed():
            term, before = self.applied.setdefault(index, (log.term, entry))
            if before != entry:
                raise Violation(f"state machine safety: {before} and {entry} at {index}")
            self.applied[index] = min(term, log.term), entry
            answer = node.state.apply(*unpack(entry.data)) if entry.data else None
            waits = node.waiting.pop(index, None)
            if waits is not None and waits[0] == entry.term:
                assert answer is not None
                self.answer(node, waits[1], waits[2], outcome(answer))
        if node.reads:
            self.answer_reads(node)
        if log.messages:
            for target, message in log.messages:
                self.post(node.name, target, message)
            log.messages.clear()
        self.arm(node)

    def check_leader(self, log: Log) -> None:
        if self.leaders.setdefault(log.term, log.me) != log.me:
            raise Violation(f"election safety: {self.leaders[log.term]} and {log.me} lead in term {log.term}")
        for index, (term, entry) in self.applied.items():
            if term < log.term and index > log._entries.base and log._entries.get(index) != entry:
                raise Violation(f"leader completeness: {log.me} leads in term {log.term} without entry {index}")

    def release(self, node: Node) -> None:
        for _, client, attempt in node.waiting.values():
            self.answer(node, client, attempt, None)
        for _, client, attempt, _ in node.reads:
            self.answer(node, client, attempt, None)
        node.waiting, node.reads = {}, []

    # ---- clients ----

    def begin(self, client: Client) -> None:
        rng = self.rng
        client.number += 1
        key = rng.choice(("x", "x", "n"))
        kind = rng.choice(("set", "swap", "read", "read") if key == "x" else ("add", "add", "read"))
        told = {"do": kind, "key": key, "token": client.name, "number": client.number, "done": client.number}
        client.request = {
            "set": {**told, "value": f"{client.name}.{client.number}"},
            "swap": {**told, "expected": rng.choice(self.values()), "value": f"{client.name}:{client.number}"},
            "add": {**told, "amount": 1},
            "read": told,
        }[kind]
        operation = [kind, client.request.get("value", ""), client.request.get("expected", ""), None, self.now, None]
        self.history.setdefault(key, []).append(operation)
        client.began = self.now
        client.target = client.target or rng.choice(list(self.nodes))
        self.ask(client)

    def values(self) -> list[str]:
        """Return values that the register may have."""
        return [op[1] for op in self.history.get("x", [])[-3:] if op[0] != "read"] or [""]

    def ask(self, client: Client) -> None:
        client.attempt += 1
        if self.rng.random() >= self.loss:
            self.at(self.delay(), self.hear, client, client.attempt, client.target, client.request)
            if self.copies and self.rng.random() < self.copies:
                self.at(20 * self.delay(), self.hear, client, client.attempt, client.target, client.request)
        self.at(PATIENCE, self.repeat, client, client.attempt)

    def repeat(self, client: Client, attempt: int) -> None:
        if client.request is not None and client.attempt == attempt:
            client.target = self.rng.choice(list(self.nodes))
            self.ask(client)

    def hear(self, client: Client, attempt: int, target: str, request: dict[str, Any]) -> None:
        node = self.nodes.get(target)
        if node is None:
            return
        if node.paused > self.now:
            self.at(node.paused - self.now, self.hear, client, attempt, target, request)
            return
        now = node.clock(self.now)
        if request["do"] == "read":
            value = (node.state.values.get(request["key"]) or b"").decode()
            ticket = node.log.read(now)
            if ticket is None:
                self.answer(node, client, attempt, None)
            else:
                node.reads.append((ticket, client, attempt, value))
        elif node.log.is_ready:
            said = {name: value for name, value in request.items() if name != "value"}
            index = node.log.propose(pack(said, request.get("value", "").encode()), now)
            node.waiting[index] = (node.log.term, client, attempt)
        else:
            self.answer(node, client, attempt, None)
        self.after(node)

    def answer_reads(self, node: Node) -> None:
        left = []
        for read in node.reads:
            if node.log.is_confirmed(read[0]):
                self.answer(node, read[1], read[2], read[3])
            else:
                left.append(read)
        node.reads = left

    def answer(self, node: Node, client: Client, attempt: int, result: Any) -> None:
        if self.rng.random() >= self.loss:
            self.at(self.delay(), self.told, client, attempt, result, node.log.leader)

    def told(self, client: Client, attempt: int, result: Any, leader: str | None) -> None:
        if client.request is None or attempt != client.attempt:
            return
        if result is None:  # it does not lead
            client.target = leader if leader in self.nodes else self.rng.choice(list(self.nodes))
            client.attempt += 1
            self.at(self.rng.uniform(0.1, 1.0), self.repeat_now, client, client.attempt)
            return
        operation = next(o for o in reversed(self.history[client.request["key"]]) if o[4] == client.began)
        operation[3], operation[5] = result, self.now
        client.request = None
        client.answers += 1
        if self.failing or client.answers < 40:
            self.at(self.rng.uniform(0, 3), self.begin, client)

    def repeat_now(self, client: Client, attempt: int) -> None:
        if client.request is not None and client.attempt == attempt:
            self.ask(client)

    # ---- faults ----

    def fault(self) -> None:
        rng = self.rng
        if not self.failing:
            return
        self.at(rng.uniform(0.2, 4), self.fault)
        kind = rng.random()
        names = list(self.nodes)
        leads = [name for name, node in self.nodes.items() if node.log.role == LEADER]
        victim = rng.choice(leads or names) if rng.random() < 0.5 else rng.choice(names)
        if kind < 0.3:
            self.crash()
        elif kind < 0.45 and len(self.nodes) < 8:
            self.start_node(False)
        elif kind < 0.65:
            self.apart = {name: rng.randint(0, 1) for name in names} if rng.random() < 0.5 else {victim: 1}
            self.one_way = rng.random() < 0.3
        elif kind < 0.8:
            self.apart = {}
        elif kind < 0.95:
            self.nodes[victim].paused = self.now + rng.choice((1.0, 5.0, 15.0))
        else:
            self.suspect(victim)

    def crash(self) -> None:
        leader = max(self.nodes.values(), key=lambda node: node.log.term)
        victims = list(self.nodes)
        if self.survives:
            victims = [name for name in victims if self.is_expendable(name, leader)]
        if not victims:
            return
        name = leader.name if leader.name in victims and self.rng.random() < 0.5 else self.rng.choice(victims)
        self.release(self.nodes[name])
        del self.nodes[name]
        if self.forgetful:
            self.start_node(False, name)
        elif self.rng.random() < 0.8 or not self.nodes:
            self.start_node(False)
        if self.rng.random() < 0.5:
            self.suspect(name)

    def is_expendable(self, name: str, leader: Node) -> bool:
        """Whether the log survives the loss of a node, because the leader hears all voters and removes none of them."""
        log, now = leader.log, leader.clock(self.now)
        if not log.may_change or log.commit < log.last or not set(log.voters) <= set(leader.state.replicas):
            return False
        if any(other not in self.nodes for other in (*log.voters, *log.learners)):
            return False  # one loss at a time
        if any(other != log.me and now - log.heard(other) > 2 for other in log.voters):
            return False
        return len(log.voters) > 2 or name not in log.voters

    def suspect(self, name: str) -> None:
        """Let the others notice a broken connection."""
        for node in list(self.nodes.values()):
            if node.name != name and node.paused <= self.now:
                node.log.suspect(name, node.clock(self.now))
                self.arm(node)


def outcome(answer: tuple[dict[str, Any], bytes]) -> Any:
    """Return what a client makes of an answer to a write."""
    meta, payload = answer
    return meta["total"] if "total" in meta else meta.get("error", payload.decode())


# ---- linearizability ----


def is_linearizable(operations: list[list[Any]]) -> bool:
    """Whether one register or counter could have answered like this. Unanswered operations may have had an effect."""
    ops = [op for op in operations if op[5] is not None or op[0] != "read"]
    ops.sort(key=lambda op: op[4])
    ends = [op[5] if op[5] is not None else float("inf") for op in ops]
    done = sum(1 << n for n, op in enumerate(ops) if op[5] is not None)
    seen = set()
    stack = [(0, "")]
    while stack:
        taken, value = stack.pop()
        if not done & ~taken:
            return True
        if (taken, value) in seen:
            continue
        seen.add((taken, value))
        first = min((ends[n] for n in range(len(ops)) if not taken >> n & 1), default=0)
        for n, op in enumerate(ops):
            if op[4] > first:
                break
            if not taken >> n & 1:
                fits, after = applied(op, value)
                if fits:
                    stack.append((taken | 1 << n, after))
    return False


def applied(op: list[Any], value: str) -> tuple[bool, str]:
    """Return whether an operation can have its result if the register has `value`, and the value after it."""
    kind, argument, expected, result, _, _ = op
    if kind == "read":
        return result == value, value
    if kind == "set":
        return result in (None, ""), argument
    if kind == "add":
        total = int(value or 0) + 1
        return result in (None, total), str(total)
    if value == expected or not value and not expected:
        return result in (None, argument), argument
    return result in (None, value or expected), value


# ---- the runner ----


def run(cases: int, seed: int, seconds: float, first: int = 0, **how: Any) -> int:
    """Run cases up to a number or a time. Return how many were run."""
    limit = time.monotonic() + seconds
    for case in range(first, first + cases):
        if time.monotonic() > limit:
            return case - first
        try:
            World(seed * 1_000_003 + case, **how).run()
        except Exception as error:
            raise AssertionError(f"--seed {seed} --first {case} --cases 1: {error!r}") from error
    return cases


def main(argv: list[str] | None = None) -> int:
    """Run the simulator. Return 0 if no case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    args = parser.parse_args(argv)
    began = time.monotonic()
    try:
        done = run(args.cases, args.seed, args.seconds, args.first)
    except AssertionError as error:
        print(f"log: {error}", file=sys.stderr)
        return 1
    print(f"log: {done} cases in {time.monotonic() - began:.0f} s, seed {args.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
