"""The positions of a program's loaders in their data."""

from __future__ import annotations

from typing import Any

from ..base import MXNetError
from ..gluon.data import DataLoader
from ..gluon.data.place import Position
from .manifest import CheckpointError
from .state import Content


class Positions:
    """The loaders of a program, of which `active` delivers the batches of the training."""

    def __init__(self, loaders: list[DataLoader]):
        self.loaders = loaders
        self.active: DataLoader | None = loaders[0] if loaders else None

    def epoch(self) -> int | None:
        """The number of the current pass over the training data, or of the next one. None without a loader."""
        return None if self.active is None else int(self.active.state()["epoch"])

    def facts(self) -> dict[str, Any]:
        """Return the positions of all loaders as plain JSON values."""
        number = self.loaders.index(self.active) if self.active is not None else None
        return {"loaders": [self._position(loader) for loader in self.loaders], "active": number}

    def _position(self, loader: DataLoader) -> Position | None:
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
            if position is not None:
                loader.load_state(position)


def active_of(content: Content) -> int | None:
    """Return the number of the loader with the training data."""
    found = content.of_workers[0].get("active")
    return found if isinstance(found, int) else None


def position_of(content: Content, number: int, rank: int, workers: int) -> Position | None:
    """Return the position of a worker in the data of a loader, or None if it was not saved."""
    same = workers == content.workers
    listed = content.of_workers[rank if same else 0].get("loaders")
    position = listed[number] if isinstance(listed, list) and number < len(listed) else None
    if not isinstance(position, dict):
        return None
    if position.get("kind") != "shard" and not same:
        if number != active_of(content):
            return None
        raise CheckpointError(
            f"the checkpoint is of {content.workers} workers, each with its own order of the data, and this job has "
            f"{workers}. Resume with {content.workers} workers, or create the loader with mx.dist.shard(dataset)"
        )
    return position
