"""When a step of an elastic job takes effect on a server, and what is dropped when its workers change."""

import pytest
import torch

from neomx.comm.server import Generation
from neomx.comm.server.elastic_shard import ElasticShard
from neomx.comm.server.messages import KeySpec, Segment
from neomx.comm.server.slot import Slot
from neomx.comm.wire import Closed, Refused

KEYS = ("a", "b")
ZERO = torch.zeros(2)


class Adds:
    """A rule that adds gradients, multiplied by a setting."""

    seed = None

    def update(self, specs, gradients, weights, settings):
        for gradient, weight in zip(gradients, weights, strict=True):
            weight.add_(gradient * settings["lr"])


def shard_of(members, rule=True):
    shard = ElasticShard(len(members), 0, timeout=0.2)
    specs = [KeySpec(key, (2,), torch.float32, (Segment(0, 0, 2),)) for key in KEYS]
    slots = [Slot(n, spec, spec.segments[0], 0, 8 * n, ZERO.clone()) for n, spec in enumerate(specs)]
    shard.create(slots, specs)
    shard.rule = Adds() if rule else None
    return shard, enter(shard, 1, members, 0)


def enter(shard, number, members, steps):
    """Let workers connect as members of a generation. Return their connections."""
    shard.regroup(Generation(number, tuple(members), steps))
    return {member: shard.join(member, again=True) for member in members}


def offer(shard, stays, step, values, slots=(0, 1)):
    for member, value in values.items():
        chosen = [shard.slots[n] for n in slots]
        shard.push(member, chosen, [torch.full((2,), float(value)) for _ in chosen], stays[member])
        shard.commit(member, chosen, None, step, stays[member])


def settle(shard, stays, member, step, lr=1.0):
    shard.settle(member, step, {"lr": lr}, stays[member])


def weights(shard):
    return [float(slot.weight[0]) for slot in shard.slots.values()]


def offers(shard, member):
    return [slot.number for found in shard.offered(member, list(shard.slots.values())) for slot in found]


def test_round_takes_effect_once_when_it_is_settled():
    shard, stays = shard_of([0, 1])
    offer(shard, stays, 1, {0: 1, 1: 2})
    assert offers(shard, 0) == [0, 1] and weights(shard) == [0, 0]
    settle(shard, stays, 1, 1, lr=10.0)
    settle(shard, stays, 0, 1, lr=10.0)
    assert weights(shard) == [30, 30] and [slot.round for slot in shard.slots.values()] == [1, 1]
    assert [slot.number for found in shard.ready(0, list(shard.slots.values())) for slot in found] == [0, 1]


def test_open_step_that_does_not_count_is_dropped():
    shard, stays = shard_of([0, 1, 2])
    offer(shard, stays, 1, {0: 1, 1: 2, 2: 4})
    stays = enter(shard, 2, [0, 2], 0)
    settle(shard, stays, 0, 1)
    assert weights(shard) == [0, 0]
    offer(shard, stays, 1, {2: 4, 0: 1})
    settle(shard, stays, 2, 1)
    assert weights(shard) == [5, 5]


def test_open_step_that_counts_is_settled_by_the_next_generation():
    shard, stays = shard_of([0, 1, 2])
    offer(shard, stays, 1, {0: 1, 1: 2, 2: 4})
    stays = enter(shard, 2, [2, 5], 1)
    assert [slot.commits[2] for slot in shard.slots.values()] == [1, 1] and weights(shard) == [0, 0]
    settle(shard, stays, 2, 1)
    assert weights(shard) == [7, 7]
    offer(shard, stays, 2, {5: 1, 2: 1})
    settle(shard, stays, 5, 2)
    assert weights(shard) == [9, 9]


def test_what_arrives_on_connections_of_an_earlier_generation_is_refused():
    shard, old = shard_of([0, 1])
    shard.push(1, [shard.slots[0]], [torch.ones(2)], old[1])
    new = enter(shard, 2, [0, 1], 0)
    for call in (
        lambda: shard.push(0, [shard.slots[0]], [torch.ones(2)], old[0]),
        lambda: shard.commit(0, [shard.slots[0]], None, 1, old[0]),
        lambda: settle(shard, old, 0, 1),
    ):
        with pytest.raises(Closed):
            call()
    offer(shard, new, 1, {0: 1, 1: 2})
    settle(shard, new, 0, 1)
    assert weights(shard) == [3, 3]


def test_sums_are_made_in_the_order_of_the_members():
    values = {3: 1e8, 0: -1e8, 1: 1e-3}
    shard, stays = shard_of([3, 0, 1])
    offer(shard, stays, 1, dict(reversed(values.items())))
    settle(shard, stays, 3, 1)
    assert weights(shard) == [float(torch.tensor(1e8) + torch.tensor(-1e8) + torch.tensor(1e-3))] * 2


def test_earlier_generation_changes_nothing():
    shard, stays = shard_of([0, 1])
    enter(shard, 3, [1], 0)
    shard.regroup(Generation(2, (0, 1), 0))
    assert shard.generation == 3 and shard.members == (1,)


def test_sums_without_an_optimizer_can_be_read_at_once():
    shard, stays = shard_of([0, 1], rule=False)
    offer(shard, stays, 1, {0: 1, 1: 2})
    assert weights(shard) == [3, 3]
    enter(shard, 2, [1], 0)
    assert [slot.commits[1] for slot in shard.slots.values()] == [1, 1]


def test_worker_that_joins_learns_the_keys_and_the_actions_before_its_generation():
    shard, _ = shard_of([0, 1])
    shard.act("set_optimizer", 1, lambda: None, b"")
    assert shard.progress()["actions"] == []
    enter(shard, 2, [0, 1, 2], 0)
    shard.act("set_optimizer", 2, lambda: None, b"")
    told = shard.progress()
    assert told["actions"] == [("set_optimizer", 1)] and [each[0] for each in told["keys"]] == list(KEYS)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"number": 1, "members": [], "steps": 0},
        {"number": 1, "members": [0, 0], "steps": 0},
        {"number": -1, "members": [0], "steps": 0},
        {"number": 1, "members": ["0"], "steps": 0},
        {"number": 1, "members": [0], "steps": True},
        [1],
        None,
    ],
)
def test_invalid_generation_is_refused(said):
    with pytest.raises(Refused):
        Generation.heard(said)
