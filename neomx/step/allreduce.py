"""All-reduce: every worker receives the sum of all gradients and updates its own copy of the weights.

The path of a gradient:

    ready -> bucket -> encode -> sum -> decode -> update

`ready` is called during backward. A full bucket is sent immediately by a separate thread (`comm.buckets`). `reducer`
chooses how a bucket is summed: through shared memory within a host and over the network between hosts, or encoded by a
compressor. A bucket may be updated while later ones are still in flight. Subclasses can override each part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from .. import events
from ..comm.alike import check_alike, described
from ..comm.buckets import Buckets, Reducer, RowGradient, Span
from ..comm.compress import Compressor
from ..comm.group import Group
from ..comm.rounds import Round, Rounds
from ..comm.session import session
from ..comm.transaction import transaction
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from .strategy import StepStrategy
from .trained import Training, sum_rows

_MEASURED = 2  # number of rounds after which the order in which gradients become ready is known


class AllReduce(StepStrategy):
    """Sum gradients over all workers of the job, or of `group`; `rounds` synchronizes their steps.

    `compressor` reduces the size of gradients in transit; see `comm.compress`. With `shows_sums`, a step replaces the
    gradients with the sums, so that the program can read them.
    """

    survives = can_follow = True

    def __init__(
        self,
        group: Group | None = None,
        rounds: Rounds | None = None,
        compressor: Compressor | None = None,
        shows_sums: bool = False,
    ) -> None:
        super().__init__()
        if compressor is not None and not isinstance(compressor, Compressor):
            raise TypeError(
                f"compressor= expects an object of a class derived from mx.step.Compressor, received {compressor!r:.80}"
            )
        self._members, self._rounds, self.compressor, self.shows_sums = group, rounds, compressor, shows_sums
        self._group: Group | None = None  # used only for messages of this strategy
        self._side: Group | None = None  # used only by the bucket thread
        self._buckets: Buckets | None = None
        self._since_prepared = 0
        self._known_order: tuple[list[int], list[int]] | None = (
            None  # measured by the workers that others join; late ones
        )
        self._summed: _Summed | None = None  # the step whose sums have arrived and are not applied yet
        self._dropped = False  # whether `reduce` was dropped, so that `update` must be too
        self._encoded: set[int | str] = set()  # keys whose gradients were encoded in the current step
        self.sums: list[NDArray] = []  # valid until the next backward

    # ---- among the workers ----

    def bind(self, training: Training) -> None:
        """Join the group of workers that step together."""
        super().bind(training)
        if self._group is None:
            self.join()

    def join(self) -> None:
        """Enter the rounds of the workers that step together. All workers create their strategies in the same order."""
        self._members = self._members or session().group
        self._group = self.enter(self._rounds or session().rounds, self._members)

    @property
    def group(self) -> Group:
        """The workers whose gradients are summed."""
        if self._group is None:
            self.join()
        assert self._group is not None
        return self._group

    @property
    def workers(self) -> int:  # type: ignore[override]
        """The number of workers whose gradients are summed in a step."""
        return (self._members or session().group).size

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Broadcast the values of these tensors from the first worker."""
        self._members = self._members or session().group
        check_alike(self._members, described(names, tensors), "a model")
        self._members.broadcast_all_(list(tensors))

    def await_others(self) -> None:
        """Wait for workers that still have data, and join their steps in the meantime."""
        if self._rounds is not None:
            self._rounds.end_epoch()

    def take_over(self, source: int) -> None:
        """Copy the weights and optimizer states from the worker `source`."""
        give_over(self.training, self.group, source)

    # ---- a step ----

    def ready(self, i: int) -> None:
        """Pack a complete gradient into its bucket, which is sent when it is full."""
        self.buckets.stage(i)

    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Sum over all workers, divide by the agreed divisor, and update."""
        self._run(lambda: self._exchange(divisor, ignore_stale=ignore_stale, updates=True), self._apply)

    def reduce(self) -> None:
        """Replace gradients with their sums over all workers."""

        def attempt() -> float:
            return self._exchange(float("nan"))  # `update` supplies the divisor

        self._dropped = not transaction().run(attempt, self._show, ends_step=False)

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update with gradients that `reduce` has summed."""
        self.follow()
        if self._dropped:
            self._dropped = False
            self.trained.use_all()
        else:
            self._run(lambda: self.agree(divisor), lambda agreed: self.update_each(agreed, ignore_stale))

    def _run(self, attempt: Callable[[], float], apply: Callable[[float], None]) -> None:
        """Make a step, unless a worker is lost in it."""
        if transaction().run(attempt, apply):
            self._encoded.clear()
        else:
            self.trained.use_all()

    def _show(self, divisor: float) -> None:
        """Replace the gradients with the sums."""
        assert self._summed is not None
        self.trained.put(self.sums, self._summed.stale)

    def agree(self, divisor: float) -> float:
        """The divisor that all workers agree on, for gradients that are already summed."""
        assert self._rounds is not None
        said = self.training.samples(divisor)
        round = self._rounds.step(self._number, divisor, said, reduces=False, compared=self.compared())
        return self.divisor_of(round)

    def _exchange(self, divisor: float, ignore_stale: bool = True, updates: bool = False) -> float:
        """Sum this round's gradients, for `_apply` or `_show`, and return the divisor."""
        began = time.perf_counter()
        self.follow()
        made = self.trained.fresh()
        if not ignore_stale:
            self.refuse_partly_stale(made)
        spoiled = self.buckets.send_rest(set(made))
        round = self.begin_round(divisor, bool(spoiled) or len(made) < len(self.trained))
        agreed = time.perf_counter()
        again, stale = self._flags(round, spoiled, made)
        self.name_lacking(made, stale, self.group.rank)
        early = updates and self.updates_early and (ignore_stale or not any(stale))
        self._summed = _Summed(stale, ignore_stale, is_applied=early)
        if early:
            self.training.rescale(self.divisor_of(round))
            last = [i for number in again for i in self.buckets.members(number)]
            self._update_early(set(again), stale)
            self._settle(round, again, made, stale)
            self._finish([i for i in last if not stale[i]], stale)
        else:
            self._settle(round, again, made, stale)
        events.emit("reduce", waiting=agreed - began, seconds=time.perf_counter() - began, samples=round.all_samples)
        return self.divisor_of(round)

    def _apply(self, divisor: float) -> None:
        """Update with the sums of `_exchange`, unless it has done so."""
        summed, self._summed = self._summed, None
        assert summed is not None
        if not summed.is_applied:
            self.training.rescale(divisor)
            self._update_all(summed.stale, summed.ignores_stale)

    def begin_round(self, divisor: float, wants_flags: bool) -> Round:
        """Collect the announcements that all workers make before a step."""
        assert self._rounds is not None
        said = self.training.samples(divisor)
        return self._rounds.step(self._number, divisor, said, wants_flags=wants_flags, compared=self.compared())

    def divisor_of(self, round: Round) -> float:
        """The divisor that all workers use in this round."""
        return round.divisor

    def shadow(self, round: Round) -> None:
        """Join a step of the other workers with gradients of zero."""

        def attempt() -> float:
            if round.reduces:
                again, stale = self._flags(round, self.buckets.send_rest(()), [])
                self._settle(round, again, [], stale)
                self._summed = _Summed(stale, ignores_stale=True)
            return self.divisor_of(round)

        # Workers with data may be lost after the step. If the program does not change the sums, this one updates too.
        updates = transaction().survives and round.is_whole
        transaction().run(attempt, self._apply if updates else lambda _: None, ends_step=not round.has_second_half)
        if not round.has_second_half:
            self._encoded.clear()

    def has_sent(self) -> bool:
        """Whether gradients have been sent for a step that has not happened yet."""
        return self._buckets is not None and self._buckets.has_sent()

    # ---- updating ----

    @property
    def updates_early(self) -> bool:
        """Whether a bucket is updated while later ones are still in flight.

        This gains nothing on a single host. If a worker is lost during such a step, some parameters are updated and
        others are not, so a strategy that continues without the lost worker must return False.
        """
        several_hosts = len(set(self.group.hosts)) > 1 and not transaction().survives
        return several_hosts and not self.training.looks_at_all and self.training.optimizer.updates_apart

    def _update_early(self, again: set[int], stale: list[bool]) -> None:
        """Update each bucket as its sum arrives, except buckets that must be sent again."""
        for numbers in self.buckets.arrivals():
            places = [i for n in numbers if n not in again for i in self.buckets.members(n) if not stale[i]]
            self._take_rows(places)
            self._apply_sums(places)

    def _update_all(self, stale: list[bool], ignore_stale: bool) -> None:
        kept = [i for i, each in enumerate(stale) if not each]
        if self.training.overflowed(self.sums[i] for i in kept):
            self.trained.use_all()
            return
        if any(stale) and not ignore_stale:
            self.training.refuse_stale(stale.index(True), 0)
        self._finish(kept, stale)

    def _finish(self, places: Sequence[int], stale: list[bool]) -> None:
        """Perform the last update of a step."""
        if self.shows_sums:
            self.trained.put(self.sums, stale)
        self._apply_sums(places, shown=self.shows_sums)
        self.trained.use_all()

    def apply(self, places: Sequence[int], gradients: Sequence[NDArray]) -> None:
        """Update these parameters with these gradients. May be called once per bucket; see `updates_early`.

        An override may modify `gradients` in place. Workers of one host share the sums, so it receives copies, or the
        parameters' own gradients with `shows_sums`.
        """
        self.training.update(places, gradients)

    def _apply_sums(self, places: Iterable[int], shown: bool = False) -> None:
        """Apply the sums. If `shown`, they have already replaced the dense gradients."""
        ordered = sorted(places)
        overridden = type(self).apply is not AllReduce.apply
        gradients = []
        for i in ordered:
            if shown and i not in self.trained.sparse:
                gradients.append(self.trained.gradients[0][i])
            else:
                gradients.append(self.sums[i].copy() if overridden else self.sums[i])
        if ordered:
            self.apply(ordered, gradients)

    # ---- sums ----

    @property
    def buckets(self) -> Buckets:
        """The buckets of the current parameters."""
        if self._buckets is None:
            self.follow()
        assert self._buckets is not None
        return self._buckets

    def prepare(self) -> None:
        """Pack the new parameters in reverse order: backward reaches the end of a model first."""
        known, self._known_order = self._known_order, None
        if known is not None:
            self._pack(*known)
            self._since_prepared = _MEASURED
            return
        self._pack([i for i in reversed(range(len(self.trained))) if i not in self.summed_before()], self.trained.late)
        self._since_prepared = 0

    def summed_before(self) -> set[int]:
        """The parameters whose gradients are already summed over all workers when backward ends."""
        return set()

    def reducer(self, spans: Sequence[Span], size: int, like: torch.Tensor) -> Reducer:
        """The reducer for a bucket of `size` elements, in which each parameter occupies a span."""
        if self.compressor is None:
            return self.group.staging(size, like.dtype, like.device)
        keys = [self.trained.keys[span.member] for span in spans]
        return Encoded(self.compressor, keys, spans, self.side, size, like, self._encoded)

    def sum_rows(self, rows: RowGradient, what: str) -> RowGradient:
        """Sum row-sparse gradients by gathering the rows of every worker."""
        values, numbers = (self.side.all_gather(part.contiguous(), what=what) for part in rows)
        return sum_rows(values, numbers)

    @property
    def side(self) -> Group:
        """A group of the same workers for calls made by the bucket thread."""
        assert self._side is not None
        return self._side

    def _pack(self, order: Sequence[int], late: Iterable[int]) -> None:
        if self._buckets is not None:
            self._buckets.close()
            self._buckets = None
        trained = self.trained
        needs_side = self.compressor is not None or any(i in trained.sparse for i in order)
        if needs_side and self._side is None:
            self._side = self.group.clone("beside")
        leaves = [weight._data for weight in trained.weights[0]]
        self._buckets = buckets = Buckets(
            leaves,
            trained.names,
            order,
            late,
            trained.sparse,
            trained.any_gradient,
            trained.stamp,
            self.reducer,
            self.sum_rows,
        )
        self.sums = [
            NDArray(buckets.sums[i], weight._ctx) if i in buckets.sums else gradient
            for i, (weight, gradient) in enumerate(zip(trained.weights[0], trained.gradients[0], strict=True))
        ]
        self.watch([i for i in order if i not in buckets.late])

    def _flags(self, round: Round, spoiled: set[int], made: list[int]) -> tuple[list[int], list[bool]]:
        """The buckets that must be sent again, and for each parameter whether no worker has a gradient."""
        count = len(self.trained)
        if not round.wants_flags:
            return [], [False] * count
        buckets = len(self.buckets)
        mine = torch.zeros(buckets + count, dtype=torch.uint8)
        mine[sorted(spoiled)] = 1
        mine[[buckets + i for i in made]] = 1
        said = self.group.all_gather_small(mine).amax(0).tolist()
        return [number for number in range(buckets) if said[number]], [not each for each in said[buckets:]]

    def _settle(self, round: Round, again: list[int], made: list[int], stale: list[bool]) -> None:
        """Wait for all sums, and send again the gradients that changed after they were sent."""
        buckets = self.buckets
        buckets.wait()
        if again:
            self._take_back(i for number in again for i in buckets.members(number))
            buckets.send_again(again, set(made))
        self._take_back(i for i in buckets.order if stale[i])  # no worker uses what was sent for these
        self._take_rows([i for i in range(len(self.trained)) if i in self.trained.sparse])
        readiness = buckets.readiness
        buckets.end_round()
        self._since_prepared += 1
        if again or self._since_prepared == _MEASURED:
            self._pack_anew(round.active[0], readiness)

    def _take_back(self, places: Iterable[int]) -> None:
        """Undo the compressor's changes for these gradients."""
        if self.compressor is not None:
            for i in places:
                if i not in self.trained.sparse:
                    self.compressor.take_back(self.trained.keys[i])
                    self._encoded.discard(self.trained.keys[i])

    def _take_rows(self, places: Iterable[int]) -> None:
        """Convert the summed rows to arrays."""
        packed = set(self.buckets.order)
        for i in places:
            if i in self.trained.sparse and i in packed:
                weight = self.trained.weights[0][i]
                self.sums[i] = RowSparseNDArray(self.buckets.rows(i), weight.shape, weight.context)

    def _pack_anew(self, source: int, readiness: list[int]) -> None:
        """Rebuild the buckets in the order in which `source` saw gradients become ready; late ones are separate."""
        seen = list(dict.fromkeys(readiness))
        order = torch.tensor([*seen, *(i for i in self.buckets.order if i not in set(seen))])
        if len(order):
            self.group.broadcast_(order, source)
        sums = self.sums  # this round's sums have not been read yet
        self._pack(order.tolist(), self.buckets.late)
        for i, old in enumerate(sums):
            if i in self.trained.sparse:
                self.sums[i] = old
            elif old is not self.sums[i]:
                old.copyto(self.sums[i])

    def prepare_again(self) -> None:
        """Prepare for the parameters with the workers of a new generation, in the order that the first has measured."""
        trained = self.training.trained()
        count = len(trained)
        told = torch.full((2 * count + 1,), -1)
        if self._buckets is not None and self._trained is trained:
            order, late = self._buckets.order, sorted(self._buckets.late)
            told[0], told[1 : 1 + len(order)] = self._since_prepared, torch.tensor(order)
            told[1 + count : 1 + count + len(late)] = torch.tensor(late)
        self.group.broadcast_(told, 0, "the order of gradients")
        rounds, *numbers = told.tolist()
        known = [[i for i in part if i >= 0] for part in (numbers[:count], numbers[count:])]
        self._known_order = (known[0], known[1]) if rounds >= _MEASURED else None
        super().prepare_again()

    def go_on(self) -> None:
        """Go on with the same workers in a new generation."""
        for group in (self._group, self._side):
            if group is not None:
                group.refresh()

    @property
    def staged_bytes(self) -> int:
        """The bytes of the gradients that are summed in shared memory, if their workers have it."""
        if self.compressor is not None:
            return 0
        trained = self.training.trained()
        dense = [weight._data for i, weight in enumerate(trained.weights[0]) if i not in trained.sparse]
        return sum(each.nbytes for each in dense if each.device.type == "cpu")

    def state(self) -> dict[str, torch.Tensor]:
        """The residuals that the compressor holds."""
        return {} if self.compressor is None else self.compressor.state()

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Restore the residuals of the compressor."""
        if self.compressor is None:
            super().load_state(state)
        else:
            self.compressor.load_state(state)

    def halt(self) -> None:
        """Wait until nothing is being sent any more, after the loss of a worker."""
        if self._buckets is not None:
            self._buckets.halt()

    def drop_step(self) -> None:
        """Forget what the current step has changed in the compressor."""
        self._take_back([i for i, key in enumerate(self.trained.keys) if key in self._encoded])

    def close(self) -> None:
        """Stop the bucket thread."""
        super().close()
        if self._buckets is not None:
            self._buckets.close()
            self._buckets = None


@dataclass(frozen=True)
class _Summed:
    """A step whose sums have arrived: `stale` parameters have no gradient on any worker."""

    stale: list[bool]
    ignores_stale: bool
    is_applied: bool = False


class Encoded:
    """The buffer of a bucket whose gradients are sent encoded."""

    def __init__(
        self,
        compressor: Compressor,
        keys: Sequence[int | str],
        spans: Sequence[Span],
        group: Group,
        size: int,
        like: torch.Tensor,
        encoded: set[int | str],
    ) -> None:
        """`encoded` receives the keys whose gradients were encoded."""
        self.local, self.result = (torch.zeros(size, dtype=like.dtype, device=like.device) for _ in range(2))
        self._compressor, self._keys, self._group = compressor, list(keys), group
        self._encoded = encoded
        self._sent = [self.local[span.start : span.start + span.count] for span in spans]
        self._sums = [self.result[span.start : span.start + span.count] for span in spans]

    def reduce(self, what: str) -> None:
        """Encode, send to all workers, decode and sum."""
        self._encoded.update(self._keys)
        with torch.no_grad():
            self._compressor.sum_(self._keys, self._sent, self._sums, self._group, what)


def give_over(training: Training, group: Group, source: int) -> None:
    """Broadcast the weights, optimizer states and loss scale of the worker `source` to a group."""
    group.broadcast_all_(training.everything(), source)
    states = training.updater().get_states(dump_optimizer=True) if group.rank == source else b""
    size = torch.tensor([len(states)])
    group.broadcast_(size, source)
    content = torch.zeros(int(size), dtype=torch.uint8)
    if states:
        content.copy_(torch.frombuffer(bytearray(states), dtype=torch.uint8))
    group.broadcast_(content, source)
    if group.rank != source:
        training.take_states(content.numpy().tobytes())
    training.take_over_scale(lambda numbers: group.broadcast_(numbers, source))
