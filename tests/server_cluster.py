"""Servers and workers of a job as threads of this process, so that tests can end servers at chosen moments."""

from __future__ import annotations

import contextlib
import json
import secrets
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
        self.store.die()
        self.stop()
        threading.Thread(target=self.process.close, daemon=True).start()

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
        self._stores = []

    def __enter__(self):
        for number in range(self.count):
            self.start(number)
        return self

    def __exit__(self, *_):
        for client in self.clients.values():
            with contextlib.suppress(Exception):
                client.close()
        for server in list(self.servers.values()):
            server.close()
        for store in self._stores:
            store.close()
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
        self.servers.pop(number).kill()

    def client(self, rank, staleness=0, space=0):
        world = self.world("worker", rank)
        store = StoreClient(self.store.address, self.secret, self.timeout, name=world.name)
        store.join(world.name)
        self._stores.append(store)
        directory = Directory(world, store, space, staleness)
        self.clients[rank] = client = open_client(directory, self.timeout, self.count, rank)
        return client

    def chains(self):
        return [Chains(self._stores[0]).read(shard) for shard in range(self.count)]

    def holders(self):
        return [[holder.server for holder in chain.holders] if chain else [] for chain in self.chains()]

    def await_holders(self, count=None):
        """Wait until each shard has as many holders as it should."""
        limit = time.monotonic() + LIMIT
        while any(len(each) < (count or self.replicas) for each in self.holders()):
            assert time.monotonic() < limit, self.holders()
            time.sleep(0.01)


def gradients(step, rank, shapes=None):
    random = np.random.RandomState(1000 * step + rank)
    return {
        key: torch.from_numpy(random.uniform(-1, 1, shape).astype("float32"))
        for key, shape in (shapes or SHAPES).items()
    }


class Worker:
    """A training worker: its client, and what it has pulled."""

    def __init__(self, cluster, rank, staleness=0, optimizer=None):
        self.rank = rank
        self.client = cluster.client(rank, staleness)
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
