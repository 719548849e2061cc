"""A simulation of the holders of a shard and its workers, in one thread: each step is one action, chosen by a seed.

Frames and acknowledgments wait in pipes until they are delivered. A crash loses all that is in the pipes of a holder.
The rules of `comm/server/keeper.py` for the chain are repeated here, with one list as the chain.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import Future

import torch

import neomx as mx
from neomx.comm.server import KeySpec, Replica, Segment, SparseRows
from neomx.comm.server import messages as m
from neomx.comm.store import PeerError
from neomx.comm.wire import Frame
from neomx.kvstore.server import OptimizerRule
from neomx.optimizer import states
from neomx.optimizer.remote import RemoteOptimizer

SHAPES = {"a": (4, 3), "b": (5,), "c": (2, 2, 2), "d": ()}


def wired(kind, meta, buffers=()):
    """Return a frame as it arrives."""
    payload = b"".join(
        bytes(each.contiguous().view(-1).view(torch.uint8).numpy()) if isinstance(each, torch.Tensor) else bytes(each)
        for each in buffers
    )
    return Frame(kind, json.loads(json.dumps(meta)), memoryview(bytearray(payload)))


class Pipe:
    """The connection between a holder and the next one."""

    is_near = False  # gradients are sent, so that a crash cannot leave them in shared memory

    def __init__(self, holder, follower):
        self.holder, self.follower = holder, follower
        self.frames, self.answers = [], []
        self.filling = iter(())
        self.is_new = True

    def send(self, kind, meta, *buffers):
        # A buffer must not change until it is acknowledged: it is read when the frame is delivered.
        self.frames.append((kind, meta, buffers))
        sent = Future()
        sent.set_result(None)
        return sent


class Holder:
    """A process that holds the shard, or will."""

    def __init__(self, simulation, name):
        self.name = name
        self.replica = Replica(0, 1, simulation.workers, 0.0, OptimizerRule, str, 2)
        self.before: Pipe | None = None
        self.after: Pipe | None = None

    @property
    def shard(self):
        return self.replica.spaces[0].shard


class SimulatedWorker:
    """A worker: which commits it has sent, and which of them are acknowledged."""

    def __init__(self, rank):
        self.rank = rank
        self.commits = dict.fromkeys(SHAPES, 0)
        self.acknowledged = dict.fromkeys(SHAPES, 0)
        self.head = None  # the holder to which it is connected
        self.was_connected = False

    def is_idle(self, key):
        return self.commits[key] == self.acknowledged[key]


class Simulation:
    """One schedule. `run` returns when every worker has made its steps, and checks the results."""

    def __init__(self, seed, staleness=0, steps=6, replicas=2, optimizer=None):
        self.random = random.Random(seed)
        self.staleness, self.steps, self.replicas = staleness, steps, replicas
        self.workers = self.random.choice([1, 2, 3])
        self.optimizer = optimizer or mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
        self.settings = RemoteOptimizer(self.optimizer).begin_updates(list(SHAPES), list(SHAPES))
        self.made = 0
        self.crashes = 0
        self.chain: list[Holder] = []
        self.newcomers: list[Holder] = []
        self.training = [SimulatedWorker(rank) for rank in range(self.workers)]
        first = self.add_holder()
        self.newcomers.remove(first)
        self.chain = [first]
        first.replica.lead({})
        space = first.replica.open(0, staleness)
        for worker in self.training:
            self.connect(worker)
        space.act(m.SET_OPTIMIZER, 1, states.dumps({}, RemoteOptimizer(self.optimizer).description()))
        specs = [
            KeySpec(key, shape, torch.float32, (Segment(0, 0, max(1, torch.Size(shape).numel())),))
            for key, shape in SHAPES.items()
        ]
        values = torch.arange(sum(spec.size for spec in specs), dtype=torch.float32)
        space.create(specs, memoryview(bytearray(values.numpy().tobytes())), "the test")
        self.initial = {slot.spec.key: slot.weight.clone() for slot in space.shard.slots.values()}

    # ---- holders ----

    def add_holder(self):
        self.made += 1
        holder = Holder(self, f"holder {self.made}")
        self.newcomers.append(holder)
        return holder

    def cut(self, pipe):
        """Break a connection: both sides notice."""
        if pipe is not None:
            if pipe.holder.after is pipe:
                pipe.holder.after = None
            if pipe.follower.before is pipe:
                pipe.follower.before = None

    def crash(self, holder):
        """End a process. Its neighbors notice, and change the chain."""
        self.crashes += 1
        self.cut(holder.before)
        self.cut(holder.after)
        if holder in self.newcomers:
            self.newcomers.remove(holder)
        else:
            self.chain.remove(holder)
        for newcomer in [each for each in self.newcomers if each.before is None and each.replica.spaces]:
            self.newcomers.remove(newcomer)  # it was being filled by a lost holder, and starts over
            self.add_holder()
        self.tend()

    def tend(self):
        """Do what each keeper does after a change of the chain."""
        for at, holder in enumerate(self.chain):
            expected = self.chain[at + 1] if at + 1 < len(self.chain) else None
            after = holder.after
            is_filled = after is not None and after.is_new and expected is None
            if after is not None and after.follower is not expected and not is_filled:
                self.cut(after)
            if holder.after is None:
                if expected is None:
                    holder.replica.release()
                else:
                    holder.replica.await_holder()
        head = self.chain[0]
        for worker in self.training:
            if worker.head is not head:
                worker.head = None
        if head.before is not None:
            self.cut(head.before)
        if all(worker.head is None for worker in self.training):
            head.replica.lead({})

    def follow(self, holder):
        """Connect a holder to the one before it, as soon as the program gets to it."""
        is_new = holder in self.newcomers
        before = self.chain[-1] if is_new else self.chain[self.chain.index(holder) - 1]
        if before.after is not None or (is_new and len(self.chain) >= self.replicas):
            return
        pipe = Pipe(before, holder)
        answers = pipe.answers
        have = holder.replica.begin_following(lambda kind, meta: answers.append((kind, meta)))
        pipe.is_new = is_new
        if is_new:
            pipe.filling = before.replica.fill(pipe)
            next(pipe.filling)
        else:
            assert before.replica.resume(pipe, have)
        before.after, holder.before = pipe, pipe

    def hand_over(self):
        """Let the last holder lead, if all have the same."""
        head, better = self.chain[0], self.chain[-1]
        head.replica.follow()
        for worker in self.training:
            worker.head = None
        if better is not head and head.replica.is_settled and not self.newcomers:
            self.chain = [better, *self.chain[:-1]]
            for holder in self.chain:
                self.cut(holder.before)
            self.tend()
        else:
            head.replica.lead({})

    # ---- delivery ----

    def pipes(self):
        return [holder.after for holder in self.chain if holder.after is not None]

    def deliver_frame(self, pipe):
        if pipe.frames:
            kind, meta, buffers = pipe.frames.pop(0)
            pipe.follower.replica.take(wired(kind, meta, buffers))
            if kind == m.FULL:
                pipe.answers.append((m.DONE, {}))

    def deliver_answer(self, pipe):
        if pipe.answers:
            kind, meta = pipe.answers.pop(0)
            if kind != m.DONE:
                pipe.holder.replica.hear(wired(kind, meta))
            elif pipe.is_new:
                pipe.is_new = False
                self.newcomers.remove(pipe.follower)
                self.chain.append(pipe.follower)

    # ---- workers ----

    def connect(self, worker):
        """Connect a worker to the leader, and repeat what that one does not have."""
        head = self.chain[0]
        shard = head.replica.open(0, self.staleness).shard
        if any(slot.buffered > shard.log.held for slot in shard.slots.values()):
            return  # a commit would wait
        if worker.rank in shard.living:
            shard.gone(worker.rank, "it connects again", returns=True)
        shard.join(worker.rank, again=worker.was_connected)
        worker.head, worker.was_connected = head, True
        for slot in list(shard.slots.values()):
            key = slot.spec.key
            missing = worker.commits[key] - slot.commits[worker.rank]
            assert missing in (0, 1), f"{key}: worker {worker.rank} sent {worker.commits}, has {dict(slot.commits)}"
            if missing:
                self.send(worker, slot, worker.commits[key])

    def gradient(self, rank, key, number):
        """Return a gradient, which depends only on the worker, the key and the number of its step.

        Without rounds, its elements are small integers, so that their sum is exact in any order.
        """
        if key == "b" and number % 4 == 3:
            return None  # a commit without a push
        seeds = torch.Generator().manual_seed(1000 * number + 10 * rank + ord(key))
        is_sparse = key == "a" and number % 3 == 2
        values = torch.randn((2, 3) if is_sparse else SHAPES[key], generator=seeds)
        if self.staleness != 0:
            values = (values * 8).round()
        return SparseRows(torch.tensor([rank % 2, 3]), values) if is_sparse else values

    def send(self, worker, slot, number):
        part = self.gradient(worker.rank, slot.spec.key, number)
        shard = worker.head.shard
        if part is not None:
            shard.push(worker.rank, [slot], [part])
        shard.commit(worker.rank, [slot], self.settings)

    def step(self, worker):
        """Commit the next step of a key, or read it if the last one is not acknowledged yet."""
        if worker.head is None:
            self.connect(worker)
            return
        shard, key = worker.head.shard, self.random.choice(list(SHAPES))
        slot = next(slot for slot in shard.slots.values() if slot.spec.key == key)
        if not worker.is_idle(key):
            try:
                list(shard.ready(worker.rank, [slot]))
                worker.acknowledged[key] = worker.commits[key]
            except PeerError:
                pass  # it waits for others
        elif worker.commits[key] < self.steps and slot.buffered <= shard.log.held:
            worker.commits[key] += 1
            self.send(worker, slot, worker.commits[key])

    # ---- a schedule ----

    def is_done(self):
        return all(
            worker.acknowledged[key] == self.steps == worker.commits[key] for worker in self.training for key in SHAPES
        )

    def act(self):
        """Take one random action."""
        pipes = self.pipes()
        dice = self.random.random()
        if dice < 0.45:
            self.step(self.random.choice(self.training))
        elif dice < 0.65 and pipes:
            self.deliver_frame(self.random.choice(pipes))
        elif dice < 0.83 and pipes:
            self.deliver_answer(self.random.choice(pipes))
        elif dice < 0.9 and pipes:
            next(self.random.choice(pipes).filling, None)
        elif dice < 0.95:
            waiting = [holder for holder in self.newcomers + self.chain[1:] if holder.before is None]
            if waiting:
                self.follow(self.random.choice(waiting))
        elif dice < 0.965:
            self.lose_something()
        elif dice < 0.98 and len(self.chain) + len(self.newcomers) < self.replicas:
            self.add_holder()
        elif dice < 0.99:
            worker = self.random.choice(self.training)
            worker.head = None  # its connection breaks
        elif len(self.chain) > 1:
            self.hand_over()

    def lose_something(self):
        """Crash a holder, if another one is left, or break a connection."""
        if self.pipes() and self.random.random() < 0.2:
            pipe = self.random.choice(self.pipes())
            if not pipe.is_new:
                self.cut(pipe)  # the holders connect again
                return
        left = [*self.chain, *self.newcomers] if len(self.chain) > 1 else self.newcomers
        if left:
            self.crash(self.random.choice(left))

    def run(self, limit=20000):
        for _ in range(limit):
            if self.is_done():
                break
            self.act()
        assert self.is_done(), [(worker.commits, worker.acknowledged) for worker in self.training]
        while any(pipe.frames or pipe.answers for pipe in self.pipes()):
            for pipe in self.pipes():
                self.deliver_frame(pipe)
                self.deliver_answer(pipe)
        return self.chain[0].shard

    def check_sums(self):
        """Check, after plain SGD with a rate of 1, that each update was applied once."""
        for slot in self.chain[0].shard.slots.values():
            total = torch.zeros_like(slot.weight)
            for rank in range(self.workers):
                for number in range(1, self.steps + 1):
                    part = self.gradient(rank, slot.spec.key, number)
                    if isinstance(part, SparseRows):
                        total.index_add_(0, *part)
                    elif part is not None:
                        total += part
            assert torch.equal(slot.weight, self.initial[slot.spec.key] - total), slot.spec.key

    def check_replicas(self):
        """Check that all holders are equal to the bit."""
        first, *others = [holder.shard for holder in self.chain]
        for other in others:
            for number, slot in first.slots.items():
                assert torch.equal(slot.weight, other.slots[number].weight), slot.spec.key
                assert slot.round == other.slots[number].round
            assert described(first) == described(other)


def described(shard):
    """Return the states of a shard's optimizer as values that can be compared."""
    return comparable(shard.rule.states())


def comparable(content):
    """Return an optimizer's states as values that can be compared: dictionaries may be in any order."""
    found, optimizer = states.loads(content)
    told = {key: plain(state) for key, state in sorted(found.items())}
    return told, dict(optimizer._index_update_count), optimizer.num_update


def plain(state):
    """Return the state of a weight as lists."""
    if isinstance(state, (tuple, list)):
        return [plain(each) for each in state]
    return state if state is None else state.asnumpy().tolist()


def undisturbed(simulation):
    """Return the shard after the same steps without other holders, in synchronous mode."""
    replica = Replica(0, 1, simulation.workers, 0.0, OptimizerRule)
    space = replica.open(0, 0)
    space.act(m.SET_OPTIMIZER, 1, states.dumps({}, RemoteOptimizer(simulation.optimizer).description()))
    specs = [slot.spec for slot in simulation.chain[0].shard.slots.values()]
    values = torch.arange(sum(spec.size for spec in specs), dtype=torch.float32)
    space.create(specs, memoryview(bytearray(values.numpy().tobytes())), "the test")
    for rank in range(simulation.workers):
        space.shard.join(rank)
    for number in range(1, simulation.steps + 1):
        for slot in space.shard.slots.values():
            for rank in range(simulation.workers):
                part = simulation.gradient(rank, slot.spec.key, number)
                if part is not None:
                    space.shard.push(rank, [slot], [part])
                space.shard.commit(rank, [slot], simulation.settings)
    return space.shard
