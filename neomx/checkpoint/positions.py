"""The positions of a program's loaders and iterators in their data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from ..base import MXNetError
from ..gluon.data import DataLoader
from ..gluon.data.place import Position
from ..io import DataIter
from .manifest import CheckpointError
from .snapshot import Fragment, fragment
from .state import Content

_ARRAY = "array of the checkpoint"  # the key of the name of a tensor in a position


class Loader(Protocol):
    """A DataLoader, an iterator of `mx.io`, or an iterator of the program with these methods."""

    def state(self) -> Position:
        """Return the position after the batches that were read: JSON values and numpy arrays."""

    def load_state(self, state: Position) -> None:
        """Continue at a position that `state` returned."""


def check_loader(loader: Any) -> None:
    """Raise if an object is not a loader whose position can be saved."""
    if not (callable(getattr(loader, "state", None)) and callable(getattr(loader, "load_state", None))):
        raise MXNetError(
            f"loader must be a DataLoader or an iterator, or a list of them, received a {type(loader).__name__}"
        )
    loader.state()  # raises if its position is unknown


class Positions:
    """The loaders of a program, of which `active` delivers the batches of the training."""

    def __init__(self, loaders: Sequence[Loader] = ()):
        self.loaders: list[Loader] = list(loaders)
        self.active: Loader | None = loaders[0] if loaders else None

    def passes(self) -> int | None:
        """The number of passes over the training data before the current or the next one. None without a loader."""
        return None if self.active is None else int(self.active.state()["epoch"])

    def follow(self, loaders: Sequence[Loader], active: Loader) -> None:
        """Use these loaders from now on."""
        self.loaders, self.active = list(loaders), active

    @property
    def counts_epochs(self) -> bool:
        """Whether passes are epochs, also after a resume; iterators only count how often they ended."""
        return isinstance(self.active, DataLoader)

    def states(self) -> tuple[int | None, list[Position | None]]:
        """Return the number of the active loader, and the positions of all. They do not change afterwards."""
        number = next((i for i, loader in enumerate(self.loaders) if loader is self.active), None)
        return number, [self._position(loader) for loader in self.loaders]

    def _position(self, loader: Loader) -> Position | None:
        try:
            return loader.state()
        except MXNetError:
            if loader is self.active:
                raise
            return None

    def restore(self, content: Content, rank: int, workers: int) -> None:
        """Start the next passes of all loaders at the saved positions."""
        for number, loader in enumerate(self.loaders):
            position = position_of(content, number, rank, workers)
            if position is not None and loader is not self.active and isinstance(loader, DataLoader):
                loader.load_state(position, skips_ended=True)
            elif position is not None:
                loader.load_state(position)


def described(states: tuple[int | None, list[Position | None]], rank: int) -> tuple[dict[str, Any], list[Fragment]]:
    """Return the result of `Positions.states` as JSON values, and the arrays in them."""
    fragments: list[Fragment] = []
    number, positions = states
    listed = [_without_arrays(each, f"worker/{rank}/data/{i}", fragments) for i, each in enumerate(positions)]
    return {"loaders": listed, "active": number}, fragments


def _without_arrays(value: Any, path: str, fragments: list[Fragment]) -> Any:
    """Return a position as JSON values: arrays become tensors of the checkpoint."""
    if isinstance(value, np.ndarray):
        fragments.append(fragment(path, torch.from_numpy(np.array(value))))  # a copy, with memory of its own
        return {_ARRAY: path}
    if isinstance(value, dict):
        return {name: _without_arrays(each, f"{path}/{name}", fragments) for name, each in value.items()}
    if isinstance(value, list) and any(isinstance(each, (dict, list, np.ndarray)) for each in value):
        return [_without_arrays(each, f"{path}/{i}", fragments) for i, each in enumerate(value)]
    return value


def _with_arrays(value: Any, content: Content) -> Any:
    if isinstance(value, dict):
        name = value.get(_ARRAY)
        if len(value) == 1 and isinstance(name, str):
            content.fetch({name: None})
            return content.tensors[name].numpy()
        return {name: _with_arrays(each, content) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_arrays(each, content) for each in value]
    return value


def active_of(content: Content) -> int | None:
    """Return the number of the loader with the training data."""
    found = content.of_worker(0).get("active")
    return found if isinstance(found, int) else None


def position_of(content: Content, number: int, rank: int, workers: int) -> Position | None:
    """Return the position of a worker in the data of a loader, or None if it was not saved."""
    same = workers == content.workers
    listed = content.of_worker(rank if same else 0).get("loaders")
    position = listed[number] if isinstance(listed, list) and number < len(listed) else None
    if not isinstance(position, dict):
        return None
    if position.get("kind") != "shard" and not same and not _counts_all(position):
        if number != active_of(content):
            return None
        raise CheckpointError(
            f"the checkpoint is of {content.workers} workers, each with its own order of the data, and this job has "
            f"{workers}. Resume with {content.workers} workers, or create the loader with mx.dist.shard(dataset)"
        )
    found: Position = _with_arrays(position, content)
    return found


def _counts_all(position: Position) -> bool:
    """Whether a position is that of an iterator over a shard, which counts the samples of all workers."""
    inner = position.get("loader")
    return isinstance(inner, dict) and inner.get("kind") == "shard"


def is_iterator(loader: object) -> bool:
    """Whether a loader is an iterator of `mx.io`, which programs reset."""
    return isinstance(loader, DataIter)
