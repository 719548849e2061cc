"""Tensor parallelism: the workers of a group compute each layer together, each with a part of its weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement, Replicate, Shard

from ..base import MXNetError, suggest
from ..gluon.twin import Twin, follow_inside
from .automatic import automatic_plan
from .dimensions import Plan
from .model import Model, module_of
from .styles import STYLES, Inputs, Style, fits, install, kind_of, layer_of


@dataclass(frozen=True)
class Target:
    """A layer and the style chosen for it."""

    name: str
    module: torch.nn.Module
    chosen: str

    @property
    def style(self) -> Style:
        return STYLES[self.chosen]

    def weights(self) -> Iterator[tuple[str, torch.nn.Parameter, Placement]]:
        """Yield (name, tensor, placement) of the layer's own parameters."""
        for name, tensor in self.module._parameters.items():
            if tensor is not None:
                yield name, tensor, self.style.weights.get(name, Replicate())


def parallelize(net: Model, mesh: DeviceMesh, plan: Plan = "auto") -> None:
    """Split the layers of a Block or a torch module over the workers of a one-dimensional mesh, in place.

    `plan` is `{name pattern: style}`, or 'auto'. If any part of it is invalid, nothing is changed. The values must be
    equal on all workers.
    """
    targets = targets_of(net, plan, mesh.size())
    module = module_of(net)
    _distribute(targets, mesh)
    inputs = Inputs()
    for target in targets:
        install(target.module, target.name, target.chosen, mesh, inputs)
    follow_inside(module)


# ---- from a plan to layers ----


def targets_of(net: Model, plan: Plan, degree: int) -> list[Target]:
    """Return the layers that a plan splits over `degree` workers. Raises if the plan does not fit the net."""
    module = module_of(net)
    modules = dict(module.named_modules(remove_duplicate=False))
    if plan == "auto":
        targets = _join(modules, automatic_plan(modules, degree))
    elif isinstance(plan, Mapping) and plan:
        targets = _join(modules, _matches(modules, plan))
    else:
        raise TypeError(f"plan must be 'auto' or {{name pattern: style}}, received {plan!r:.80}")
    _check(module, targets, degree)
    return targets


def _matches(modules: dict[str, torch.nn.Module], plan: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (name, style) of the layers that the patterns match."""
    found: list[tuple[str, str]] = []
    for pattern, chosen in plan.items():
        if chosen not in STYLES:
            raise MXNetError(
                f"plan: {pattern!r} has the style {chosen!r}.{suggest(str(chosen), STYLES)} Styles are "
                f"{', '.join(STYLES)}"
            )
        names = [name for name in modules if fnmatchcase(name, "" if pattern == "." else pattern)]
        if not names:
            raise MXNetError(f"plan: {pattern!r} matches no layer.{_known(pattern, modules)}")
        found += [(name, chosen) for name in names]
    return found


def _join(modules: dict[str, torch.nn.Module], found: list[tuple[str, str]]) -> list[Target]:
    """Return one target per module. Raises for two styles of one module, and a style for a layer of another kind."""
    targets: dict[int, Target] = {}
    for name, chosen in found:
        target = targets.setdefault(id(modules[name]), Target(name, modules[name], chosen))
        if target.chosen != chosen:
            also = "" if name == target.name else f" (also called {target.name!r})"
            raise MXNetError(
                f"plan: {name!r}{also} matches two patterns, with styles {target.chosen!r} and {chosen!r}. "
                "Make one of them narrower"
            )
    for target in targets.values():
        if not fits(target.style, target.module):
            kind = type(layer_of(target.module)).__name__
            raise MXNetError(
                f"plan: {target.name or 'the net'!r} is of class {kind}, but the style {target.chosen!r} is for "
                f"{_WANTED[target.style.layer]}"
            )
    return list(targets.values())


_WANTED = {
    "dense": "Dense or torch.nn.Linear layers",
    "embedding": "Embedding layers",
    "norm": "LayerNorm and layers without weights, such as Dropout",
    "container": "Blocks and modules without weights of their own",
}


def _known(pattern: str, modules: dict[str, torch.nn.Module]) -> str:
    """Return the existing names; those that differ only in a number are listed once."""
    names = [name for name in modules if name]
    short = dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names)
    return f"{suggest(pattern, [*names, *short])} The net has {', '.join(short) or 'no layers inside'}"


# ---- checks ----


def _check(module: torch.nn.Module, targets: list[Target], degree: int) -> None:
    """Raise if something cannot be split, before anything is changed."""
    for name, tensor in module.named_parameters():
        if isinstance(tensor, DTensor):
            raise MXNetError(f"{name} is already split over workers. Apply a layout once, tensor parallelism first")
    for target in targets:
        for name, tensor, placement in target.weights():
            where = ".".join(filter(None, (target.name, name)))
            if isinstance(placement, Shard):
                _check_size(where, tensor.shape[placement.dim], target, degree)
        _check_layer(target)
        _check_heads(module, target, degree)
    _check_shared(module, targets)
    _check_regions(targets)


def _check_size(where: str, size: int, target: Target, degree: int) -> None:
    if target.style.even and size % degree:
        raise MXNetError(
            f"{where}: {size} is not divisible by {degree} tensor-parallel workers (style {target.chosen!r}). Choose "
            f"a multiple of {degree}, another degree, or remove the layer from the plan"
        )
    if size <= -(-size // degree) * (degree - 1):
        raise MXNetError(
            f"{where}: {size} rows leave one of {degree} tensor-parallel workers without rows (style {target.chosen!r})"
        )


def _check_layer(target: Target) -> None:
    """Raise for options of an embedding that need the whole weight."""
    if target.style.layer != "embedding":
        return
    layer = layer_of(target.module)
    if isinstance(target.module, Twin):
        wrong = ["sparse_grad"] if layer._kwargs["sparse_grad"] else []
    else:
        wrong = [name for name in ("max_norm", "scale_grad_by_freq", "sparse") if getattr(layer, name)]
    if wrong:
        raise MXNetError(f"{target.name}: an embedding with {', '.join(wrong)} cannot be split over workers")


def _check_heads(module: torch.nn.Module, target: Target, degree: int) -> None:
    """Raise if the number of heads of the attention that contains the layer is not divisible by the workers."""
    if target.style.layer != "dense" or not target.name:
        return
    parent = module.get_submodule(target.name.rpartition(".")[0])
    if isinstance(parent, torch.nn.MultiheadAttention):
        raise MXNetError(
            f"{target.name}: torch.nn.MultiheadAttention does not call its layers, so it cannot be split. Remove it "
            "from the plan, or write the attention with Linear layers"
        )
    heads = getattr(layer_of(parent), "heads", None)
    if isinstance(heads, int) and heads % degree:
        raise MXNetError(
            f"{target.name}: {heads} heads are not divisible by {degree} tensor-parallel workers. Choose a multiple of "
            f"{degree}, or another degree"
        )


def _check_shared(module: torch.nn.Module, targets: list[Target]) -> None:
    """Raise if a weight is shared by two layers whose styles split it differently."""
    ways: dict[int, tuple[str, str, Placement]] = {}
    for target in targets:
        for name, tensor, placement in target.weights():
            where, chosen, other = ways.setdefault(id(tensor), (target.name, target.chosen, placement))
            if other != placement:
                raise MXNetError(
                    f"{target.name} and {where} share {name}, which the styles {target.chosen!r} and {chosen!r} split "
                    "differently. Use 'logits' for a tied head and 'vocabulary' for its embedding"
                )
    planned = {id(target.module) for target in targets}
    for name, each in module.named_modules():
        for tensor in each._parameters.values() if id(each) not in planned else ():
            if id(tensor) in ways:
                where, chosen, _ = ways[id(tensor)]
                raise MXNetError(
                    f"{where} shares its weight with {name or 'the net'}, which has no style. Choose one that splits "
                    f"the weight as {chosen!r} does: 'logits' for a tied head if its embedding is 'vocabulary'"
                )


def _check_regions(targets: list[Target]) -> None:
    """Raise for weights on sequence-sharded activations, unless their style sums the gradients."""
    good = {id(target.module) for target in targets if target.style.inside_sequence}
    for target in targets:
        if target.chosen != "sequence_region":
            continue
        for name, inside in target.module.named_modules():
            if inside._parameters and id(inside) not in good:
                raise MXNetError(
                    f"{target.name or 'the net'} is a 'sequence_region', but {name} inside it has weights: use the "
                    f"style 'sequence', 'sequence_column' or 'sequence_row' for it (it is a {kind_of(inside)} layer)"
                )


# ---- distribution ----


def _distribute(targets: list[Target], mesh: DeviceMesh) -> None:
    """Replace the weights of the layers by DTensors; shared weights stay shared."""
    made: dict[int, torch.nn.Parameter] = {}
    for target in targets:
        for name, tensor, placement in list(target.weights()):
            if id(tensor) not in made:
                made[id(tensor)] = _divided(tensor, placement, mesh)
            target.module._parameters[name] = made[id(tensor)]


def _divided(tensor: torch.nn.Parameter, placement: Placement, mesh: DeviceMesh) -> torch.nn.Parameter:
    """Return a parameter with this worker's part, in newly allocated memory."""
    local = tensor.detach()
    if isinstance(placement, Shard):
        local = local.chunk(mesh.size(), placement.dim)[mesh.get_local_rank()]
        local = local.clone(memory_format=torch.contiguous_format)
    whole = DTensor.from_local(local, mesh, [placement], run_check=False, shape=tensor.shape, stride=tensor.stride())
    return torch.nn.Parameter(whole, requires_grad=tensor.requires_grad)
