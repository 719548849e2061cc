"""Transfer learning: freeze layers, train each depth at its own rate, unfreeze gradually, replace the output layer.

All functions change the network in place. A Trainer that already exists follows them, on any number of workers, as
long as all workers make the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..gluon import Parameter, nn
from ..gluon.nn import Block, HybridBlock, SymbolBlock

Part = Block | str
Group = Part | Sequence[Part]
_OUTPUTS = (nn.Dense, nn.Conv1D, nn.Conv2D, nn.Conv3D)
_NORMS = (nn.BatchNorm, nn.BatchNormReLU, nn.GroupNorm, nn.InstanceNorm, nn.LayerNorm)


def freeze(net: Block, *parts: Part, statistics: bool = True) -> list[str]:
    """Exclude parameters from training, by default all. Return their positions, such as 'features.0.weight'.

    A part is one of these:

    - a Block within `net`;
    - a regular expression for positions. It selects everything below a position: 'features.1' selects
      'features.1.weight' but not 'features.10.weight';
    - the prefix of parameter names, such as 'resnetv10_stage1_'.

    With `statistics`, BatchNorm layers whose running averages are selected use these averages instead of those of the
    batch, and stop updating them. `net` must be the outermost network: its hybridized graphs are traced again.
    """
    chosen = _chosen(net, parts)
    _set_statistics(net, chosen, statistics)
    _set_grad_req(chosen, "null")
    return list(chosen)


def unfreeze(net: Block, *parts: Part) -> list[str]:
    """Train parameters that `freeze` excluded, by default all. Return their positions.

    BatchNorm layers whose running averages are selected use the statistics of the batch again. `parts` and `net` are
    those of `freeze`.
    """
    chosen = _chosen(net, parts)
    _set_grad_req(chosen, "write")
    _set_statistics(net, chosen, False)
    return list(chosen)


def depth_groups(net: Block) -> list[list[Block]]:
    """Return the layers of a network with parameters, from input to output, in groups of equal depth.

    A group is a child of `net`, or of an nn.Sequential that is a child of `net`. Normalization layers belong to the
    group before them, or to the first group.
    """
    children = list(net._children.values())
    if not isinstance(net, nn.Sequential | nn.HybridSequential):
        children = [
            each
            for child in children
            for each in (
                child._children.values() if isinstance(child, nn.Sequential | nn.HybridSequential) else [child]
            )
        ]
    groups: list[list[Block]] = []
    waiting: list[Block] = []
    for child in children:
        if not child._collect_params_with_prefix():
            continue
        if not isinstance(child, _NORMS):
            groups.append([*waiting, child])
            waiting = []
        elif groups:
            groups[-1].append(child)
        else:
            waiting.append(child)
    return groups


def discriminative_rates(net: Block, decay: float, groups: Sequence[Group] | None = None) -> dict[str, float]:
    """Multiply the learning rate by `decay` for each group further from the output. Return the factors by position.

    The last group has the factor 1, the one before it `decay`, the next one `decay` squared. `groups` are parts, or
    lists of parts, from input to output (default: `depth_groups`).
    """
    if not isinstance(decay, int | float) or not 0 < decay <= 1:
        raise ValueError(f"decay must be a number above 0 and at most 1, received {decay!r}")
    factors: dict[str, float] = {}
    listed = _groups(net, groups)
    for depth, group in enumerate(listed):
        factor = float(decay) ** (len(listed) - 1 - depth)
        for position, param in group.items():
            param.lr_mult = factor
            factors[position] = factor
    return factors


def unfreeze_gradually(
    net: Block, epoch: int, groups: Sequence[Group] | None = None, every: int = 1, statistics: bool = True
) -> list[str]:
    """Train the last group in epoch 0, and one more group after every `every` epochs. Return the trained positions.

    Call it at the start of each epoch, on all workers. It depends only on the number of the epoch, so an interrupted
    training can be resumed. `groups` are those of `discriminative_rates`, and `statistics` is that of `freeze`.
    Parameters in no group do not change.
    """
    for name, value, least in (("epoch", epoch, 0), ("every", every, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, received {value!r}")
    listed = _groups(net, groups)
    first = max(len(listed) - 1 - epoch // every, 0)
    trained: list[str] = []
    for number, group in enumerate(listed):
        frozen = number < first
        _set_statistics(net, group, frozen and statistics)
        _set_grad_req(group, "null" if frozen else "write")
        trained += [] if frozen else group
    return trained


def replace_output(net: Block, classes: int, init: Any = None) -> Block:
    """Replace the output layer with one for another number of classes, and return the new layer.

    The output layer is the last Dense or convolution of `net.output`, or of `net` if it has no `output`. The new layer
    has the same settings and parameter names, and values from `init`. All other weights remain. Create the Trainer
    afterwards, because an older one still has the parameters of the old layer.
    """
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 1:
        raise ValueError(f"classes must be a positive integer, received {classes!r}")
    parent, name, old = _output_of(net)
    made = _like(old, classes)
    if old.weight._arrays is not None or old.weight._deferred_init:
        made.initialize(init, ctx=old.weight.list_ctx())
    if old.weight.dtype != made.weight.dtype:
        made.cast(old.weight.dtype)
    parent.register_child(made, name)
    for attribute, value in list(vars(parent).items()):
        if value is old:
            setattr(parent, attribute, made)
    _trace_again(net)
    return made


# ---- selecting parameters ----


def _chosen(net: Block, parts: Iterable[Part]) -> dict[str, Parameter]:
    """Return the parameters of these parts by position, in the order of the network."""
    if not isinstance(net, Block):
        raise TypeError(f"expected a Block, received {net!r:.80}")
    positions = net._collect_params_with_prefix()
    parts = list(parts)
    if not parts:
        return positions
    found: set[str] = set()
    for part in parts:
        found |= _selected(net, positions, part)
    return {position: param for position, param in positions.items() if position in found}


def _selected(net: Block, positions: dict[str, Parameter], part: Part) -> set[str]:
    if isinstance(part, Block):
        if not any(block is part for block in net._walk()):
            raise ValueError(f"{part.name} is not a layer of {net.name}. Pass the network that contains it")
        inside = {id(param) for param in part._collect_params_with_prefix().values()}
        return {position for position, param in positions.items() if id(param) in inside}
    if not isinstance(part, str):
        raise TypeError(f"expected a layer, a pattern or a prefix, received {part!r:.80}")
    try:
        pattern = re.compile(rf"(?:{part})(?:\.|$)")
    except re.error as error:
        raise ValueError(f"{part!r} is not a regular expression: {error}") from None
    found = {at for at, param in positions.items() if pattern.match(at) or part and param.name.startswith(part)}
    if not found:
        shown = ", ".join(list(positions)[:4])
        raise ValueError(f"{part!r} selects no parameter of {net.name}. Its positions are {shown}, ...")
    return found


def _groups(net: Block, groups: Sequence[Group] | None) -> list[dict[str, Parameter]]:
    """Return the parameters of each group by position. No parameter may be in two groups."""
    if groups is None:
        groups = depth_groups(net)
    if isinstance(groups, str | Block) or not len(groups):
        raise ValueError(f"groups must be a list of parts, from input to output, received {groups!r:.80}")
    listed = [_chosen(net, [group] if isinstance(group, str | Block) else group) for group in groups]
    seen: dict[str, int] = {}
    for number, group in enumerate(listed):
        for position in group:
            if position in seen:
                raise ValueError(f"{position} is in groups {seen[position]} and {number}. Each layer needs one group")
            seen[position] = number
    return listed


# ---- changing layers ----


def _set_grad_req(chosen: dict[str, Parameter], req: str) -> None:
    for param in chosen.values():
        if (param.grad_req == "null") != (req == "null"):  # a gradient that adds up stays one
            param.grad_req = req


def _set_statistics(net: Block, chosen: dict[str, Parameter], frozen: bool) -> None:
    """Freeze or unfreeze the running averages of BatchNorm layers that are among these parameters."""
    inside = {id(param) for param in chosen.values()}
    if frozen and any(isinstance(each, SymbolBlock) and _has_statistics(each, inside) for each in net._walk()):
        raise ValueError("the running averages of a SymbolBlock cannot be frozen. Pass statistics=False")
    changed = False
    layers: list[Any] = [each for each in net._walk() if isinstance(each, nn.BatchNorm | nn.BatchNormReLU)]
    for layer in layers:
        # A layer that was created with use_global_stats=True keeps its setting.
        may_change = frozen or getattr(layer, "_is_frozen", False)
        if id(layer.running_mean) in inside and may_change and layer._kwargs["use_global_stats"] != frozen:
            layer._kwargs["use_global_stats"] = layer._is_frozen = frozen
            changed = True
    if changed:
        _trace_again(net)


def _has_statistics(block: Block, inside: set[int]) -> bool:
    return any(id(param) in inside and not param._differentiable for param in block._reg_params.values())


def _trace_again(net: Block) -> None:
    """Drop the graphs of hybridized Blocks, which contain the old layers and settings."""
    for block in net._walk():
        if isinstance(block, HybridBlock):
            block._clear_cached_op()


# ---- the output layer ----


def _output_of(net: Block) -> tuple[Block, str, Any]:
    """Return the output layer of a network, after its parent and its name there."""
    if not isinstance(net, Block):
        raise TypeError(f"expected a Block, received {net!r:.80}")
    output = net._children.get("output")
    inside = net if output is None else output
    among = {id(block) for block in inside._walk()}
    layers = [found for found in _layers(net) if id(found[2]) in among]
    if not layers or type(layers[-1][2]) not in _OUTPUTS:  # a subclass may have other settings
        what = repr(layers[-1][2])[:80] if layers else "no layer that has parameters"
        raise ValueError(
            f"expected a network that ends with a Dense layer or a convolution, but {net.name} ends with {what}. "
            "Replace the layer in your own code"
        )
    return layers[-1]


def _layers(parent: Block) -> Iterator[tuple[Block, str, Block]]:
    """Yield the layers with parameters of their own below a Block, each after its parent and its name there."""
    for name, child in parent._children.items():
        if child._reg_params:
            yield parent, name, child
        yield from _layers(child)


def _like(old: Any, classes: int) -> Any:
    """Return a layer with the settings of `old` and another number of outputs."""
    settings: dict[str, Any] = {
        "activation": None if old.act is None else old.act._act_type,
        "use_bias": old.bias is not None,
        "weight_initializer": old.weight.init,
        "prefix": old.prefix,
    }
    if old.bias is not None:
        settings["bias_initializer"] = old.bias.init
    shape: tuple[int, ...] = old.weight.shape
    if isinstance(old, nn.Dense):
        return nn.Dense(classes, flatten=old._flatten, in_units=shape[1], **settings)
    attributes = old._kwargs
    if attributes["num_group"] != 1:
        raise ValueError(f"cannot replace {old!r:.80}, a grouped convolution. Replace the layer in your own code")
    channels = shape[-1 if attributes["layout"].endswith("C") else 1]
    sizes = (attributes[name] for name in ("kernel", "stride", "pad", "dilate"))
    return type(old)(classes, *sizes, layout=attributes["layout"], in_channels=channels, **settings)
