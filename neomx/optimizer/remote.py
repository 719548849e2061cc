"""An optimizer that servers run: how a worker describes it, keeps it up to date, and puts it together again."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Index, Optimizer

_ALWAYS_TOLD = ("wd", "rescale_grad", "clip_gradient")
_COUNTS = ("num_update", "begin_num_update", "lr")
_MULTIPLIERS = ("lr_mult", "wd_mult")
_OF_THE_WORKER = ("lr", "lr_scheduler", *_MULTIPLIERS, "sym_info", "idx2name")


class RemoteOptimizer:
    """A worker's optimizer, whose updates are made on servers by a copy of it.

    The schedule stays here, where it may be of the program's own making; `begin_updates` says what the copy must know.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self._described = dict(vars(optimizer))
        self._changed = set(_ALWAYS_TOLD)
        self._multipliers: dict[str, tuple[list[float], list[list[Any]]]] = {}

    def description(self) -> Optimizer:
        """The copy that servers start from: without a schedule and without multipliers, which `begin_updates` sends."""
        bare = copy.copy(self.optimizer)
        bare.lr_scheduler, bare.lr, bare.sym_info = None, self.optimizer.learning_rate, ()
        bare.lr_mult, bare.wd_mult = {}, {}
        return bare

    def begin_updates(self, indices: Sequence[Index], known: Sequence[Index]) -> dict[str, Any]:
        """Count an update of some weights; the settings by which it is made, with multipliers for all `known` ones."""
        mine = self.optimizer
        lr = mine.begin_updates(indices)
        for name, value in vars(mine).items():
            if name not in _COUNTS and is_setting(value) and value != self._described.get(name, value):
                self._changed.add(name)
        settings: dict[str, Any] = {name: _number(getattr(mine, name)) for name in self._changed}
        settings["lr"] = _number(lr)
        for kind in _MULTIPLIERS:
            factors = mine._multipliers(known, kind)
            before, pairs = self._multipliers.get(kind, (None, []))
            if factors != before:  # the same list while nothing changes, which is cheap to compare
                pairs = [[index, _number(factor)] for index, factor in zip(known, factors, strict=True)]
                self._multipliers[kind] = factors, pairs
            settings[kind] = pairs
        return settings

    def combined(self, held: Sequence[Optimizer]) -> Optimizer:
        """The optimizer as one process would have it: counts and sums of all servers, the schedule of this worker."""
        whole = copy.copy(held[0])
        for name, value in vars(whole).items():
            if isinstance(value, dict):
                setattr(whole, name, {key: each for other in held for key, each in vars(other)[name].items()})
        counts = {index: count for other in held for index, count in other._index_update_count.items()}
        whole._all_index_update_counts = {0: counts}
        whole._set_current_context(0)
        whole.num_update = max(other.num_update for other in held)
        for name in _OF_THE_WORKER:
            setattr(whole, name, getattr(self.optimizer, name))
        return whole


def apply_settings(optimizer: Optimizer, settings: Mapping[str, Any]) -> None:
    """Take over on a server what `begin_updates` gave on a worker."""
    for name, value in settings.items():
        if name in _MULTIPLIERS:
            getattr(optimizer, name).update({index: factor for index, factor in value})
        elif is_setting(value) and is_setting(vars(optimizer).get(name, ...)):
            setattr(optimizer, name, value)


def is_setting(value: object) -> bool:
    """Whether a value can be sent as a setting: a number, or None."""
    return value is None or isinstance(value, (bool, int, float))


def _number(value: Any) -> Any:
    return value if is_setting(value) else float(value)
