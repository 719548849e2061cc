"""Random numbers of `mx.np.random` and `mx.npx.random`, from the generators of `random.py`.

A parameter is a scalar or an array. Array parameters are the inputs, in the order of the parameters, and their
attributes are None. `size` is the shape of the result, by default the shape of the parameters.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from ..base import MXNetError
from ..context import Context
from .random import declare, generator, keyword
from .table import FILLED_IN, Condition, Ctx, Floats, Shape, Types, op

Tensor = torch.Tensor
Float = Literal["float16", "float32", "float64"]
Parameter = Tensor | float
_Distribution = Callable[..., Tensor]


def _taking(*names: str) -> dict[str, Condition]:
    """`takes=` of an op with these parameters: one input for each parameter whose attribute is None."""

    def has(count: int) -> Condition:
        return lambda attrs: sum(attrs[name] is None for name in names) >= count

    return {f"input{i + 1}": has(i + 1) for i in range(len(names))}


def _drawn_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [getattr(torch, attrs.get("dtype") or "float32")]


class _Draw:
    """The parameters, shape, dtype and generator of one call."""

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
        self.wide = torch.promote_types(self.dtype, torch.float32)  # half precision is rounded only once, at the end
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
        """Uniform samples between 0 and 1, both excluded."""
        tiny = torch.finfo(self.wide).tiny
        return self.out.uniform_(generator=self.source).clamp_(tiny, 1 - torch.finfo(self.wide).eps / 2)

    def exponential(self) -> Tensor:
        """Exponential samples with mean 1."""
        return self.out.exponential_(generator=self.source)


def _detached(parameter: Parameter) -> Parameter:
    return parameter.detach() if isinstance(parameter, Tensor) else parameter


def _distribution(name: str, typed: bool = False, batch: bool = False) -> Callable[[_Distribution], _Distribution]:
    """Register the op of a function that takes a `_Draw` and one or two parameters, with their names and defaults.

    `typed` ops have the attribute `dtype`. A `batch` op draws samples of shape `size` for each parameter element.
    """

    def enter(compute: _Distribution) -> _Distribution:
        parameters = list(inspect.signature(compute).parameters.values())[1:]

        def drawn(
            input1: Tensor | None = None,
            input2: Tensor | None = None,
            *,
            size: tuple[int, ...] | None = None,
            ctx: Context,
            dtype: str = "float32",
            **given: float | None,
        ) -> Tensor:
            numbers = [given.get(each.name, each.default) for each in parameters]
            draw = _Draw((input1, input2), numbers, size, ctx, dtype, batch)
            return compute(draw, *draw.parameters).to(draw.dtype)

        inputs = [
            inspect.Parameter(f"input{i + 1}", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
            for i in range(len(parameters))
        ]
        attributes = [keyword(each.name, float | None, each.default) for each in parameters]
        attributes += [keyword("size", Shape | None, None), keyword("ctx", Ctx, FILLED_IN)]
        doc = (compute.__doc__ or "").removesuffix(".")
        declare(
            drawn,
            [*inputs, *attributes, *([keyword("dtype", Float, "float32")] if typed else [])],
            f"{doc}, with shape `size` for each element of the parameters." if batch else f"{doc}.",
        )
        op(name, takes=_taking(*(each.name for each in parameters)), types=_drawn_types)(drawn)
        return compute

    return enter


# ---- distributions; as in MXNet, all but uniform, power and gamma have gradients ----


@_distribution("_npi_uniform", typed=True)
@_distribution("_npi_uniform_n", typed=True, batch=True)
def _uniform(draw: _Draw, low: Parameter, high: Parameter) -> Tensor:
    """Samples from the uniform distribution from low to high."""
    low, high = _detached(low), _detached(high)
    return low + (high - low) * draw.out.uniform_(generator=draw.source)


@_distribution("_npi_normal", typed=True)
@_distribution("_npi_normal_n", typed=True, batch=True)
def _normal(draw: _Draw, loc: Parameter, scale: Parameter) -> Tensor:
    """Samples from the normal distribution with mean loc and standard deviation scale."""
    return loc + scale * draw.out.normal_(generator=draw.source)


@_distribution("_npi_logistic")
def _logistic(draw: _Draw, loc: Parameter, scale: Parameter) -> Tensor:
    """Samples from the logistic distribution."""
    return loc + scale * torch.logit(draw.uniform())


@_distribution("_npi_gumbel")
def _gumbel(draw: _Draw, loc: Parameter, scale: Parameter) -> Tensor:
    """Samples from the Gumbel distribution."""
    return loc - scale * torch.log(draw.exponential())


@_distribution("_npi_exponential")
def _exponential(draw: _Draw, scale: Parameter = 1.0) -> Tensor:
    """Samples from the exponential distribution with mean scale."""
    return scale * draw.exponential()


@_distribution("_npi_rayleigh")
def _rayleigh(draw: _Draw, scale: Parameter = 1.0) -> Tensor:
    """Samples from the Rayleigh distribution."""
    return scale * torch.sqrt(2 * draw.exponential())


@_distribution("_npi_weibull")
def _weibull(draw: _Draw, a: Any = None) -> Tensor:
    """Samples from the Weibull distribution with shape a and scale 1."""
    return draw.exponential() ** (1 / a)


@_distribution("_npi_pareto")
def _pareto(draw: _Draw, a: Any = None) -> Tensor:
    """Samples from the Pareto distribution with shape a, minus 1."""
    return torch.expm1(draw.exponential() / a)


@_distribution("_npi_powerd")
def _power(draw: _Draw, a: Any = None) -> Tensor:
    """Samples between 0 and 1 with the density a x^(a - 1)."""
    return draw.uniform() ** (1 / _detached(a))


@_distribution("_npi_gamma", typed=True)
def _gamma(draw: _Draw, shape: Parameter, scale: Parameter) -> Tensor:
    """Samples from the gamma distribution with the given shape and scale."""
    alpha = _detached(shape) + torch.zeros_like(draw.out)
    return torch._standard_gamma(alpha, generator=draw.source) * _detached(scale)


# ---- discrete distributions, which have no gradient ----


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
    """1 with the given probability or logit, and 0 otherwise."""
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
    """Random indices below a or len(input1), uniform or, if `weighted`, with the probabilities in the last input."""
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
            raise MXNetError(f"expected p to have one probability for each of {count} elements")
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
    """How often each outcome occurs in n trials. The last probability is 1 minus the sum of the others."""
    device = ctx.device if a is None else a.device
    chances = torch.tensor(pvals, dtype=torch.float64, device=device) if a is None else a.detach().double()
    if n < 0 or chances.dim() != 1:
        raise MXNetError("expected a nonnegative n and a vector of pvals")
    known = not chances.is_meta
    if known and (bool((chances < 0).any()) or float(chances.sum()) > 1 + 1e-6):
        raise MXNetError("expected pvals to be nonnegative with a sum of at most 1")
    left = torch.full(size or (), float(n), dtype=torch.float64, device=device)
    source, rest, counts = generator(ctx), torch.ones_like(chances[:1]).squeeze(), []
    for chance in chances[:-1].unbind():
        share = torch.where(rest > 0, chance / rest, torch.zeros_like(rest)).clamp(0, 1)
        counts.append(torch.binomial(left, share.expand_as(left).contiguous(), generator=source))
        left, rest = left - counts[-1], rest - chance
    if not len(chances):
        return torch.empty((*(size or ()), 0), dtype=torch.int64, device=device)
    return torch.stack([*counts, left], -1).long()
