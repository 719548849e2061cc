"""How the workers of a tensor group share one layer: which part of its weights each has, what goes in, what comes out.

The weights are DTensors; a layer computes on this worker's parts of them, and on plain tensors. What has to cross
between workers does so where a layer begins or ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from .. import ndarray as nd
from ..base import MXNetError
from ..gluon import HybridBlock, nn
from ..gluon.placement import follow
from ..gluon.twin import Twin
from ..ndarray import NDArray
from .crossing import Crossing
from .vocabulary import look_up

Tensor = torch.Tensor
WHOLE, FEATURES, SEQUENCE = Replicate(), Shard(-1), Shard(1)  # how workers hold activations, (batch, time, features)
ROWS, COLUMNS = Shard(0), Shard(1)  # of a weight, (outputs, inputs) or (vocabulary, width)
Way = Callable[[Crossing, Tensor], Tensor]


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

    @cached_property
    def enter(self) -> Way | None:
        """What the input of a Dense layer goes through."""
        if self.uses != WHOLE:
            return None
        return Crossing.join_copy if self.takes == SEQUENCE else Crossing.copy

    @cached_property
    def leave(self) -> Way | None:
        """What its output goes through: sums of parts, or parts of the features."""
        if self.layer == "dense" and self.weights["weight"] == COLUMNS:
            return Crossing.sum_split if self.gives == SEQUENCE else Crossing.sum
        return Crossing.join_features if self.gives == WHOLE else None


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

# Layers that are known to compute what is written below: one with a forward of its own is of another kind.
_KINDS: dict[str, tuple[type, ...]] = {
    "dense": (nn.Dense, torch.nn.Linear),
    "embedding": (nn.Embedding, torch.nn.Embedding),
    "norm": (nn.LayerNorm, torch.nn.LayerNorm, torch.nn.RMSNorm),
}


def layer_of(module: torch.nn.Module) -> Any:
    """The Block that a module is the twin of; else the module."""
    return module._block if isinstance(module, Twin) else module


def kind_of(module: torch.nn.Module) -> str:
    """Whose styles fit: 'dense', 'embedding', 'norm', 'container' for what has no weights itself, or 'other'."""
    layer = layer_of(module)
    computes = "hybrid_forward" if isinstance(module, Twin) else "forward"
    for kind, types in _KINDS.items():
        for each in types:
            if isinstance(layer, each) and getattr(type(layer), computes) is getattr(each, computes):
                return kind
    return "other" if module._parameters else "container"


def fits(style: Style, module: torch.nn.Module) -> bool:
    """Whether a style is for that kind of layer; norms' is also for what has no weights, such as Dropout."""
    kind = kind_of(module)
    return kind == style.layer or (style.layer == "norm" and kind == "container")


class Inputs:
    """Layers side by side (query, key, value) take one input: it crosses once, and so does its gradient."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()

    def enter(self, style: Style, crossing: Crossing, x: Tensor) -> Tensor:
        """`x` as the layer needs it."""
        way, graph = style.enter, torch.is_grad_enabled()
        if self._last and self._last[0] is x and self._last[1:3] == (way, graph):
            return self._last[3]  # type: ignore[no-any-return]
        entered = x if way is None else way(crossing, x)
        self._last = (x, way, graph, entered) if style.opens else ()  # the layer after them clears it
        return entered


@dataclass(frozen=True)
class Layer:
    """A layer of which this worker computes its part."""

    module: torch.nn.Module
    style: Style
    crossing: Crossing
    inputs: Inputs

    def own(self, name: str) -> Any:
        """This worker's part of a weight; None if there is no such.

        Where workers have parts of the sequence, a whole weight's gradient is the sum of theirs.
        """
        weight: Any = self.module._parameters.get(name)
        if weight is None:
            return None
        summed = self.style.inside_sequence and name not in self.style.weights
        return weight.to_local(grad_placements=[Partial()] if summed else None)

    def dense(self, x: Tensor, product: Callable[..., Tensor], activate: Callable[[Tensor], Tensor]) -> Tensor:
        """A Dense layer, by rows or by columns of its weight."""
        x = self.inputs.enter(self.style, self.crossing, x)
        weight, bias, leave = self.own("weight"), self.own("bias"), self.style.leave or _stay
        if self.style.weights["weight"] == COLUMNS:
            out = leave(self.crossing, product(x, weight, None))
            return activate(out if bias is None else out + bias.to(out.dtype))
        out = leave(self.crossing, activate(product(x, weight, bias)))
        return out if self.style.local else self.together(out)

    def together(self, scores: Tensor) -> DTensor:
        """Scores of which each worker has some classes, as one tensor."""
        shape = torch.Size((*scores.shape[:-1], len(self.module._parameters["weight"])))  # type: ignore[arg-type]
        stride, placement = torch.empty(shape, device="meta").stride(), [Shard(scores.dim() - 1)]
        return DTensor.from_local(
            scores.contiguous(), self.crossing.mesh, placement, run_check=False, shape=shape, stride=stride
        )

    def dense_module(self, x: Tensor) -> Tensor:
        """torch's Linear."""
        return self.dense(x, F.linear, lambda out: out)

    def dense_block(self, x: NDArray) -> NDArray:
        """Dense, through the op table."""
        block, ctx = layer_of(self.module), x._ctx
        if self.style.weights["weight"] == COLUMNS and block._flatten and x.ndim != 2:
            raise MXNetError(
                f"{self.crossing.layer}: a Dense layer whose inputs workers hold together takes (batch, features), "
                f"received the shape {x.shape}. Make it with flatten=False"
            )

        def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            arrays = [NDArray(each, ctx) for each in (x, weight, bias) if each is not None]
            options = {"num_hidden": weight.shape[0], "no_bias": bias is None, "flatten": block._flatten}
            return nd.FullyConnected(*arrays, **options)._data  # type: ignore[no-any-return]

        def activate(out: Tensor) -> Tensor:
            return out if block.act is None else block.act(NDArray(out, ctx))._data

        return NDArray(self.dense(x._data, product, activate), ctx)

    def embedding(self, indices: Tensor, padding: int | None = None) -> Tensor:
        """Rows for indices that all are in range."""
        if self.style.weights["weight"] == ROWS:
            return look_up(self.module._parameters["weight"], indices, self.crossing, padding)  # type: ignore[arg-type]
        return self.crossing.join_features(F.embedding(indices, self.own("weight"), padding))

    def embedding_module(self, indices: Tensor) -> Tensor:
        """torch's Embedding."""
        rows = self.module._parameters["weight"].shape[0]  # type: ignore[union-attr]
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < rows:
            raise IndexError(f"{self.crossing.layer}: an index is out of bounds, the embedding has {rows} rows")
        return self.embedding(indices.long(), self.module.padding_idx)  # type: ignore[arg-type]

    def embedding_block(self, indices: NDArray) -> NDArray:
        """Embedding, which takes the nearest row for what is out of range."""
        rows = self.module._parameters["weight"].shape[0]  # type: ignore[union-attr]
        return NDArray(self.embedding(indices._data.detach().long().clamp(0, rows - 1)), indices._ctx)

    def norm_module(self, x: Tensor) -> Tensor:
        """torch's norms on this worker's part of the sequence."""
        module = self.module
        if isinstance(module, torch.nn.RMSNorm):
            return F.rms_norm(x, list(module.normalized_shape), self.own("weight"), module.eps)
        assert isinstance(module, torch.nn.LayerNorm)
        return F.layer_norm(x, list(module.normalized_shape), self.own("weight"), self.own("bias"), module.eps)

    def norm_block(self, x: NDArray) -> NDArray:
        """LayerNorm on this worker's part of the sequence."""
        arrays = {name: NDArray(self.own(name), x._ctx) for name in self.module._parameters}
        return layer_of(self.module).hybrid_forward(nd, x, **arrays)  # type: ignore[no-any-return]


def _stay(_: Crossing, x: Tensor) -> Tensor:
    return x


def _forward(block: HybridBlock, compute: Callable[[NDArray], Any], x: Any, *args: Any) -> Any:
    """A Block's forward: of arrays the new one, of symbols that of its class."""
    if not isinstance(x, NDArray):
        return type(block).forward(block, x, *args)
    follow(block._reg_params.values())  # fully_shard has put the gathered tensor there: its gradient overwrites, too
    return compute(x)


def _seen(*_: Any) -> None:
    """A hook that has a layer called by itself, not inside a hybridized Block's graph or a fused layer of torch."""


def _enter_region(crossing: Crossing, module: torch.nn.Module, args: Any) -> Any:
    """Cut the input along the sequence: this worker goes on with its part of the steps."""
    whole = args[0]
    if whole.dim() < 2 or whole.shape[1] % crossing.size:
        raise MXNetError(
            f"{crossing.layer} (style 'sequence_region') takes sequences, (batch, time, ...), whose time "
            f"{crossing.size} workers divide; received the shape {tuple(whole.shape)}. Pad or cut them"
        )
    return crossing.split(whole), *args[1:]


def _leave_region(crossing: Crossing, module: torch.nn.Module, args: Any, output: Any) -> Any:
    if not isinstance(output, torch.Tensor):
        raise MXNetError(f"{crossing.layer} (style 'sequence_region') must give one array, received {type(output)}")
    return crossing.join(output)


def install(module: torch.nn.Module, name: str, chosen: str, mesh: DeviceMesh, inputs: Inputs) -> None:
    """Have a layer, whose weights are distributed already, take and give what its style says."""
    style, crossing, kind = STYLES[chosen], Crossing(mesh, name or "the net"), kind_of(module)
    if chosen == "sequence_region":
        module.register_forward_pre_hook(partial(_enter_region, crossing))
        module.register_forward_hook(partial(_leave_region, crossing))
    elif kind != "container":
        layer, divided = layer_of(module), Layer(module, style, crossing, inputs)
        if isinstance(module, Twin):
            layer.forward = partial(_forward, layer, getattr(divided, f"{kind}_block"))
        else:
            layer.forward = getattr(divided, f"{kind}_module")
        module.register_forward_hook(_seen)
