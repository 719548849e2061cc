"""An optimizer that runs on servers: its description, its updates by the worker, and its reassembly."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..base import MXNetError
from . import states
from .base import Index, Optimizer
from .updater import Updater

_ALWAYS_TOLD = ("wd", "rescale_grad", "clip_gradient")
_COUNTS = ("num_update", "begin_num_update", "lr")
_MULTIPLIERS = ("lr_mult", "wd_mult")
_OF_THE_WORKER = ("lr", "lr_scheduler", *_MULTIPLIERS, "sym_info", "idx2name")


class RemoteOptimizer:
    """A worker's optimizer. A copy of it updates the weights on the servers.

    The schedule stays on the worker, since it may be custom. `begin_updates` returns the settings for the copy.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self._described = dict(vars(optimizer))
        self._changed = set(_ALWAYS_TOLD)
        self._multipliers: dict[str, tuple[list[float], list[list[Any]]]] = {}

    def description(self) -> Optimizer:
        """Return the initial copy for servers, without a schedule or multipliers, which `begin_updates` sends."""
        bare = copy.copy(self.optimizer)
        bare.lr_scheduler, bare.lr, bare.sym_info = None, self.optimizer.learning_rate, ()
        bare.lr_mult, bare.wd_mult = {}, {}
        return bare

    def begin_updates(self, indices: Sequence[Index], known: Sequence[Index]) -> dict[str, Any]:
        """Count an update of some weights. Return its settings, with multipliers for all `known` weights."""
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
            if factors != before:  # reuse the same list while nothing changes, which is cheap to compare
                pairs = [[index, _number(factor)] for index, factor in zip(known, factors, strict=True)]
                self._multipliers[kind] = factors, pairs
            settings[kind] = pairs
        return settings

    def combined(self, held: Sequence[Optimizer]) -> Optimizer:
        """Return the optimizer of a single process: the counts of all servers with the schedule of this worker."""
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
    """Apply settings from `begin_updates` of a worker on a server."""
    for name, value in settings.items():
        if name in _MULTIPLIERS:
            getattr(optimizer, name).update({index: factor for index, factor in value})
        elif is_setting(value) and is_setting(vars(optimizer).get(name, ...)):
            setattr(optimizer, name, value)


def is_setting(value: object) -> bool:
    """Return whether a value can be sent as a setting: a number, a bool or None."""
    return value is None or isinstance(value, (bool, int, float))


def _number(value: Any) -> Any:
    return value if is_setting(value) else float(value)


def dump_part(updater: Updater, keys: Collection[Index] | None) -> bytes:
    """Return the states of some weights and the optimizer without those of others; with None, all but arrays."""
    optimizer = copy.copy(updater.optimizer)
    for name, value in vars(optimizer).items():
        if isinstance(value, dict) and keys is not None:
            setattr(optimizer, name, {index: each for index, each in value.items() if index in keys})
        elif name in optimizer._arrays_by_index:
            setattr(optimizer, name, {})
    optimizer._all_index_update_counts = {0: optimizer._index_update_count}
    return states.dumps({index: updater.states[index] for index in keys or () if index in updater.states}, optimizer)


def join_part(updater: Updater, part: bytes) -> None:
    """Replace the states and settings in a result of `dump_part`."""
    found, other = states.loads(part)
    mine = updater.optimizer
    if other is None or type(other) is not type(mine):
        raise MXNetError(f"expected the state of {type(mine).__name__}, received {type(other).__name__}")
    updater.states.update(found)
    updater.states_synced.update(dict.fromkeys(found, False))
    mine._index_update_count.update(other._index_update_count)
    for name, value in other.__getstate__().items():
        if not isinstance(value, dict):
            setattr(mine, name, value)
        elif name not in ("_index_update_count", "_all_index_update_counts"):
            getattr(mine, name).update(value)
