"""`mx.nd.random`: random samples. Distribution parameters are numbers or arrays."""

from __future__ import annotations

from numbers import Real
from typing import Any

from ..base import MXNetError
from ..context import Context, current_context
from ..ops.table import get_op
from .invoke import make_function
from .ndarray import NDArray

numeric_types = (Real,)

__all__ = [
    "exponential",
    "exponential_like",
    "gamma",
    "gamma_like",
    "generalized_negative_binomial",
    "generalized_negative_binomial_like",
    "multinomial",
    "negative_binomial",
    "negative_binomial_like",
    "normal",
    "normal_like",
    "poisson",
    "poisson_like",
    "randint",
    "randn",
    "shuffle",
    "uniform",
    "uniform_like",
    "NDArray",
    "current_context",
    "numeric_types",
]


def _function(name: str) -> Any:
    return make_function(get_op(name), name, NDArray)


_DRAWS = {
    name: (_function(f"_random_{name}"), _function(f"_sample_{name}"))
    for name in (
        "exponential",
        "gamma",
        "generalized_negative_binomial",
        "negative_binomial",
        "normal",
        "poisson",
        "uniform",
    )
}


def _draw(name: str, parameters: tuple[Any, ...], shape: Any, dtype: Any, ctx: Context | None, out: Any) -> NDArray:
    """Draw with the op for numbers, or with the op for arrays if the parameters are arrays."""
    with_numbers, with_arrays = _DRAWS[name]
    arrays = [isinstance(value, NDArray) for value in parameters]
    if all(arrays):
        return with_arrays(*parameters, shape=() if shape is None else shape, dtype=dtype, out=out)
    if any(arrays) or not all(isinstance(value, Real) for value in parameters):
        received = ", ".join(type(value).__name__ for value in parameters)
        raise MXNetError(
            f"random.{name}: expected parameters that are all numbers or all NDArrays, received {received}"
        )
    return with_numbers(*parameters, shape=shape, dtype=dtype, **({"ctx": ctx} if ctx else {}), out=out)


def uniform(
    low: Any = 0, high: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw samples from a uniform distribution over [`low`, `high`)."""
    return _draw("uniform", (low, high), shape, dtype, ctx, out)


def normal(
    loc: Any = 0, scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw samples from a normal distribution with mean `loc` and standard deviation `scale`."""
    return _draw("normal", (loc, scale), shape, dtype, ctx, out)


def randn(*shape: int, **kwargs: Any) -> NDArray:
    """Draw normal samples of the shape given as arguments: `randn(2, 3, loc=1, scale=2)`."""
    return normal(kwargs.pop("loc", 0), kwargs.pop("scale", 1), shape, **kwargs)


def poisson(lam: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None) -> NDArray:
    """Draw samples from a Poisson distribution with rate `lam`."""
    return _draw("poisson", (lam,), shape, dtype, ctx, out)


def exponential(
    scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw exponential samples with mean `scale`, which is the reciprocal of `lam` in `nd.random_exponential`."""
    if isinstance(scale, Real) and scale <= 0:
        raise MXNetError(f"random.exponential: scale must be positive, received {scale}")
    rate = 1.0 / scale if isinstance(scale, (Real, NDArray)) else scale
    return _draw("exponential", (rate,), shape, dtype, ctx, out)


def gamma(
    alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw gamma samples with shape `alpha` and scale `beta`. Their mean is alpha * beta."""
    return _draw("gamma", (alpha, beta), shape, dtype, ctx, out)


def negative_binomial(
    k: Any = 1, p: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw the number of failures before the `k`-th success, with success probability `p`."""
    return _draw("negative_binomial", (k, p), shape, dtype, ctx, out)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw negative binomial samples with mean `mu` and variance mu + alpha * mu * mu."""
    return _draw("generalized_negative_binomial", (mu, alpha), shape, dtype, ctx, out)


def multinomial(data: NDArray, shape: Any = None, get_prob: bool = False, out: Any = None, dtype: Any = "int32") -> Any:
    """Draw classes with the probabilities in the last axis of `data`; with `get_prob`, also return log-probabilities.

    `log_prob.backward(reward)` then computes the REINFORCE gradient.
    """
    return _multinomial(data, shape=() if shape is None else shape, get_prob=get_prob, dtype=dtype, out=out)


def randint(
    low: int, high: int, shape: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> NDArray:
    """Draw integers from [`low`, `high`), as int32 or int64."""
    return _randint(low, high, shape=shape, dtype=dtype, **({"ctx": ctx} if ctx else {}), out=out)


def shuffle(data: NDArray, out: Any = None) -> NDArray:
    """Return `data` with its rows in random order."""
    return _shuffle(data, out=out)


_multinomial = _function("_sample_multinomial")
_randint = _function("_random_randint")
_shuffle = _function("_shuffle")
exponential_like = _function("_random_exponential_like")
gamma_like = _function("_random_gamma_like")
generalized_negative_binomial_like = _function("_random_generalized_negative_binomial_like")
negative_binomial_like = _function("_random_negative_binomial_like")
normal_like = _function("_random_normal_like")
poisson_like = _function("_random_poisson_like")
uniform_like = _function("_random_uniform_like")
