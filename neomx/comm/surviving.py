"""The group of all workers in an elastic job: its collectives are repeated without the workers that are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .group import Group
from .transaction import transaction


class SurvivingGroup(Group):
    """The workers of the current generation. A collective whose members are lost is repeated by the others.

    A worker that has received the result before the loss passes it on to those that have not. This is impossible for
    `reduce_scatter` and `all_to_all`, whose results differ between workers: they raise.
    """

    def all_reduce_(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        return self._in_place(tensor, lambda: Group.all_reduce_(self, tensor, op, what))

    def broadcast_(self, tensor: torch.Tensor, root: int = 0, what: str = "") -> torch.Tensor:
        return self._in_place(tensor, lambda: Group.broadcast_(self, tensor, root, what))

    def _in_place(self, tensor: torch.Tensor, call: Callable[[], torch.Tensor]) -> torch.Tensor:
        given = tensor.detach().clone()

        def work() -> Sequence[torch.Tensor]:
            tensor.data.copy_(given)  # a call that failed may have changed it
            return [call()]

        (result,) = transaction().collect(work)
        if result is not tensor:
            tensor.data.copy_(result.view(tensor.shape))
        return tensor

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        return list(transaction().collect(lambda: Group.all_gather(self, tensor, what)))

    def all_gather_small(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        return transaction().collect(lambda: [Group.all_gather_small(self, tensor, what)])[0]

    def barrier(self, what: str = "") -> None:
        transaction().collect(lambda: _nothing(Group.barrier, self, what))

    def wait_for_all(self, what: str) -> None:
        transaction().collect(lambda: _nothing(Group.wait_for_all, self, what))


def _nothing(call: Callable[[Group, str], None], group: Group, what: str) -> Sequence[torch.Tensor]:
    call(group, what)
    return []
