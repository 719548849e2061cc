"""Layout: in how many parts a training is cut, and along which lines; which part of each is this worker's."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

import torch

from ..base import MXNetError, suggest
from ..comm.session import session
from ..gluon.data.shard import ShardedDataset

VARIABLE = "NEOMX_LAYOUT"


@dataclass(frozen=True)
class Place:
    """A worker's number along each line of a layout."""

    pipeline: int
    data: int
    shard: int
    tensor: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {number}" for name, number in vars(self).items())


@dataclass(frozen=True)
class Layout:
    """How the workers divide the work: data x shard x tensor x pipeline = workers.

    `data` copies of the model take different samples. `shard` workers take different samples too, and hold the
    parameters together, each a part. `tensor` workers compute each layer together. `pipeline` workers have some layers
    each. Neighbours in a tensor group have neighbouring ranks: they are on one host where that is possible.
    """

    data: int = 1
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            degree = getattr(self, field.name)
            if not isinstance(degree, int) or isinstance(degree, bool) or degree < 1:
                raise ValueError(f"Layout: {field.name} must be a whole number from 1, received {degree!r}")

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The layout that 'data=2,tensor=2' says."""
        known = [field.name for field in fields(cls)]
        degrees: dict[str, int] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            name, _, degree = (each.strip() for each in part.partition("="))
            if name not in known:
                raise ValueError(
                    f"layout {text!r}: there is no {name!r}.{suggest(name, known)} Give any of {', '.join(known)}"
                )
            if name in degrees or not degree.isdecimal():
                why = "is given twice" if name in degrees else f"must be a number, received {degree!r}"
                raise ValueError(f"layout {text!r}: {name} {why}. Write it like data=2,tensor=2")
            degrees[name] = int(degree)
        return cls(**degrees)

    @classmethod
    def from_env(cls) -> Layout:
        """The layout that `neomx run --layout` was given; without one, all workers take different samples."""
        text = os.environ.get(VARIABLE)
        return cls(data=session().world.size) if text is None else cls.parse(text)

    def __str__(self) -> str:
        return ",".join(f"{name}={degree}" for name, degree in vars(self).items() if degree > 1) or "data=1"

    @property
    def size(self) -> int:
        """How many workers it needs."""
        return self.data * self.shard * self.tensor * self.pipeline

    def check(self, workers: int) -> None:
        """Refuse a number of workers that is not the product of the degrees."""
        if self.size != workers:
            raise MXNetError(
                f"a layout needs data x shard x tensor x pipeline workers: {self.data} x {self.shard} x {self.tensor} "
                f"x {self.pipeline} = {self.size}, and there are {workers}. Change a degree, or start {self.size} "
                f"(neomx run -n {self.size})"
            )

    def place(self, rank: int | None = None) -> Place:
        """Where a worker is, this one if not told."""
        rank = session().world.rank if rank is None else rank
        rank, tensor = divmod(rank, self.tensor)
        rank, shard = divmod(rank, self.shard)
        pipeline, data = divmod(rank, self.data)
        return Place(pipeline, data, shard, tensor)

    def peers(self, *lines: str) -> list[int]:
        """The ranks of the workers that differ from this one along these lines alone."""
        mine = self.place()

        def differs(rank: int) -> set[str]:
            return {name for name, number in vars(self.place(rank)).items() if number != getattr(mine, name)}

        return [rank for rank in range(self.size) if differs(rank) <= set(lines)]

    @property
    def batch_rank(self) -> int:
        """Which share of each batch is this worker's; those that compute together have the same."""
        place = self.place()
        return place.data * self.shard + place.shard

    @property
    def batch_size(self) -> int:
        """In how many shares a batch is divided."""
        return self.data * self.shard

    def mesh(self) -> Any:
        """torch's DeviceMesh of all workers, with the dimensions pipeline, data, shard and tensor."""
        opened = session()
        self.check(opened.world.size)
        if not opened.is_whole:  # torch makes the groups of a mesh with all of its processes
            raise MXNetError(
                f"layout {self}: it takes all workers of the job, and a task of mx.parallel.tasks has some. Train "
                "with kvstore='dist_sync' there, or start a job for each"
            )
        kept = opened.kept.setdefault("meshes", {})  # its groups are made once
        if self not in kept:
            kept[self] = _make_mesh(self)
        return kept[self]

    def share(self, dataset: Any, shuffle: bool = False, seed: int = 0) -> ShardedDataset:
        """This worker's share of a dataset: as `mx.dist.shard`, where workers that compute together share alike."""
        return ShardedDataset(dataset, shuffle, seed, self.batch_rank, self.batch_size)


def check_layout(layout: Any) -> None:
    """Refuse what is no Layout."""
    if not isinstance(layout, Layout):
        raise TypeError(f"expected a Layout, such as mx.parallel.Layout(data=2), received {layout!r:.80}")


def backend() -> Any:
    """The backend of the mesh's groups: ours, and torch's own for GPUs."""
    from ..comm.engine import register

    name = register()
    return None if torch.cuda.is_available() else name


def _make_mesh(layout: Layout) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    names = ("pipeline", "data", "shard", "tensor")
    degrees = tuple(getattr(layout, name) for name in names)
    ours = backend()
    override: Any = None if ours is None else dict.fromkeys(names, ours)
    device = "cuda" if ours is None else "cpu"
    mesh = init_device_mesh(device, degrees, mesh_dim_names=names, backend_override=override)
    for name in names if ours else ():
        group: Any = mesh.get_group(name)
        group.what = _EXCHANGED[name]
    return mesh


_EXCHANGED = {
    "pipeline": "activations or gradients between stages",
    "data": "gradients over data",
    "shard": "parameters or gradients over shards",
    "tensor": "a layer's parts over the tensor group",
}
