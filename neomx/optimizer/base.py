"""The base class of optimizers: learning rates and weight decays per parameter, update counts, the registry."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch

from ..base import MXNetError, suggest
from ..lr_scheduler import LRScheduler
from ..ndarray import NDArray
from .part import Steps, same_part

Index = int | str
Klass = TypeVar("Klass", bound="type[Optimizer]")
_HALF = (torch.float16, torch.bfloat16)
_OWN = (
    "rescale_grad",
    "num_update",
    "begin_num_update",
    "aggregate_num",
)  # values that differ between steps or batch sizes


def is_half(weight: NDArray) -> bool:
    """Return whether a weight has a half precision dtype."""
    return weight._data.dtype in _HALF


class Optimizer:
    """The base class of all optimizers.

    A subclass defines `create_state(index, weight)`, which returns the state of a weight, and
    `update(index, weight, grad, state)`, which updates weight and state in place.

    A subclass in which the update of one element depends on other elements of the weight, for example through a norm,
    sets `needs_whole_weights = True`. Each weight is then stored on a single server. Otherwise large ones are split.
    """

    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}
    # Whether updates of different parameters are independent, so that they may happen in any order and at different
    # times. A custom optimizer sets it to True if this applies.
    updates_apart: ClassVar[bool] = False
    needs_whole_weights: ClassVar[bool] = False
    updates_alike: ClassVar[bool] = True  # whether replicas on several contexts stay equal if each is updated here

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: dict[Index, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | Callable[[int], float] | None = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: dict[Index, Any] | None = None,
    ):
        if not isinstance(param_idx2name or {}, dict):
            raise AssertionError(
                f"param_idx2name should be a dict of param indexes to names, received {type(param_idx2name).__name__}"
            )
        self.rescale_grad = rescale_grad
        self.lr_scheduler: Any = lr_scheduler
        self.lr: Any = 0.01 if learning_rate is None and lr_scheduler is None else learning_rate
        if lr_scheduler is not None and learning_rate is not None:
            self._start_schedule_at(learning_rate)
        self.wd = wd
        self.begin_num_update = self.num_update = begin_num_update
        self._all_index_update_counts: dict[int, dict[Index, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self._loaded_counts: dict[Index, int] = {}  # the initial counts of devices that are not in a file
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.aggregate_num = 0
        self.idx2name: dict[Index, str] = dict(param_idx2name or {})
        self.sym_info: tuple[Any, ...] = () if sym is None else (sym.attr_dict(), sym.list_arguments())
        self.param_dict: dict[Index, Any] = param_dict or {}
        self.lr_mult: dict[Index, float] = {}
        self.wd_mult: dict[Index, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    def _start_schedule_at(self, lr: float) -> None:
        """Replace the schedule's base rate by the given or default rate of the optimizer."""
        if self.lr_scheduler.base_lr != lr:
            logging.info("the optimizer's learning_rate %g replaces the schedule's %g", lr, self.lr_scheduler.base_lr)
        self.lr_scheduler.base_lr = lr

    def settings(self) -> dict[str, object]:
        """Return the hyperparameters, which must be equal on all workers."""
        found: dict[str, object] = {"optimizer": type(self).__name__}
        for name, value in vars(self).items():
            if isinstance(value, (bool, int, float, type(None))) and not name.startswith("_") and name not in _OWN:
                found["learning_rate" if name == "lr" else name] = value
        if self.lr_scheduler is not None:
            found["lr_scheduler"] = type(self.lr_scheduler).__name__
            found["learning_rate"] = getattr(self.lr_scheduler, "base_lr", None)
        return found

    def multipliers(self, indices: Sequence[Index]) -> tuple[list[float], list[float]]:
        """Return the learning rate multipliers and the weight decay multipliers of parameters."""
        return self._multipliers(indices, "lr_mult"), self._multipliers(indices, "wd_mult")

    # ---- defined by subclasses ----

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the initial state of a weight: None, an array, or a tuple."""

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Update a weight and its state in place. The arguments are lists if `aggregate_num` is positive."""
        raise NotImplementedError(f"{type(self).__name__} must define update(index, weight, grad, state)")

    def set_aggregate(self, gradients: Any, weights: Any = None) -> None:
        """Hand in gradients, which the next `update()` applies to `weights`. MXNet does not have this method.

        Both are arrays, lists or dictionaries of arrays with the same keys. A Block, its Parameters or a list of them
        have both. The weights may also be passed to `update(weights)`. States, such as momentum, are kept by key.
        Gradients that were handed in before and not applied are replaced.
        """
        from .by_hand import ByHand  # it imports this module

        self.update = ByHand(self, gradients, weights)  # type: ignore[method-assign]

    _updater_by_hand: Any = None  # the Updater with the states of weights updated by `update()`

    def create_state_multi_precision(self, index: Index, weight: NDArray) -> Any:
        """Return the state of a weight. With `multi_precision`, it is (float32 copy, state) for half precision."""
        if self.multi_precision and is_half(weight):
            master = weight.astype("float32")
            return master, self.create_state(index, same_part(weight, master))
        self._warn_of_half(weight)
        return self.create_state(index, weight)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Run `update` on the float32 copy if there is one, and copy the result to the weight."""
        if self.multi_precision and is_half(weight):
            master, inner = state
            self.update(index, same_part(weight, master), grad.astype("float32"), inner)
            master.astype(weight.dtype).copyto(weight)
        else:
            self.update(index, weight, grad, state)

    # `update` as a generator that yields where it needs sums over all Parts of a weight. Not defined if it needs none.
    _steps: ClassVar[Callable[..., Steps]]

    def _steps_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> Steps:
        """Run `update_multi_precision` with `_steps`."""
        if not (self.multi_precision and is_half(weight)):
            yield from self._steps(index, weight, grad, state)
            return
        master, inner = state
        yield from self._steps(index, same_part(weight, master), grad.astype("float32"), inner)
        master.astype(weight.dtype).copyto(weight)

    def _split_state(self, weight: NDArray, state: Any) -> tuple[NDArray | None, Any]:
        """Return the float32 copy of a weight, or None, and the remaining state."""
        return state if self.multi_precision and is_half(weight) else (None, state)

    def _warn_of_half(self, weight: NDArray) -> None:
        if is_half(weight):
            warnings.warn(
                f"{type(self).__name__} accumulates in half precision, which can be inaccurate or converge slowly. "
                "Consider multi_precision=True",
                stacklevel=3,
            )

    # ---- learning rates and weight decays ----

    rate_factor: float = 1.0  # of the learning rate of each update; set if the number of workers has changed

    @property
    def learning_rate(self) -> float:
        """The current learning rate, without the multipliers of parameters."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    @property
    def current_rate(self) -> float:
        """The learning rate with the factor of the number of workers, without multipliers."""
        return self.learning_rate * self.rate_factor

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate. Raise if a scheduler controls it."""
        if self.lr_scheduler is not None:
            raise UserWarning(
                "the learning rate is controlled by lr_scheduler and cannot be set. Set lr_scheduler.base_lr, or "
                "create the optimizer without lr_scheduler"
            )
        self.lr = lr

    def set_lr_scale(self, args_lrscale: Any) -> None:
        """Raise an error: replaced by `set_lr_mult`."""
        raise DeprecationWarning("set_lr_scale was removed. Use set_lr_mult")

    def set_lr_mult(self, args_lr_mult: dict[Index, float]) -> None:
        """Set learning rate multipliers by parameter index or name. They override `__lr_mult__` of the symbol."""
        self.lr_mult = {**self._symbol_attributes("__lr_mult__"), **args_lr_mult}

    def set_wd_mult(self, args_wd_mult: dict[Index, float]) -> None:
        """Set weight decay multipliers by parameter index or name.

        By default, among named parameters only *_weight and *_gamma decay. `__wd_mult__` of the symbol also
        overrides this.
        """
        spared: dict[Index, float] = {name: 0.0 for name in self.idx2name.values() if not name.endswith(self._decaying)}
        self.wd_mult = {**spared, **self._symbol_attributes("__wd_mult__"), **args_wd_mult}

    _arrays_by_index: ClassVar[tuple[str, ...]] = ()  # attributes with arrays of the shapes of the weights

    _decaying: ClassVar[tuple[str, ...]] = ("_weight", "_gamma")

    def _symbol_attributes(self, key: str) -> dict[Index, float]:
        if not self.sym_info:
            return {}
        attributes, names = self.sym_info
        return {name: float(attributes[name][key]) for name in names if key in attributes.get(name, ())}

    def _get_lrs(self, indices: Sequence[Index]) -> list[float]:
        lr = self.current_rate
        return [lr * each for each in self._multipliers(indices, "lr_mult")]

    def _get_lr(self, index: Index) -> float:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Sequence[Index]) -> list[float]:
        return [self.wd * each for each in self._multipliers(indices, "wd_mult")]

    def _get_wd(self, index: Index) -> float:
        return self._get_wds([index])[0]

    def _multipliers(self, indices: Sequence[Index], kind: str) -> list[float]:
        """Return the multipliers of parameters: their own, else those set by index, else those set by name."""
        if self.param_dict and all(map(self.param_dict.__contains__, indices)):  # fast path for Trainer
            return list(map(operator.attrgetter(kind), map(self.param_dict.__getitem__, indices)))
        given: dict[Index, float] = getattr(self, kind)
        return [
            getattr(self.param_dict[index], kind)
            if index in self.param_dict
            else given[index]
            if index in given
            else given.get(self.idx2name[index], 1.0)
            if index in self.idx2name
            else 1.0
            for index in indices
        ]

    # ---- counting ----

    def _set_current_context(self, device_id: int) -> None:
        """Select the update counts of a device."""
        if not self._all_index_update_counts.get(device_id):
            self._all_index_update_counts[device_id] = dict(self._loaded_counts)
        self._index_update_count = self._all_index_update_counts[device_id]

    def _update_count(self, index: Any) -> None:
        """Increment the update count of a parameter, or of each in a list."""
        counts = self._index_update_count
        for each in index if isinstance(index, (list, tuple)) else (index,):
            counts[each] = count = counts.get(each, self.begin_num_update) + 1
            if count > self.num_update:
                self.num_update = count

    def begin_updates(self, indices: Sequence[Index]) -> float:
        """Count an update of each parameter and return the learning rate for it, without multipliers."""
        self._update_count(indices)
        return self.current_rate

    # ---- helpers for subclasses ----

    def _begin(self, index: Index) -> tuple[float, float]:
        """Count an update of one parameter and return its learning rate and weight decay."""
        self._update_count(index)
        return self._get_lr(index), self._get_wd(index)

    def _scaling(self) -> dict[str, float]:
        """Return the arguments of update ops that apply to every gradient."""
        clip = {"clip_gradient": self.clip_gradient} if self.clip_gradient else {}
        return {"rescale_grad": self.rescale_grad, **clip}

    def _scaled(self, grad: NDArray) -> NDArray:
        """Return the rescaled, clipped gradient."""
        return self._clipped(grad * self.rescale_grad)

    def _clipped(self, grad: NDArray) -> NDArray:
        return grad if self.clip_gradient is None else grad.clip(-self.clip_gradient, self.clip_gradient)

    # ---- the registry ----

    @staticmethod
    def register(klass: Klass) -> Klass:
        """Register a class by name for `create`. It replaces a class with the same name, with a warning."""
        name = klass.__name__.lower()
        if name in Optimizer.opt_registry:
            warnings.warn(
                f"optimizer {klass.__module__}.{klass.__name__} replaces "
                f"{Optimizer.opt_registry[name].__module__}.{Optimizer.opt_registry[name].__name__}",
                stacklevel=2,
            )
        Optimizer.opt_registry[name] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Create an optimizer of the class registered as `name`, ignoring case."""
        known = Optimizer.opt_registry
        if not isinstance(name, str):
            raise TypeError(f"expected an Optimizer or the name of one, such as 'sgd', received {name!r:.80}")
        if name.lower() not in known:
            raise ValueError(
                f"Cannot find optimizer {name}.{suggest(name.lower(), known)} Registered: {', '.join(sorted(known))}"
            )
        return Optimizer.opt_registry[name.lower()](**kwargs)

    def without_function(self) -> Optimizer:
        """Return this optimizer, or a copy without its schedule if that is a function, which a file cannot contain."""
        if self.lr_scheduler is None or isinstance(self.lr_scheduler, LRScheduler):
            return self
        other = object.__new__(type(self))
        vars(other).update(vars(self), lr_scheduler=None)
        return other

    def become(self, other: Optimizer) -> None:
        """Continue with the settings, counts and schedule of an optimizer that was read from a file.

        This object and its schedule, which the program may hold, remain in use. A schedule that is a function is kept.
        """
        if type(other) is not type(self):
            raise MXNetError(
                f"the states are those of {type(other).__name__}, but the program uses {type(self).__name__}. Create "
                "the optimizer as for the run that saved them"
            )
        mine, param_dict = self.lr_scheduler, self.param_dict
        self.__setstate__(other.__getstate__())
        self.param_dict = param_dict
        if isinstance(mine, LRScheduler) and type(mine) is type(self.lr_scheduler):
            vars(mine).update(vars(self.lr_scheduler))
            self.lr_scheduler = mine
        elif mine is not None and not isinstance(mine, LRScheduler):
            self.lr_scheduler = mine

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("param_dict", "_loaded_counts", "update", "_updater_by_hand")
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, param_dict={}, _loaded_counts=dict(state["_index_update_count"]))
        devices = [id for id, counts in self._all_index_update_counts.items() if counts == self._index_update_count]
        self._set_current_context(devices[0] if devices else 0)


register = Optimizer.register
create = Optimizer.create_optimizer
