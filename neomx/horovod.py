"""Horovod's API for MXNet: `import horovod.mxnet as hvd` in a launched script, `import neomx.horovod as hvd` elsewhere.

All workers make the same calls in the same order; where they do not, the error says what each one called. A worker that
comes to a call while others still train takes part in their steps with nothing until they come too: unequal numbers of
batches hang nobody, with `join` and without.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from . import kvstore as kv
from .base import MXNetError
from .comm.session import Session, close, is_open, session
from .gluon import exchange
from .gluon.parameter import Parameter, ParameterDict
from .gluon.trainer import Trainer
from .ndarray import NDArray, array
from .optimizer import Optimizer
from .optimizer.states import dumps, loads

Average, Sum, Adasum, Min, Max, Product = "average", "sum", "adasum", "min", "max", "product"
_REDUCED_BY = {Average: "sum", Sum: "sum", Min: "min", Max: "max", Product: "prod"}
_DTYPES = [getattr(torch, name) for name in "float16 bfloat16 float32 float64 uint8 int8 int32 int64".split()]
_JOINS, _SUMS, _ELSE = range(3)


# ---- the job ----


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Find this worker's place among all; `process_sets` are made too."""
    workers = list(range(session().world.size))
    if comm is not None and list(comm) != workers:
        raise MXNetError(
            f"hvd.init takes all workers of the job, {workers}, received comm={comm!r:.80}. Start as many as are "
            "needed, and use process sets for some of them"
        )
    _meeting()
    for each in [] if process_sets in (None, "dynamic") else process_sets:
        add_process_set(each)


def shutdown() -> None:
    """Take leave of the other workers; `init` opens again."""
    close()


def is_initialized() -> bool:
    """Whether `init` was called."""
    return is_open()


def _world() -> Any:
    if not is_open():
        raise ValueError("Horovod has no place in a job yet: call hvd.init() first")
    return session().world


def rank() -> int:
    """This worker's number, from 0."""
    return _world().rank


def size() -> int:
    """How many workers there are."""
    return _world().size


def local_rank() -> int:
    """This worker's number on its host."""
    return _world().local_rank


def local_size() -> int:
    """How many workers are on this host."""
    return _world().local_size


def cross_rank() -> int:
    """The number of this worker's host."""
    return _world().node


def cross_size() -> int:
    """How many hosts there are."""
    return _world().nodes


def is_homogeneous() -> bool:
    """Whether every host has the same number of workers."""
    return len({int(each) for each in _gathered(torch.tensor([local_size()]), "is_homogeneous")}) == 1


def mpi_built() -> bool:
    """Whether MPI carries arrays: no, it may only start the processes."""
    return False


mpi_enabled = mpi_threads_supported = ddl_built = ccl_built = mpi_built


def gloo_built() -> bool:
    """Whether gloo carries arrays: between hosts it does."""
    return True


gloo_enabled = gloo_built


def cuda_built() -> bool:
    """Whether arrays can be on NVIDIA's GPUs."""
    return torch.backends.cuda.is_built()


def rocm_built() -> bool:
    """Whether arrays can be on AMD's GPUs."""
    return torch.version.hip is not None


def nccl_built() -> int:
    """The version of NCCL, which carries arrays between GPUs, as 10000 * major + 100 * minor + patch; 0 without."""
    if not cuda_built():
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]  # type: ignore[no-untyped-call]
    return 10000 * major + 100 * minor + patch


# ---- some of the workers ----


class ProcessSet:
    """Some of the workers, for calls with `process_set=` that only they make."""

    def __init__(self, ranks: Sequence[int] | None):
        self._ranks = None if ranks is None else sorted(int(each) for each in ranks)
        self.process_set_id: int | None = None
        self._group: Any = None

    @property
    def ranks(self) -> list[int]:
        """The numbers of its workers."""
        return list(range(size())) if self._ranks is None else self._ranks

    def included(self) -> bool:
        """Whether this worker is one of them."""
        return rank() in self.ranks

    def rank(self) -> int:
        """This worker's number among them."""
        if not self.included():
            raise ValueError(f"worker {rank()} is not in the process set of {self.ranks}")
        return self.ranks.index(rank())

    def size(self) -> int:
        """How many they are."""
        return len(self.ranks)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks or 'all'})"


global_process_set = ProcessSet(None)
global_process_set.process_set_id = 0


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a set usable. All workers of the job call it, those outside of the set too."""
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"{made} was added before")
    meeting = _meeting()
    made._group = meeting.group.subgroup(made.ranks)
    meeting.sets += 1
    made.process_set_id = meeting.sets
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Make a set unusable; whether there was something to do."""
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    if process_set._group is not None:
        process_set._group.close()
    process_set._group = process_set.process_set_id = None
    return True


# ---- meeting the others ----


class _Meeting:
    """Where the workers of a session come together for calls of this module."""

    def __init__(self, here: Session):
        self.session = here
        self.group = here.group.clone("horovod")
        self.sets = 0

    def come(self, kind: int, counts: Sequence[int] = ()) -> list[list[int]]:
        """Wait for all workers, stepping along with those that train; the kinds and counts that they came with."""
        self.session.rounds.pause()
        said = torch.zeros(1 + len(_DTYPES), dtype=torch.int64)
        said[: 1 + len(counts)] = torch.tensor([kind, *counts])
        return self.group.all_gather_small(said, "the calls of hvd").tolist()


_open_meeting: _Meeting | None = None


def _meeting() -> _Meeting:
    global _open_meeting
    _world()
    if _open_meeting is None or _open_meeting.session is not session():
        _open_meeting = _Meeting(session())
    return _open_meeting


def _meet(process_set: ProcessSet | None, kind: int, counts: Sequence[int] = ()) -> tuple[Any, bool]:
    """The group for a call, once all of it have come, and whether some have joined."""
    if process_set is not None and process_set is not global_process_set:
        if process_set._group is None:
            why = "this worker is not in it" if process_set.process_set_id else "call hvd.add_process_set first"
            raise ValueError(f"{process_set} cannot be used here: {why}")
        return process_set._group, False
    meeting = _meeting()
    if meeting.group.size == 1:
        return meeting.group, False
    joined = [place for place, said in enumerate(meeting.come(kind, counts)) if said[0] == _JOINS]
    if joined and kind != _SUMS:
        raise MXNetError(_not_with_joined(joined))
    return meeting.group, bool(joined)


def _not_with_joined(joined: list[int]) -> str:
    return f"only sums and averages are possible while some workers have joined, here {joined}"


def join() -> int:
    """Say that this worker has no more data, and wait until all have said so; the last one that did.

    Until then this worker counts as zero in what the others sum, and as no samples in their steps. Then it has the
    weights that the others came to.
    """
    meeting = _meeting()
    if meeting.group.size == 1:
        return 0
    place = meeting.session.store.add("horovod/joined", 1)  # type: ignore[union-attr]
    while any(said[0] != _JOINS for said in (calls := meeting.come(_JOINS))):
        _take_part(meeting.group, calls)
    return int(meeting.group.all_gather_small(torch.tensor([place]), "join").argmax())


def _take_part(group: Any, calls: list[list[int]]) -> None:
    """Be the zero in what others sum."""
    active = [said for said in calls if said[0] != _JOINS]
    if any(said[0] != _SUMS for said in active):
        raise MXNetError(_not_with_joined([place for place, said in enumerate(calls) if said[0] == _JOINS]))
    for dtype, count in zip(_DTYPES, active[0][1:], strict=True):
        if count:
            group.all_reduce_(torch.zeros(count, dtype=dtype), "sum")


# ---- arrays ----


def _tensor(value: Any, call: str) -> torch.Tensor:
    if not isinstance(value, NDArray):
        raise TypeError(f"hvd.{call} takes an NDArray, received {type(value).__name__} {value!r:.80}")
    if value.stype != "default":
        raise MXNetError(f"hvd.{call} takes dense arrays, received {value.stype}: use tostype('default')")
    if value._data.dtype not in _DTYPES:
        raise MXNetError(f"hvd.{call} does not take arrays of {value._data.dtype}")
    return value._data.detach()


def _operation(average: bool | None, op: str | None) -> str:
    if average is not None and op is not None:
        raise ValueError(f"give average= or op=, not both; received average={average!r} and op={op!r}")
    op = op or (Sum if average is False else Average)
    if op == Adasum:
        raise MXNetError("Adasum is not here. Use hvd.Average or hvd.Sum")
    if op not in _REDUCED_BY:
        raise ValueError(f"op must be hvd.Average, Sum, Min, Max or Product, received {op!r}")
    return op


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """Times the factor, in the same dtype: what whole numbers have after the point is dropped."""
    if factor == 1:
        return tensor
    if tensor.is_floating_point():
        return tensor.mul_(factor)
    return tensor.double().mul_(factor).to(tensor.dtype)


def _reduced(
    tensors: Sequence[torch.Tensor], op: str, before: float, after: float, process_set: Any, name: str | None
) -> list[torch.Tensor]:
    """New tensors, those of one dtype having travelled together."""
    of = [[i for i, tensor in enumerate(tensors) if tensor.dtype == dtype] for dtype in _DTYPES]
    counts = [sum(tensors[i].numel() for i in places) for places in of]
    group, joined = _meet(process_set, _SUMS if _REDUCED_BY[op] == "sum" else _ELSE, counts)
    after = after / group.size if op == Average else after
    results = [torch.empty(0)] * len(tensors)
    for places in filter(None, of):
        flat = _scaled(torch.cat([tensors[i].reshape(-1) for i in places]), before)
        group.all_reduce_(flat, _REDUCED_BY[op], "" if joined else name or "")
        parts = _scaled(flat, after).split([tensors[i].numel() for i in places])
        for i, part in zip(places, parts, strict=True):
            results[i] = part.view(tensors[i].shape)
    return results


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: str | None = None,
) -> list[NDArray]:
    """The average (or the sum, or `op`) over workers of each array, in new arrays.

    They are multiplied by `prescale_factor` before and by `postscale_factor` afterwards.
    """
    given = [_tensor(each, "allreduce") for each in tensors]
    found = _reduced(given, _operation(average, op), prescale_factor, postscale_factor, process_set, name)
    return [NDArray(result, each._ctx) for result, each in zip(found, tensors, strict=True)]


def grouped_allreduce_(tensors: Sequence[NDArray], *args: Any, **kwargs: Any) -> list[NDArray]:
    """`grouped_allreduce`, written into the arrays."""
    for each, result in zip(tensors, grouped_allreduce(tensors, *args, **kwargs), strict=True):
        result.copyto(each)
    return list(tensors)


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: str | None = None,
) -> NDArray:
    """The average (or with `average=False` the sum, or `op`) over workers, in a new array."""
    rest = (average, name, priority, prescale_factor, postscale_factor, process_set, op)
    return grouped_allreduce([tensor], *rest)[0]


def allreduce_(tensor: NDArray, *args: Any, **kwargs: Any) -> NDArray:
    """`allreduce`, written into the array."""
    allreduce(tensor, *args, **kwargs).copyto(tensor)
    return tensor


def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: str = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[NDArray]:
    """This worker's rows of the average (or sum) over workers; the first workers have one row more if it must be."""
    if op not in (Average, Sum):
        raise ValueError(f"op must be hvd.Average or hvd.Sum, received {op!r}")
    rest = (None, name, priority, prescale_factor, postscale_factor, process_set, op)
    members = process_set or global_process_set
    whole = grouped_allreduce(tensors, *rest)
    return [NDArray(each._data.tensor_split(members.size())[members.rank()].clone(), each._ctx) for each in whole]


def reducescatter(tensor: NDArray, *args: Any, **kwargs: Any) -> NDArray:
    """This worker's rows of the average (or sum) over workers."""
    return grouped_reducescatter([tensor], *args, **kwargs)[0]


def allgather(
    tensor: NDArray, name: str | None = None, priority: int = 0, process_set: ProcessSet | None = None
) -> NDArray:
    """All workers' arrays, one after the other; their first dimensions may differ."""
    group, _ = _meet(process_set, _ELSE)
    return NDArray(torch.cat(group.all_gather(_tensor(tensor, "allgather"), name or "")), tensor._ctx)


def grouped_allgather(
    tensors: Sequence[NDArray], name: str | None = None, priority: int = 0, process_set: ProcessSet | None = None
) -> list[NDArray]:
    """`allgather` of each array."""
    return [allgather(each, name, priority, process_set) for each in tensors]


def _root(root_rank: int, members: ProcessSet) -> int:
    if root_rank not in members.ranks:
        raise ValueError(f"root_rank must be one of the workers {members.ranks}, received {root_rank!r}")
    return members.ranks.index(root_rank)


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray:
    """The array of the worker `root_rank`, as a new array."""
    return broadcast_(tensor.detach().copy(), root_rank, name, priority, process_set)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray:
    """The array of the worker `root_rank`, written into the array."""
    values, root = _tensor(tensor, "broadcast"), _root(root_rank, process_set or global_process_set)
    group, _ = _meet(process_set, _ELSE)
    group.broadcast_(values.data, root, name or "")
    return tensor


def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> Any:
    """Rows of this array to each worker, theirs to this one: equal parts, or `splits[i]` rows to worker i.

    With `splits` the result is a pair: the rows, and how many came from each worker.
    """
    values = _tensor(tensor, "alltoall")
    rows = None if splits is None else np.asarray(splits.asnumpy() if isinstance(splits, NDArray) else splits).tolist()
    group, _ = _meet(process_set, _ELSE)
    received, counts = group.all_to_all(values, rows, name or "")
    result = NDArray(received, tensor._ctx)
    return result if splits is None else (result, array(counts, dtype="int32"))


# ---- objects ----


def _gathered(tensor: torch.Tensor, what: str) -> list[torch.Tensor]:
    group, _ = _meet(None, _ELSE)
    return group.all_gather(tensor, what)


def _packed(value: Any) -> torch.Tensor:
    """A value as bytes: by JSON and plain arrays, which run no code where they are read."""
    try:
        return torch.frombuffer(bytearray(dumps({"object": value}, None)), dtype=torch.uint8)
    except MXNetError:
        raise TypeError(
            f"{value!r:.80} cannot travel: expected numbers, strings, None, NDArrays, and lists, tuples and dicts of "
            "them. For a numpy array send mx.nd.array(it)"
        ) from None


def _unpacked(content: torch.Tensor) -> Any:
    return loads(content.numpy().tobytes())[0]["object"]


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The object of the worker `root_rank`: numbers, strings, NDArrays, and lists, tuples and dicts of them."""
    root = _root(root_rank, global_process_set)
    content = _packed(obj) if rank() == root else torch.empty(0, dtype=torch.uint8)
    everyone = _gathered(content, name or "broadcast_object")
    return obj if rank() == root else _unpacked(everyone[root])


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all workers, in their order; of the kinds that `broadcast_object` takes."""
    return [_unpacked(each) for each in _gathered(_packed(obj), name or "allgather_object")]


# ---- parameters ----


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Give all workers the parameters of the worker `root_rank`: a ParameterDict, or a dict of Parameters or arrays.

    Parameters whose shape is not known yet follow when it is, at the first forward.
    """
    if not isinstance(params, (dict, ParameterDict)):
        raise ValueError(f"expected a dict of arrays or Parameters, or a ParameterDict, received {params!r:.80}")
    _root(root_rank, global_process_set)
    found: list[torch.Tensor] = []
    for _, each in sorted(params.items()):
        if isinstance(each, Parameter):
            found += [] if _waits(each, root_rank) else [replica._data for replica in each.list_data()]
        else:
            found.append(_tensor(each, "broadcast_parameters"))
    if found:
        group, _ = _meet(None, _ELSE)
        exchange.broadcast(group, found, root_rank)


def _waits(param: Parameter, root_rank: int) -> bool:
    """Whether a parameter has no values yet; then it will be broadcast when it gets them."""
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
    """Gradients travel as they are."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """The array as it travels, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """The array as it was."""
        return tensor


class FP16Compressor:
    """Gradients travel as float16, at half the size."""

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
    """How gradients travel."""

    none = NoneCompressor
    fp16 = FP16Compressor


def _check_training(gradient_predivide_factor: float, num_groups: int) -> None:
    if not gradient_predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor must be above 0, received {gradient_predivide_factor!r}")
    if num_groups < 0:
        raise ValueError(f"num_groups must not be below 0, received {num_groups!r}")


class DistributedTrainer(Trainer):
    """A gluon Trainer whose `step(batch_size)` takes this worker's number of samples.

    Gradients are averaged over the samples of all workers, those of a worker that joined being none. They leave in buckets
    while backward still runs, so `num_groups` and `prefix` have nothing to add, and neither has
    `gradient_predivide_factor`: sums are made in the gradients' own precision.
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
            warnings.warn("DistributedTrainer sums by itself: the optimizer in DistributedOptimizer is used", stacklevel=2)
            optimizer = optimizer.unwrapped()
        packs = {"type": "fp16"} if compression is Compression.fp16 and size() > 1 else None
        store = kv.create("horovod") if size() > 1 else "device"
        super().__init__(params, optimizer, optimizer_params, store, packs, update_on_kvstore=False)
        self._scale /= size()

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Average the gradients over the workers' samples, of which this one had `batch_size`, and update."""
        with _samples(batch_size):
            super().step(batch_size, ignore_stale_grad)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Apply gradients that `allreduce_grads` has summed."""
        with _samples(batch_size):
            super().update(batch_size, ignore_stale_grad)


@contextmanager
def _samples(count: float) -> Iterator[None]:
    """Say to the round how many samples this worker has in it."""
    if size() == 1:
        yield
        return
    rounds = session().rounds
    before, rounds.samples = rounds.samples, count
    try:
        yield
    finally:
        rounds.samples = before


class DistributedOptimizer(Optimizer):
    """An optimizer whose updates average the gradients over workers before: for Module, and programs of their own.

    It shares all attributes with the optimizer that it is made of, whose `rescale_grad` it divides.
    """

    __slots__ = ("_factors", "_optimizer")  # all else is in the dictionary that the two share

    def __init__(
        self,
        optimizer: Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet | None = None,
    ):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"expected an Optimizer, as mx.optimizer.create makes it, received {optimizer!r:.80}")
        _check_training(gradient_predivide_factor, num_groups)
        self.__dict__ = vars(optimizer)
        self._optimizer = optimizer
        workers = (process_set or global_process_set).size()
        self._factors = (1 / gradient_predivide_factor, gradient_predivide_factor / workers, process_set)
        optimizer.rescale_grad *= self._factors[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def unwrapped(self) -> Optimizer:
        """The optimizer that it was made of, as it was."""
        self._optimizer.rescale_grad /= self._factors[1]
        return self._optimizer

    def _reduce(self, grad: Any) -> None:
        grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        before, _, process_set = self._factors
        grouped_allreduce_(grads, False, prescale_factor=before, process_set=process_set)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """What the optimizer remembers of one weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """The state of a weight, of half precision too."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient, or each of a list, then update."""
        self._reduce(grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient, or each of a list, then update, of half precision too."""
        self._reduce(grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)
