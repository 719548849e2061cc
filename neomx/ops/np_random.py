"""Random numbers of `mx.np.random` and `mx.npx.random`, from the generators of `random.py`.

A parameter is a number or an array. Arrays are the inputs, in the order of the parameters; the attribute of such a
parameter is None. `size` is the shape of the result, that of the parameters unless told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch

from ..base import MXNetError
from ..context import Context
from .random import generator
from .table import FILLED_IN, Condition, Ctx, Floats, Shape, Types, op

Tensor = torch.Tensor
Float = Literal["float16", "float32", "float64"]


def _taking(*names: str) -> dict[str, Condition]:
    """`takes=` of an op with these parameters: an input for each that is None."""

    def has(count: int) -> Condition:
        return lambda attrs: sum(attrs[name] is None for name in names) >= count

    return {f"input{i + 1}": has(i + 1) for i in range(len(names))}


def _drawn_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [getattr(torch, attrs.get("dtype") or "float32")]


class _Draw:
    """What one call draws: its parameters, shape, dtype and generator."""

    def __init__(
        self,
        inputs: Sequence[Tensor | None],
        numbers: Sequence[float | None],
        size: tuple[int, ...] | None,
        ctx: Context,
        dtype: str = "float32",
        batch: bool = False,
    ):
        given = iter([each for each in inputs if each is not None])
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.wide = torch.promote_types(self.dtype, torch.float32)  # half precision is rounded once, at the end
        self.parameters = [next(given).to(self.wide) if n is None else n for n in numbers]
        arrays = [each for each in self.parameters if isinstance(each, Tensor)]
        shape = tuple(torch.broadcast_shapes(*(each.shape for each in arrays)))
        if batch:
            shape = (*(size or ()), *shape)
        elif size is not None:
            if torch.broadcast_shapes(shape, size) != size:
                raise MXNetError(f"parameters of shape {shape} do not broadcast to size {size}")
            shape = size
        self.out = torch.empty(shape, dtype=self.wide, device=arrays[0].device if arrays else ctx.device)
        self.source = generator(ctx)

    def uniform(self) -> Tensor:
        """Uniform numbers above 0 and below 1."""
        tiny = torch.finfo(self.wide).tiny
        return self.out.uniform_(generator=self.source).clamp_(tiny, 1 - torch.finfo(self.wide).eps / 2)

    def normal(self) -> Tensor:
        """Standard normal numbers."""
        return self.out.normal_(generator=self.source)

    def exponential(self) -> Tensor:
        """Exponential numbers of mean 1."""
        return self.out.exponential_(generator=self.source)

    def gamma(self, shape: Any) -> Tensor:
        """Gamma numbers of a shape parameter and of scale 1."""
        return torch._standard_gamma(_detached(shape) + torch.zeros_like(self.out), generator=self.source)


def _detached(parameter: Any) -> Any:
    return parameter.detach() if isinstance(parameter, Tensor) else parameter


# ---- loc and scale; the gradient goes to both, but uniform has none, as in MXNet ----


def _uniform(draw: _Draw) -> Tensor:
    low, high = map(_detached, draw.parameters)
    return (low + (high - low) * draw.out.uniform_(generator=draw.source)).to(draw.dtype)


def _normal(draw: _Draw) -> Tensor:
    loc, scale = draw.parameters
    return (loc + scale * draw.normal()).to(draw.dtype)


@op("_npi_uniform", takes=_taking("low", "high"), types=_drawn_types)
def np_uniform(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    low: float | None,
    high: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Float = "float32",
) -> Tensor:
    """Uniform numbers from low to high."""
    return _uniform(_Draw((input1, input2), (low, high), size, ctx, dtype))


@op("_npi_uniform_n", takes=_taking("low", "high"), types=_drawn_types)
def np_uniform_n(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    low: float | None,
    high: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Float = "float32",
) -> Tensor:
    """Uniform numbers from low to high, `size` of them for each parameter."""
    return _uniform(_Draw((input1, input2), (low, high), size, ctx, dtype, batch=True))


@op("_npi_normal", takes=_taking("loc", "scale"), types=_drawn_types)
def np_normal(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    loc: float | None,
    scale: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Float = "float32",
) -> Tensor:
    """Normal numbers of a mean and a standard deviation."""
    return _normal(_Draw((input1, input2), (loc, scale), size, ctx, dtype))


@op("_npi_normal_n", takes=_taking("loc", "scale"), types=_drawn_types)
def np_normal_n(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    loc: float | None,
    scale: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Float = "float32",
) -> Tensor:
    """Normal numbers of a mean and a standard deviation, `size` of them for each parameter."""
    return _normal(_Draw((input1, input2), (loc, scale), size, ctx, dtype, batch=True))


@op("_npi_logistic", takes=_taking("loc", "scale"), types=_drawn_types)
def np_logistic(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    loc: float | None,
    scale: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
) -> Tensor:
    """Logistic numbers."""
    draw = _Draw((input1, input2), (loc, scale), size, ctx)
    return draw.parameters[0] + draw.parameters[1] * torch.logit(draw.uniform())


@op("_npi_gumbel", takes=_taking("loc", "scale"), types=_drawn_types)
def np_gumbel(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    loc: float | None,
    scale: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
) -> Tensor:
    """Gumbel numbers."""
    draw = _Draw((input1, input2), (loc, scale), size, ctx)
    return draw.parameters[0] - draw.parameters[1] * torch.log(draw.exponential())


# ---- one parameter; the gradient goes to it, but power has none, as in MXNet ----


@op("_npi_exponential", takes=_taking("scale"), types=_drawn_types)
def np_exponential(
    input1: Tensor | None = None, *, scale: float | None = 1.0, size: Shape | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Exponential numbers of mean scale."""
    draw = _Draw((input1,), (scale,), size, ctx)
    return draw.parameters[0] * draw.exponential()


@op("_npi_rayleigh", takes=_taking("scale"), types=_drawn_types)
def np_rayleigh(
    input1: Tensor | None = None, *, scale: float | None = 1.0, size: Shape | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Rayleigh numbers."""
    draw = _Draw((input1,), (scale,), size, ctx)
    return draw.parameters[0] * torch.sqrt(2 * draw.exponential())


@op("_npi_weibull", takes=_taking("a"), types=_drawn_types)
def np_weibull(
    input1: Tensor | None = None, *, a: float | None = None, size: Shape | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Weibull numbers of shape a and scale 1."""
    draw = _Draw((input1,), (a,), size, ctx)
    return draw.exponential() ** (1 / draw.parameters[0])


@op("_npi_pareto", takes=_taking("a"), types=_drawn_types)
def np_pareto(
    input1: Tensor | None = None, *, a: float | None = None, size: Shape | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Pareto numbers of shape a, less 1."""
    draw = _Draw((input1,), (a,), size, ctx)
    return torch.expm1(draw.exponential() / draw.parameters[0])


@op("_npi_powerd", takes=_taking("a"), types=_drawn_types)
def np_powerd(
    input1: Tensor | None = None, *, a: float | None = None, size: Shape | None = None, ctx: Ctx = FILLED_IN
) -> Tensor:
    """Numbers from 0 to 1 with the density a x^(a - 1)."""
    draw = _Draw((input1,), (a,), size, ctx)
    return draw.uniform() ** (1 / _detached(draw.parameters[0]))


# ---- no gradient ----


@op("_npi_gamma", takes=_taking("shape", "scale"), types=_drawn_types)
def np_gamma(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    shape: float | None,
    scale: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Float = "float32",
) -> Tensor:
    """Gamma numbers of a shape and a scale."""
    draw = _Draw((input1, input2), (shape, scale), size, ctx, dtype)
    return (draw.gamma(draw.parameters[0]) * _detached(draw.parameters[1])).to(draw.dtype)


@op("_npi_bernoulli", takes={"input1": lambda a: a["prob"] is None and a["logit"] is None}, types=_drawn_types)
def np_bernoulli(
    input1: Tensor | None = None,
    *,
    prob: float | None,
    logit: float | None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Literal["bool", "float16", "float32", "float64", "int32", "uint8"] = "float32",
    is_logit: bool,
) -> Tensor:
    """1 with a probability, which may be given by its logit, and 0 otherwise."""
    draw = _Draw((input1,), (logit if is_logit else prob,), size, ctx)
    chance = torch.as_tensor(_detached(draw.parameters[0]), dtype=torch.float32, device=draw.out.device)
    chance = torch.sigmoid(chance) if is_logit else chance
    return (draw.out.uniform_(generator=draw.source) < chance).to(getattr(torch, dtype))


@op(
    "_npi_choice",
    takes={
        "input1": lambda a: a["a"] is None or a["weighted"],
        "input2": lambda a: a["a"] is None and a["weighted"],
    },
    types=lambda types, a: (types, [torch.int64]),
)
def np_choice(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    a: int | None,
    size: Shape | None,
    ctx: Ctx = FILLED_IN,
    replace: bool = True,
    weighted: bool = False,
) -> Tensor:
    """Indices below a, or of the rows of an array, with equal chances or, if `weighted`, those of the last input."""
    weights = (input1 if a is not None else input2) if weighted else None
    count = a if a is not None else len(input1)  # type: ignore[arg-type]
    shape = size or ()
    drawn = math.prod(shape)
    if count < 1 or (drawn > count and not replace):
        raise MXNetError(f"cannot draw {drawn} of {count} elements {'' if replace else 'without replacement'}".strip())
    device = ctx.device if input1 is None else input1.device
    source = generator(ctx)
    if weights is not None:
        if weights.shape != (count,):
            raise MXNetError(f"expected p to hold a probability for each of {count} elements")
        if not drawn:
            return torch.empty(shape, dtype=torch.int64, device=device)
        return torch.multinomial(weights.detach().double(), drawn, replace, generator=source).reshape(shape)
    if replace:
        return torch.randint(count, shape, device=device, generator=source)
    return torch.randperm(count, device=device, generator=source)[:drawn].reshape(shape)


@op(
    "_npi_multinomial",
    takes={"a": lambda a: a["pvals"] is None},
    types=lambda types, a: (types, [torch.int64]),
)
def np_multinomial(
    a: Tensor | None = None,
    *,
    n: int,
    pvals: Floats | None = None,
    size: Shape | None = None,
    ctx: Ctx = FILLED_IN,
) -> Tensor:
    """How often each outcome came in n experiments; the last one has what the other probabilities leave."""
    device = ctx.device if a is None else a.device
    chances = torch.tensor(pvals, dtype=torch.float64, device=device) if a is None else a.detach().double()
    if n < 0 or chances.dim() != 1:
        raise MXNetError("expected n not to be negative, and pvals to be a vector")
    known = not chances.is_meta
    if known and (bool((chances < 0).any()) or float(chances.sum()) > 1 + 1e-6):
        raise MXNetError("expected pvals not to be negative and to add up to at most 1")
    left = torch.full(size or (), float(n), dtype=torch.float64, device=device)
    source, rest, counts = generator(ctx), torch.ones_like(chances[:1]).squeeze(), []
    for chance in chances[:-1].unbind():
        share = torch.where(rest > 0, chance / rest, torch.zeros_like(rest)).clamp(0, 1)
        counts.append(torch.binomial(left, share.expand_as(left).contiguous(), generator=source))
        left, rest = left - counts[-1], rest - chance
    if not len(chances):
        return torch.empty((*(size or ()), 0), dtype=torch.int64, device=device)
    return torch.stack([*counts, left], -1).long()
