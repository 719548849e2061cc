"""`hvd.elastic`: a training function that continues from its last commit when workers are lost or join.

    state = hvd.elastic.MXNetState(net, trainer, epoch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            for x, y in batches():
                ...
                trainer.step(len(x))
            state.commit()

    train(state)

Horovod has this for other frameworks; its MXNet module has no `elastic`. The names and their meanings are Horovod's.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..base import MXNetError
from ..checkpoint.state import Training, content_of
from ..comm.session import session
from ..comm.store import PeerError
from ..context import cpu
from ..elastic import handover
from ..elastic.by_program import ByProgram, by_program, current
from ..gluon import Block, Parameter, ParameterDict, Trainer
from ..gluon.data import DataLoader
from ..gluon.kinds import of_kind
from ..module import BaseModule
from ..ndarray import NDArray
from ..optimizer.states import pack, unpack
from .exceptions import HorovodInternalError, HostsUpdatedInterrupt
from .job import ELSE, meet

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "MXNetState", "ObjectState", "State", "run"]

_TRAINING = "training/"  # how the names of tensors of the network and its Trainer start
_OWN = (f"{_TRAINING}worker/0/grad/", f"{_TRAINING}worker/0/strategy/")  # those that are not the same on all workers
Copy = tuple[dict[str, torch.Tensor], dict[str, Any]]  # tensors by name, and JSON values


class State:
    """What all workers of an elastic training have in common. Subclasses define `save`, `restore` and `sync`."""

    def __init__(self, **kwargs: Any) -> None:
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Call these functions when the workers have changed, before the state is synchronized.

        They may, for example, adapt the learning rate to `hvd.size()`. A worker that joins calls them too.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Call the registered functions."""
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Save the state in memory, and then check for workers that wait to join. All workers must call this."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """If workers wait to join, save the state and raise HostsUpdatedInterrupt. All workers must call this."""
        workers = current()
        if workers is not None:
            said = _agree(workers)
            workers.progressed()
            self.admit(said.admits)

    def admit(self, waits: bool) -> None:
        """If workers wait to join, save the state and raise HostsUpdatedInterrupt, on all workers."""
        if waits:
            self.save()  # now: the positions of loaders in their data are lost when the loops over them end
            raise _AllInterrupted

    def save(self) -> None:
        """Save the state in memory."""
        raise self._missing("save")

    def restore(self) -> None:
        """Return to the state that was saved last."""
        raise self._missing("restore")

    def sync(self) -> None:
        """Give the state of worker 0 to all workers, and save it. All workers must call this."""
        raise self._missing("sync")

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} does not implement {what}. Subclasses of hvd.elastic.State must define it"
        )


class ObjectState(State):
    """A state of attributes, given as keywords: numbers, strings, None, NDArrays, and lists, tuples and dicts of them.

    NDArrays are restored as new arrays on the CPU. An attribute may also be a DataLoader over `mx.dist.shard`: then its
    position in the data is saved. Other objects are refused: nothing is pickled. `bcast_object` and `get_rank`, which
    Horovod needs, have no effect.
    """

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **kwargs: Any) -> None:
        super().__init__()
        for name, value in kwargs.items():
            if hasattr(type(self), name):
                raise ValueError(f"the attribute {name!r} of the state would hide a method. Choose another name")
            setattr(self, name, value)
        self._attributes = list(kwargs)
        self.save()

    def save(self) -> None:
        """Save the state in memory."""
        self._saved = self._copy()

    def restore(self) -> None:
        """Return to the state that was saved last."""
        self._put(*self._saved)

    def sync(self) -> None:
        """Give the state of worker 0 to all workers, and save it. All workers must call this."""
        if session().world.rank == 0:
            self.save()
        with meet("elastic.State.sync", None, ELSE) as (group, _):
            if group.size == 1:
                return
            if group.rank == 0:
                tensors, facts = self._saved
                handover.give_tensors(group, {n: t for n, t in tensors.items() if not n.startswith(_OWN)}, facts)
                return
            received = handover.take_tensors(group)
        self._put(*received)
        self.save()

    def _copy(self) -> Copy:
        """Return a copy of the state."""
        tensors: dict[str, torch.Tensor] = {}
        values: dict[str, Any] = {}
        positions: dict[str, Any] = {}
        for name in self._attributes:
            value = getattr(self, name)
            if isinstance(value, DataLoader):
                positions[name] = _position(value, name)
                continue
            try:
                values[name], arrays = pack({"value": value}, None)
            except MXNetError:
                raise TypeError(
                    f"the attribute {name} of the state is {value!r:.80}: expected numbers, strings, None, NDArrays, "
                    "lists, tuples and dicts of them, or a DataLoader. Convert a NumPy array with mx.nd.array"
                ) from None
            tensors |= {f"value/{name}/{n}": array._data.detach().cpu().clone() for n, array in arrays.items()}
        return tensors, {"values": values, "positions": positions}

    def _put(self, tensors: Mapping[str, torch.Tensor], facts: dict[str, Any]) -> None:
        """Continue with a copy of the state, which stays as it is."""
        for name, content in facts["values"].items():
            arrays = {n: of_kind(NDArray(t.clone(), cpu())) for n, t in _below(tensors, f"value/{name}/").items()}
            setattr(self, name, unpack(content, arrays)[0]["value"])
        for name, position in facts["positions"].items():
            getattr(self, name).load_state(position)


class MXNetState(ObjectState):
    """The state of a network and its Trainer, with attributes as in ObjectState.

    `net` is a Block, or Parameters by name. `trainer` is a Trainer, such as `hvd.DistributedTrainer`. Its optimizer is
    part of the state, with its learning rate. A Module with parameters and an optimizer takes the place of both. Random
    generators are not part of the state.
    """

    def __init__(self, net: Any = None, trainer: Trainer | None = None, **kwargs: Any) -> None:
        module = net if isinstance(net, BaseModule) else None
        self._training = Training(None if module is not None else _block_of(net), trainer, module)
        super().__init__(**kwargs)

    def _copy(self) -> Copy:
        tensors, facts = super()._copy()
        copied, facts["training"] = self._training.copy()
        return tensors | {f"{_TRAINING}{name}": tensor for name, tensor in copied.items()}, facts

    def _put(self, tensors: Mapping[str, torch.Tensor], facts: dict[str, Any]) -> None:
        super()._put(tensors, facts)
        saved = _below(tensors, _TRAINING)
        for name in [each for each in saved if each.startswith("optimizer/")]:
            saved[name] = saved[name].clone()  # the optimizer goes on with these arrays
        # Parameters that got their shapes after the copy was made keep their values.
        later = {each.name: each.tensor for each in self._training.fragments(0, 1)[0] if each.name.startswith("param/")}
        self._training.restore(content_of(later | saved, facts["training"]))
        for value in self._training.subject.values():
            if f"worker/0/grad/{value.name}" not in saved:
                for gradient in value.gradients:  # those that add up
                    gradient[:] = 0


class _Parameters(Block):
    """Parameters that a program holds without a Block."""

    def __init__(self, params: Mapping[str, Parameter]) -> None:
        super().__init__()
        for name, param in params.items():
            setattr(self, name, param)


def _block_of(net: Any) -> Any:
    """Return Parameters by name as a Block, and other objects as they are."""
    is_dict = isinstance(net, (dict, ParameterDict)) and all(isinstance(each, Parameter) for each in net.values())
    return _Parameters(dict(net.items())) if is_dict else net


def _position(loader: DataLoader, name: str) -> dict[str, Any]:
    """Return the position of a loader in its data, which must be the same on all workers."""
    position = loader.state()
    if position["kind"] != "shard":
        raise TypeError(
            f"the attribute {name} of the state is a DataLoader whose position is that of one worker. Create the "
            "DataLoader with mx.dist.shard(dataset), or keep its position in other attributes"
        )
    return position


def _below(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names start with a prefix, without it."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


# ---- running ----


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function whose first argument is a State, to call it again after workers were lost or have joined.

    The state of worker 0 is given to all workers before each call. When a call of Horovod's API or a step of a Trainer
    raises HorovodInternalError, because a worker is lost, the last commit is restored. When `commit` or
    `check_host_updates` raises HostsUpdatedInterrupt, the workers that wait are admitted, and the state stays as it is.
    The function ends when it has ended on all workers. In a job that is not elastic, errors are not handled.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise TypeError(f"{func.__name__} expects a state of hvd.elastic first, received {state!r:.80}")
        if not session().world.is_elastic:
            state.sync()
            return func(state, *args, **kwargs)
        with by_program(HorovodInternalError) as workers:
            return _repeat(workers, state, functools.partial(func, state, *args, **kwargs))

    return wrapper


def _repeat(workers: ByProgram, state: State, call: Callable[[], Any]) -> Any:
    """Call a function until it has ended on all workers."""
    is_reset, needs_sync = workers.must_join, True
    if is_reset and not workers.join():
        return None  # the others have finished the function
    while True:
        loss: PeerError | None = None
        try:
            workers.tell_place()
            if is_reset:
                state.on_reset()
                needs_sync = _agree(workers, needs_sync=needs_sync).needs_sync
            if needs_sync:
                state.sync()
            if is_reset:
                workers.begin()
            result = call()
            while not (said := _agree(workers, ends=True)).ends:
                state.admit(said.admits)
            return result
        except _AllInterrupted as interrupt:
            traceback.clear_frames(interrupt.__traceback__)  # ends loops over data, which would end later otherwise
            needs_sync = True
            state.restore()
        except HostsUpdatedInterrupt as interrupt:
            traceback.clear_frames(interrupt.__traceback__)
            needs_sync = not interrupt.skip_sync
            loss = PeerError("the program has raised HostsUpdatedInterrupt on this worker")
        except PeerError as error:
            traceback.clear_frames(error.__traceback__)
            needs_sync, loss = True, PeerError(str(error))
            state.restore()
        if not workers.regroup(loss):
            return None
        is_reset = True


class _AllInterrupted(HostsUpdatedInterrupt):
    """Raised by all workers at the same point."""


@dataclass(frozen=True)
class _Said:
    """What the workers have said."""

    ends: bool  # whether the function has ended on all of them
    needs_sync: bool  # whether some of them need the state
    admits: bool  # whether others wait to join


def _agree(workers: ByProgram, ends: bool = False, needs_sync: bool = False) -> _Said:
    """Exchange what the workers say. All workers must call this."""
    with meet("elastic", None, ELSE) as (group, _):
        waits = group.rank == 0 and workers.are_waiting()
        said = group.all_gather_small(torch.tensor([ends, needs_sync, waits]), "the progress of all workers")
    return _Said(bool(said[:, 0].all()), bool(said[:, 1].any()), bool(said[:, 2].any()))
