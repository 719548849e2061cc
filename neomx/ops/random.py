"""Random number generation, with one generator per context, so that each can be seeded separately.

Each distribution is a function that draws into an array. It is the basis of three ops: `_random_x` with scalar
parameters, `_random_x_like` with the shape of an array, and `_sample_x` with arrays of parameters.
"""

from __future__ import annotations

import inspect
import math
import random as python_random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch.compiler import is_compiling

from ..base import MXNetError, modes
from ..context import Context
from .table import FILLED_IN, Ctx, DType, Shape, Shapes, op

Tensor = torch.Tensor

States = dict[Context, Tensor]  # states of the random generators by context

_generators: dict[Context, torch.Generator] = {}
_seed_of_all: int | None = None


def generator(ctx: Context) -> torch.Generator | None:
    """Return the generator of a context. Contexts with the same `seed` still draw different values.

    Return None, which means torch's default generator, while torch.compile traces: it supports no other.
    """
    if is_compiling():
        return None
    if modes.sample is not None:
        return modes.sample.generator(ctx)
    made = _generators.get(ctx)
    if made is None:
        made = _generators[ctx] = torch.Generator(device=ctx.device)
        if _seed_of_all is None:
            made.seed()
        else:
            made.manual_seed(_seed_for(ctx, _seed_of_all))
    return made


def seed(value: int, ctx: Context | None = None) -> None:
    """Seed the generator of one context, or of all contexts."""
    global _seed_of_all
    if ctx is not None:
        generator(ctx).manual_seed(_seed_for(ctx, value))  # type: ignore[union-attr]
        return
    _seed_of_all = value
    torch.manual_seed(value & 0xFFFFFFFFFFFFFFFF)
    for each, made in _generators.items():
        made.manual_seed(_seed_for(each, value))


def states() -> States:
    """Return the states of all generators, for `set_states`."""
    return {ctx: made.get_state() for ctx, made in _generators.items()}


def set_states(states: States) -> None:
    """Restore the generators to states returned by `states`."""
    for ctx, state in states.items():
        _generators[ctx].set_state(state)


def named_states() -> dict[str, Tensor]:
    """Return the states of all generators by the name of their context, such as 'cpu:0', for a checkpoint."""
    return {f"{ctx.device_type}:{ctx.device_id}": state for ctx, state in states().items()}


def set_named_states(states: Mapping[str, Tensor]) -> None:
    """Restore the generators to states returned by `named_states`, except those of devices that do not exist here."""
    for name, state in states.items():
        kind, _, number = name.partition(":")
        made = None
        with suppress(MXNetError):
            made = generator(Context(kind, int(number)))
        if made is not None:
            made.set_state(state)


class SampleRandom:
    """The random numbers of one sample, which depend only on `key`: on its seed, its epoch and its index, for example.

    A DataLoader sets one for the thread that creates a sample. `mx.random.RandomState` draws from one too. Every
    generator is created when it is first used.
    """

    def __init__(self, key: tuple[int, ...]):
        self._key = key
        self._by_context: dict[Context, torch.Generator] = {}

    @cached_property
    def seed(self) -> int:
        """A number from 0 to 2**32 - 1 for generators that are seeded with one."""
        return int(np.random.SeedSequence(self._key).generate_state(1)[0])

    @cached_property
    def rng(self) -> np.random.Generator:
        """The generator that `rng()` returns."""
        return np.random.Generator(np.random.PCG64(self._key))

    @cached_property
    def python(self) -> python_random.Random:
        """The generator that replaces Python's `random`."""
        return python_random.Random(self.seed)

    @cached_property
    def numpy(self) -> np.random.RandomState:
        """The generator that replaces `numpy.random`."""
        return np.random.RandomState(self.seed)

    def generator(self, ctx: Context) -> torch.Generator:
        """Return the generator of a context."""
        if ctx not in self._by_context:
            self._by_context[ctx] = torch.Generator(device=ctx.device).manual_seed(_seed_for(ctx, self.seed))
        return self._by_context[ctx]


@contextmanager
def drawing_from(source: SampleRandom | None) -> Iterator[None]:
    """Draw all random numbers of this thread from `source`."""
    before = modes.sample
    modes.sample = source
    try:
        yield
    finally:
        modes.sample = before


def rng() -> np.random.Generator:
    """Return a generator for random transforms.

    While a DataLoader creates a sample, the numbers depend only on the sample. Otherwise they follow `mx.random.seed`.
    """
    if modes.sample is not None:
        return modes.sample.rng
    return np.random.Generator(np.random.PCG64(new_seed()))


def new_seed() -> int:
    """Draw a seed for another generator from that of cpu(0)."""
    return int(torch.randint(2**31, (), generator=generator(Context("cpu", 0))))


def python_source() -> Any:
    """Return Python's `random`, or the sample's own generator while a DataLoader creates a sample."""
    return python_random if modes.sample is None else modes.sample.python


def numpy_source() -> Any:
    """Return `numpy.random`, or the sample's own generator while a DataLoader creates a sample."""
    return np.random if modes.sample is None else modes.sample.numpy


def shuffled(values: list[Any]) -> list[Any]:
    """Shuffle a list in place, as MXNet's augmenters do, and return it.

    While a DataLoader creates a sample, return a shuffled copy, which does not depend on earlier samples.
    """
    if modes.sample is not None:
        values = values.copy()
    python_source().shuffle(values)
    return values


def _seed_for(ctx: Context, value: int) -> int:
    """Return the seed for a context. torch uses 32 bits of it on a CPU, so device and seed are mixed into those.

    The factor spreads devices over all seeds: cpu(1) with one seed must not equal cpu(0) with the next seed.
    """
    device = (ctx.device_typeid - 1) * 4096 + ctx.device_id
    return (value ^ (value >> 32)) + device * 0x9E3779B1 & 0xFFFFFFFF


# ---- distributions: (array to fill, generator, *parameters); parameters are scalars or arrays that broadcast ----


def _uniform(out: Tensor, source: torch.Generator | None, low: Any, high: Any) -> Tensor:
    if isinstance(low, Tensor):
        return out.uniform_(generator=source).mul_(high - low).add_(low)
    if low > high:
        raise MXNetError("low must be less than or equal to high")
    return out.uniform_(low, high, generator=source)


def _normal(out: Tensor, source: torch.Generator | None, loc: Any, scale: Any) -> Tensor:
    if isinstance(loc, Tensor):
        return out.normal_(generator=source).mul_(scale).add_(loc)
    _demand(scale > 0, "scale must be positive")
    return out.normal_(loc, scale, generator=source)


def _gamma(out: Tensor, source: torch.Generator | None, alpha: Any, beta: Any) -> Tensor:
    _demand(_all(alpha, 0, strictly=True) and _all(beta, 0), "alpha must be positive and beta nonnegative")
    alpha = alpha.expand(out.shape) if isinstance(alpha, Tensor) else torch.full_like(out, alpha)
    return torch._standard_gamma(alpha, generator=source).mul_(beta)


def _exponential(out: Tensor, source: torch.Generator | None, lam: Any) -> Tensor:
    _demand(_all(lam, 0, strictly=True), "lam must be positive")
    return out.exponential_(generator=source).div_(lam)


def _poisson(out: Tensor, source: torch.Generator | None, lam: Any) -> Tensor:
    _demand(_all(lam, 0), "lam must be nonnegative")
    rate = lam.expand(out.shape) if isinstance(lam, Tensor) else torch.full_like(out, lam)
    return torch.poisson(rate, generator=source)


def _negative_binomial(out: Tensor, source: torch.Generator | None, k: Any, p: Any) -> Tensor:
    _demand(_all(k, 0, strictly=True), "k must be positive")
    _demand(_all(p, 0, strictly=True) and _all(1 - p, 0), "p must be greater than 0 and at most 1")
    return torch.poisson(_gamma(out, source, k, (1 - p) / p), generator=source)


def _generalized_negative_binomial(out: Tensor, source: torch.Generator | None, mu: Any, alpha: Any) -> Tensor:
    _demand(_all(mu, 0) and _all(alpha, 0), "mu and alpha must be nonnegative")
    if not isinstance(alpha, Tensor):
        if alpha == 0:
            return _poisson(out, source, mu)
        return torch.poisson(_gamma(out, source, 1 / alpha, alpha * mu), generator=source)
    # If alpha is 0, the mixture is its mean.
    spread = torch.where(alpha > 0, alpha, torch.ones_like(alpha))
    rate = torch.where(alpha > 0, _gamma(out, source, 1 / spread, spread * mu), mu.expand(out.shape))
    return torch.poisson(rate, generator=source)


def _all(values: Any, bound: float, strictly: bool = False) -> bool:
    """Return whether all values are at least (strictly: above) `bound`. Always True for meta tensors."""
    if isinstance(values, Tensor):
        return values.is_meta or bool(((values > bound) if strictly else (values >= bound)).all())
    return values > bound if strictly else values >= bound


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise MXNetError(message)


def _empty(shape: tuple[int, ...], dtype: torch.dtype | None, device: torch.device) -> tuple[Tensor, torch.dtype]:
    """Return an array to draw into, and the result dtype. Half precision is drawn in float32 and rounded once."""
    dtype = dtype or torch.float32
    if not dtype.is_floating_point:
        raise MXNetError("dtype must be float16, float32 or float64")
    return torch.empty(shape, dtype=torch.float32 if dtype.itemsize < 4 else dtype, device=device), dtype


def _full_shape(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape to draw, by default one value."""
    if shape is None:
        return (1,)
    if modes.np_shape and not shape:
        return ()
    if not shape or min(shape) < 0:
        raise MXNetError("shape must be a nonnegative int or a tuple of nonnegative ints")
    return shape


def _enter(
    name: str,
    draw: Callable[..., Tensor],
    parameters: dict[str, float],
    arrays: tuple[str, ...],
    aliases: tuple[str, ...],
    doc: str,
) -> None:
    """Register the three ops of a distribution, with MXNet's names for its parameters."""

    def with_numbers(
        *, shape: Shape | None = None, ctx: Context, dtype: torch.dtype | None = None, **numbers: float
    ) -> Tensor:
        out, dtype = _empty(_full_shape(shape), dtype, ctx.device)
        return draw(out, generator(ctx), *{**parameters, **numbers}.values()).to(dtype)

    def like(data: Tensor, *, ctx: Context, **numbers: float) -> Tensor:
        out, dtype = _empty(tuple(data.shape), data.dtype, data.device)
        return draw(out, generator(ctx), *{**parameters, **numbers}.values()).to(dtype)

    def with_arrays(
        *tensors: Tensor, shape: tuple[int, ...] = (), dtype: torch.dtype | None = None, ctx: Context
    ) -> Tensor:
        given = tensors[0].shape
        if any(t.shape != given for t in tensors):
            raise MXNetError(f"expected {' and '.join(arrays)} of the same shape")
        out, dtype = _empty((*given, *shape), dtype, tensors[0].device)
        tall = [t.detach().to(out.dtype).reshape((*given, *[1] * len(shape))) for t in tensors]
        return draw(out, generator(ctx), *tall).to(dtype)

    numbers = [keyword(key, type(value), value) for key, value in parameters.items()]
    ctx = keyword("ctx", Ctx, None)
    dtype = keyword("dtype", DType | None, None)
    data, *tensors = (inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD) for key in ("data", *arrays))
    shape = keyword("shape", Shape | None, None)
    declare(with_numbers, [*numbers, shape, ctx, dtype], f"{doc}.")
    declare(like, [data, *numbers, ctx], f"{doc}, with the shape and dtype of `data`.")
    shape = keyword("shape", Shape, ())
    declare(
        with_arrays, [*tensors, shape, dtype, ctx], f"{doc}, with shape `shape` for each element of the parameters."
    )
    op(f"_random_{name}", *aliases, f"random_{name}")(with_numbers)
    op(f"_random_{name}_like")(like)
    op(f"_sample_{name}", f"sample_{name}", infer=_sampled_shapes)(with_arrays)


def _sampled_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> tuple[Shapes, Shapes]:
    """Infer that the parameters have the same shape, followed by `shape` in the output."""
    known = next((shape for shape in shapes if shape is not None), None)
    if known is None:
        return shapes, outputs
    return [known] * len(shapes), [(*known, *attrs["shape"])]


def declare(function: Callable[..., Tensor], parameters: list[inspect.Parameter], doc: str) -> None:
    """Set the signature, which the op table reads, and the docstring of an op."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__doc__ = doc


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return an attribute for the signature of an op."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_enter(
    "uniform",
    _uniform,
    {"low": 0.0, "high": 1.0},
    ("low", "high"),
    ("uniform",),
    "Samples from the uniform distribution from low to high",
)
_enter(
    "normal",
    _normal,
    {"loc": 0.0, "scale": 1.0},
    ("mu", "sigma"),
    ("normal",),
    "Samples from the normal distribution with mean loc and standard deviation scale",
)
_enter(
    "gamma",
    _gamma,
    {"alpha": 1.0, "beta": 1.0},
    ("alpha", "beta"),
    (),
    "Samples from the gamma distribution with shape alpha and scale beta",
)
_enter("exponential", _exponential, {"lam": 1.0}, ("lam",), (), "Samples from the exponential distribution of rate lam")
_enter("poisson", _poisson, {"lam": 1.0}, ("lam",), (), "Samples from the Poisson distribution of rate lam")
_enter(
    "negative_binomial",
    _negative_binomial,
    {"k": 1, "p": 1.0},
    ("k", "p"),
    (),
    "Samples from the negative binomial distribution: failures before the k-th success of probability p",
)
_enter(
    "generalized_negative_binomial",
    _generalized_negative_binomial,
    {"mu": 1.0, "alpha": 1.0},
    ("mu", "alpha"),
    (),
    "Samples from the negative binomial distribution with mean mu and variance mu + alpha * mu * mu",
)


# ---- integers, classes and permutations ----


@op("_random_randint", "random_randint", "_npi_random_randint")
def randint(
    *,
    low: int,
    high: int,
    shape: Shape | None = None,
    ctx: Ctx = FILLED_IN,
    dtype: Literal["int32", "int64"] | None = None,
) -> Tensor:
    """Random integers from low up to, but not including, high."""
    _demand(low < high, "low must be less than high")
    kind = torch.int64 if dtype == "int64" else torch.int32
    return torch.randint(low, high, _full_shape(shape), dtype=kind, device=ctx.device, generator=generator(ctx))


@op("_sample_multinomial", "sample_multinomial", outputs=lambda a: 2 if a["get_prob"] else 1)
def multinomial(
    data: Tensor,
    *,
    shape: Shape = (),
    get_prob: bool = False,
    dtype: Literal["float16", "float32", "float64", "int32", "uint8"] = "int32",
    ctx: Ctx = FILLED_IN,
) -> Tensor | list[Tensor]:
    """Classes drawn with the probabilities in the last axis of `data`, with shape `shape` for each row.

    With `get_prob`, also returns the log probability of each class drawn, whose gradient suits policy gradient methods.
    """
    if not data.dim() or not data.is_floating_point():
        raise MXNetError("data must contain probabilities along its last axis")
    rows = data.detach().reshape(-1, data.shape[-1])
    rows = rows if rows.dtype.itemsize >= 4 else rows.float()
    count = math.prod(shape)
    index = torch.multinomial(rows, count, replacement=True, generator=generator(ctx))
    drawn_shape = (*data.shape[:-1], *shape) or (1,)
    drawn = index.reshape(drawn_shape).to(getattr(torch, dtype))
    if not get_prob:
        return drawn
    chosen = data.reshape(-1, data.shape[-1]).gather(1, index)
    return [drawn, chosen.reshape(drawn_shape).log()]


@op("_shuffle", "shuffle", "_npi_shuffle")
def shuffle(data: Tensor, *, ctx: Ctx = FILLED_IN) -> Tensor:
    """`data` with its rows in random order."""
    return data[torch.randperm(len(data), device=data.device, generator=generator(ctx))]


@op("_sample_unique_zipfian", outputs=2)
def sample_unique_zipfian(*, range_max: int, shape: Shape | None = None, ctx: Ctx = FILLED_IN) -> list[Tensor]:
    """Unique classes below range_max for each row, with probabilities log((c + 2) / (c + 1)), and the draw counts."""
    if shape is None or len(shape) != 2:
        raise MXNetError("shape must have 2 dimensions, (rows, classes per row)")
    rows, wanted = shape
    _demand(0 < wanted <= range_max, "the number of classes per row must be from 1 to range_max")
    samples = torch.empty(shape, dtype=torch.int64, device=ctx.device)
    tries = torch.empty(rows, dtype=torch.int64, device=ctx.device)
    for row in range(rows):
        drawn = samples.new_empty(0)
        while True:
            uniform = torch.empty(2 * wanted, dtype=torch.float64, device=ctx.device).uniform_(generator=generator(ctx))
            fresh = uniform.mul_(math.log1p(range_max)).exp_().long().sub_(1).clamp_(0, range_max - 1)
            drawn = torch.cat([drawn, fresh])
            classes, place = drawn.unique(return_inverse=True)
            if len(classes) >= wanted:
                break
        order = torch.arange(len(drawn), device=ctx.device)
        first = torch.full_like(classes, len(drawn)).scatter_reduce_(0, place, order, "amin").sort().values[:wanted]
        samples[row], tries[row] = drawn[first], first[-1] + 1
    return [samples, tries]
