"""The common part of stores that workers share: their place in the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..comm.session import Session, session
from .store import KVStore

if TYPE_CHECKING:  # imported when the session first needs them
    from ..comm.group import Group
    from ..comm.rounds import Rounds


class SharedStore(KVStore):
    """A store that all workers of a job share."""

    def __init__(self, name: str, opened: Session | None = None):
        super().__init__(name)
        self._session = session() if opened is None else opened

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return self._session.world.rank

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return self._session.world.size

    @property
    def has_others(self) -> bool:
        """Whether there are, or may be, other workers."""
        return self._session.world.has_others

    @property
    def group(self) -> Group:
        """The group for collectives among the workers."""
        return self._session.group

    @property
    def rounds(self) -> Rounds:
        """The rounds in which the workers step."""
        return self._session.rounds

    def get_num_dead_node(self, node_id: int, timeout: float = 60) -> int:
        """The number of lost processes: servers if bit 2 of `node_id` is set, workers if bit 4 is set."""
        wanted = [kind for kind, bit in (("server", 2), ("worker", 4)) if node_id & bit]
        gone = {} if self._session.store is None else self._session.store.gone
        return sum(name.split()[0] in wanted for name in gone)
