"""Hands the state of the training over to workers that join: from one that has it, while the others wait."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..checkpoint.generators import reseed
from ..checkpoint.state import Content, Training, content_of
from ..comm.generations import Generation
from ..comm.group import Group
from ..comm.session import Session

_RANDOM = "random"  # the name of the state of torch's generator, among the tensors
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8)
    + (torch.int16, torch.int32, torch.int64, torch.bool)
}


def members_of(
    opened: Session, generation: Generation, receivers: Sequence[int], among: Sequence[int] | None = None
) -> Group | None:
    """Open the group of the worker that hands over, the first, and those that receive. None on the other workers.

    `among` are those that may hand over: by default all members of the generation.
    """
    places = generation.places
    without = {*generation.new, *receivers, *generation.lacking}
    source = next(member for member in among or generation.members if member not in without)
    members = [source, *receivers]
    if not receivers or opened.world.number not in members:
        return None
    nodes = {member: places[member] for member in members}
    return Group(opened.world, opened.store, nodes, f"from {source} to {receivers} in generation {generation.number}")


def check_trainers(theirs: Collection[int], own: Collection[int]) -> None:
    """Raise if this worker, which joins, does not have all Trainers of the others."""
    if set(theirs) - set(own):
        raise MXNetError(
            f"the other workers train with {len(theirs)} Trainers, but the program of this one has created {len(own)} "
            "before its first step. A worker that joins must run the same program, and create its Trainers before that "
            "step"
        )


def give(group: Group, trainings: Mapping[int, Training], facts: dict[str, Any]) -> None:
    """Send the states of trainings, by number, to the other members."""
    tensors, known = {_RANDOM: torch.get_rng_state()}, {}
    shapes: dict[str, list[int]] = {}  # of whole tensors of which these workers have a part
    for number, training in trainings.items():
        fragments, known[str(number)], _ = training.fragments(0, 1, with_empty=True, to_join=True)
        # Gradients and residuals of compression belong to the worker that computed them.
        kept = [each for each in fragments if not each.name.startswith("worker/")]
        tensors |= {f"{number}/{each.name}": each.tensor.detach().cpu() for each in kept}
        shapes |= {f"{number}/{each.name}": list(each.shape) for each in kept if each.region is not None}
    give_tensors(group, tensors, {"trainings": known, "elastic": facts, "shapes": shapes})


def take(group: Group, seed: int) -> tuple[dict[int, Content], dict[str, Any]]:
    """Receive the states from the first member, and seed the random generators with them and with `seed`."""
    tensors, facts = take_tensors(group)
    reseed({"torch": tensors.pop(_RANDOM)}, seed)
    found = {}
    for number, known in facts["trainings"].items():
        own = {name.partition("/")[2]: each for name, each in tensors.items() if name.startswith(f"{number}/")}
        whole = {name: facts["shapes"][f"{number}/{name}"] for name in own if f"{number}/{name}" in facts["shapes"]}
        found[int(number)] = content_of(own, known, int(facts["elastic"]["steps"]), whole)
    return found, facts["elastic"]


def give_tensors(group: Group, tensors: Mapping[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Send tensors and JSON values to the other members."""
    listed = [[name, str(each.dtype).removeprefix("torch."), list(each.shape)] for name, each in tensors.items()]
    broadcast_bytes(group, json.dumps({"tensors": listed, "facts": facts}).encode())
    group.broadcast_all_(list(tensors.values()), 0, "the state of the training")


def take_tensors(group: Group) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Receive tensors and JSON values from the first member."""
    said = json.loads(broadcast_bytes(group, b""))
    tensors = {name: torch.empty(shape, dtype=DTYPES[dtype]) for name, dtype, shape in said["tensors"]}
    group.broadcast_all_(list(tensors.values()), 0, "the state of the training")
    return tensors, said["facts"]


def broadcast_bytes(group: Group, content: bytes) -> bytes:
    """Return the bytes of the first member."""
    size = group.broadcast_(torch.tensor([len(content)]), 0, "the size of the state")
    sent = torch.zeros(int(size), dtype=torch.uint8)
    if group.rank == 0:
        sent.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    return group.broadcast_(sent, 0, "the description of the state").numpy().tobytes()
