"""Layouts in elastic jobs: replicas of the model may be lost and join, and the groups of the layout follow.

A worker that is lost takes its replica along: its partners wait until a replacement completes the replica again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import lcm
from typing import TYPE_CHECKING, TypeVar

import torch

from ..base import MXNetError
from ..comm.generations import Generation, Generations
from ..comm.group import Group
from ..comm.seats import Seats
from ..comm.session import session
from ..comm.store import PeerError
from ..comm.transaction import transaction
from ..comm.world import World, replaced_share
from ..gluon import Block
from .dimensions import check_elastic as check_degrees
from .dimensions import in_mesh

if TYPE_CHECKING:
    from .layout import Layout
    from .model import Model

Result = TypeVar("Result")


def take_seats(layout: Layout) -> Generations | None:
    """Sit in a layout, in an elastic job. Raises if the layout cannot lose a worker.

    Return the generations of the job, or None if the job is not elastic.
    """
    opened = session()
    generations = opened.generations
    if generations is None:
        return None
    if generations.seats.layout != str(layout):
        _check(layout, opened.world, generations)
        transaction().take_seats(_seats(layout))
    return generations


def _check(layout: Layout, world: World, generations: Generations) -> None:
    layout.check(world.initial)
    if generations.seats.layout:
        raise MXNetError(
            f"this elastic job has the layout {generations.seats.layout}, received {layout}. An elastic job can have "
            "only one layout"
        )
    if torch.cuda.is_available():
        raise MXNetError(f"layout {layout}: an elastic job supports layouts on CPUs only. Start it without --elastic")
    check_degrees(layout.degrees)


def check_elastic(net: Model, layout: Layout, shard: str | None) -> None:
    """Raise, in an elastic job, for what cannot go on after the loss of a replica."""
    if take_seats(layout) is None:
        return
    if not isinstance(net, Block):
        raise MXNetError(
            "an elastic job supports layouts of gluon Blocks with a gluon.Trainer, not of torch modules. Start the job "
            "without --elastic"
        )
    if shard == "optimizer" or shard is not None and layout.shard == 1:
        raise MXNetError(
            f"layout {layout}, shard={shard!r}: parameters or optimizer states are divided over data, so no replica "
            "has all of them, and an elastic job cannot lose a worker. Use a layout such as data=2,shard=2 with "
            "shard='full' or 'grads'"
        )


def _seats(layout: Layout) -> Seats:
    names = [each.name for each in in_mesh()]
    at = names.index("data")
    alone = layout.with_data(1)
    splits = {each.name for each in in_mesh() if each.splits_samples}
    heads = []
    for place in range(alone.size):
        mine = {name: number if name in splits else 0 for name, number in alone.coordinates(place).items()}
        heads.append(next(each for each in range(alone.size) if alone.coordinates(each) == mine))
    return Seats(layout.degree(*names[:at]), layout.degree(*names[at + 1 :]), tuple(heads), str(layout))


_MICROBATCHES = "microbatches"  # of pipelines, among what a session keeps


def divide_into(microbatches: int) -> None:
    """Deal samples so that each worker can divide its batch into micro-batches, for any number of replicas."""
    kept = session().kept
    kept[_MICROBATCHES] = lcm(kept.get(_MICROBATCHES, 1), microbatches)


def samples_together() -> int:
    """Return how many neighboring samples of a batch stay on one worker."""
    found: int = session().kept.get(_MICROBATCHES, 1)
    return found


class Sharers:
    """The workers among whom the samples are divided, as `ShardedDataset` sees them: they change in an elastic job."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @property
    def world(self) -> World:
        """The place of this worker among them."""
        layout = self._layout
        return replaced_share(session().world, layout.batch_rank, layout.batch_size, layout.initial_batch_size)


class LayoutGroup(Group):
    """The workers along some dimensions of a layout in an elastic job: those of the current generation.

    When some of them are lost while a batch is trained, calls have no result any more until the step, which drops the
    batch: values are left as they are. The same holds in a worker that waits to join. Elsewhere, for example while
    files are written, the call is repeated among those that go on.
    """

    def __init__(self, layout: Layout, names: Sequence[str], title: str, only: Sequence[int] | None = None) -> None:
        """`only` selects some of these workers, by their positions."""
        opened = session()
        generations = opened.generations
        assert generations is not None
        number, degree = opened.world.number, layout.degree(*names)
        self._size = degree if only is None else len(only)

        def choose(now: Generation) -> dict[int, int]:
            places = now.places
            if number not in places or now.seats.places == 1 < layout.with_data(1).size:
                return {number: places.get(number, opened.world.node)}
            current = layout.with_data(len(now.members) // now.seats.places)
            ranks = current.peers_of(current.coordinates(now.members.index(number)), *names)
            kept = ranks if only is None else [ranks[place] for place in only]
            return {now.members[rank]: now.nodes[rank] for rank in kept}

        super().__init__(
            opened.world, opened.store, choose(generations.current), title, generations=generations, choose=choose
        )

    def _or(self, call: Callable[[], Result], otherwise: Callable[[], Result], *kept: torch.Tensor) -> Result:
        """Return the result of a call, or that of `otherwise` if there is none. A repeated call changes `kept` anew."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        steps = transaction()
        if steps.is_updating:
            raise MXNetError(
                "the update of the weights needs values of other workers of the layout (norms of whole layers, or "
                "float16 loss scaling), which an elastic job does not support. Use another optimizer, such as sgd or "
                "adam, or start the job without --elastic"
            )
        before = [] if steps.is_training else [tensor.detach().clone() for tensor in kept]
        while not steps.is_adrift:
            try:
                return call()
            except PeerError as error:
                steps.interrupt(error)
                for tensor, values in zip(kept, before, strict=False):
                    tensor.data.copy_(values)
        return otherwise()

    def all_reduce_(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        return self._or(lambda: Group.all_reduce_(self, tensor, op, what), lambda: tensor, tensor)

    def broadcast_(self, tensor: torch.Tensor, root: int = 0, what: str = "") -> torch.Tensor:
        return self._or(lambda: Group.broadcast_(self, tensor, root, what), lambda: tensor, tensor)

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        return self._or(lambda: Group.all_gather(self, tensor, what), lambda: [tensor.clone()] * self._size)

    def all_gather_into(self, out: torch.Tensor, tensor: torch.Tensor, what: str = "") -> None:
        def fill() -> None:
            out.view(self._size, -1).copy_(tensor.reshape(1, -1).expand(self._size, -1))

        self._or(lambda: Group.all_gather_into(self, out, tensor, what), fill)

    def all_gather_small(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        return self._or(lambda: Group.all_gather_small(self, tensor, what), lambda: torch.stack([tensor] * self._size))

    def reduce_scatter_into(self, out: torch.Tensor, tensor: torch.Tensor, op: str = "sum", what: str = "") -> None:
        def fill() -> None:
            out.view(-1).copy_(tensor.reshape(-1)[: out.numel()])

        self._or(lambda: Group.reduce_scatter_into(self, out, tensor, op, what), fill, tensor)

    def all_to_all(
        self, tensor: torch.Tensor, splits: Sequence[int] | None = None, what: str = ""
    ) -> tuple[torch.Tensor, list[int]]:
        return self._or(
            lambda: Group.all_to_all(self, tensor, splits, what),
            lambda: (tensor, [len(tensor) // self._size] * self._size if splits is None else list(splits)),
        )

    def barrier(self, what: str = "") -> None:
        self._or(lambda: Group.barrier(self, what), lambda: None)

    def start_send(self, tensor: torch.Tensor, to: int, tag: int = 0, what: str = "") -> Callable[[], None]:
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        finish = self._or(lambda: Group.start_send(self, tensor, to, tag, what), lambda: nothing)
        return lambda: self._or(finish, nothing)

    def start_recv(self, tensor: torch.Tensor, from_: int, tag: int = 0, what: str = "") -> Callable[[], torch.Tensor]:
        finish = self._or(lambda: Group.start_recv(self, tensor, from_, tag, what), lambda: tensor.detach().zero_)
        return lambda: self._or(finish, lambda: tensor.detach().zero_())
