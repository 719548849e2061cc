"""Layouts in elastic jobs: who sits where, which replicas go on, and what is refused at the start.

Trainings under layouts in which workers are lost are rows of `test_faults.py` and `make faults`.
"""

import json
import subprocess
import sys

import pytest
from cluster import Cluster
from faults import run
from forking import ForkServer
from launching import LIMIT, environment
from rows import Row
from test_generations import status_of_member, store, together  # noqa: F401

from neomx.comm.generations import Expelled, Unrecoverable
from neomx.comm.seats import Seats, complete, whole

TENSOR = Seats(1, 2, (0, 0), "data=2,tensor=2")
PIPELINE = Seats(2, 1, (0, 0), "data=2,pipeline=2")


def test_seats_follow_the_order_of_ranks():
    assert TENSOR.replicas((0, 1, 2, 3)) == [(0, 1), (2, 3)]
    assert PIPELINE.replicas((0, 1, 2, 3)) == [(0, 2), (1, 3)]
    assert PIPELINE.members([(0, 2), (5, 6)]) == (0, 5, 2, 6)
    both = Seats(2, 2, (0, 0, 0, 0))
    for replicas in (1, 2, 3):
        members = tuple(range(4 * replicas))
        assert both.members(both.replicas(members)) == members
        for rank in members:
            place = both.place(rank, replicas)
            assert members[rank] in both.replicas(members)[both.replicas(members).index(both.replica_of(members, rank))]
            assert both.replica_of(members, rank)[place] == rank


def test_samples_are_divided_among_one_worker_of_each_share():
    assert TENSOR.sharers((4, 5, 2, 3)) == (4, 2)
    assert PIPELINE.sharers((4, 5, 2, 3)) == (4, 5)
    assert Seats(1, 2, (0, 1)).sharers((0, 1, 2, 3)) == (0, 1, 2, 3)  # shard
    assert Seats().sharers((7, 1)) == (7, 1)
    assert TENSOR.beside((4, 5, 2, 3), 3) == [5, 3]


def test_replicas_are_whole_or_left_out_and_join_when_all_places_are_taken():
    assert whole([(0, 1), (2, 3)], {0, 2, 3}) == [(2, 3)]
    assert complete([(0, 0), (4, 0)], 2, 8) == []
    assert complete([(0, 0), (4, 0), (5, 1)], 2, 8) == [(0, 5)]
    assert complete([(0, 0), (4, 1), (6, 0), (5, 1)], 2, 1) == [(0, 4)]
    assert complete([(0, 0)], 1, 0) == []
