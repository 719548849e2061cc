"""Styles of tensor parallelism: how a layer's weights, inputs and outputs are distributed over a tensor group.

The weights are DTensors. A layer computes on this worker's parts of them, and on plain tensors. Communication takes
place where a layer begins or ends.
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
WHOLE, FEATURES, SEQUENCE = Replicate(), Shard(-1), Shard(1)  # placements of activations, (batch, time, features)
ROWS, COLUMNS = Shard(0), Shard(1)  # placements of a weight, (outputs, inputs) or (vocabulary, width)
Way = Callable[[Crossing, Tensor], Tensor]


@dataclass(frozen=True)
class Style:
    """How tensor parallelism distributes one kind of layer."""

    layer: str  # 'dense', 'embedding', 'norm' (also layers without weights), 'container'
    weights: Mapping[str, Placement] = field(default_factory=dict)  # placements by name; other weights are replicated
    takes: Placement = WHOLE  # placement of the input
    uses: Placement = WHOLE  # placement of the input that the layer computes on
    gives: Placement = WHOLE  # placement of the output
    local: bool = True  # whether the output is a plain tensor, this worker's part
    even: bool = True  # whether all parts of the weight must have the same size
    opens: bool = False  # whether sibling layers may share the same input
    inside_sequence: bool = False  # whether gradients are correct on sequence-sharded activations

    @cached_property
    def enter(self) -> Way | None:
        """The communication applied to the input of a Dense layer, or None."""
        if self.uses != WHOLE:
            return None
        return Crossing.join_copy if self.takes == SEQUENCE else Crossing.copy

    @cached_property
    def leave(self) -> Way | None:
        """The communication applied to its output: a sum of parts, or a gather of features; or None."""
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

# Layers whose computation is known here; a subclass that overrides forward is of another kind.
_KINDS: dict[str, tuple[type, ...]] = {
    "dense": (nn.Dense, torch.nn.Linear),
    "embedding": (nn.Embedding, torch.nn.Embedding),
    "norm": (nn.LayerNorm, torch.nn.LayerNorm, torch.nn.RMSNorm),
}


def layer_of(module: torch.nn.Module) -> Any:
    """Return the Block of which a module is the twin, or the module itself."""
    return module._block if isinstance(module, Twin) else module


def kind_of(module: torch.nn.Module) -> str:
    """Return the kind of layer: 'dense', 'embedding', 'norm', 'container' (no weights of its own) or 'other'."""
    layer = layer_of(module)
    computes = "hybrid_forward" if isinstance(module, Twin) else "forward"
    for kind, types in _KINDS.items():
        for each in types:
            if isinstance(layer, each) and getattr(type(layer), computes) is getattr(each, computes):
                return kind
    return "other" if module._parameters else "container"


def fits(style: Style, module: torch.nn.Module) -> bool:
    """Return whether a style is for this kind of layer; 'norm' also applies to layers without weights, as Dropout."""
    kind = kind_of(module)
    return kind == style.layer or (style.layer == "norm" and kind == "container")


class Inputs:
    """Inputs that sibling layers (query, key, value) share: the input and its gradient are communicated only once."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()

    def enter(self, style: Style, crossing: Crossing, x: Tensor) -> Tensor:
        """Return `x` in the placement that the layer needs."""
        way, graph = style.enter, torch.is_grad_enabled()
        if self._last and self._last[0] is x and self._last[1:3] == (way, graph):
            return self._last[3]  # type: ignore[no-any-return]
        entered = x if way is None else way(crossing, x)
        self._last = (x, way, graph, entered) if style.opens else ()  # the next layer of another style clears it
        return entered


@dataclass(frozen=True)
class Layer:
    """A layer of which this worker computes one part."""

    module: torch.nn.Module
    style: Style
    crossing: Crossing
    inputs: Inputs

    def own(self, name: str) -> Any:
        """Return this worker's part of a weight; None if there is no weight of this name.

        If the workers have parts of the sequence, the gradient of a replicated weight is summed over them.
        """
        weight: Any = self.module._parameters.get(name)
        if weight is None:
            return None
        summed = self.style.inside_sequence and name not in self.style.weights
        return weight.to_local(grad_placements=[Partial()] if summed else None)

    def dense(self, x: Tensor, product: Callable[..., Tensor], activate: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute a Dense layer whose weight is split by rows or columns."""
        x = self.inputs.enter(self.style, self.crossing, x)
        weight, bias, leave = self.own("weight"), self.own("bias"), self.style.leave or _stay
        if self.style.weights["weight"] == COLUMNS:
            out = leave(self.crossing, product(x, weight, None))
            return activate(out if bias is None else out + bias.to(out.dtype))
        out = leave(self.crossing, activate(product(x, weight, bias)))
        return out if self.style.local else self.together(out)

    def together(self, scores: Tensor) -> DTensor:
        """Return scores as one DTensor, of which each worker has some classes."""
        shape = torch.Size((*scores.shape[:-1], len(self.module._parameters["weight"])))  # type: ignore[arg-type]
        stride, placement = torch.empty(shape, device="meta").stride(), [Shard(scores.dim() - 1)]
        return DTensor.from_local(
            scores.contiguous(), self.crossing.mesh, placement, run_check=False, shape=shape, stride=stride
        )

    def dense_module(self, x: Tensor) -> Tensor:
        """Compute torch's Linear."""
        return self.dense(x, F.linear, lambda out: out)

    def dense_block(self, x: NDArray) -> NDArray:
        """Compute gluon's Dense, through the op table."""
        block, ctx = layer_of(self.module), x._ctx
        if self.style.weights["weight"] == COLUMNS and block._flatten and x.ndim != 2:
            raise MXNetError(
                f"{self.crossing.layer}: a Dense layer with sharded inputs expects shape (batch, features), "
                f"received {x.shape}. Create it with flatten=False"
            )

        def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            arrays = [NDArray(each, ctx) for each in (x, weight, bias) if each is not None]
            options = {"num_hidden": weight.shape[0], "no_bias": bias is None, "flatten": block._flatten}
            return nd.FullyConnected(*arrays, **options)._data  # type: ignore[no-any-return]

        def activate(out: Tensor) -> Tensor:
            return out if block.act is None else block.act(NDArray(out, ctx))._data

        return NDArray(self.dense(x._data, product, activate), ctx)

    def embedding(self, indices: Tensor, padding: int | None = None) -> Tensor:
        """Return the rows for indices, all of which must be in range."""
        if self.style.weights["weight"] == ROWS:
            return look_up(self.module._parameters["weight"], indices, self.crossing, padding)  # type: ignore[arg-type]
        return self.crossing.join_features(F.embedding(indices, self.own("weight"), padding))

    def embedding_module(self, indices: Tensor) -> Tensor:
        """Compute torch's Embedding."""
        rows = self.module._parameters["weight"].shape[0]  # type: ignore[union-attr]
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < rows:
            raise IndexError(f"{self.crossing.layer}: an index is out of bounds, the embedding has {rows} rows")
        return self.embedding(indices.long(), self.module.padding_idx)  # type: ignore[arg-type]

    def embedding_block(self, indices: NDArray) -> NDArray:
        """Compute gluon's Embedding, which clips indices that are out of range."""
        rows = self.module._parameters["weight"].shape[0]  # type: ignore[union-attr]
        return NDArray(self.embedding(indices._data.detach().long().clamp(0, rows - 1)), indices._ctx)

    def norm_module(self, x: Tensor) -> Tensor:
        """Compute torch's normalization layers on this worker's part of the sequence."""
        module = self.module
        if isinstance(module, torch.nn.RMSNorm):
            return F.rms_norm(x, list(module.normalized_shape), self.own("weight"), module.eps)
        assert isinstance(module, torch.nn.LayerNorm)
        return F.layer_norm(x, list(module.normalized_shape), self.own("weight"), self.own("bias"), module.eps)

    def norm_block(self, x: NDArray) -> NDArray:
        """Compute LayerNorm on this worker's part of the sequence."""
        arrays = {name: NDArray(self.own(name), x._ctx) for name in self.module._parameters}
        return layer_of(self.module).hybrid_forward(nd, x, **arrays)  # type: ignore[no-any-return]


def _stay(_: Crossing, x: Tensor) -> Tensor:
    return x


def _forward(block: HybridBlock, compute: Callable[[NDArray], Any], x: Any, *args: Any) -> Any:
    """Run a Block's forward: the new one for arrays, that of its class for symbols."""
    if not isinstance(x, NDArray):
        return type(block).forward(block, x, *args)
    follow(block._reg_params.values())  # fully_shard replaced them by gathered tensors, whose gradients overwrite, too
    return compute(x)


def _seen(*_: Any) -> None:
    """A hook that does nothing, but prevents a layer from being fused into a hybridized graph or a torch fast path."""


def _enter_region(crossing: Crossing, module: torch.nn.Module, args: Any) -> Any:
    """Split the input along the sequence; this worker continues with its part of the time steps."""
    whole = args[0]
    if whole.dim() < 2 or whole.shape[1] % crossing.size:
        raise MXNetError(
            f"{crossing.layer} (style 'sequence_region') expects input (batch, time, ...) with a time dimension "
            f"divisible by {crossing.size} workers, received shape {tuple(whole.shape)}. Pad or truncate it"
        )
    return crossing.split(whole), *args[1:]


def _leave_region(crossing: Crossing, module: torch.nn.Module, args: Any, output: Any) -> Any:
    if not isinstance(output, torch.Tensor):
        raise MXNetError(f"{crossing.layer} (style 'sequence_region') must return one array, received {type(output)}")
    return crossing.join(output)


def install(module: torch.nn.Module, name: str, chosen: str, mesh: DeviceMesh, inputs: Inputs) -> None:
    """Make a layer, whose weights are already distributed, follow its style."""
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
