"""The interface between backward and update: the methods that a training step calls on its strategy.

    bind                   the parameters are known
    ready(i)    backward   the gradient of parameter i is complete
    step        step       exchange the remaining gradients, agree on the divisor, update
    shadow                 other workers step while this one has no data
    state, load_state      what a checkpoint must save
    close

A user-defined strategy derives from one in this package and overrides some of these methods.
"""

from __future__ import annotations

import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..base import MXNetError
from ..comm.alike import check_alike
from ..comm.compress import Compressor
from ..comm.group import Group
from ..comm.rounds import Round, Rounds
from ..comm.transaction import transaction
from ..ndarray import NDArray
from ..optimizer import Optimizer
from .trained import Key, Trained, Training

if TYPE_CHECKING:
    from ..kvstore import KVStoreBase

_log = logging.getLogger("neomx")


class StepStrategy(ABC):
    """How the gradients of a step are combined over devices and workers, and where the update runs."""

    splits = True  # whether `reduce` and `update` may be called separately
    holds = False  # whether gradients must not be sent before `step`, because more will be added to them
    keeps_states = False  # whether a store, not the updaters of the Trainer, holds the optimizer states
    workers = 1  # number of workers whose gradients are summed in a step
    survives = False  # whether it can go on with other workers (prepare_again), in an elastic job
    can_follow = False  # whether a worker without data updates its weights as the others do, in an elastic job
    exchanges = True  # whether it communicates with other workers, if there are any
    store: KVStoreBase | None = None  # the key-value store that it uses, if any
    compressor: Compressor | None = None  # reduces the size of gradients in transit

    def __init__(self) -> None:
        self._training: Training | None = None
        self._trained: Trained | None = None
        self._rounds: Rounds | None = None  # the rounds in which it steps with other workers
        self._number = 0  # its index in these rounds
        self._named: set[str] = set()  # parameters that `name_lacking` has logged
        self._multipliers: tuple[list[float], list[float]] | None = None
        self._by_parameter: dict[str, object] = {}  # the multipliers, keyed by the name that errors use

    # ---- parameters ----

    @property
    def training(self) -> Training:
        """The Trainer or Module that uses this strategy."""
        if self._training is None:
            raise MXNetError(f"{type(self).__name__} is not attached to a Trainer or Module. Pass it as kvstore=")
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
        """Whether `prepare` has been called."""
        return self._trained is not None

    def bind(self, training: Training) -> None:
        """Attach to a Trainer or Module. A strategy can be attached only once."""
        if self._training is not None and self._training is not training:
            raise MXNetError(
                f"this {type(self).__name__} is already attached to another Trainer or Module. Create one for each"
            )
        if transaction().survives and self.exchanges and not self.survives:
            raise MXNetError(
                f"{type(self).__name__} does not support elastic jobs, in which workers come and go. Use "
                "kvstore='dist_sync' without a layout, or start the job without --elastic"
            )
        self._training = training

    def serve_while_lives(self, owner: object) -> None:
        """Release all resources when `owner`, the Trainer or Module, is garbage-collected."""
        weakref.finalize(owner, self.let_go).atexit = False

    def let_go(self) -> None:
        """Release resources after the Trainer or Module is gone.

        A strategy that steps with other workers stays until all workers have released theirs, because it may have to
        join their steps.
        """
        if self._rounds is None:
            self.close()
        else:
            self._rounds.release(self._number)

    def enter(self, rounds: Rounds, members: Group) -> Group:
        """Step in these rounds from now on. Return a group of the same workers for messages of this strategy.

        All workers must call it in the same order for their strategies.
        """
        self._rounds, self._number = rounds, rounds.enter(self)
        check_alike(members, [f"the strategy {type(self).__qualname__}"], "how gradients are exchanged")
        rounds.forget(members)
        return members.clone(f"gradients {self._number}", with_followers=True)

    @property
    def rounds(self) -> Rounds | None:
        """The rounds in which it steps with other workers, or None."""
        return self._rounds

    @property
    def number(self) -> int:
        """The number of this strategy in its rounds."""
        return self._number

    def follow(self) -> None:
        """Update to the current set of trained parameters. Workers that step together call this together."""
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
        """What workers compare before `prepare`: their trained parameters and how gradients are sent."""
        found: dict[str, object] = {"compression": self._compression()}
        for i, (name, weight) in enumerate(zip(trained.names, trained.weights[0], strict=True)):
            stype = "row_sparse" if i in trained.sparse else "dense"
            found[f"the gradient of {name}"] = f"{stype} {tuple(weight.shape)} {str(weight._data.dtype)[6:]}"
        return found

    def _compression(self) -> dict[str, object] | None:
        compressor = self.compressor
        return None if compressor is None else compressor.params

    def compared(self) -> tuple[dict[str, object], dict[str, object]]:
        """The settings that must be equal on all workers in each step: global ones, and those of each parameter.

        The second dictionary is the same object while nothing changes.
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
        """Prepare for new parameters, which are in `trained`."""

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:  # noqa: B027
        """Broadcast the values of these newly initialized tensors from the first worker."""

    def parameter_was_set(self) -> None:  # noqa: B027
        """Called when the program writes to a parameter. A store that holds weights must copy the new values."""

    # ---- a step ----

    def ready(self, i: int) -> None:  # noqa: B027
        """Called during backward when the gradient of parameter i, dense or row-sparse, is complete.

        Only called for parameters on a single context.
        """

    @abstractmethod
    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Exchange gradients, agree with all workers on the divisor, and update."""

    @abstractmethod
    def reduce(self) -> None:
        """Perform the first half of a step: replace gradients with their sums."""

    @abstractmethod
    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Perform the second half of a step: update with summed gradients."""

    # ---- workers without data ----

    def await_others(self) -> None:  # noqa: B027
        """Wait for workers that still have data, and join their steps in the meantime."""

    def prepare_along(self) -> None:
        """Prepare for new parameters together with the other workers, before their next step."""
        self._take(self.training.trained())

    def shadow(self, round: Round) -> None:
        """Join a step of the other workers without data."""
        raise NotImplementedError(f"{type(self).__name__} does not step with other workers")

    def take_over(self, source: int) -> None:
        """Copy the weights and states of the worker `source`, after steps without data."""
        raise NotImplementedError(f"{type(self).__name__} does not step with other workers")

    def has_sent(self) -> bool:
        """Whether gradients have been sent for a step that has not happened yet."""
        return False

    def checksums(self) -> dict[str, int]:
        """A checksum of each parameter, by name. Workers compare them at the end of a program."""
        if self._trained is None:
            return {}
        pairs = zip(self._trained.names, self._trained.weights[0], strict=True)
        return {name: _checksum(weight._data.detach()) for name, weight in pairs}

    # ---- states ----

    def save_states(self, fname: str, dump_optimizer: bool) -> bool:
        """Write the optimizer states to a file. Return False if the updaters hold them instead."""
        return False

    def load_states(self, fname: str) -> bool:
        """Read the optimizer states from a file. Return False if the updaters hold them instead."""
        return False

    def packed_states(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the optimizer and its states as JSON values and named arrays, for a checkpoint.

        Arrays of which this worker has only a part are Parts. All workers must call it.
        """
        return self.training.updater().packed()

    def take_packed_states(self, content: Any, arrays: Mapping[str, NDArray]) -> None:
        """Continue with what `packed_states` returned, of whole weights or of this worker's parts."""
        self.training.take_packed(content, arrays)

    def states_to_join(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return what a worker that joins an elastic job needs of the optimizer and its states."""
        return self.packed_states()

    def join_states(self, content: Any, arrays: Mapping[str, NDArray]) -> None:
        """Continue with what `states_to_join` of another worker returned."""
        self.weights_were_restored()
        self.take_packed_states(content, arrays)

    def parts(self) -> Mapping[Key, NDArray] | None:
        """Return the parts of weights that this worker updates, by key, or None if it updates whole weights."""
        return None

    def weights_were_restored(self) -> None:  # noqa: B027
        """Called after a checkpoint has replaced the weights. A store that holds weights must copy the new values."""

    def state(self) -> dict[str, torch.Tensor]:
        """The strategy's own state for a checkpoint, in addition to weights and optimizer states."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Restore a state that `state` returned."""
        if state:
            raise MXNetError(f"{type(self).__name__} has no state: expected an empty dict, received {', '.join(state)}")

    # ---- a new generation of workers ----

    @property
    def staged_bytes(self) -> int:
        """The bytes of the gradients that are summed in shared memory, if the workers have it."""
        return 0

    def halt(self) -> None:  # noqa: B027
        """Wait until nothing is being sent any more, after the loss of a worker."""

    def drop_step(self) -> None:  # noqa: B027
        """Forget what the current step has changed in this strategy: it was dropped on all workers."""

    def prepare_again(self) -> None:
        """Prepare for the parameters together with the workers of a new generation."""
        self._take(self.training.trained())

    def go_on(self) -> None:  # noqa: B027
        """Go on with the same workers in a new generation, in which those that followed are members."""

    def close(self) -> None:
        """Release hooks, threads and connections."""
        if self._trained is not None:
            self._trained.unwatch()
            self._trained = None

    # ---- for subclasses ----

    def watch(self, places: Iterable[int]) -> None:
        """Register these parameters for calls of `ready` during backward, except while the strategy `holds`."""
        self.trained.watch(places, self._pass_on)

    def _pass_on(self, i: int) -> None:
        if not self.holds:
            with torch.no_grad():
                self.ready(i)

    def name_lacking(self, made: Iterable[int], stale: Sequence[bool], rank: int) -> None:
        """Log, once per parameter, each gradient that other workers computed in this step and this worker did not."""
        known = set(made)
        names = [self.trained.names[i] for i, each in enumerate(stale) if not each and i not in known]
        lacking = [name for name in names if name not in self._named]
        self._named.update(lacking)
        if lacking:
            _log.warning(
                "worker %d computed no gradient for %s in this step, but other workers did; it counts as zero. This "
                "is logged once per parameter",
                rank,
                ", ".join(lacking),
            )

    def find_stale(self, ignore_stale: bool) -> list[set[int]]:
        """The parameters without a new gradient, by context. Raise if there are any, unless `ignore_stale`."""
        trained = self.trained
        contexts = range(len(trained.weights))
        stale = [{i for i in range(len(trained)) if not trained.is_fresh(i, k)} for k in contexts]
        for k, found in enumerate(stale):
            if found and not ignore_stale:
                self.training.refuse_stale(min(found), k)
        return stale

    def refuse_partly_stale(self, made: Iterable[int]) -> None:
        """Raise if a parameter has a new gradient on only some contexts of this worker."""
        places = list(made)
        for k in range(len(self.trained.weights)):
            for i in places:
                if not self.trained.is_fresh(i, k):
                    self.training.refuse_stale(i, k)

    def update_each(self, divisor: float, ignore_stale: bool) -> None:
        """Update every replica that has a new gradient with its own gradient."""
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
    """The sum of a tensor's bits, read as integers of at most 32 bits."""
    width = {1: torch.uint8, 2: torch.int16}.get(values.element_size(), torch.int32)
    return int(values.contiguous().view(-1).view(width).sum(dtype=torch.int64)) if values.numel() else 0


class OptimizerWithStrategy(ABC):
    """An optimizer that supplies its own strategy, as Horovod's does. A Module then steps with that strategy."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """The number of workers that exchange gradients."""

    @abstractmethod
    def own_strategy(self) -> tuple[StepStrategy, Optimizer] | None:
        """The strategy and the optimizer for its updates, or None if `update` itself exchanges gradients."""
