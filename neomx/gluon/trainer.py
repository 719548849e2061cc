"""Trainer: combines gradients over contexts and workers and applies an optimizer to Parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .. import optimizer as opt
from ..events import emit
from ..formats.atomic import replacing
from ..kvstore import KVStoreBase
from ..ndarray import NDArray
from ..process import state
from ..step import (
    Asked,
    OneDevice,
    StepStrategy,
    choose,
    refuse_beside_layout,
    refuse_second_exchange,
    take_own_strategy,
    trains_alone,
)
from .loading import holders_of
from .parameter import Parameter
from .parameter_dict import ParameterDict
from .private_names import TrainerNames
from .training import ParameterTraining, Scaler


class Trainer(TrainerNames):
    """Updates Parameters with an optimizer: call `trainer.step(batch_size)` after each backward.

    `kvstore` determines how gradients of several contexts and workers are combined: the name of a store, a store, or a
    strategy of `mx.step`. `mx.step.choose` documents the names.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ):
        self._params = _listed(params)
        self._contexts = self._check_contexts()
        self._asked = Asked(kvstore, update_on_kvstore, compression_params)
        refuse_second_exchange(self._asked, optimizer)
        if holders_of(self._params) is None:
            optimizer = take_own_strategy(self._asked, optimizer, len(self._contexts))
        self._training = ParameterTraining(self._params, self._contexts, _made(optimizer, optimizer_params or {}))
        self._strategy: StepStrategy | None = None
        self.expects_layout = False  # whether a layout will be applied before the first step
        self._alone = False  # whether the other workers of the job train separate models
        for param in self._params:
            param._set_trainer(self)
        self._open()
        emit("trainer", trainer=self)

    @property
    def training(self) -> ParameterTraining:
        """The optimizer and the Parameters as strategies see them."""
        return self._training

    @property
    def trains_contexts_apart(self) -> bool:
        """Whether the replicas on several contexts are updated independently."""
        return self._asked.kvstore is None and len(self._contexts) > 1

    def expect_layout(self) -> None:
        """Note that a layout will be applied to the Parameters before the first step."""
        self.expects_layout = True

    @property
    def parameters(self) -> list[Parameter]:
        """The Parameters, trained or not, in the order of their indices."""
        return self._params

    def _open(self) -> None:
        """Connect to the other workers, if gradients are combined with theirs, and start with the same values."""
        if holders_of(self._params) is not None:
            refuse_beside_layout(self._asked)
        else:
            if any(param.placement.joins_workers for param in self._params):
                self._asked.join_workers()
            self._asked.open()
        self.begin_alike([param for param in self._params if param._arrays is not None])
        if self._asked.steps_together:
            self._choose()  # now: a worker without any batches must take part in the steps of the others

    # ---- combining gradients ----

    @property
    def strategy(self) -> StepStrategy:
        """The strategy that combines gradients over contexts and workers. It is chosen at the first step."""
        if self._strategy is None:
            self._choose()
        assert self._strategy is not None
        return self._strategy

    def _choose(self) -> None:
        holders = holders_of(self._params)
        known = [param.list_data()[0].size for param in self._params if param._arrays is not None]
        layout = None if holders is None else holders.strategy
        self._strategy = choose(self._asked, len(self._contexts), max(known, default=0), layout)
        if holders is not None:
            self._training.agree = holders.any
        if type(self)._allreduce_grads is Trainer._allreduce_grads:
            self._alone = trains_alone(self._asked, self._strategy, self._training.optimizer)
        self._strategy.bind(self._training)
        self._strategy.serve_while_lives(self)

    def take_layout(self) -> None:
        """Choose the strategy again and shard the optimizer states, after a layout was applied."""
        self.expects_layout = False
        if self._strategy is not None:
            self._strategy.close()
            self._strategy = None
        for updater in self._training.updaters:
            updater.bring_again()

    def join_workers(self) -> None:
        """Combine gradients over all workers from now on, unless this Trainer already does."""
        if not self._asked.is_between_workers and holders_of(self._params) is None:
            self.take_layout()
            self._open()

    def begin_alike(self, params: list[Parameter]) -> None:
        """Broadcast the values of these parameters from the first worker to all workers."""
        if params:
            arrays = [(array._data, f"Parameter {param.name}") for param in params for array in param.list_data()]
            self._asked.begin_alike([tensor for tensor, _ in arrays], [name for _, name in arrays])

    def parameter_was_set(self) -> None:
        """Called when the program writes to a parameter. A store that updates weights must copy the new values."""
        if self._strategy is not None:
            self._strategy.parameter_was_set()

    def _check_contexts(self) -> list[Any]:
        contexts: list[Any] | None = None
        for param in self._params:
            listed = param.list_ctx()
            if contexts is not None and contexts != listed:
                raise AssertionError(
                    f"All Parameters must be initialized on the same set of contexts, but Parameter {param.name!r} is "
                    f"initialized on {listed} while previous Parameters are initialized on {contexts}."
                )
            contexts = listed
        return contexts or []

    # ---- the optimizer ----

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self._training.optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer that this Trainer applies."""
        return self._training.optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate."""
        self._training.optimizer.set_learning_rate(lr)

    # ---- steps ----

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients over contexts and workers, divide them by `batch_size`, and update the parameters."""
        began = time.perf_counter()
        self._training.rescale(batch_size)  # raises if it is not a number
        strategy = self.strategy
        if type(self)._allreduce_grads is not Trainer._allreduce_grads:  # a subclass sums gradients itself
            self._allreduce_grads()
            strategy.update(batch_size, ignore_stale_grad)
        else:
            strategy.step(batch_size, ignore_stale_grad)
        emit("step", trainer=self, samples=batch_size, seconds=time.perf_counter() - began, alone=self._alone)

    def allreduce_grads(self) -> None:
        """Sum the gradients over contexts and workers without updating. Call `update` to apply them."""
        self._refuse_elsewhere("allreduce_grads")
        self._allreduce_grads()

    def _allreduce_grads(self) -> None:
        """Replace the gradients with their sums. A subclass may override this to sum in another way."""
        if self.strategy.splits:
            self.strategy.reduce()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters with gradients that `allreduce_grads` has summed."""
        self._refuse_elsewhere("update")
        began = time.perf_counter()
        self._training.rescale(batch_size)
        self.strategy.update(batch_size, ignore_stale_grad)
        emit("step", trainer=self, samples=batch_size, seconds=time.perf_counter() - began, alone=self._alone)

    def _refuse_elsewhere(self, call: str) -> None:
        if not self.strategy.splits:
            raise AssertionError(
                f"{call}() when parameters are updated on kvstore is not supported. Try setting `update_on_kvstore` to "
                "False when creating trainer."
            )

    # ---- states ----

    def save_states(self, fname: str) -> None:
        """Write the optimizer states to a file."""
        state.saved.append(fname)
        if not self.strategy.save_states(fname, dump_optimizer=True):
            with replacing(fname) as file:
                file.write(self._training.updater().get_states(dump_optimizer=True))

    def load_states(self, fname: str) -> None:
        """Read the optimizer states from a file."""
        if self.strategy.load_states(fname):
            return
        updaters = zip(self._training.updaters, self._training.known_weights(), strict=True)
        self._training.take_updaters([updater.restored(fname, weights) for updater, weights in updaters])

    # ---- MXNet's private names, which programs and libraries use ----

    def _init_kvstore(self) -> None:
        self.strategy.follow()

    @property
    def _kvstore(self) -> KVStoreBase | None:
        return None if self._strategy is None else self._strategy.store

    @property
    def _update_on_kvstore(self) -> bool | None:
        if self._strategy is None or (isinstance(self._strategy, OneDevice) and len(self._contexts) == 1):
            return None
        return not self._strategy.splits

    @property
    def _kv_initialized(self) -> bool:
        return self._strategy is not None and self._strategy.has_begun

    @property
    def _kvstore_params(self) -> dict[str, Any]:
        return {"kvstore": self._asked.kvstore, "update_on_kvstore": self._asked.update_on_kvstore}

    @property
    def _updaters(self) -> list[opt.Updater]:
        return self._training.updaters

    @property
    def _optimizer(self) -> opt.Optimizer:
        return self._training.optimizer

    @property
    def _scale(self) -> float:
        return self._training.scale

    @_scale.setter
    def _scale(self, scale: float) -> None:
        self._training.scale = scale

    @property
    def _amp_loss_scaler(self) -> Scaler | None:
        return self._training.scaler

    @_amp_loss_scaler.setter
    def _amp_loss_scaler(self, scaler: Scaler | None) -> None:
        self._training.scaler = scaler

    @property
    def _amp_agree(self) -> Callable[[bool], bool] | None:
        return self._training.agree

    @_amp_agree.setter
    def _amp_agree(self, agree: Callable[[bool], bool] | None) -> None:
        self._training.agree = agree

    def keep_updates_here(self) -> None:
        """Update in this process, not in a store, so that steps can be skipped. Raise if a store already updates."""
        if isinstance(self._asked.kvstore, StepStrategy) and self._asked.kvstore.splits:
            return
        if self._asked.update_on_kvstore is None and (self._strategy is None or not self._strategy.has_begun):
            self._asked.update_on_kvstore = False
            self._strategy = None
        elif self._asked.update_on_kvstore or self._update_on_kvstore:
            raise AssertionError(
                "amp skips a step when gradients overflow, which is impossible if the kvstore updates. Create Trainer "
                "with update_on_kvstore=False, and call amp.init_trainer before its first step"
            )

    def trained_gradients(self) -> list[NDArray]:
        """Return the gradients of all trained Parameters, on all contexts."""
        return [gradient for gradients in self._training.trained().gradients for gradient in gradients]


def _made(optimizer: Any, optimizer_params: dict[str, Any]) -> opt.Optimizer:
    if not isinstance(optimizer, opt.Optimizer):
        return opt.create(optimizer, **optimizer_params)
    if optimizer_params:
        raise AssertionError("optimizer_params must be None if optimizer is an instance of Optimizer instead of str")
    return optimizer


def _listed(params: Any) -> list[Parameter]:
    """Return the Parameters of a list, or of a dictionary in the order of their names."""
    if isinstance(params, (dict, ParameterDict)):
        params = [params[name] for name in sorted(params.keys())]
    if not isinstance(params, (list, tuple)):
        raise ValueError(f"First argument must be a list or dict of Parameters, got {type(params)}.")
    for param in params:
        if not isinstance(param, Parameter):
            raise ValueError(f"First argument must be a list or dict of Parameters, got list of {type(param)}.")
    return list(params)
