"""A server may die if others hold its shard: no update is lost or applied twice, and synchronous training is the same
to the bit."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from launching import LIMIT, until
from server_cluster import SHAPES, Cluster, Disorder, Worker, at_frame, gradients, ones, since_frame, together
from server_simulation import Simulation, comparable, described, undisturbed, wired

import neomx as mx
from neomx.comm.chain import Chain, Holder, host_key, key_of, survives
from neomx.comm.server import Replica
from neomx.comm.server import messages as m
from neomx.comm.store import PeerError
from neomx.comm.supervision import RESTARTS, EndedServers
from neomx.comm.wire import Refused
from neomx.kvstore.server import OptimizerRule

STEPS = 12
ASYNC, STALE = None, 1


# ---- simulated schedules ----


@pytest.fixture
def small_groups(monkeypatch):
    """Fill new holders slot by slot."""
    monkeypatch.setattr("neomx.comm.server.slot._AT_ONCE", 1)


@pytest.mark.parametrize("seeds", [range(i, i + 40) for i in range(0, 160, 40)], ids=str)
def test_synchronous_schedules_with_crashes_equal_undisturbed_ones(seeds, small_groups):
    crashes = 0
    for seed in seeds:
        simulation = Simulation(seed, replicas=2 + seed % 2)
        shard, expected = simulation.run(), undisturbed(simulation)
        for number, slot in expected.slots.items():
            assert torch.equal(slot.weight, shard.slots[number].weight), (seed, slot.spec.key)
        assert described(expected) == described(shard), seed
        simulation.check_replicas()
        crashes += simulation.crashes
    assert crashes > len(seeds)


@pytest.mark.parametrize("staleness", [ASYNC, STALE])
def test_asynchronous_schedules_with_crashes_apply_each_update_once(staleness, small_groups):
    crashes = 0
    for seed in range(80):
        plain = mx.optimizer.SGD(learning_rate=1.0)
        simulation = Simulation(seed, staleness, replicas=2 + seed % 2, optimizer=plain)
        simulation.run()
        simulation.check_sums()
        simulation.check_replicas()
        crashes += simulation.crashes
    assert crashes > 80


# ---- servers and workers as threads ----


def trained(workers, first=0, steps=STEPS):
    """Return what all workers pull in each step."""
    return together(*[lambda w=w: [w.step(step) for step in range(first, steps)] for w in workers])[0]


def started(cluster, staleness=0, optimizer=None):
    make = optimizer or (lambda: mx.optimizer.Adam(learning_rate=0.01))
    return together(*[lambda r=r: Worker(cluster, r, staleness, make()) for r in range(cluster.workers)])


def states_of(workers):
    return [comparable(each) for each in together(*[worker.client.states for worker in workers])[0]]


@pytest.fixture(scope="module")
def expected():
    """The weights after each step, and the states, of a training in which no server ends and none has a replica."""
    with Cluster(replicas=1) as cluster:
        workers = started(cluster)
        return trained(workers), states_of(workers)


def assert_equal(seen, expected, first=0):
    for step, (one, other) in enumerate(zip(seen, expected[first:], strict=True)):
        for key in other:
            assert torch.equal(one[key], other[key]), f"step {step}, key {key}"


def test_replicas_do_not_change_the_result(expected):
    with Cluster() as cluster:
        workers = started(cluster)
        assert cluster.holders() == [[0, 1], [1, 0]]  # workers wait for all holders before they start
        assert_equal(trained(workers), expected[0])
        assert states_of(workers) == expected[1]
        keepers = [server.process._keepers for server in cluster.servers.values()]
        for home in range(2):
            first, second = (keeper[home].replica.spaces[0].shard for keeper in keepers)
            assert until(lambda one=first, other=second: one.log.number == other.log.number)
            assert first.slots.keys() == second.slots.keys() and described(first) == described(second)
            for number, slot in first.slots.items():
                assert torch.equal(slot.weight, second.slots[number].weight)


# (kind of frame, which occurrence of it, server that ends before it is sent): in step 2 or 3 of the training
MOMENTS = [
    *((m.PUSH, 9, server) for server in (0, 1)),
    *((m.PUSH_ROWS, 9, server) for server in (0, 1)),
    *((m.PUSH_CODED, 10, server) for server in (0, 1)),
    *((m.COMMIT, count, server) for count in (8, 9, 10, 11) for server in (0, 1)),
    *((m.UPDATE, count, server) for count in (5, 6, 7, 8, 9) for server in (0, 1)),
    *((m.HELD, count, server) for count in (8, 9, 10, 11) for server in (0, 1)),
    *((m.PULL, count, server) for count in (7, 8) for server in (0, 1)),
    *((m.READY, count, server) for count in (9, 10, 11, 12) for server in (0, 1)),
]


@pytest.mark.parametrize("apart", [False, True], ids=["shared memory", "network"])
def test_server_may_end_at_any_moment_of_a_step(expected, apart):
    for kind, count, server in MOMENTS:
        with Cluster(apart=apart) as cluster:
            workers = started(cluster)
            with at_frame(kind, count, lambda cluster=cluster, server=server: cluster.kill(server)) as has_happened:
                seen = trained(workers)
            assert has_happened(), (kind, count)
            assert_equal(seen, expected[0])
            assert states_of(workers) == expected[1], (kind, count, server)
            cluster.await_holders([1 - server], [1 - server])


def test_new_server_is_filled_while_training_goes_on_and_then_the_other_may_end(expected, small_groups):
    with Cluster() as cluster:
        workers = started(cluster)
        seen = trained(workers, 0, 3)
        cluster.kill(0)
        seen += trained(workers, 3, 5)
        with since_frame(m.FILL, 2, lambda: trained(workers, 5, 8)) as more:
            cluster.start(0)
            cluster.await_holders([0, 1], [1, 0])  # it leads its shard again
        seen += more[0]
        cluster.kill(1)
        seen += trained(workers, 8)
        assert_equal(seen, expected[0])
        assert states_of(workers) == expected[1]


@pytest.mark.parametrize("kind", [m.FOLLOW, m.SPACE, m.FILL, m.FULL, m.DONE])
def test_new_server_may_end_while_it_is_filled(expected, kind, small_groups):
    with Cluster() as cluster:
        workers = started(cluster)
        seen = trained(workers, 0, 3)
        cluster.kill(0)
        seen += trained(workers, 3, 5)
        with at_frame(kind, 2, lambda: cluster.kill(0)) as has_happened:
            cluster.start(0)
            assert until(has_happened)
        seen += trained(workers, 5, 8)
        cluster.start(0)
        cluster.await_holders([0, 1], [1, 0])
        cluster.kill(1)
        seen += trained(workers, 8)
        assert_equal(seen, expected[0])
        assert states_of(workers) == expected[1]


def test_two_of_three_holders_may_end_together(expected):
    with Cluster(servers=3, replicas=1) as cluster:
        workers = started(cluster)
        alone = trained(workers), states_of(workers)
    for victims in ((0, 1), (1, 2), (2, 0)):
        with Cluster(servers=3, replicas=3) as cluster:
            workers = started(cluster)
            seen = trained(workers, 0, 4)

            def kill(cluster=cluster, victims=victims):
                for number in victims:
                    cluster.kill(number)

            with at_frame(m.UPDATE, 4, kill):
                seen += trained(workers, 4, 8)
            for number in victims:
                cluster.start(number)
            cluster.await_holders()
            seen += trained(workers, 8)
            assert_equal(seen, alone[0])
            assert states_of(workers) == alone[1]


def test_lost_shard_is_named_with_its_servers_and_times_on_all_workers():
    with Cluster() as cluster:
        workers = started(cluster)
        trained(workers, 0, 2)
        cluster.kill(0)
        trained(workers, 2, 4)
        cluster.kill(1)
        errors = []

        def fail(worker):
            with pytest.raises(PeerError) as error:
                worker.step(4)
            errors.append(str(error.value))

        together(*[lambda w=w: fail(w) for w in workers])
        for error in errors:
            assert "shard 0 of the parameters is lost" in error or "shard 1 of the parameters is lost" in error, error
            assert "server 0 until " in error and "UTC" in error and "server 1 on " in error and " is gone" in error
        with pytest.raises(PeerError, match="is lost"):
            workers[0].step(4)


def test_broken_connections_of_processes_that_run_lose_nothing(expected):
    with Cluster() as cluster:
        workers = started(cluster)
        seen = trained(workers, 0, 3)
        waiting = threading.Thread(target=lambda: seen.append(workers[0].step(3)))
        waiting.start()
        shard = cluster.servers[0].process._keepers[0].replica.spaces[0].shard
        assert until(lambda: 0 in shard._waits)  # worker 0 waits for worker 1
        workers[0].client.servers[0].link.connection.close()
        assert until(lambda: 0 in shard._waits and workers[0].client.servers[0].link.connection.fileno() >= 0)
        workers[1].step(3)
        waiting.join(LIMIT)
        cluster.servers[0].process._keepers[0]._next.connection.close()
        seen += trained(workers, 4)
        assert_equal(seen, expected[0])
        assert states_of(workers) == expected[1]
        assert cluster.holders() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("staleness", [0, ASYNC, STALE], ids=["sync", "async", "stale"])
def test_random_failures(expected, staleness):
    for seed in range(8):
        plain = mx.optimizer.SGD(learning_rate=1.0)
        with Cluster(timeout=LIMIT, apart=seed % 3 == 2) as cluster:
            workers = started(cluster, staleness, None if staleness == 0 else lambda p=plain: p)
            with Disorder(cluster, seed, 60).reigning() as disorder:
                if staleness == 0:
                    seen = trained(workers)
                else:
                    together(*[lambda w=w: push_ones(w) for w in workers])
            if staleness == 0:
                assert_equal(seen, expected[0])
                assert states_of(workers) == expected[1], (seed, disorder.events)
                continue
            for key, value in workers[0].pull().items():
                lost = gradients(7777, 0)[key] - value
                torch.testing.assert_close(lost, pushed_ones(cluster)[key], atol=1e-4, rtol=0, msg=f"{seed} {key}")


def push_ones(worker):
    for step in range(STEPS):
        worker.push(step, ones)
        worker.commit()
        if step % 3 == 0:
            worker.pull()
    worker.pull()


def pushed_ones(cluster):
    """Return the sum of what `push_ones` pushes on all workers."""
    total = {key: torch.full(shape, float(cluster.workers * STEPS)) for key, shape in SHAPES.items()}
    total["rows"].zero_()
    for step in range(STEPS):
        total["rows"][step % 7 :: 7] += cluster.workers
    return total


def test_staleness_is_bounded_while_workers_connect_again():
    with Cluster() as cluster:
        workers = started(cluster, STALE, lambda: mx.optimizer.SGD(learning_rate=1.0))
        for worker in workers:
            worker.step(0)
        workers[0].push(1)
        workers[0].commit()
        workers[0].pull()  # one step ahead of worker 1, which does not use its connection now
        cluster.kill(0)
        cluster.await_holders([1], [1])
        workers[0].push(2)
        workers[0].commit()
        pulled = threading.Thread(target=workers[0].pull)
        pulled.start()
        shard = cluster.servers[1].process._keepers[0].replica.spaces[0].shard
        assert until(lambda: 0 in shard._waits)
        pulled.join(0.5)
        assert pulled.is_alive()
        workers[1].step(1)
        pulled.join(LIMIT)
        assert not pulled.is_alive()


def test_new_leader_knows_which_workers_have_left():
    with Cluster() as cluster:
        workers = started(cluster)
        trained(workers, 0, 2)
        workers[1].client.close()
        second = cluster.servers[1].process._keepers[0].replica.spaces[0].shard
        assert until(lambda: 1 in second.lost)
        cluster.kill(0)
        began = time.monotonic()
        with pytest.raises(PeerError, match="worker 1 is gone: it has closed its store"):
            workers[0].step(2)
        assert time.monotonic() - began < LIMIT


def test_keys_and_optimizers_reach_a_server_that_is_filled(small_groups):
    def steps(cluster, disturb):
        def open_late():
            return together(*[lambda r=r: Worker(cluster, r, 0, mx.optimizer.NAG(momentum=0.9), 1) for r in (0, 1)])

        workers = started(cluster)
        trained(workers, 0, 2)
        if not disturb:
            trained(workers, 2, 4)
            more = open_late()
        else:
            cluster.kill(0)
            trained(workers, 2, 4)
            with since_frame(m.FILL, 1, open_late) as late:
                cluster.start(0)
                cluster.await_holders()
            cluster.kill(1)
            more = late[0]
        return trained(workers, 4), trained(more, 0), states_of(workers), states_of(more)

    with Cluster(replicas=1) as cluster:
        alone = steps(cluster, disturb=False)
    with Cluster() as cluster:
        held = steps(cluster, disturb=True)
    assert_equal(held[0], alone[0])
    assert_equal(held[1], alone[1])
    assert held[2:] == alone[2:]


def test_random_numbers_of_an_optimizer_are_the_same_on_all_holders():
    with Cluster() as cluster:
        workers = started(cluster, 0, lambda: mx.optimizer.SGLD(learning_rate=0.1))
        before = trained(workers)[-1]
        cluster.kill(0)
        after = together(*[worker.pull for worker in workers])[0]
        assert_equal([after], [before])


# ---- messages ----


def replica():
    """Return a replica that follows another one, with a store that has one key."""
    made = Replica(0, 1, 2, LIMIT, OptimizerRule, str, 2)
    made.begin_following(lambda kind, meta: None)
    key = ["k", [4, 3], "float32", [[0, 0, 12]], 0, False]
    told = {"space": 0, "staleness": 0, "n": 1, "keys": [[key]], "generations": [], "failures": []}
    made.take(wired(m.SPACE, {**told, "broken": "", "joined": []}))
    return made


UPDATE = {"space": 0, "n": 2, "k": [0], "g": ["sent"], "s": {"lr": 0.1}}
WRONG = [
    (m.SPACE, {"space": 1}),
    (m.SPACE, {"space": -1, "staleness": 0}),
    (m.FILL, {"space": 0, "n": 1, "k": [1], "round": [0], "commits": [[]]}),
    (m.FILL, {"space": 0, "n": 1, "k": [0], "round": [-1], "commits": [[]]}),
    (m.FILL, {"space": 3, "n": 1, "k": [0], "round": [0], "commits": [[]]}),
    (m.UPDATE, {**UPDATE, "space": "0"}),
    (m.UPDATE, {**UPDATE, "k": [0, 1]}),
    (m.UPDATE, {**UPDATE, "g": ["worker"]}),
    (m.UPDATE, {**UPDATE, "g": ["buffer"]}),
    (m.UPDATE, {**UPDATE, "g": [5]}),
    (m.UPDATE, {**UPDATE, "g": []}),
    (m.UPDATE, {**UPDATE, "s": {"lr": "0.1"}}),
    (m.UPDATE, {**UPDATE, "n": None}),
    (m.KEYS, {"space": 0, "n": 2, "keys": [["k"]]}),
    (m.ONCE, {"space": 0, "n": 2, "what": "other", "generation": 1}),
    (m.JOINED, {"space": 0, "n": 2, "rank": 0, "counts": [[7, 1]]}),
    (m.LEFT, {"space": 0, "n": 2}),
    (m.MEMORY, {"space": 0, "chunk": 9, "nbytes": 4096, "name": "1/2/3"}),
    (m.MEMORY, {"space": 0, "chunk": 0, "nbytes": 4096, "name": "../3"}),
]


@pytest.mark.parametrize(("kind", "meta"), WRONG)
def test_invalid_frames_of_another_server_are_refused(kind, meta):
    with pytest.raises(Refused):
        replica().take(wired(kind, meta, [bytes(48)]))


def test_payloads_of_another_server_are_limited_by_what_they_contain():
    made = replica()
    assert made.room(m.UPDATE, UPDATE, 48).nbytes == 48
    for kind, meta in ((m.UPDATE, UPDATE), (m.KEYS, {"space": 0, "keys": []}), (m.ONCE, {"space": 0}), (99, {})):
        with pytest.raises(Refused):
            made.room(kind, meta, 1 << 40)


# ---- the chain ----


def test_launcher_continues_while_each_shard_has_a_holder():
    life = {0: "a", 1: "b", 2: "c"}
    values = {host_key(server): f'{{"life": "{token}"}}'.encode() for server, token in life.items()}

    def chains(*shards):
        for shard, holders in enumerate(shards):
            values[key_of(shard)] = Chain(tuple(Holder(server, life[server]) for server in holders)).dumps()

    assert not survives(values.get, set(), 0)  # no chains: there are no replicas
    chains((0, 1), (1, 2), (2, 0))
    dead: set[Holder] = set()
    assert survives(values.get, dead, 0)
    life[0] = "d"
    values[host_key(0)] = b'{"life": "d"}'  # it was started again, and is not filled yet
    assert not survives(values.get, dead, 1)
    dead.clear()
    chains((0, 1), (1, 2), (2, 0))
    assert survives(values.get, dead, 1)
    ended = EndedServers(values.get)
    assert ended.tolerates("worker 0") == ""
    for _ in range(RESTARTS):
        assert "is started again" in ended.tolerates("server 0")
    assert "is not started again" in ended.tolerates("server 0")


def test_chains_are_changed_and_compared_as_a_whole():
    one, two, three = Holder(0, "a"), Holder(1, "b"), Holder(0, "c")
    chain = Chain((one,)).with_(two).with_(three)
    assert (chain.head, chain.tail) == (one, three)
    assert (chain.before(two), chain.after(two), chain.before(one), chain.after(three)) == (one, three, None, None)
    shorter = chain.without(one)
    assert shorter.holders == (two, three) and shorter.lost[0].startswith("server 0 until ")
    assert Chain.loads(shorter.dumps()) == shorter
    assert shorter.led_by(three).holders == (three, two)
    assert len({each.version for each in (chain, shorter, shorter.led_by(three))}) == 3
    with pytest.raises(mx.base.MXNetError, match="invalid chain"):
        Chain.loads(b"[1, 2]")
