"""Servers and workers of a job as threads of this process, so that tests can end servers at chosen moments.

A moment is a frame that is about to be sent. `at_frame` and `Disorder` act there, before it is sent.
"""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import socket
import threading
import time

import numpy as np
import torch
from launching import LIMIT

import neomx as mx
from neomx.comm import compress, listener, wire
from neomx.comm.chain import Chains, host_key
from neomx.comm.server import Directory, KeyAllocator, KeySpec, Process, SparseRows, open_client, service_name
from neomx.comm.store import PeerError, StoreClient, StoreServer
from neomx.comm.wire.frames import Connection
from neomx.comm.world import World
from neomx.kvstore.server import OptimizerRule
from neomx.optimizer import states
from neomx.optimizer.remote import RemoteOptimizer

SHAPES = {"small": (7, 3), "bias": (5,), "rows": (40, 50), "flat": (3, 700)}  # the last two are split


class Mortal(StoreClient):
    """A connection to the store that fails when its process is gone."""

    is_dead = False

    def _ask(self, *args, **kwargs):
        if self.is_dead:
            raise PeerError("this process is gone")
        return super()._ask(*args, **kwargs)

    def die(self):
        """End like a killed process: without a word."""
        self.is_dead = True
        self.give_up()
        if self._life is not None:
            self._life.close()

    def release(self):
        """Close what the end of a process would close."""
        self._connections.close()


class ServerThreads:
    """A server process, as threads."""

    def __init__(self, cluster, number):
        self.world = cluster.world("server", number)
        self.store = Mortal(cluster.store.address, cluster.secret, LIMIT, name=self.world.name)
        self.store.join(self.world.name)
        self.process = Process(self.world, self.store, OptimizerRule)
        listening = wire.listen()
        address = wire.join_address(*listening.getsockname()[:2])
        service = service_name(number, address)
        self.stop = listener.serve(
            listening, cluster.secret, None, self.process.handle, cluster.refused.append, service
        )
        self.store.set(host_key(number), json.dumps(self.process.host))
        self.store.set(f"server/{number}", address)
        self.process.start()

    def kill(self):
        """End like a killed process. Return the thread that closes what is left."""
        self.store.die()
        self.stop()
        bury = threading.Thread(target=self._bury, daemon=True)
        bury.start()
        return bury

    def _bury(self):
        self.process.close()
        self.store.release()

    def close(self):
        self.stop()
        self.process.close()
        self.store.close()


class Cluster:
    """A job; a context manager."""

    def __init__(self, workers=2, servers=2, replicas=2, timeout=LIMIT, apart=False):
        self.workers, self.count, self.replicas, self.timeout = workers, servers, replicas, timeout
        self.apart = apart  # whether all processes appear to be on different hosts, without shared memory
        self.secret = secrets.token_hex(16).encode()
        self.store = StoreServer("127.0.0.1", 0, self.secret).start()
        self.refused = []
        self.servers = {}
        self.clients = {}
        self._stores = {}
        self._opened = []  # all clients
        self._ending = []  # threads
        self._own = StoreClient(self.store.address, self.secret, timeout)

    def __enter__(self):
        for number in range(self.count):
            self.start(number)
        return self

    def __exit__(self, *_):
        for client in self._opened:
            with contextlib.suppress(Exception):
                client.close()
        for store in self._stores.values():  # servers see that all workers have ended
            store.close()
        for server in list(self.servers.values()):
            server.close()
        for thread in self._ending:
            thread.join(LIMIT)
        self._own.close()
        self.store.close()

    def world(self, role, rank):
        return World(
            role=role,
            rank=rank,
            size=self.workers,
            node=(rank + 1 if role == "server" else 0) if self.apart else 0,
            servers=self.count,
            replicas=self.replicas,
            store=self.store.address,
            secret=self.secret,
            timeout=self.timeout,
        )

    def start(self, number):
        self.servers[number] = ServerThreads(self, number)

    def kill(self, number):
        """End a server. Return when the job's store has noticed."""
        limit = time.monotonic() + LIMIT
        while number not in self.servers:  # it is being started, by another thread
            assert time.monotonic() < limit
            time.sleep(0.001)
        self._ending.append(self.servers.pop(number).kill())
        while self._own.roster()[f"server {number}"]["state"] == "here":
            assert time.monotonic() < limit
            time.sleep(0.001)

    def client(self, rank, staleness=0, space=0):
        world = self.world("worker", rank)
        store = self._stores.get(rank)
        if store is None:  # a worker has one connection to the job's store, for all that it keeps on servers
            store = self._stores[rank] = StoreClient(self.store.address, self.secret, self.timeout, name=world.name)
            store.join(world.name)
        directory = Directory(world, store, space, staleness)
        self.clients[rank] = client = open_client(directory, self.timeout, self.count, rank)
        self._opened.append(client)
        return client

    def chains(self):
        return [Chains(self._own).read(shard) for shard in range(self.count)]

    def holders(self):
        return [[holder.server for holder in chain.holders] if chain else [] for chain in self.chains()]

    def may_end(self, number):
        """Whether each shard has another holder, which runs."""
        alive = {n: server.process.host["life"] for n, server in self.servers.items() if n != number}
        return all(
            chain is not None and any(alive.get(holder.server) == holder.life for holder in chain.holders)
            for chain in self.chains()
        )

    def await_holders(self, *expected):
        """Wait until each shard has as many holders as it should, or exactly the expected ones."""
        limit = time.monotonic() + LIMIT
        while True:
            found = self.holders()
            if found == list(expected) or (not expected and all(len(each) == self.replicas for each in found)):
                return
            assert time.monotonic() < limit, found
            time.sleep(0.01)


def gradients(step, rank, shapes=None):
    random = np.random.RandomState(1000 * step + rank)
    return {
        key: torch.from_numpy(random.uniform(-1, 1, shape).astype("float32"))
        for key, shape in (shapes or SHAPES).items()
    }


class Worker:
    """A training worker: its client, and what it has pulled."""

    def __init__(self, cluster, rank, staleness=0, optimizer=None, space=0):
        self.rank = rank
        self.client = cluster.client(rank, staleness, space)
        allocator = KeyAllocator(cluster.count, bound=1000)
        first = gradients(7777, 0)
        specs = [KeySpec(key, tuple(v.shape), v.dtype, allocator.allocate(v.shape, 4)) for key, v in first.items()]
        self.optimizer = RemoteOptimizer(optimizer or mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.01))
        self.specs = {spec.key: spec for spec in specs}
        self.client.set_optimizer(states.dumps({}, self.optimizer.description()), 1)
        self.client.declare(specs, [value.contiguous().view(-1) for value in first.values()])

    def push(self, step, gradients=gradients):
        """Push some gradients twice, some as rows, and some compressed."""
        mine = gradients(step, self.rank)
        early = list(mine)[:2]
        self.client.push(early, [torch.ones_like(mine[key]) for key in early], False)  # replaced below
        self.client.push(early, [mine[key] for key in early], False)
        rows = SparseRows(torch.arange(step % 7, 40, 7), mine["rows"][step % 7 :: 7].clone())
        self.client.push_rows("rows", rows, False)
        flat = mine["flat"].reshape(-1)
        codec = compress.make({"type": "fp16"})
        coded = [
            (codec.params, codec.encode(("flat", part.start), flat[part.start : part.stop]))
            for part in self.specs["flat"].segments
        ]
        self.client.push_coded("flat", coded, False)

    def commit(self):
        settings = self.optimizer.begin_updates(list(self.specs), list(self.specs))
        self.client.commit(list(self.specs), settings)

    def pull(self):
        outs = {key: torch.empty(spec.shape) for key, spec in self.specs.items()}
        self.client.pull(list(outs), [[out] for out in outs.values()])
        return outs

    def step(self, step):
        self.push(step)
        self.commit()
        return self.pull()


def ones(step, rank):
    return {key: torch.ones(shape) for key, shape in SHAPES.items()}


class Watched:
    """Calls `before(kind)` before each frame is sent by any process, within the block."""

    def __init__(self, before):
        self._before, self._send = before, Connection.send

    def __enter__(self):
        watched = self

        def send(connection, kind, *args):
            if not threading.current_thread().name.startswith("test action"):
                watched._before(kind)
            return watched._send(connection, kind, *args)

        Connection.send = send
        return self

    def __exit__(self, *_):
        Connection.send = self._send


def aside(act):
    """Run an action to its end in another thread, which is not watched."""
    thread = threading.Thread(target=act, name="test action")
    thread.start()
    thread.join(LIMIT)


@contextlib.contextmanager
def at_frame(kind, count, act):
    """Within the block, act once, before the count-th frame of this kind is sent. Yield whether that is done."""
    left, guard, done = [count], threading.Lock(), threading.Event()

    def before(sent):
        if sent == kind:
            with guard:
                left[0] -= 1
                now = left[0] == 0
            if now:
                aside(act)
                done.set()

    with Watched(before):
        yield done.is_set


@contextlib.contextmanager
def since_frame(kind, count, act):
    """Within the block, act once in another thread, when the count-th frame of this kind is sent. Yield its results.

    At the end of the block, wait until that is done.
    """
    begun, results = threading.Event(), []
    thread = threading.Thread(target=lambda: begun.wait(LIMIT) and results.append(act()))
    thread.start()
    try:
        with at_frame(kind, count, begun.set) as has_happened:
            yield results
            assert has_happened(), "the frame was not sent"
    finally:
        begun.set()
        thread.join(LIMIT)


class Disorder:
    """Ends and starts servers and breaks connections, at random frames. Each shard keeps a holder."""

    def __init__(self, cluster, seed, mean):
        self.cluster, self.random, self.mean = cluster, random.Random(seed), mean
        self.events = []
        self._left = self.random.randrange(1, 2 * mean)
        self._guard = threading.Lock()
        self._acting = False

    def before(self, kind):
        with self._guard:
            self._left -= 1
            if self._left > 0 or self._acting:
                return
            self._acting = True
            self._left = self.random.randrange(1, 2 * self.mean)
        aside(self.act)

    def act(self):
        try:
            self._act()
        finally:
            self._acting = False

    def _act(self):
        cluster, dice = self.cluster, self.random.random()
        ended = [number for number in range(cluster.count) if number not in cluster.servers]
        if dice < 0.15:
            server = self.random.choice(self.random.choice(list(cluster.clients.values())).servers)
            self.events.append("a worker's connection breaks")
            with contextlib.suppress(OSError):
                server.link.connection._sock.shutdown(socket.SHUT_RDWR)
        elif dice < 0.25:
            keeper = self.random.choice(
                list(self.random.choice(list(cluster.servers.values())).process._keepers.values())
            )
            following = keeper._next
            if following is not None:
                self.events.append("a connection between servers breaks")
                following.connection.close()
        elif ended and dice < 0.7:
            self.events.append(f"start {ended[0]}")
            cluster.start(ended[0])
        else:
            left = [number for number in list(cluster.servers) if cluster.may_end(number)]
            if left:
                number = self.random.choice(left)
                self.events.append(f"kill {number}")
                cluster.kill(number)

    @contextlib.contextmanager
    def reigning(self):
        with Watched(self.before):
            yield self
        while self._acting:
            time.sleep(0.01)


def together(*calls):
    """Run calls in threads, and return their results or raise the first error."""
    results, errors = [None] * len(calls), []

    def run(i):
        try:
            results[i] = calls[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a worker hangs"
    if errors:
        raise errors[0]
    return results
