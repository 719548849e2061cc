"""What is trained: a network with its Trainer, or a Module. Both show a checkpoint the same: values by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import MXNetError
from ..dtype import to_torch
from ..gluon import Block, Parameter, Trainer
from ..gluon.loading import holders_of
from ..gluon.placement import Holders, has_values
from ..module import BaseModule, Module
from ..ndarray import NDArray
from ..ndarray.freshness import is_fresh, mark_fresh, mark_used, raw_gradient
from ..ndarray.sparse import BaseSparseNDArray
from ..optimizer.part import Part
from ..step import OneDevice, StepStrategy
from ..step.trained import Training
from .manifest import CheckpointError

_APART = (
    "with kvstore=None each context trains parameters of its own, of which a checkpoint cannot save more than one. Use "
    "kvstore='device'"
)


@dataclass(frozen=True)
class Form:
    """The shape of a value, of which dimensions may be unknown (0 or negative), and its dtype."""

    shape: tuple[int, ...] | None
    dtype: torch.dtype

    def problem(self, saved: Form) -> str:
        """Return why a saved value cannot be loaded, or ''."""
        mine, found = self.shape, saved.shape or ()
        if mine is not None and (
            len(mine) != len(found) or any(a > 0 and a != b for a, b in zip(mine, found, strict=True))
        ):
            return f"shape incompatible expected {mine} vs saved {found}"
        if self.dtype is not saved.dtype:
            return f"dtype incompatible expected {self.dtype} vs saved {saved.dtype}".replace("torch.", "")
        return ""


@dataclass
class Held:
    """A named array: this worker's part of it, or the whole, on each context."""

    name: str
    arrays: list[NDArray]
    is_trained: bool = True  # otherwise each worker and each context computes its own: a running average
    gradients: list[NDArray] = field(default_factory=list)  # that add up over several backward passes, in `grad`
    fresh: list[bool] = field(default_factory=list)  # whether the next update will use them, if that is known

    def put_gradients(self, gradients: list[torch.Tensor], fresh: list[bool]) -> None:
        """Set the gradients that add up."""
        for i, (array, tensor) in enumerate(zip(self.arrays, gradients, strict=True)):
            target = self.gradients[i] if self.gradients else array._grad
            if target is not None:
                target._data.copy_(tensor)
                if fresh:
                    (mark_fresh if fresh[i] else mark_used)(array)

    @property
    def form(self) -> Form:
        """The form of the whole array."""
        first = self.arrays[0]
        whole = first.whole_shape if isinstance(first, Part) else tuple(first.shape)
        return Form(whole, first._values.dtype if isinstance(first, BaseSparseNDArray) else first._data.dtype)

    @property
    def split(self) -> tuple[slice, ...] | None:
        """The slices of the whole array that this worker has, or None for all of it."""
        first = self.arrays[0]
        return first.split if isinstance(first, Part) else None


class Subject(ABC):
    """What is trained."""

    kind: str
    trainer: Trainer | BaseModule | None  # the object in the events of its steps

    @property
    def is_ready(self) -> bool:
        """Whether it has values and an optimizer, which can be saved and restored."""
        return True

    def _check_replicas(self, contexts: int) -> None:
        """Raise if the replicas on several contexts do not stay equal, so that one of them is not enough."""
        if contexts < 2 or self.training is None or self.strategy is None:
            return
        training, strategy = self.training, self.strategy
        if isinstance(strategy, OneDevice):
            raise CheckpointError(_APART)
        if not (strategy.keeps_states or training.optimizer.updates_alike):
            raise CheckpointError(
                f"the replicas of a parameter on {contexts} contexts do not stay equal with "
                f"{type(training.optimizer).__name__}, and a checkpoint cannot save more than one of them. Use "
                "update_on_kvstore=True, or another optimizer"
            )

    @property
    def needs_all(self) -> bool:
        """Whether this worker needs all values of a checkpoint, even if it is not ready."""
        return False

    @property
    def holders(self) -> Holders | None:
        """The workers of its layout, or None without one."""
        return None

    @property
    @abstractmethod
    def strategy(self) -> StepStrategy | None:
        """The strategy of its steps, or None without an optimizer."""

    @property
    @abstractmethod
    def training(self) -> Training | None:
        """Its optimizer and parameters, or None without an optimizer."""

    @abstractmethod
    def check(self) -> None:
        """Raise if a checkpoint cannot save it."""

    @abstractmethod
    def values(self) -> list[Held]:
        """Return the values that this worker has."""

    @abstractmethod
    def averages(self) -> list[torch.Tensor]:
        """Return the values that a forward pass changes, such as the running averages of BatchNorm."""

    @abstractmethod
    def put(self, values: Mapping[str, list[NDArray]]) -> None:
        """Set values: one array for each context, the whole or this worker's part of it."""

    def waiting(self) -> dict[str, Form]:
        """Return the form of each value that is not initialized yet, by name."""
        return {}

    def elsewhere(self) -> list[str]:
        """Return the names of the values that only other workers have."""
        return []

    def extras(self) -> dict[str, Any]:
        """Return further facts as JSON values."""
        return {}

    def take_extras(self, extras: Mapping[str, Any]) -> None:  # noqa: B027
        """Continue with the result of `extras`."""


def subject_of(net: Any, trainer: Any, module: Any) -> Subject:
    """Return what the arguments of a Checkpointer name."""
    if module is not None:
        if net is not None or trainer is not None:
            raise MXNetError("pass module= alone, or net= and trainer=")
        if not isinstance(module, BaseModule):
            raise MXNetError(f"module must be a Module, received a {type(module).__name__}")
        return ModuleSubject(module)
    if net is None and trainer is None:
        raise MXNetError("there is nothing to save: pass net=, trainer= or both, or module=")
    if net is not None and not isinstance(net, Block):
        hint = ": save the result of mx.parallel.state_dict" if isinstance(net, torch.nn.Module) else ""
        raise MXNetError(f"net must be a gluon Block, received a {type(net).__name__}{hint}")
    if trainer is not None and not isinstance(trainer, Trainer):
        raise MXNetError(f"trainer must be a gluon.Trainer, received a {type(trainer).__name__}")
    return GluonSubject(net, trainer)


# ---- gluon ----


class GluonSubject(Subject):
    """A network, its Trainer, or both."""

    kind = "gluon"
    trainer: Trainer | None

    def __init__(self, net: Block | None, trainer: Trainer | None):
        self.net, self.trainer = net, trainer

    @property
    def is_ready(self) -> bool:
        """Whether the layout, if the Trainer expects one, is applied."""
        return self.trainer is None or not self.trainer.expects_layout

    @property
    def holders(self) -> Holders | None:
        """The workers of the layout."""
        return holders_of(self.parameters().values())

    @property
    def strategy(self) -> StepStrategy | None:
        """The strategy of the Trainer."""
        return None if self.trainer is None else self.trainer.strategy

    @property
    def training(self) -> Training | None:
        """The optimizer and the Parameters of the Trainer."""
        return None if self.trainer is None else self.trainer.training

    def parameters(self) -> dict[str, Parameter]:
        """Return the Parameters by their names in a checkpoint."""
        found: dict[str, Parameter] = {}
        for param, name in self._named().items():
            if name in found:
                raise CheckpointError(f"two Parameters are named {name!r}: pass net= to name them by its structure")
            found[name] = param
        return found

    def _named(self) -> dict[Parameter, str]:
        named = self.net._collect_params_with_prefix().items() if self.net is not None else ()
        found: dict[Parameter, str] = {}
        for name, param in named:
            found.setdefault(param, name)
        for param in self.trainer.parameters if self.trainer is not None else ():
            found.setdefault(param, param.name)
        return found

    def check(self) -> None:
        """Raise for what a checkpoint cannot save."""
        if self.trainer is not None and self.trainer.trains_contexts_apart:
            raise CheckpointError(_APART)
        if self.trainer is not None and self.is_ready:
            self._check_replicas(len(self.trainer.training.contexts))
        for name, param in self.parameters().items():
            if param.grad_req == "add" and param.grad_stype != "default":
                raise CheckpointError(
                    f"Parameter {name!r} adds up row-sparse gradients, which a checkpoint cannot save. Create the "
                    "layer with sparse_grad=False, or use grad_req='write'"
                )

    def _here(self) -> dict[str, Parameter]:
        return {
            name: param for name, param in self.parameters().items() if has_values(param) and param.placement.is_here
        }

    def values(self) -> list[Held]:
        """Return the values of the Parameters on this worker."""
        found = []
        for name, param in self._here().items():
            param.placement.settle()
            arrays = [param.placement.part(array) for array in param.list_data()]
            value = Held(name, arrays, param._differentiable)
            if param.grad_req == "add" and any(raw_gradient(array) is not None for array in arrays):
                value.gradients = [array._grad for array in arrays]  # type: ignore[misc]
                value.fresh = [is_fresh(array) for array in arrays]
            found.append(value)
        return found

    def averages(self) -> list[torch.Tensor]:
        """Return the values of Parameters that are not trained."""
        params = [param for param in self._named() if not param._differentiable and has_values(param)]
        return [array._data for param in params if param.placement.is_here for array in param.list_data()]

    def waiting(self) -> dict[str, Form]:
        """Return the forms of Parameters without values."""
        return {
            name: Form(param.shape, to_torch(param.dtype))
            for name, param in self.parameters().items()
            if not has_values(param)
        }

    def elsewhere(self) -> list[str]:
        """Return the names of the Parameters of other stages of a pipeline."""
        return [name for name, param in self.parameters().items() if not param.placement.is_here]

    def put(self, values: Mapping[str, list[NDArray]]) -> None:
        """Write the values of Parameters."""
        params = self.parameters()
        for name, arrays in values.items():
            param = params[name]
            if not has_values(param):
                param._load_init(arrays[0], None)
                continue
            param.placement.settle()
            for target, array in zip(param.list_data(), arrays, strict=True):
                _write(param.placement.part(target), array)

    def extras(self) -> dict[str, Any]:
        """Return the loss scale of mixed precision."""
        scaler = None if self.trainer is None else self.trainer.training.scaler
        return {"loss_scale": None if scaler is None else scaler.state()}

    def take_extras(self, extras: Mapping[str, Any]) -> None:
        """Continue with a loss scale."""
        scaler, scale = None if self.trainer is None else self.trainer.training.scaler, extras.get("loss_scale")
        if scaler is not None and scale is not None:
            scaler.load_state(scale)


# ---- Module ----


class ModuleSubject(Subject):
    """A Module or BucketingModule. It is bound and initialized by the program, or by its `fit`."""

    kind = "module"
    trainer: BaseModule

    def __init__(self, module: BaseModule):
        self.trainer = module

    @property
    def is_ready(self) -> bool:
        """Whether the module has an optimizer."""
        return self.trainer.optimizer_initialized

    @property
    def needs_all(self) -> bool:
        """Always: a module is not divided."""
        return True

    @property
    def _module(self) -> Module:
        return self.trainer.whole()

    @property
    def strategy(self) -> StepStrategy | None:
        """The strategy of the module."""
        return self._module.strategy if self.is_ready else None

    @property
    def training(self) -> Training | None:
        """The optimizer and the parameters of the module."""
        return self._module.training if self.is_ready else None

    def check(self) -> None:
        """Raise for kinds of modules that are not supported."""
        if self.trainer.binded:
            self.trainer.whole()
            if self.is_ready:
                self._check_replicas(len(self._module.executors.contexts))
        elif type(self.trainer).whole is BaseModule.whole:
            BaseModule.whole(self.trainer)

    def values(self) -> list[Held]:
        """Return parameters as `arg:NAME`, auxiliary states as `aux:NAME`, and the states of the program."""
        group = self._module.executors
        found = []
        gradients: list[list[Any]] = group.grad_arrays or [[None]] * len(group.param_names)
        for name, arrays, grads in zip(group.param_names, group.param_arrays, gradients, strict=True):
            value = Held(f"arg:{name}", arrays)
            if group.grad_req[name] == "add" and grads[0] is not None:
                value.gradients = [grad for grad in grads if grad is not None]
            found.append(value)
        pairs = [(f"aux:{name}", row) for name, row in zip(group.aux_names, group.aux_arrays, strict=True)]
        pairs += [(f"state:{name}", row) for name, row in zip(group.state_names, group.state_arrays, strict=True)]
        return found + [Held(name, row, is_trained=False) for name, row in pairs]

    def averages(self) -> list[torch.Tensor]:
        """Return the auxiliary states."""
        return [array._data for row in self._module.executors.aux_arrays for array in row]

    def put(self, values: Mapping[str, list[NDArray]]) -> None:
        """Write the arrays of the executors."""
        for value in self.values():
            for target, array in zip(value.arrays, values.get(value.name, ()), strict=False):
                _write(target, array)
        self._module.parameters_were_set()

    def extras(self) -> dict[str, Any]:
        """Return the factors of the gradients."""
        return {"scales": list(self._module.training.scales)}

    def take_extras(self, extras: Mapping[str, Any]) -> None:
        """Continue with factors of the gradients."""
        scale, rescaled = extras["scales"]
        self._module.training.scales = float(scale), float(rescaled)


def _write(target: NDArray, array: NDArray) -> None:
    """Copy values into an array, even while autograd records."""
    if target._sparse:
        array.copyto(target)
    else:
        target._data.detach().copy_(array._data)
