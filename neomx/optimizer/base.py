"""What all optimizers share: rates and decays for each parameter, counts of updates, half precision, the registry."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch

from ..base import suggest
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
)  # what differs from step to step, or by batch


def is_half(weight: NDArray) -> bool:
    """Whether a weight has half precision."""
    return weight._data.dtype in _HALF


class Optimizer:
    """The base of all optimizers.

    A subclass gives `create_state(index, weight)`, what it remembers of a weight, and
    `update(index, weight, grad, state)`, which changes weight and state in place.

    A subclass whose update of one element depends on other elements of the weight, by a norm for example, sets
    `needs_whole_weights = True`: servers then keep each weight on one server, where they would split a large one.
    """

    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}
    # Whether the update of a parameter uses nothing of other parameters, so that they may be updated in any order, some
    # now and some later. An optimizer of one's own says True if that holds for it.
    updates_apart: ClassVar[bool] = False
    needs_whole_weights: ClassVar[bool] = False

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
        self._loaded_counts: dict[Index, int] = {}  # from which devices that a file does not mention continue
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
        """A rate that is given, or that the optimizer has by default, goes before the schedule's own."""
        if self.lr_scheduler.base_lr != lr:
            logging.info("the optimizer's learning_rate %g replaces the schedule's %g", lr, self.lr_scheduler.base_lr)
        self.lr_scheduler.base_lr = lr

    def settings(self) -> dict[str, object]:
        """The numbers that the program has given it, which must be the same on all workers."""
        found: dict[str, object] = {"optimizer": type(self).__name__}
        for name, value in vars(self).items():
            if isinstance(value, (bool, int, float, type(None))) and not name.startswith("_") and name not in _OWN:
                found["learning_rate" if name == "lr" else name] = value
        if self.lr_scheduler is not None:
            found["lr_scheduler"] = type(self.lr_scheduler).__name__
            found["learning_rate"] = getattr(self.lr_scheduler, "base_lr", None)
        return found

    def multipliers(self, indices: Sequence[Index]) -> tuple[list[float], list[float]]:
        """The factors of these parameters' rates, and those of their decays."""
        return self._multipliers(indices, "lr_mult"), self._multipliers(indices, "wd_mult")

    # ---- what a subclass gives ----

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """What the optimizer remembers of one weight: None, an array, or a tuple."""

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Change a weight and its state in place; lists of each where `aggregate_num` is above 0."""
        raise NotImplementedError(f"{type(self).__name__} must define update(index, weight, grad, state)")

    def create_state_multi_precision(self, index: Index, weight: NDArray) -> Any:
        """The state of a weight; with `multi_precision`, a half precision weight has (float32 copy, its state)."""
        if self.multi_precision and is_half(weight):
            master = weight.astype("float32")
            return master, self.create_state(index, same_part(weight, master))
        self._warn_of_half(weight)
        return self.create_state(index, weight)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """`update`, of the float32 copy where there is one, from which the weight is then taken."""
        if self.multi_precision and is_half(weight):
            master, inner = state
            self.update(index, same_part(weight, master), grad.astype("float32"), inner)
            master.astype(weight.dtype).copyto(weight)
        else:
            self.update(index, weight, grad, state)

    # `update` as a generator that stops where it needs sums over all parts of a weight; who needs none has none.
    _steps: ClassVar[Callable[..., Steps]]

    def _steps_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> Steps:
        """`update_multi_precision` by `_steps`."""
        if not (self.multi_precision and is_half(weight)):
            yield from self._steps(index, weight, grad, state)
            return
        master, inner = state
        yield from self._steps(index, same_part(weight, master), grad.astype("float32"), inner)
        master.astype(weight.dtype).copyto(weight)

    def _split_state(self, weight: NDArray, state: Any) -> tuple[NDArray | None, Any]:
        """The float32 copy of a weight, if it has one, and the state that goes with it."""
        return state if self.multi_precision and is_half(weight) else (None, state)

    def _warn_of_half(self, weight: NDArray) -> None:
        if is_half(weight):
            warnings.warn(
                f"{type(self).__name__} accumulates in half precision, which can be inaccurate or converge slowly. "
                "Consider multi_precision=True",
                stacklevel=3,
            )

    # ---- rates and decays ----

    @property
    def learning_rate(self) -> float:
        """The current rate, before the multipliers of parameters."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Set the rate; refused where a scheduler sets it."""
        if self.lr_scheduler is not None:
            raise UserWarning(
                "the learning rate comes from lr_scheduler and cannot be set. Set lr_scheduler.base_lr, or make the "
                "optimizer without lr_scheduler"
            )
        self.lr = lr

    def set_lr_scale(self, args_lrscale: Any) -> None:
        """Superseded by `set_lr_mult`."""
        raise DeprecationWarning("set_lr_scale is no more. Use set_lr_mult")

    def set_lr_mult(self, args_lr_mult: dict[Index, float]) -> None:
        """Multiply the rates of these parameters, given by index or name; the symbol's `__lr_mult__` come first."""
        self.lr_mult = {**self._symbol_attributes("__lr_mult__"), **args_lr_mult}

    def set_wd_mult(self, args_wd_mult: dict[Index, float]) -> None:
        """Multiply the decays of these parameters, given by index or name.

        Of the named parameters only those called *_weight and *_gamma decay, unless this or `__wd_mult__` says so.
        """
        spared: dict[Index, float] = {name: 0.0 for name in self.idx2name.values() if not name.endswith(self._decaying)}
        self.wd_mult = {**spared, **self._symbol_attributes("__wd_mult__"), **args_wd_mult}

    _arrays_by_index: ClassVar[tuple[str, ...]] = ()  # attributes that hold arrays like the weights

    _decaying: ClassVar[tuple[str, ...]] = ("_weight", "_gamma")

    def _symbol_attributes(self, key: str) -> dict[Index, float]:
        if not self.sym_info:
            return {}
        attributes, names = self.sym_info
        return {name: float(attributes[name][key]) for name in names if key in attributes.get(name, ())}

    def _get_lrs(self, indices: Sequence[Index]) -> list[float]:
        lr = self.learning_rate
        return [lr * each for each in self._multipliers(indices, "lr_mult")]

    def _get_lr(self, index: Index) -> float:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Sequence[Index]) -> list[float]:
        return [self.wd * each for each in self._multipliers(indices, "wd_mult")]

    def _get_wd(self, index: Index) -> float:
        return self._get_wds([index])[0]

    def _multipliers(self, indices: Sequence[Index], kind: str) -> list[float]:
        """The multipliers of parameters: their own, else what was set for the index, else for the name."""
        if self.param_dict and all(map(self.param_dict.__contains__, indices)):  # as a Trainer has it: every step asks
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
        """Count the updates of this device from now on."""
        if not self._all_index_update_counts.get(device_id):
            self._all_index_update_counts[device_id] = dict(self._loaded_counts)
        self._index_update_count = self._all_index_update_counts[device_id]

    def _update_count(self, index: Any) -> None:
        """Count one more update of a parameter, or of each in a list."""
        counts = self._index_update_count
        for each in index if isinstance(index, (list, tuple)) else (index,):
            counts[each] = count = counts.get(each, self.begin_num_update) + 1
            if count > self.num_update:
                self.num_update = count

    def begin_updates(self, indices: Sequence[Index]) -> float:
        """Count an update of each parameter; the learning rate, before multipliers, at which they are updated."""
        self._update_count(indices)
        return self.learning_rate

    # ---- for the updates of subclasses ----

    def _begin(self, index: Index) -> tuple[float, float]:
        """Count an update of one parameter; its learning rate and decay."""
        self._update_count(index)
        return self._get_lr(index), self._get_wd(index)

    def _scaling(self) -> dict[str, float]:
        """What update ops are told of every gradient."""
        clip = {"clip_gradient": self.clip_gradient} if self.clip_gradient else {}
        return {"rescale_grad": self.rescale_grad, **clip}

    def _scaled(self, grad: NDArray) -> NDArray:
        """The rescaled, clipped gradient."""
        return self._clipped(grad * self.rescale_grad)

    def _clipped(self, grad: NDArray) -> NDArray:
        return grad if self.clip_gradient is None else grad.clip(-self.clip_gradient, self.clip_gradient)

    # ---- the registry ----

    @staticmethod
    def register(klass: Klass) -> Klass:
        """Make a class known to `create` under its name; a later class of that name takes it over, with a warning."""
        name = klass.__name__.lower()
        if name in Optimizer.opt_registry:
            warnings.warn(
                f"optimizer {klass.__module__}.{klass.__name__} takes the place of "
                f"{Optimizer.opt_registry[name].__module__}.{Optimizer.opt_registry[name].__name__}",
                stacklevel=2,
            )
        Optimizer.opt_registry[name] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """A new optimizer of the class registered as `name`, in any case."""
        known = Optimizer.opt_registry
        if not isinstance(name, str):
            raise TypeError(f"expected an Optimizer or the name of one, as 'sgd', received {name!r:.80}")
        if name.lower() not in known:
            raise ValueError(
                f"Cannot find optimizer {name}.{suggest(name.lower(), known)} Registered: {', '.join(sorted(known))}"
            )
        return Optimizer.opt_registry[name.lower()](**kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("param_dict", "_loaded_counts")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, param_dict={}, _loaded_counts=dict(state["_index_update_count"]))
        devices = [id for id, counts in self._all_index_update_counts.items() if counts == self._index_update_count]
        self._set_current_context(devices[0] if devices else 0)


register = Optimizer.register
create = Optimizer.create_optimizer
