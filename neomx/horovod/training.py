"""Training: broadcast of parameters, and a Trainer and an Optimizer that average gradients over workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .. import kvstore as kv
from ..comm import compress
from ..comm.rounds import Round
from ..gluon.parameter import Parameter
from ..gluon.parameter_dict import ParameterDict
from ..gluon.trainer import Trainer
from ..ndarray import NDArray
from ..optimizer import Optimizer
from ..step import AllReduce, OptimizerWithStrategy, StepStrategy
from .collectives import broadcast_, grouped_allreduce_, root_among, tensor_of
from .job import ELSE, ProcessSet, global_process_set, meet, world

# ---- parameters ----


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Broadcast parameters from the worker `root_rank`: a ParameterDict, or a dict of Parameters or arrays.

    Parameters of unknown shape are broadcast at the first forward, when the shape is known.
    """
    if not isinstance(params, (dict, ParameterDict)):
        raise ValueError(f"expected a dict of arrays or Parameters, or a ParameterDict, received {params!r:.80}")
    root = root_among(root_rank, global_process_set)
    found: list[torch.Tensor] = []
    for _, each in sorted(params.items()):
        if isinstance(each, Parameter):
            found += [] if _waits(each, root_rank) else [replica._data for replica in each.list_data()]
        else:
            found.append(tensor_of(each, "broadcast_parameters"))
    if found:
        with meet("broadcast_parameters", None, ELSE) as (group, _):
            group.broadcast_all_(found, root)


def _waits(param: Parameter, root_rank: int) -> bool:
    """Whether a parameter has no values yet. If so, it is broadcast when it is initialized."""
    if param._arrays is not None or not param._deferred_init:
        return False
    init, contexts, default_init, data = param._deferred_init
    if data is not None:
        broadcast_(data, root_rank, param.name)
    param._deferred_init = (init, contexts, partial(_initialize, default_init, root_rank), data)
    return True


def _initialize(default_init: Callable[[Any, NDArray], None], root_rank: int, description: Any, data: NDArray) -> None:
    default_init(description, data)
    broadcast_(data, root_rank)


# ---- training ----


class NoneCompressor:
    """Send gradients without compression."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """The array as it travels, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """The array as it was."""
        return tensor


class FP16Compressor:
    """Send gradients as float16, at half the size."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """The array as it travels, and what `decompress` needs."""
        dtype = tensor.dtype
        return (tensor.astype("float16"), dtype) if tensor._data.is_floating_point() else (tensor, None)

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """The array as it was."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The available kinds of gradient compression."""

    none = NoneCompressor
    fp16 = FP16Compressor


def _check_training(gradient_predivide_factor: float, num_groups: int) -> None:
    if not gradient_predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor must be above 0, received {gradient_predivide_factor!r}")
    if num_groups < 0:
        raise ValueError(f"num_groups must not be below 0, received {num_groups!r}")


class DistributedTrainer(Trainer):
    """A gluon Trainer whose `step(batch_size)` takes this worker's number of samples.

    Gradients are averaged over the samples of all workers. A worker that has joined has no samples. Gradients are sent
    in buckets during backward, so `num_groups` and `prefix` are ignored. `gradient_predivide_factor` is ignored too,
    because sums use the precision of the gradients.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
    ):
        _check_training(gradient_predivide_factor, num_groups)
        if compression not in (Compression.none, Compression.fp16):
            raise ValueError(f"compression must be hvd.Compression.none or fp16, received {compression!r:.80}")
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer already sums gradients: using the wrapped optimizer",
                stacklevel=2,
            )
            optimizer = optimizer.unwrapped()
        here = world()
        packs = {"type": "fp16"} if compression is Compression.fp16 and here.has_others else None
        if here.is_elastic:
            strategy = _Average(compressor=None if packs is None else compress.make(packs), shows_sums=True)
            super().__init__(params, optimizer, optimizer_params, strategy)
            counted = self._training.count_samples
            # Fewer workers have larger parts of a batch of mx.dist.shard than programs may pass to `step`.
            self._training.count_samples = lambda n: n if world().size == world().shares else counted(n)
        else:
            store = kv.create("horovod") if here.has_others else "device"
            super().__init__(params, optimizer, optimizer_params, store, packs, update_on_kvstore=False)
            self._training.count_samples = lambda batch_size: batch_size
        self._scale /= here.initial


class _Average(AllReduce):
    """All-reduce for sums that are divided by the number of workers at the start of the job."""

    def divisor_of(self, round: Round) -> float:
        """Return the divisor that makes them an average over the current workers."""
        return round.divisor * _growth()


def _growth() -> float:
    """The number of current workers with a full batch each, relative to that at the start of the job."""
    here = world()
    return here.shares / here.initial


class DistributedOptimizer(Optimizer, OptimizerWithStrategy):
    """An optimizer that averages gradients over the workers before each update, for Module and custom loops.

    A Module sums gradients in buckets during backward. In other programs, each update exchanges its gradient. It shares
    all attributes with the wrapped optimizer, and divides its `rescale_grad`.
    """

    __slots__ = ("_factors", "_optimizer")  # everything else is in the shared dictionary

    def __init__(
        self,
        optimizer: Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet | None = None,
    ):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"expected an Optimizer, such as mx.optimizer.create returns, received {optimizer!r:.80}")
        _check_training(gradient_predivide_factor, num_groups)
        self.__dict__ = vars(optimizer)
        self._optimizer = optimizer
        self._factors = (1 / gradient_predivide_factor, gradient_predivide_factor / _count(process_set), process_set)
        optimizer.rescale_grad *= self._factors[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    @property
    def workers(self) -> int:
        """The number of workers over which gradients are averaged."""
        return _count(self._factors[2])

    def own_strategy(self) -> tuple[StepStrategy, Optimizer] | None:
        """All-reduce over all workers, or None for a process set, whose gradients `update` exchanges."""
        _, _, process_set = self._factors
        here = world()
        if not here.has_others or process_set not in (None, global_process_set):
            return None
        optimizer = self.unwrapped()
        optimizer.rescale_grad /= here.initial
        return _Average(), optimizer

    def unwrapped(self) -> Optimizer:
        """The wrapped optimizer."""
        self._optimizer.rescale_grad /= self._factors[1]
        return self._optimizer

    def _reduce(self, grad: Any) -> None:
        grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        before, _, process_set = self._factors
        grouped_allreduce_(grads, False, None, 0, before, 1 / _growth(), process_set)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """Create the state of one weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """Create the state of one weight, which may have half precision."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient, or each of a list, then update."""
        self._reduce(grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient, or each of a list, then update a weight that may have half precision."""
        self._reduce(grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)


def _count(process_set: ProcessSet | None) -> int:
    """The number of workers in a process set, or at the start of the job."""
    return world().initial if process_set in (None, global_process_set) else process_set.size()  # type: ignore[union-attr]
