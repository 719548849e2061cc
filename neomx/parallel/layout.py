"""Layout: the number of workers along each dimension, and the coordinates and peers of this worker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ..base import MXNetError
from ..comm.session import session
from ..gluon.data.shard import ShardedDataset
from ..process import state
from .dimensions import Dimension, check_degree, equation, find_dimension, in_mesh, parse_degrees, registered
from .replicas import LayoutGroup, Sharers, samples_together, take_seats

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

VARIABLE = "NEOMX_LAYOUT"


class Layout:
    """How the workers divide the work. The product of the degrees is the number of workers.

    `data` replicas of the model process different samples. `shard` workers also process different samples, and each
    holds a shard of the parameters. `tensor` workers compute each layer together. `pipeline` workers each hold some of
    the layers. `register_dimension` adds other dimensions. The workers of a tensor group have adjacent ranks, so that
    they are on one host if possible.
    """

    __slots__ = ("_degrees",)

    data: int
    shard: int
    tensor: int
    pipeline: int

    def __init__(self, **degrees: int) -> None:
        for name, degree in degrees.items():
            dimension = find_dimension(name)
            check_degree(name, degree)
            dimension.check(degree)
        self._degrees = {each.name: degrees[each.name] for each in registered() if degrees.get(each.name, 1) > 1}

    if not TYPE_CHECKING:  # type checkers see only the built-in dimensions; `degree` works for all

        def __getattr__(self, name: str) -> int:
            known = [each.name for each in registered()]
            if name not in known:
                raise AttributeError(f"a Layout has no {name!r}; its dimensions are {', '.join(known)}")
            return self._degrees.get(name, 1)

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Return the layout for text such as 'data=2,tensor=2'."""
        return cls(**parse_degrees(text))

    @classmethod
    def from_env(cls) -> Layout:
        """Return the layout passed to `neomx run --layout`. Without one, all workers process different samples."""
        state.layout_read = True
        text = os.environ.get(VARIABLE)
        return cls(data=session().world.initial) if text is None else cls.parse(text)

    def __str__(self) -> str:
        return ",".join(f"{name}={degree}" for name, degree in self._degrees.items()) or "data=1"

    def __repr__(self) -> str:
        return f"Layout({', '.join(f'{name}={degree}' for name, degree in self._degrees.items())})"

    def __eq__(self, other: object) -> bool:
        return self._degrees == other._degrees if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._degrees.items()))

    # ---- degrees ----

    @property
    def degrees(self) -> dict[str, int]:
        """The degree of every dimension, from the outermost of the mesh to the innermost."""
        return {each.name: self._degrees.get(each.name, 1) for each in in_mesh()}

    def degree(self, *names: str) -> int:
        """Return the number of workers along some dimensions: the product of their degrees."""
        return prod(self._degrees.get(find_dimension(name).name, 1) for name in names)

    @property
    def used(self) -> list[Dimension]:
        """The dimensions with more than one worker, from the outermost of the mesh to the innermost."""
        return [each for each in in_mesh() if each.name in self._degrees]

    @property
    def size(self) -> int:
        """The number of workers that the layout needs."""
        return prod(self._degrees.values())

    def check(self, workers: int) -> None:
        """Raise if the product of the degrees is not the number of workers."""
        check_workers(self._degrees, workers)

    # ---- coordinates ----

    def coordinates(self, rank: int | None = None) -> dict[str, int]:
        """Return the coordinates of a worker along each dimension, in mesh order. The default is this worker."""
        if rank is None:
            layout, here = self.now()
            return layout.coordinates(here)
        numbers: dict[str, int] = {}
        for name, degree in reversed(self.degrees.items()):
            rank, numbers[name] = divmod(rank, degree)
        return dict(reversed(numbers.items()))

    def peers(self, *names: str) -> list[int]:
        """Return the ranks of the workers that differ from this one only along these dimensions, including this one."""
        return self.now()[0].peers_of(self.coordinates(), *names)

    def peers_of(self, coordinates: Mapping[str, int], *names: str) -> list[int]:
        """Return the same for the worker at some coordinates."""
        fixed = {name: number for name, number in coordinates.items() if name not in names}
        return [rank for rank in range(self.size) if fixed.items() <= self.coordinates(rank).items()]

    def with_data(self, replicas: int) -> Layout:
        """Return the same layout with another number of replicas."""
        return Layout(**{**self._degrees, "data": replicas})

    def now(self) -> tuple[Layout, int]:
        """Return the layout of the replicas that train now, and the rank of this worker in it.

        Both change in an elastic job.
        """
        generations = take_seats(self)
        if generations is None:
            return self, session().world.rank
        if not generations.admitted:
            return self, generations.seats.rank(0, generations.seat, self.data)
        now = generations.current
        return self.with_data(len(now.members) // now.seats.places), session().world.rank

    @property
    def model_dimensions(self) -> tuple[str, ...]:
        """The dimensions whose workers train one model."""
        return tuple(each.name for each in in_mesh() if each.shares_model)

    @property
    def copy_dimensions(self) -> tuple[str, ...]:
        """The dimensions over which gradients are summed and whose workers hold the same parameters."""
        return tuple(each.name for each in in_mesh() if each.sums_gradients and not each.divides_parameters)

    @property
    def part_dimensions(self) -> tuple[str, ...]:
        """The dimensions over which gradients are summed and whose workers hold shards of the parameters."""
        return tuple(each.name for each in in_mesh() if each.sums_gradients and each.divides_parameters)

    @property
    def gradient_dimensions(self) -> tuple[str, ...]:
        """The dimensions over which gradients are summed."""
        return tuple(each.name for each in in_mesh() if each.sums_gradients)

    @property
    def gradient_size(self) -> int:
        """The number of workers whose gradients are summed."""
        return self.degree(*self.gradient_dimensions)

    # ---- samples ----

    @property
    def batch_rank(self) -> int:
        """The index of this worker's share of each batch. Workers that compute together have the same share."""
        at, coordinates, layout = 0, self.coordinates(), self.now()[0]
        for each in in_mesh():
            if each.splits_samples:
                at = at * layout.degree(each.name) + coordinates[each.name]
        return at

    @property
    def batch_size(self) -> int:
        """The number of shares of a batch."""
        return self.now()[0].initial_batch_size

    @property
    def initial_batch_size(self) -> int:
        """The number of shares of a batch at the start of the job."""
        return self.degree(*(each.name for each in in_mesh() if each.splits_samples))

    def share(self, dataset: Any, shuffle: bool = False, seed: int = 0) -> ShardedDataset:
        """Return this worker's share of a dataset, as `mx.dist.shard` does. Workers that compute together share it."""
        if session().generations is not None:
            return ShardedDataset(dataset, shuffle, seed, workers=Sharers(self), together=samples_together)
        return ShardedDataset(dataset, shuffle, seed, self.batch_rank, self.batch_size)

    # ---- the mesh ----

    def mesh(self) -> DeviceMesh:
        """torch's DeviceMesh of all workers, with every dimension by its name."""
        opened = session()
        self.check(opened.world.initial)
        if not opened.is_whole:  # torch creates the groups of a mesh with all processes
            raise MXNetError(
                f"layout {self}: a layout needs all workers of the job, but a task of mx.parallel.tasks has only some. "
                "Train with kvstore='dist_sync' in the task, or start a separate job"
            )
        kept: dict[tuple[tuple[str, int], ...], DeviceMesh] = opened.kept.setdefault("meshes", {})
        key = tuple(self.degrees.items())
        if key not in kept:  # its groups are created once
            kept[key] = _make_mesh(self)
        return kept[key]


def check_workers(degrees: Mapping[str, int], workers: int) -> None:
    """Raise, with the whole equation, if the product of the degrees is not the number of workers."""
    size = prod(degrees.values())
    if size != workers:
        names, values = equation(degrees)
        raise MXNetError(
            f"the layout needs {names} workers: {values} = {size}, but there are {workers}. Change a degree, or start "
            f"{size} workers (neomx run -n {size})"
        )


def check_layout(layout: object) -> None:
    """Raise if `layout` is not a Layout."""
    if not isinstance(layout, Layout):
        raise TypeError(f"expected a Layout, such as mx.parallel.Layout(data=2), received {layout!r:.80}")


def backend() -> str | None:
    """Return the backend for the groups of the mesh: that of neomx, or None for torch's default on GPUs."""
    from ..comm.engine import register

    name: str = register()
    return None if torch.cuda.is_available() else name


def _make_mesh(layout: Layout) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    from ..comm.engine import EngineGroup, open_apart

    degrees, is_elastic = layout.degrees, take_seats(layout) is not None
    names, ours = tuple(degrees), backend()
    if is_elastic:  # torch's ranks never change: those of a worker with this place at the start
        generations = session().generations
        assert generations is not None
        open_apart(generations.seats.rank(0, generations.seat, layout.data), layout.size)
    mesh = init_device_mesh(
        "cuda" if ours is None else "cpu",
        tuple(degrees.values()),
        mesh_dim_names=names,
        backend_override=None if ours is None else dict.fromkeys(names, ours),
    )
    for name in names:
        group = mesh.get_group(name)
        if isinstance(group, EngineGroup):
            group.what = find_dimension(name).exchanges or f"data of the dimension {name}"
            if is_elastic:
                group.group = LayoutGroup(layout, (name,), f"mesh/{name}")
    return mesh
