"""A short, seeded part of the simulator of the log, and proof that it finds mistakes."""

import importlib.util
import pathlib

import pytest

from neomx.comm.store.log import LEADER, Log
from neomx.comm.store.state import State

PATH = pathlib.Path(__file__).with_name("log.py")
spec = importlib.util.spec_from_file_location("fuzz_log", PATH)
simulator = importlib.util.module_from_spec(spec)
spec.loader.exec_module(simulator)


def test_guarantees_hold_in_random_schedules():
    assert simulator.run(cases=400, seed=3, seconds=60.0) > 20


class CommitsAlone(Log):
    def _advance(self, now):
        self.commit = self.last


class VotesTwice(Log):
    def _may_vote_for(self, candidate):
        return True


class ElectsAnyone(Log):
    def _is_current(self, asked):
        return True


class WinsWithHalf(Log):
    def _is_majority(self, names):
        return 2 * len(names.intersection(self.voters)) >= len(self.voters)


class SkipsTheLogCheck(Log):
    def _has(self, index, term):
        return index <= self.last


class CommitsEarlierTerms(Log):
    def _advance(self, now):
        matched = sorted(self.last if name == self.me else self._peers[name].match for name in self.voters)
        self.commit = max(self.commit, matched[(len(matched) - 1) // 2])


class ReadsWithoutConfirmation(Log):
    def is_confirmed(self, ticket):
        return self.role == LEADER


class ReadsBeforeItKnowsAll(Log):
    @property
    def is_ready(self):
        return self.role == LEADER


class ChangesVotersAnytime(Log):
    @property
    def may_change(self):
        return self.role == LEADER


class ExecutesAgain(State):
    def apply(self, command, payload=b""):
        return super().apply({name: value for name, value in command.items() if name != "number"}, payload)


class ForgetsAnswersInCopies(State):
    def restore(self, data):
        super().restore(data)
        self._answers.clear()


@pytest.mark.parametrize(
    ("mistake", "guarantee"),
    [
        ({"make": CommitsAlone}, "safety|completeness|linearizability"),
        ({"make": VotesTwice}, "election safety"),
        ({"make": ElectsAnyone}, "completeness|safety|committed"),
        ({"make": WinsWithHalf}, "election safety|completeness"),
        ({"make": SkipsTheLogCheck}, "log matching|safety"),
        ({"make": ReadsWithoutConfirmation}, "linearizability"),
        ({"make": ReadsBeforeItKnowsAll}, "linearizability"),
        ({"make": ChangesVotersAnytime}, "."),
        ({"state": ExecutesAgain}, "linearizability"),
        ({"state": ForgetsAnswersInCopies}, "linearizability"),
        ({"forgetful": True}, "."),
    ],
    ids=lambda value: (
        getattr(next(iter(value.values())), "__name__", "VotesAgainAfterARestart") if isinstance(value, dict) else ""
    ),
)
def test_mistakes_are_found(mistake, guarantee):
    with pytest.raises(AssertionError, match=guarantee):
        simulator.run(cases=20_000, seed=5, seconds=120.0, **mistake)


@pytest.mark.parametrize(("make", "commits"), [(Log, False), (CommitsEarlierTerms, True)])
def test_leader_commits_no_entry_of_an_earlier_term_by_counting_its_copies(make, commits):
    """Random schedules find this mistake too rarely for a test."""
    world = simulator.World(3, make=make)
    world.at(1.0, world.begin, world.clients[0])
    leaders = []
    while not leaders or len(leaders[0].voters) < 3:
        world.step()
        leaders = [node.log for node in world.nodes.values() if node.log.is_ready]
    leader = leaders[0]
    index = leader.propose(b"", world.now)
    before = leader.commit
    assert before < index
    leader.term += 1  # as if it had lost and won another election, before it adds an entry of the new term
    for name in leader.voters:
        if name != leader.me:
            leader._peers[name].match = index
    leader._advance(world.now)
    assert leader.commit == (index if commits else before)
