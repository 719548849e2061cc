"""The state of a training: what a checkpoint contains, how workers divide it, and how it is restored.

Tensors have these names in the files of a checkpoint:

    param/NAME                a Parameter that is the same on all workers
    optimizer/N               an array of the optimizer states
    worker/R/param/NAME       a Parameter that each worker computes itself: running averages
    worker/R/random/NAME      the state of a random generator of worker R
    worker/R/strategy/NAME    the state of the gradient exchange of worker R

The others are divided over the workers by size. All remaining values are JSON: `facts` in the manifest, and those of
one worker in the metadata of its file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import MXNetError
from ..context import cpu
from ..gluon import Block, Parameter, Trainer
from ..gluon.loading import holders_of
from ..gluon.placement import has_values
from ..ndarray import NDArray
from . import generators
from .manifest import CheckpointError

_log = logging.getLogger("neomx")


@dataclass
class Snapshot:
    """A copy of the state of a training in memory: this worker's part of it."""

    step: int
    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]  # the same on all workers
    mine: dict[str, Any]  # those of this worker
    metric: float | None = None


@dataclass
class Content:
    """What was read from a checkpoint."""

    step: int
    workers: int
    tensors: Mapping[str, torch.Tensor]
    facts: dict[str, Any]
    of_workers: list[dict[str, Any]] = field(default_factory=list)

    def below(self, prefix: str) -> dict[str, torch.Tensor]:
        """Return the tensors whose names start with a prefix, without it."""
        return {name[len(prefix) :]: self.tensors[name] for name in self.tensors if name.startswith(prefix)}


@dataclass
class Training:
    """The objects of a program whose state is saved: a network, its Trainer, or both."""

    net: Block | None
    trainer: Trainer | None

    def parameters(self) -> dict[str, Parameter]:
        """Return the Parameters by their names in a checkpoint."""
        found: dict[str, Parameter] = {}
        known: set[int] = set()
        named = list(self.net._collect_params_with_prefix().items()) if self.net is not None else []
        trained = self.trainer.parameters if self.trainer is not None else []
        for name, param in [*named, *((param.name, param) for param in trained)]:
            if id(param) not in known:
                if name in found:
                    raise CheckpointError(f"two Parameters are named {name!r}: pass net= to name them by its structure")
                known.add(id(param))
                found[name] = param
        if holders_of(found.values()) is not None:
            raise CheckpointError(
                "checkpoints of a model with a layout of mx.parallel are not supported yet. Save it with "
                "net.save_parameters and trainer.save_states"
            )
        return found

    def copy(self, rank: int, workers: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return copies of this worker's tensors, and the facts about all tensors."""
        params = self.parameters()
        shared: dict[str, torch.Tensor] = {}
        own: dict[str, torch.Tensor] = {}
        for name, param in params.items():
            if has_values(param):
                tensor = _dense(param.list_data()[0], f"Parameter {name!r}")
                if workers > 1 and not param._differentiable:
                    own[f"param/{name}"] = tensor
                else:
                    shared[f"param/{name}"] = tensor
        facts: dict[str, Any] = {
            "parameters": {name: list(param.shape or ()) for name, param in params.items() if has_values(param)},
        }
        if self.trainer is not None:
            content, arrays = self.trainer.packed_states()
            facts["optimizer"] = content
            shared |= {f"optimizer/{n}": _dense(array, "an optimizer state") for n, array in arrays.items()}
            own |= {f"strategy/{name}": state for name, state in self.trainer.strategy.state().items()}
            scaler = self.trainer._amp_loss_scaler
            facts["loss_scale"] = None if scaler is None else scaler.state()
        own |= {f"random/{name}": state for name, state in generators.states().items()}
        chosen = {name: shared[name] for name in divide({n: t.nbytes for n, t in shared.items()}, workers)[rank]}
        chosen |= {f"worker/{rank}/{name}": tensor for name, tensor in own.items()}
        return {name: _copied(tensor) for name, tensor in chosen.items()}, facts

    def restore(self, content: Content, rank: int, workers: int) -> None:
        """Restore parameters, optimizer states and the gradient exchange. If something does not fit, change nothing."""
        same = workers == content.workers
        mine = f"worker/{rank if same else 0}/"
        arrays = content.below("param/") | content.below(f"{mine}param/")
        params = self.parameters()
        _check(params, arrays)
        packed = {name: NDArray(tensor, cpu()) for name, tensor in content.below("optimizer/").items()}
        if self.trainer is not None and "optimizer" not in content.facts:
            raise CheckpointError("the checkpoint has no optimizer states: it was saved without trainer=")
        for name, tensor in arrays.items():
            params[name]._load_init(NDArray(tensor, cpu()), None)
        if self.trainer is not None:
            self.trainer.take_packed_states(content.facts["optimizer"], packed)
            self._restore_trainer(self.trainer, content, content.below(f"{mine}strategy/"), same)

    def _restore_trainer(
        self, trainer: Trainer, content: Content, exchange: dict[str, torch.Tensor], same: bool
    ) -> None:
        scale, scaler = content.facts.get("loss_scale"), trainer._amp_loss_scaler
        if scaler is not None and scale is not None:
            scaler.load_state(scale)
        if exchange and same:
            trainer.strategy.load_state(exchange)
        elif exchange:
            _log.warning("the residuals of compressed gradients are dropped: the number of workers has changed")


def restore_generators(content: Content, rank: int) -> None:
    """Restore the random generators of this worker. Workers that did not exist then get seeds of their own."""
    if rank < content.workers:
        generators.restore(content.below(f"worker/{rank}/random/"))
    else:
        generators.reseed(content.below("worker/0/random/"), rank)


def divide(sizes: Mapping[str, int], workers: int) -> list[list[str]]:
    """Divide names over workers so that all have about the same number of bytes. The result depends on nothing else."""
    shares: list[list[str]] = [[] for _ in range(workers)]
    load = [0] * workers
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = load.index(min(load))
        shares[least].append(name)
        load[least] += sizes[name]
    return shares


def _check(params: Mapping[str, Parameter], arrays: Mapping[str, torch.Tensor]) -> None:
    """Raise if a checkpoint does not belong to these Parameters."""
    missing = [name for name, param in params.items() if name not in arrays and has_values(param)]
    extra = [name for name in arrays if name not in params]
    wrong = [
        f"{name}: {problem}"
        for name, tensor in arrays.items()
        if name in params and (problem := params[name]._mismatch(NDArray(tensor, cpu()), None, False, "current"))
    ]
    problems = [
        *([f"the model has {_few(missing)}, which the checkpoint lacks"] if missing else []),
        *([f"the checkpoint has {_few(extra)}, which the model lacks"] if extra else []),
        *wrong[:5],
    ]
    if problems:
        raise CheckpointError(
            f"the checkpoint belongs to another model: {'; '.join(problems)}. Create the same model as for the run "
            "that saved it, or use another directory"
        )


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _dense(array: NDArray, what: str) -> torch.Tensor:
    if array._sparse:
        raise CheckpointError(f"{what} is {array.stype}: checkpoints support only dense arrays")
    return array._data.detach()


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in the memory of the CPU."""
    found = tensor.detach()
    return found.clone(memory_format=torch.contiguous_format) if found.device.type == "cpu" else found.cpu()


def check_plain(value: Any, what: str) -> None:
    """Raise if a value is not made of plain JSON values."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise MXNetError(f"{what} must have strings as keys, received {list(value)!r:.100}")
        for key, each in value.items():
            check_plain(each, f"{what}[{key!r}]")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            check_plain(each, f"{what}[{number}]")
    elif not (value is None or type(value) in (bool, int, float, str)):
        raise MXNetError(
            f"{what} is a {type(value).__name__}: expected None, a bool, an int, a float, a str, or lists and dicts of "
            "them"
        )
