"""The workers of a layout from the view of one model: their groups and submeshes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from ..base import MXNetError
from ..comm.group import Group
from ..comm.session import session
from ..comm.transaction import transaction
from ..gluon.contrib.nn.basic_layers import sync_over
from ..step import StepStrategy
from .layout import Layout, backend
from .replicas import LayoutGroup

Owned = tuple[int, torch.Size, torch.dtype]  # of a tensor: the first worker of the pipeline that holds it, shape, dtype


class LayoutWorkers:
    """The workers of a layout, shared by the Parameters of one model."""

    def __init__(self, layout: Layout, shard: str | None) -> None:
        self.layout, self.shard = layout, shard
        self.mesh = layout.mesh()
        opened = session()
        self._everyone: Group = opened.group
        self.is_elastic = opened.generations is not None
        self._number = opened.kept["layouts"] = opened.kept.get("layouts", 0) + 1
        self._groups: dict[tuple[str, ...], Group] = {}
        self.sharded: list[FSDPModule] = []
        self.owners: dict[str, Owned] = {}  # the state of a torch module in a pipeline

    def synchronise_norms(self) -> None:
        """Make SyncBatchNorm sum over the workers whose gradients are summed."""
        sync_over(self.gradient_group.clone("batch norm"))

    @property
    def described(self) -> str:
        """The layout and what it shards."""
        return str(self.layout) + (f", shard={self.shard}" if self.shard else "")

    def reshard(self) -> None:
        """Reshard, so that each worker holds only its part: a forward without backward leaves parameters gathered."""
        for module in self.sharded:
            module.reshard()

    # ---- groups ----

    def group(self, *names: str) -> Group:
        """Return the group of the workers along some dimensions of the layout, including this one."""
        if names not in self._groups:
            made = (
                self._followed(names) if self.is_elastic else _group(self._everyone, tuple(self.layout.peers(*names)))
            )
            self._groups[names] = made
        return self._groups[names]

    def _followed(self, names: tuple[str, ...]) -> Group:
        return LayoutGroup(self.layout, names, f"layout {self._number}/{'-'.join(names)}")

    def of_pipeline(self, places: Sequence[int]) -> Group:
        """Return the workers at these positions of this worker's pipeline. It is one of them."""
        if self.is_elastic:
            title = f"layout {self._number}/stages {'-'.join(map(str, places))}"
            return LayoutGroup(self.layout, ("pipeline",), title, only=places)
        peers = self.layout.peers("pipeline")
        return _group(self._everyone, tuple(peers[place] for place in places))

    @property
    def is_first(self) -> bool:
        """Whether this worker writes files for all workers of the model."""
        return self.model_group.rank == 0 and not (self.is_elastic and session().world.rank)

    @property
    def model_group(self) -> Group:
        """The workers that train this model together: all, unless a dimension separates models."""
        names = self.layout.model_dimensions
        return self._everyone if self.layout.degree(*names) == self.layout.size else self.group(*names)

    @property
    def gradient_group(self) -> Group:
        """The workers over which gradients are summed: they process different samples for the same parameters."""
        return self.group(*self.layout.gradient_dimensions)

    @property
    def pipeline_group(self) -> Group | None:
        """The workers that hold the stages of this pipeline; None without a pipeline."""
        return self.group("pipeline") if self.layout.pipeline > 1 else None

    def first_of_stage(self, stage: int) -> int:
        """Return the rank in `model_group` of the first worker of a pipeline stage."""
        layout = self.layout.now()[0]
        ranks = range(self.model_group.size) if self.is_elastic else self.model_group.ranks
        return next(at for at, rank in enumerate(ranks) if layout.coordinates(rank)["pipeline"] == stage)

    # ---- parts of the mesh ----

    @property
    def gradient_mesh(self) -> DeviceMesh:
        """The one-dimensional submesh over which gradients are summed."""
        return self.mesh[self._joined(self.layout.gradient_dimensions)]

    @property
    def copies_and_parts_mesh(self) -> DeviceMesh:
        """The same in two dimensions: replicas of parameters along the first, shards along the second."""
        return self.mesh[self._joined(self.layout.copy_dimensions), self._joined(self.layout.part_dimensions)]

    def _joined(self, names: Sequence[str]) -> str:
        """Return the mesh dimension for some dimensions of the layout; flattens them if several have workers."""
        used = tuple(name for name in names if self.layout.degree(name) > 1) or tuple(names[:1])
        if len(used) > 1:
            self.mesh[used]._flatten("_".join(used), backend_override=backend())
        return "_".join(used)

    # ---- for Parameters and Trainers ----

    def strategy(self) -> StepStrategy:
        """Return the strategy by which a Trainer exchanges the gradients of the Parameters."""
        from .strategy import LayoutStrategy

        return LayoutStrategy(self)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true on any worker."""
        if transaction().is_updating:
            raise MXNetError(
                "an elastic job with a layout does not support float16 loss scaling. Use bfloat16, or start the job "
                "without --elastic"
            )
        return bool(self.model_group.all_gather_small(torch.tensor([flag]), "whether gradients are finite").any())

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Yield whether this worker writes a file for all. On exit, all workers learn whether that succeeded."""
        writes = self.is_first
        failure = ""
        try:
            yield writes
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            said = self.model_group.all_gather(
                torch.tensor(list(failure.encode()), dtype=torch.uint8), "whether it was written"
            )
            if not failure and len(said[0]):
                writer, why = self.model_group.ranks[0], bytes(said[0].tolist()).decode()
                raise MXNetError(f"worker {writer}, which writes the file for all workers, failed: {why}")


@cache
def _group(everyone: Group, ranks: tuple[int, ...]) -> Group:
    made = everyone.subgroup(ranks)
    assert made is not None  # this worker is one of them
    return made
