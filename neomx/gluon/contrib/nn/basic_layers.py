"""The layers of `mx.gluon.contrib.nn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .... import autograd
from ....base import MXNetError
from ....comm.session import session
from ....comm.world import discover
from ....process import state
from ...block import Block, HybridBlock
from ...kinds import front_of, is_eager
from ...nn import BatchNorm, HybridSequential, Sequential
from ...nn.basic_layers import check_sizes

if TYPE_CHECKING:
    from ....comm.group import Group

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


class Concurrent(Sequential):
    """Applies several Blocks to the same input and concatenates their outputs along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        return front_of(x).concat(*[block(x) for block in self._children.values()], dim=self.axis)


class HybridConcurrent(HybridSequential):
    """Applies several HybridBlocks to the same input and concatenates their outputs along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class Identity(HybridBlock):
    """Returns its input unchanged. Useful as a branch of HybridConcurrent."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class SparseEmbedding(Block):
    """Embedding with a row-sparse gradient, so that an update changes only the rows that a batch used."""

    def __init__(
        self, input_dim: int, output_dim: int, dtype: Any = "float32", weight_initializer: Any = None, **kwargs: Any
    ):
        check_sizes(1, input_dim=input_dim, output_dim=output_dim)
        super().__init__(**kwargs)
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype, "sparse_grad": True}
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            grad_stype="row_sparse",
            stype="row_sparse",
        )

    def forward(self, x: Any) -> Any:
        # Every process holds all rows, so there is no need to fetch them from the Trainer first.
        return front_of(x).Embedding(x, self.weight.data(x.context), **self._kwargs)

    def __repr__(self) -> str:
        return "{}({input_dim} -> {output_dim}, {dtype})".format(type(self).__name__, **self._kwargs)


class SyncBatchNorm(BatchNorm):
    """BatchNorm with the mean and variance over all workers. Their batch sizes may differ.

    All workers must run the layer the same number of times, because forward and backward sum over the workers.
    `sync_over` selects a subset of workers.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **kwargs: Any,
    ):
        learnt = beta_initializer, gamma_initializer
        running = running_mean_initializer, running_variance_initializer
        settings = momentum, epsilon, center, scale, use_global_stats
        super().__init__(1, *settings, *learnt, *running, in_channels, **kwargs)
        del self._kwargs["axis"]
        self._kwargs |= {"ndev": 1 if num_devices is None else num_devices, "key": self.prefix}

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        if not is_eager(F) or autograd.is_training():
            self._check_contexts()
        if state.norm_total is None and discover().size > 1:
            sync_over(session().group.clone("batch norm"))
        return F.contrib.SyncBatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def _check_contexts(self) -> None:
        # Ops run eagerly: the op on the first context cannot wait for the data of the second.
        try:
            contexts = self.gamma.list_ctx()
        except RuntimeError:  # not initialized yet: a symbol is being created
            return
        if len(contexts) > 1 and not self._kwargs["use_global_stats"]:
            raise MXNetError(
                f"{self.name} is on {len(contexts)} contexts of one process, which run one after the other and cannot "
                "share batch statistics. Use one process for each device, or BatchNorm"
            )


def sync_over(group: Group | None) -> None:
    """Make SyncBatchNorm sum over the workers of this `comm` group from now on. None means all workers."""
    if group is None:
        state.norm_total = None
        return

    def total(tensor: torch.Tensor) -> torch.Tensor:
        group.all_reduce_(tensor, what="the statistics of SyncBatchNorm")
        return tensor

    state.norm_total = total


class _PixelShuffle(HybridBlock):
    """Rearranges channels to higher resolution: (N, C * f1 * f2 ..., d1, d2 ...) to (N, C, d1 * f1, d2 * f2 ...)."""

    _rank: int

    def __init__(self, factor: Any):
        super().__init__()
        factors = tuple(map(int, factor)) if isinstance(factor, (tuple, list)) else (int(factor),) * self._rank
        if len(factors) != self._rank:
            raise AssertionError(f"factor must be an integer or {self._rank} integers, received {factor!r}")
        for each in factors:
            check_sizes(1, factor=each)
        self._factors = factors
        pixels = [axis for i in range(self._rank) for axis in (2 + self._rank + i, 2 + i)]
        self._axes = (0, 1, *pixels)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for factor in reversed(self._factors):
            x = F.reshape(x, shape=(0, -4, -1, factor, -2))  # splits the factor from the channels
        return F.reshape(F.transpose(x, axes=self._axes), shape=(0, 0) + (-3,) * self._rank)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors if self._rank > 1 else self._factors[0]})"


class PixelShuffle1D(_PixelShuffle):
    """(N, C * f, W) to (N, C, W * f)."""

    _rank = 1


class PixelShuffle2D(_PixelShuffle):
    """(N, C * f1 * f2, H, W) to (N, C, H * f1, W * f2)."""

    _rank = 2


class PixelShuffle3D(_PixelShuffle):
    """(N, C * f1 * f2 * f3, D, H, W) to (N, C, D * f1, H * f2, W * f3)."""

    _rank = 3
