"""torch's default process group on one host: gloo, opened by the first call that needs it.

gloo listens on a port without authentication, and most programs never use torch's default group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup

from . import network
from .session import lazy_gloo_device, session

BACKEND = "gloo_on_demand"
_ProcessGroup: Any = ProcessGroup  # torch's stubs differ from the calls that torch makes
_CALLS = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "barrier", "send", "recv", "recv_anysource"),
    *("allgather", "_allgather_base", "all_gather_single", "allgather_coalesced", "all_gather_single_coalesced"),
    *("allgather_into_tensor_coalesced", "gather", "scatter", "reduce_scatter", "_reduce_scatter_base"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    *("alltoall", "alltoall_base", "all_to_all_single", "_start_coalescing", "_end_coalescing"),
)


class OnDemand(_ProcessGroup):  # type: ignore[misc]
    """A process group of torch that creates a gloo group at its first call and forwards all calls to it."""

    def __init__(self, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self._place = options.store, options.group_rank, options.group_size
        self._seconds = options.timeout.total_seconds()
        self._opened: Any = None
        self._name = ""

    @property
    def group_name(self) -> str:
        """The name under which torch registered the group."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        """Return `group_name`, for torch."""
        return self._name

    def getBackendName(self) -> str:
        """Return the name of the backend, for torch."""
        return BACKEND

    def opened(self) -> Any:
        """Return the gloo group, creating it if necessary.

        Does not wait for other workers, which may be in another call.
        """
        if self._opened is None:
            device = lazy_gloo_device(session().world.host)
            backend = network.gloo(*self._place, device, self._seconds)
            backend._set_sequence_number_for_group()
            group = _ProcessGroup(*self._place)
            group._register_backend(torch.device("cpu"), _ProcessGroup.BackendType.GLOO, backend)
            group._set_default_backend(_ProcessGroup.BackendType.GLOO)
            self._opened = group
        return self._opened


def _handed_on(name: str) -> Callable[..., Any]:
    def call(self: OnDemand, *args: Any, **options: Any) -> Any:
        return getattr(self.opened(), name)(*args, **options)

    return call


for _name in _CALLS:
    setattr(OnDemand, _name, _handed_on(_name))


@cache
def register() -> str:
    """Register the backend with torch and return its name."""
    dist.Backend.register_backend(
        BACKEND, lambda options, _=None: OnDemand(options), extended_api=True, devices=["cpu"]
    )
    return BACKEND
