"""All-reduce in which every worker passes its own number of samples to `step`, as for `mx.parallel.data_parallel`."""

from __future__ import annotations

from ..comm.compress import Compressor
from ..comm.rounds import Round
from .allreduce import AllReduce


class DataParallel(AllReduce):
    """Sum gradients over all workers, and divide them by the sum of the numbers that the workers pass to `step`.

    A worker without data passes nothing, so every sample has the same weight as in a single process.
    """

    def __init__(self, compressor: Compressor | None = None) -> None:
        super().__init__(compressor=compressor, shows_sums=True)

    def divisor_of(self, round: Round) -> float:
        """Return the number of samples of all workers."""
        return sum(round.divisors[rank] for rank in round.active)
