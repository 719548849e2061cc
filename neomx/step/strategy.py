"""The seam between backward and update: what every strategy does in the life of a training step.

    bind                   the parameters are known
    ready(i)    backward   the gradient of parameter i is complete
    step        step       exchange what is left, agree on the divisor, update
    shadow                 another worker steps, and this one has no data
    state, load_state      what a checkpoint must keep
    close

A strategy of one's own derives from one of those in this package and overrides some of these.
"""

from __future__ import annotations

import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from ..base import MXNetError
from ..comm.alike import check_alike
from ..comm.compress import Compressor
from ..comm.group import Group
from ..comm.rounds import Round, Rounds
from ..optimizer import Optimizer
from .trained import Trained, Training

if TYPE_CHECKING:
    from ..kvstore import KVStoreBase

_log = logging.getLogger("neomx")


class StepStrategy(ABC):
    """How the gradients of a step meet those of other devices and workers, and who updates."""

    splits = True  # whether `reduce` and `update` may be called by themselves
    holds = False  # whether gradients stay here until `step`, because more will be added to them
    workers = 1  # whose gradients are summed in a step
    exchanges = True  # whether it reaches other workers, if there are any
    store: KVStoreBase | None = None  # the key-value store that it goes through, if it does
    compressor: Compressor | None = None  # what makes gradients small for the way

    def __init__(self) -> None:
        self._training: Training | None = None
        self._trained: Trained | None = None
        self._rounds: Rounds | None = None  # in which it steps with other workers
        self._number = 0  # in these rounds
        self._named: set[str] = set()  # parameters of which `name_lacking` has told
        self._multipliers: tuple[list[float], list[float]] | None = None
        self._by_parameter: dict[str, object] = {}  # these multipliers by what they are called in errors

    # ---- parameters ----

    @property
    def training(self) -> Training:
        """Who trains by this strategy."""
        if self._training is None:
            raise MXNetError(f"{type(self).__name__} belongs to no Trainer or Module yet: pass it as kvstore=")
        return self._training

    @property
    def trained(self) -> Trained:
        """The parameters of the current step."""
        if self._trained is None:
            self.follow()
        assert self._trained is not None
        return self._trained

    @property
    def has_begun(self) -> bool:
        """Whether it has prepared for parameters."""
        return self._trained is not None

    def bind(self, training: Training) -> None:
        """Be the strategy of this Trainer or Module, and of no other."""
        if self._training is not None and self._training is not training:
            raise MXNetError(
                f"this {type(self).__name__} belongs to another Trainer or Module already. Make one for each"
            )
        self._training = training

    def serve_while_lives(self, owner: object) -> None:
        """Let go of everything when the program has dropped this Trainer or Module."""
        weakref.finalize(owner, self.let_go).atexit = False

    def let_go(self) -> None:
        """The program has dropped the Trainer or Module that stepped by this strategy.

        One that steps with other workers stays until all have dropped theirs: it may have to take part in their steps.
        """
        if self._rounds is None:
            self.close()
        else:
            self._rounds.release(self._number)

    def enter(self, rounds: Rounds, members: Group) -> Group:
        """Step in these rounds from now on; a group of the same workers for this strategy's messages alone.

        All workers call it in the same order for their strategies.
        """
        self._rounds, self._number = rounds, rounds.enter(self)
        group = members.clone(f"gradients {self._number}")
        check_alike(group, [f"the strategy {type(self).__qualname__}"], "how gradients are exchanged")
        rounds.forget(group)
        return group

    def follow(self) -> None:
        """Take notice if the program has changed what it trains; workers that step together do so together."""
        trained = self.training.trained()
        if trained is not self._trained:
            if self._rounds is not None:
                self._rounds.prepare(self._number, self._described(trained))
            self._take(trained)

    def _take(self, trained: Trained) -> None:
        if self._trained is not None:
            self._trained.unwatch()
        self._trained, self._multipliers = trained, None
        self.prepare()

    def _described(self, trained: Trained) -> dict[str, object]:
        """What workers compare before they prepare: which parameters they train, and how gradients travel."""
        found: dict[str, object] = {"compression": self._compression()}
        for i, (name, weight) in enumerate(zip(trained.names, trained.weights[0], strict=True)):
            stype = "row_sparse" if i in trained.sparse else "dense"
            found[f"the gradient of {name}"] = f"{stype} {tuple(weight.shape)} {str(weight._data.dtype)[6:]}"
        return found

    def _compression(self) -> dict[str, object] | None:
        compressor = self.compressor
        return None if compressor is None else compressor.params

    def compared(self) -> tuple[dict[str, object], dict[str, object]]:
        """What must be the same on all workers in each step: of the whole, and, the same object while nothing changes,
        of each parameter.
        """
        settings = self.training.optimizer.settings()
        if self.compressor is not None:
            settings["compression"] = self._compression()
        multipliers = self.training.optimizer.multipliers(self.trained.keys)
        if multipliers != self._multipliers:
            self._multipliers = multipliers
            self._by_parameter = {
                f"{kind} of {name}": float(factor)
                for kind, factors in zip(("lr_mult", "wd_mult"), multipliers, strict=True)
                for name, factor in zip(self.trained.names, factors, strict=True)
            }
        return settings, self._by_parameter

    def prepare(self) -> None:  # noqa: B027
        """Make ready for new parameters: they are in `trained`."""

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:  # noqa: B027
        """Give all workers the first one's values of these tensors, which have just been initialised."""

    def parameter_was_set(self) -> None:  # noqa: B027
        """The program has written other values into a parameter: a store that holds weights must take them over."""

    # ---- a step ----

    def ready(self, i: int) -> None:  # noqa: B027
        """Backward has completed the gradient of parameter i, which is dense or row-sparse, on the only context."""

    @abstractmethod
    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Exchange gradients, agree with all workers on what to divide them by, and update."""

    @abstractmethod
    def reduce(self) -> None:
        """The first half of a step: put the sums over all in place of gradients."""

    @abstractmethod
    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """The second half: update by gradients that have been summed."""

    # ---- workers without data ----

    def await_others(self) -> None:  # noqa: B027
        """Wait for workers that still have data, and take part in their steps meanwhile."""

    def prepare_along(self) -> None:
        """Other workers prepare for new parameters, before their next step: do the same."""
        self._take(self.training.trained())

    def shadow(self, round: Round) -> None:
        """Take part in the others' step without data of one's own."""
        raise NotImplementedError(f"{type(self).__name__} makes no steps with other workers")

    def take_over(self, source: int) -> None:
        """Take the weights and states that the worker `source` has, after steps without data."""
        raise NotImplementedError(f"{type(self).__name__} makes no steps with other workers")

    def has_sent(self) -> bool:
        """Whether gradients of a step that has not come yet have left."""
        return False

    def checksums(self) -> dict[str, int]:
        """A number for the values of each parameter, by name: workers compare them at the end of a program."""
        if self._trained is None:
            return {}
        pairs = zip(self._trained.names, self._trained.weights[0], strict=True)
        return {name: _checksum(weight._data.detach()) for name, weight in pairs}

    # ---- states ----

    def save_states(self, fname: str, dump_optimizer: bool) -> bool:
        """Write the optimizer's states to a file if they are not with the updaters; else return False."""
        return False

    def load_states(self, fname: str) -> bool:
        """Read the optimizer's states from a file if they do not belong to the updaters; else return False."""
        return False

    def state(self) -> dict[str, torch.Tensor]:
        """What the strategy itself must not lose in a restart, beside weights and the optimizer's states."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from such a state."""
        if state:
            raise MXNetError(f"{type(self).__name__} keeps no state, received {', '.join(state)}")

    def close(self) -> None:
        """Let go of hooks, threads and connections."""
        if self._trained is not None:
            self._trained.unwatch()
            self._trained = None

    # ---- for subclasses ----

    def watch(self, places: Iterable[int]) -> None:
        """Have `ready` called in backward for each of these parameters, but not while the strategy `holds`."""
        self.trained.watch(places, self._pass_on)

    def _pass_on(self, i: int) -> None:
        if not self.holds:
            with torch.no_grad():
                self.ready(i)

    def name_lacking(self, made: Iterable[int], stale: Sequence[bool], rank: int) -> None:
        """Log, once each, which gradients other workers made in this step and this worker, `rank`, did not."""
        known = set(made)
        names = [self.trained.names[i] for i, each in enumerate(stale) if not each and i not in known]
        lacking = [name for name in names if name not in self._named]
        self._named.update(lacking)
        if lacking:
            _log.warning(
                "worker %d made no gradient for %s in this step, but other workers did: it counts as zero here. This "
                "is logged once for each parameter",
                rank,
                ", ".join(lacking),
            )

    def find_stale(self, ignore_stale: bool) -> list[set[int]]:
        """The parameters without a new gradient, by context; they are refused unless ignored."""
        trained = self.trained
        contexts = range(len(trained.weights))
        stale = [{i for i in range(len(trained)) if not trained.is_fresh(i, k)} for k in contexts]
        for k, found in enumerate(stale):
            if found and not ignore_stale:
                self.training.refuse_stale(min(found), k)
        return stale

    def refuse_partly_stale(self, made: Iterable[int]) -> None:
        """Raise if a parameter has a new gradient on some contexts of this worker only."""
        places = list(made)
        for k in range(len(self.trained.weights)):
            for i in places:
                if not self.trained.is_fresh(i, k):
                    self.training.refuse_stale(i, k)

    def update_each(self, divisor: float, ignore_stale: bool) -> None:
        """Update every replica by its own gradient, those with a new one."""
        self.training.rescale(divisor)
        trained = self.trained
        contexts = range(len(trained.weights))
        places = range(len(trained))
        fresh = (trained.gradients[k][i] for k in contexts for i in places if trained.is_fresh(i, k))
        if self.training.overflowed(fresh):
            trained.use_all()
            return
        stale = self.find_stale(ignore_stale)
        self.training.update_apart([[i for i in places if i not in stale[k]] for k in contexts])


def _checksum(values: torch.Tensor) -> int:
    """The sum of a tensor's bits, as numbers of 32 or fewer."""
    width = {1: torch.uint8, 2: torch.int16}.get(values.element_size(), torch.int32)
    return int(values.contiguous().view(-1).view(width).sum(dtype=torch.int64)) if values.numel() else 0


class OptimizerWithStrategy(ABC):
    """An optimizer that says itself how gradients meet, as Horovod's does; a Module then steps by that strategy."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """Among how many workers it exchanges gradients."""

    @abstractmethod
    def own_strategy(self) -> tuple[StepStrategy, Optimizer] | None:
        """The strategy, and the optimizer for its updates; None if the optimizer's own updates exchange gradients."""
