"""The workers of an elastic job, as decisions without processes: who starts where, and when a lost one is replaced."""

import pytest

from neomx.launch.crew import Crew, Host, Limits, pause_before


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def crew_of(clock):
    def make(*rooms, most=None, least=1, **more):
        crew = Crew(Limits(least, sum(rooms) if most is None else most, **more), clock)
        crew.hosts = [Host(chr(ord("a") + node), room, node=node, is_ready=True) for node, room in enumerate(rooms)]
        return crew

    return make


def told(starts):
    return [(start.member, start.host.name, start.local_rank, start.joins) for start in starts]


def test_first_workers_fill_the_hosts_in_order_and_spares_join(crew_of):
    crew = crew_of(2, 2, most=3, spares=1)
    assert told(crew.begin()) == [(0, "a", 0, False), (1, "a", 1, False), (2, "b", 0, False)]
    assert crew.size == 3
    assert told(crew.due()) == [(3, "b", 1, True)]
    assert crew.due() == []


def test_each_node_starts_its_own_workers_and_keeps_room_for_its_spares(crew_of):
    crew = crew_of(3, 3, most=4, spares=2)
    for host in crew.hosts:
        host.first = 2
    assert [start.host.name for start in crew.begin()] == ["a", "a", "b", "b"]
    assert sorted(told(crew.due())) == [(4, "a", 2, True), (5, "b", 2, True)]


def test_replacements_get_fresh_numbers_and_the_local_rank_of_the_lost(crew_of):
    crew = crew_of(3)
    crew.begin()
    assert crew.lose(1).successor == 3
    assert told(crew.due()) == [(3, "a", 1, True)]
    assert crew.lose(3).successor == 4 and crew.lose(0).successor == 5
    assert crew.running == {2}


def test_pauses_grow_and_restarts_are_counted_per_seat(crew_of, clock):
    crew = crew_of(2, restarts=4)
    crew.begin()
    member, pauses = 0, []
    for _ in range(4):
        loss = crew.lose(member)
        pauses.append(loss.pause)
        if loss.pause:
            clock.now += loss.pause / 2
            assert crew.pauses() and crew.due() == []
            clock.now += loss.pause / 2
        (start,) = crew.due()
        assert start.member == loss.successor
        member = start.member
    assert pauses == [0.0, 0.5, 1.0, 2.0]
    last = crew.lose(member)
    assert (last.successor, last.restarts) == (None, 4)
    clock.now += 1000
    assert crew.due() == [] and crew.running == {1}
    assert crew.lose(1).successor is not None  # another seat has its own restarts


def test_longest_pause_is_limited():
    assert [pause_before(n) for n in (1, 2, 8, 10**6)] == [0.0, 0.5, 30.0, 30.0]


def test_replacement_of_a_worker_with_an_error_hesitates(crew_of, clock):
    crew = crew_of(1)
    crew.begin()
    assert crew.lose(0, hesitates=True).pause == 1.0
    assert crew.due() == []
    clock.now += 1
    assert len(crew.due()) == 1


def test_job_grows_when_hosts_come_up_to_the_maximum(crew_of):
    crew = crew_of(2, most=5)
    assert len(crew.begin()) == 2 and crew.size == 2 and crew.due() == []
    crew.hosts.append(Host("z", 4, node=7, is_ready=True))
    assert told(crew.due()) == [(member, "z", member - 2, True) for member in (2, 3, 4)]


def test_workers_of_a_lost_host_are_replaced_elsewhere_without_costing_restarts(crew_of):
    crew = crew_of(2, 2, most=3, restarts=0)
    crew.begin()
    host = crew.hosts[0]
    assert crew.leave(host) == [0, 1] and (host.node, host.is_ready) == (None, False)
    assert crew.could_start([crew.hosts[1]]) == 1
    assert told(crew.due()) == [(3, "b", 1, True)]
    assert crew.due() == []  # no room for the other one
    host.node, host.is_ready = 2, True
    assert told(crew.due()) == [(4, "a", 0, True)]


def test_host_with_less_room_gets_no_more_workers(crew_of):
    crew = crew_of(2)
    crew.begin()
    crew.hosts[0].room = 1
    crew.lose(0)
    assert crew.due() == [] and crew.running == {1}


def test_host_that_fails_three_times_within_a_minute_is_left_out(crew_of, clock):
    crew = crew_of(1, 1, cooldown=(10.0, 15.0), restarts=99)
    crew.begin()
    host = crew.hosts[0]
    assert [crew.fail(host) for _ in range(2)] == [0.0, 0.0]
    clock.now += 61
    assert [crew.fail(host) for _ in range(3)] == [0.0, 0.0, 10.0]
    crew.lose(0)
    clock.now += 9.9
    assert crew.due() == []
    clock.now += 0.2
    assert [start.host for start in crew.due()] == [host]
    assert [crew.fail(host) for _ in range(3)][-1] == 15.0  # twice as long, up to the limit


def test_only_host_is_never_left_out(crew_of):
    crew = crew_of(4)
    assert [crew.fail(crew.hosts[0]) for _ in range(9)] == [0.0] * 9


def test_finished_workers_are_not_replaced_and_closing_starts_none(crew_of):
    crew = crew_of(3)
    crew.begin()
    crew.finish(0)
    assert crew.due() == [] and crew.could_start(crew.hosts) == 0
    crew.lose(1)
    crew.closing = True
    assert crew.due() == []
    assert crew.lose(2).successor is None and crew.running == set()
