"""How workers agree on who goes on: the rule, and the protocol with several clients of one store."""

import threading
import time
from contextlib import closing, contextmanager

import pytest

from neomx.comm import generations
from neomx.comm.generations import Expelled, Generations, Over, Status, agreed
from neomx.comm.store import PeerError, StoreClient, StoreServer
from neomx.comm.world import Limits, World

SECRET = b"0" * 32
LIMIT = 60.0


def test_a_step_counts_if_one_has_committed_it_or_all_have_its_sums():
    assert agreed([Status(4), Status(4)]) == (4, 0.0)
    assert agreed([Status(4, True, 8.0), Status(4)]) == (4, 0.0)
    assert agreed([Status(4, True, 8.0), Status(4, True, 8.0)]) == (5, 8.0)
    assert agreed([Status(5), Status(4, True, 8.0)]) == (5, 8.0)
    assert agreed([Status(-1), Status(4)]) == (4, 0.0)  # one has no state yet
    with pytest.raises(PeerError, match="start the job again"):
        agreed([Status(-1)])


def test_the_steps_of_several_trainers_in_a_batch_count_together():
    assert agreed([Status(5, began=4), Status(4, True, 8.0, began=4)]) == (4, 8.0)  # of 4 and 5, only 4 is made
    assert agreed([Status(6, began=6), Status(5, True, 8.0, began=4)]) == (6, 8.0)  # one has begun the next batch
    assert agreed([Status(4, True, 8.0, began=4), Status(4, True, 8.0, began=4)]) == (4, 8.0)
    assert agreed([Status(6, began=6), Status(6, began=2)]) == (6, 0.0)  # one had no data


def world(member, initial=3, joins=False, least=1, most=3):
    limits = Limits(least, most, initial, joins)
    return World(rank=member, size=initial, member=member, limits=limits, node=0, timeout=LIMIT)


@contextmanager
def start_store():
    """Serve a store whose `member(number)` returns the generations of a worker."""
    with closing(StoreServer("127.0.0.1", 0, SECRET)) as server:
        server.start()
        server.clients = {}

        def member(number, **options):
            client = StoreClient(server.address, SECRET, LIMIT)
            client.join(f"worker {number}")
            server.clients[number] = client
            return Generations(client, world(number, **options))

        server.member = member
        yield server
        for client in server.clients.values():
            client.close()


@pytest.fixture
def store():
    with start_store() as server:
        yield server


def together(*calls):
    """Run the calls in threads and return their results or errors."""
    found = [None] * len(calls)

    def run(at):
        try:
            found[at] = calls[at]()
        except Exception as error:
            found[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    return found


def test_survivors_agree_and_a_worker_that_never_came_does_not_stop_the_start(store):
    a, b = store.member(0), store.member(1)
    store.mark_gone("worker 2", 1)
    first, same = together(a.begin, b.begin)
    assert first == same and first.members == (0, 1) and first.number == 1
    second, same = together(lambda: a.next(Status(3, True, 6.0)), lambda: b.next(Status(3, True, 6.0)))
    assert second == same and (second.number, second.steps, second.divisor) == (2, 4, 6.0)


def test_a_member_that_was_cut_off_is_told_so_and_joins_again(store):
    a, b, c = (store.member(number) for number in range(3))
    together(a.begin, b.begin, c.begin)
    store.mark_gone("worker 2", None, "cut off")  # its heartbeats do not bring it back
    first, second = together(lambda: a.next(Status(1, epoch=0)), lambda: b.next(Status(1, epoch=0)))
    assert first == second and first.members == (0, 1)
    with pytest.raises(Expelled):
        c.next(Status(1))
    store.clients[2].close()
    again = StoreClient(store.address, SECRET, LIMIT)
    again.join("worker 2")
    store.clients[2] = again
    c.store = c._store = again
    found = together(
        lambda: c.join(0), lambda: a.next(Status(2, epoch=0)), lambda: wait_and(b, again, Status(2, epoch=0))
    )
    assert [each.members for each in found[1:]] == [(0, 1)] * 2 or found[0].members == (0, 1, 2)


def wait_and(generations, client, status):
    """Ask for the next generation after a worker has asked to join."""
    while not generations.waiting():
        client.check(["x"])
    return generations.next(status)


def test_joiners_enter_only_at_a_step_of_their_epoch_and_while_there_is_room(store):
    a, b = store.member(0, initial=2), store.member(1, initial=2)
    together(a.begin, b.begin)
    c, d = store.member(5, initial=2, joins=True), store.member(6, initial=2, joins=True)
    joined = []
    threads = [threading.Thread(target=lambda each=each: joined.append(each.join(3)), daemon=True) for each in (c, d)]
    for thread in threads:
        thread.start()
    while len(a.waiting()) < 2:
        pass
    for epoch in (None, 2):
        found, _ = together(lambda at=epoch: a.next(Status(1, epoch=at)), lambda at=epoch: b.next(Status(1, epoch=at)))
        assert found.members == (0, 1)
    found, _ = together(lambda: a.next(Status(1, epoch=3)), lambda: b.next(Status(1, epoch=3)))
    assert len(found.members) == 3 and set(found.new) < {5, 6} and not a.can_admit(None)
    late = 11 - found.new[0]
    a.tell_place('{"loader": 0, "epoch": 4}')  # the one that was left out asks again in the next epoch
    for thread in threads:
        thread.join(LIMIT)
    assert sorted(joined, key=lambda each: each is None)[0].new == found.new and None in joined
    a.end()
    with pytest.raises(Over):
        {5: c, 6: d}[late].join(4)


def test_a_worker_that_follows_becomes_a_member_when_it_has_the_state(store):
    a, b = store.member(0, initial=2), store.member(1, initial=2)
    together(a.begin, b.begin)
    c = store.member(5, initial=2, joins=True)
    joined = []
    thread = threading.Thread(target=lambda: joined.append(c.join(3, follows=2)), daemon=True)
    thread.start()
    while not a.waiting():
        time.sleep(0.01)
    at_step = Status(1, epoch=3, left=2)
    found, _ = together(lambda: a.next(at_step), lambda: b.next(at_step))
    thread.join(LIMIT)
    assert joined == [found] and found.members == (0, 1) and found.followers == (5,) and not found.new
    assert not c.admitted and c.follows and not a.can_admit(None) and not found.continues
    assert list(a.places(with_followers=True)) == list(c.places(with_followers=True)) == [0, 1, 5]
    assert list(a.places(with_followers=False)) == [0, 1] and list(c.places(with_followers=False)) == [5]
    # A loss in the meantime: it goes on following, or receives all at once if too few steps are left.
    blank = Status(-1, epoch=3, left=2)
    found, *_ = together(lambda: a.next(at_step), lambda: b.next(at_step), lambda: c.next(blank))
    assert found.followers == (5,) and not found.continues
    done = Status(4, epoch=3, intact=True)
    found, same, last = together(lambda: a.next(done), lambda: b.next(done), lambda: c.next(done))
    assert found == same == last and found.members == (0, 1, 5) and not found.new and found.continues and c.admitted


def test_a_worker_receives_the_state_at_once_if_too_few_steps_are_left_and_is_left_behind_in_another_epoch(store):
    a, b = store.member(0, initial=1, most=3), store.member(5, initial=1, most=3, joins=True)
    c = store.member(6, initial=1, most=3, joins=True)
    a.begin()
    for joiner, left in ((b, 5), (c, 2)):
        thread = threading.Thread(target=joiner.join, args=(3, 3), daemon=True)
        thread.start()
        while not a.waiting():
            time.sleep(0.01)
        calls = [lambda at=left: a.next(Status(1, epoch=3, left=at))]
        if joiner is c:
            calls.append(lambda: b.next(Status(-1, epoch=3, left=1)))
        found = together(*calls)[0]
        thread.join(LIMIT)
    assert (found.members, found.new, found.followers) == ((0, 6), (6,), (5,))
    _, _, error = together(
        lambda: a.next(Status(2, epoch=4)),
        lambda: c.next(Status(2, epoch=4)),
        lambda: b.next(Status(-1, epoch=3, left=1)),
    )
    assert isinstance(error, Expelled)


def test_the_training_waits_for_the_least_number_of_workers(store):
    a = store.member(0, initial=2, least=2, most=2)
    b = store.member(1, initial=2, least=2, most=2)
    together(a.begin, b.begin)
    store.mark_gone("worker 1", 1)
    c = store.member(2, initial=2, joins=True)
    found, joined = together(lambda: a.next(Status(4, epoch=0)), lambda: c.join(0))
    assert found == joined and found.members == (0, 2) and found.new == (2,)


def test_a_worker_that_waits_to_join_gives_up_when_nobody_trains_any_more(store, monkeypatch):
    monkeypatch.setattr(generations, "_ALL_GONE", 0.2)
    store.member(0)
    joiner = store.member(3, initial=1, joins=True)
    store.mark_gone("worker 0", -9)
    for wait in (lambda: joiner.join(None), lambda: forever(joiner.place)):
        with pytest.raises(PeerError, match="nobody trains any more. worker 0 .* code -9"):
            wait()


def forever(call):
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        call()
        time.sleep(0.01)
