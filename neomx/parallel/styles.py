"""How the workers of a tensor group share one layer: which part of its weights each has, what goes in, what comes out.

A layer computes on DTensors: its weights are, its first input becomes one. Between layers are plain tensors, each
worker's part: torch's DTensor moves what has to move, forward and backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from ..base import MXNetError
from ..gluon import nn
from ..gluon.twin import Twin
from .vocabulary import look_up

WHOLE, FEATURES, SEQUENCE = Replicate(), Shard(-1), Shard(1)
ROWS, COLUMNS = Shard(0), Shard(1)  # of a weight, (outputs, inputs) or (vocabulary, width)


@dataclass(frozen=True)
class Style:
    """What tensor parallelism does with one kind of layer."""

    layer: str  # 'dense', 'embedding', 'norm' (or one without weights), 'container'
    weights: Mapping[str, Placement] = field(default_factory=dict)  # those not named are whole on every worker
    takes: Placement = WHOLE  # how workers hold the input
    uses: Placement = WHOLE  # how the layer needs it
    gives: Placement = WHOLE  # how workers hold the output
    local: bool = True  # whether the output is a plain tensor: this worker's part
    even: bool = True  # whether all parts of the weight must be of one size
    opens: bool = False  # whether layers beside it may take the same input
    inside_sequence: bool = False  # whether its weights' gradients are right where workers have parts of the sequence


_BY_ROWS = {"weight": ROWS, "bias": ROWS}
_BY_COLUMNS = {"weight": COLUMNS}

STYLES = {
    "column": Style("dense", _BY_ROWS, gives=FEATURES, opens=True),
    "row": Style("dense", _BY_COLUMNS, takes=FEATURES, uses=FEATURES),
    "column_gather": Style("dense", _BY_ROWS),
    "logits": Style("dense", _BY_ROWS, gives=FEATURES, local=False, even=False),
    "vocabulary": Style("embedding", {"weight": ROWS}, even=False),
    "width": Style("embedding", _BY_COLUMNS),
    "sequence": Style("norm", takes=SEQUENCE, uses=SEQUENCE, gives=SEQUENCE, inside_sequence=True),
    "sequence_column": Style("dense", _BY_ROWS, takes=SEQUENCE, gives=FEATURES, opens=True, inside_sequence=True),
    "sequence_row": Style("dense", _BY_COLUMNS, takes=FEATURES, uses=FEATURES, gives=SEQUENCE, inside_sequence=True),
    "sequence_region": Style("container", uses=SEQUENCE),
}

_TORCH_KINDS = {
    "dense": (torch.nn.Linear,),
    "embedding": (torch.nn.Embedding,),
    "norm": (torch.nn.LayerNorm, torch.nn.RMSNorm),
}
_GLUON_KINDS: dict[str, tuple[type, ...]] = {
    "dense": (nn.Dense,),
    "embedding": (nn.Embedding,),
    "norm": (nn.LayerNorm,),
}


def layer_of(module: torch.nn.Module) -> Any:
    """The Block that a module is the twin of; else the module."""
    return module._block if isinstance(module, Twin) else module


def kind_of(module: torch.nn.Module) -> str:
    """Whose styles fit: 'dense', 'embedding', 'norm', 'container' for what has no weights itself, or 'other'."""
    kinds = _GLUON_KINDS if isinstance(module, Twin) else _TORCH_KINDS
    for kind, types in kinds.items():
        if isinstance(layer_of(module), types):
            return kind
    return "other" if module._parameters else "container"


def fits(style: Style, module: torch.nn.Module) -> bool:
    """Whether a style is for that kind of layer; norms' is also for what has no weights, such as Dropout."""
    kind = kind_of(module)
    return kind == style.layer or (style.layer == "norm" and kind == "container")


class Inputs:
    """Layers side by side (query, key, value) take one input: it is distributed once, and its gradient summed once."""

    def __init__(self) -> None:
        self.last: tuple[Any, Any] = (), None

    def distribute(self, tensor: torch.Tensor, style: Style, mesh: Any) -> DTensor:
        """`tensor` as the layer needs it."""
        key = (id(tensor), torch.is_grad_enabled(), style.takes, style.uses)
        known, given = self.last
        if known[:4] == key:
            return given  # type: ignore[no-any-return]
        given = _distribute(tensor, style, mesh)
        self.last = ((*key, tensor), given) if style.opens else ((), None)  # it lives as long as its number counts
        return given


def _distribute(tensor: torch.Tensor, style: Style, mesh: Any) -> DTensor:
    if not isinstance(tensor, DTensor):
        tensor = DTensor.from_local(tensor, mesh, [style.takes], run_check=False)
    return tensor.redistribute(placements=[style.uses])


def _enter(style: Style, mesh: Any, inputs: Inputs, module: torch.nn.Module, args: Any) -> Any:
    if not args:
        raise MXNetError("a tensor-parallel layer takes its input as the first argument, without a name")
    return inputs.distribute(args[0], style, mesh), *args[1:]


def _leave(style: Style, mesh: Any, module: torch.nn.Module, args: Any, output: Any) -> Any:
    output = output.redistribute(placements=[style.gives])
    return output.to_local() if style.local else output


def _enter_region(name: str, mesh: Any, module: torch.nn.Module, args: Any) -> Any:
    """Cut the input along the sequence: this worker goes on with its part of the steps."""
    whole = args[0]
    if whole.dim() < 2 or whole.shape[1] % mesh.size():
        raise MXNetError(
            f"{name or 'the net'} (style 'sequence_region') takes sequences, (batch, time, ...), whose time "
            f"{mesh.size()} workers divide; received the shape {tuple(whole.shape)}. Pad or cut them"
        )
    part = DTensor.from_local(whole, mesh, [WHOLE], run_check=False).redistribute(placements=[SEQUENCE])
    return part.to_local(), *args[1:]


def _leave_region(name: str, mesh: Any, module: torch.nn.Module, args: Any, output: Any) -> Any:
    if not isinstance(output, torch.Tensor):
        raise MXNetError(f"{name or 'the net'} (style 'sequence_region') must give one array, received {type(output)}")
    return DTensor.from_local(output, mesh, [SEQUENCE], run_check=False).redistribute(placements=[WHOLE]).to_local()


def _forward_rows(module: torch.nn.Module, indices: torch.Tensor) -> torch.Tensor:
    """Forward of an embedding whose vocabulary workers hold together."""
    weight: Any = module._parameters["weight"]
    indices = indices.detach().long()
    if isinstance(module, Twin):
        return look_up(weight, indices.clamp(0, weight.shape[0] - 1))  # MXNet takes the nearest row
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < weight.shape[0]:
        raise IndexError(f"an index is out of bounds: the embedding has {weight.shape[0]} rows")
    return look_up(weight, indices, module.padding_idx)  # type: ignore[arg-type]


def _called(*_: Any) -> None:
    """A hook that only makes a Block be called through its twin."""


def install(module: torch.nn.Module, name: str, chosen: str, mesh: Any, inputs: Inputs) -> None:
    """Have a layer, whose weights are distributed already, take and give what its style says."""
    style = STYLES[chosen]
    if chosen == "vocabulary":
        module.forward = partial(_forward_rows, module)  # type: ignore[method-assign]
        module.register_forward_hook(_called)
    elif chosen == "sequence_region":
        module.register_forward_pre_hook(partial(_enter_region, name, mesh))
        module.register_forward_hook(partial(_leave_region, name, mesh))
    else:
        module.register_forward_pre_hook(partial(_enter, style, mesh, inputs))
        module.register_forward_hook(partial(_leave, style, mesh))
