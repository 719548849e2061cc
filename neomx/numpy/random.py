"""`mx.np.random`: random samples. Parameters are numbers or arrays, which are broadcast. Seed with `mx.random.seed`."""

from __future__ import annotations

from typing import Any

import numpy as onp

from ..context import Context
from ..ndarray.ndarray import NDArray
from ..symbol import Symbol
from .call import call
from .linalg import cholesky
from .products import einsum

__all__ = [
    "beta",
    "chisquare",
    "choice",
    "exponential",
    "gamma",
    "gumbel",
    "logistic",
    "lognormal",
    "multinomial",
    "multivariate_normal",
    "normal",
    "pareto",
    "power",
    "rand",
    "randint",
    "randn",
    "rayleigh",
    "shuffle",
    "uniform",
    "weibull",
]


def _is_array(value: Any) -> bool:
    return isinstance(value, (NDArray, Symbol))


def draw(name: str, parameters: dict[str, Any], size: Any, ctx: Context | None, out: Any = None, **attrs: Any) -> Any:
    """Call the op `name`. Parameters that are arrays become inputs, and numbers become attributes."""
    arrays = [value for value in parameters.values() if _is_array(value)]
    attrs |= {key: None if _is_array(value) else value for key, value in parameters.items()}
    if arrays:
        return call(name, arrays, out, size=size, **attrs)
    return call(name, (), out, ctx=ctx, size=size, **attrs)


def at_least_0(name: str, value: Any, strictly: bool = False) -> None:
    """Raise ValueError if an element of a parameter is negative, or 0 if `strictly`. Symbols are not checked."""
    if isinstance(value, Symbol):
        return
    numbers = value.to_torch().detach() if isinstance(value, NDArray) else value
    wrong = numbers <= 0 if strictly else numbers < 0
    if bool(wrong.any() if isinstance(value, NDArray) else wrong):
        raise ValueError(f"{name} must be {'positive' if strictly else 'at least 0'}, received {value!r:.80}")


def uniform(
    low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> Any:
    """Draw samples from a uniform distribution over [low, high). As in MXNet, they have no gradient."""
    return draw("_npi_uniform", {"low": low, "high": high}, size, ctx, out, dtype=dtype or "float32")


def normal(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> Any:
    """Draw samples from a normal distribution. loc and scale have gradients."""
    at_least_0("scale", scale)
    return draw("_npi_normal", {"loc": loc, "scale": scale}, size, ctx, out, dtype=dtype or "float32")


def lognormal(
    mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> Any:
    """Draw samples from a log-normal distribution."""
    return call("_npi_exp", (normal(mean, sigma, size, dtype, ctx),), out)


def logistic(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, ctx: Context | None = None, out: Any = None) -> Any:
    """Draw samples from a logistic distribution. loc and scale have gradients."""
    at_least_0("scale", scale)
    return draw("_npi_logistic", {"loc": loc, "scale": scale}, size, ctx, out)


def gumbel(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, ctx: Context | None = None, out: Any = None) -> Any:
    """Draw samples from a Gumbel distribution. loc and scale have gradients."""
    at_least_0("scale", scale)
    return draw("_npi_gumbel", {"loc": loc, "scale": scale}, size, ctx, out)


def exponential(scale: Any = 1.0, size: Any = None, ctx: Context | None = None, out: Any = None) -> Any:
    """Draw samples from an exponential distribution with mean scale, which has a gradient."""
    at_least_0("scale", scale)
    return draw("_npi_exponential", {"scale": scale}, size, ctx, out)


def rayleigh(scale: Any = 1.0, size: Any = None, ctx: Context | None = None, out: Any = None) -> Any:
    """Draw samples from a Rayleigh distribution. scale has a gradient."""
    at_least_0("scale", scale)
    return draw("_npi_rayleigh", {"scale": scale}, size, ctx, out)


def weibull(a: Any, size: Any = None, ctx: Context | None = None, out: Any = None) -> Any:
    """Draw samples from a Weibull distribution with shape a, which has a gradient, and scale 1."""
    at_least_0("a", a, strictly=True)
    return draw("_npi_weibull", {"a": a}, size, ctx, out)


def pareto(a: Any, size: Any = None, ctx: Context | None = None, out: Any = None) -> Any:
    """Draw samples from a Pareto II (Lomax) distribution with shape a, which has a gradient."""
    at_least_0("a", a, strictly=True)
    return draw("_npi_pareto", {"a": a}, size, ctx, out)


def power(a: Any, size: Any = None) -> Any:
    """Draw samples from [0, 1] with the density a x^(a - 1)."""
    at_least_0("a", a, strictly=True)
    return draw("_npi_powerd", {"a": a}, size, None)


def gamma(
    shape: Any, scale: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> Any:
    """Draw samples from a gamma distribution. As in MXNet, they have no gradient."""
    at_least_0("shape", shape, strictly=True)
    at_least_0("scale", scale)
    return draw("_npi_gamma", {"shape": shape, "scale": scale}, size, ctx, out, dtype=dtype or "float32")


def beta(a: Any, b: Any, size: Any = None, dtype: Any = None, ctx: Context | None = None) -> Any:
    """Draw samples from a beta distribution, computed from two gamma samples in float64."""
    x, y = gamma(a, 1.0, size, "float64", ctx), gamma(b, 1.0, size, "float64", ctx)
    return (x / (x + y)).astype(dtype or "float32")


def chisquare(df: Any, size: Any = None, dtype: Any = None, ctx: Context | None = None) -> Any:
    """Draw samples from a chi-square distribution with df degrees of freedom."""
    return gamma(df / 2, 2.0, size, dtype, ctx)


def rand(*size: int, **kwargs: Any) -> Any:
    """Draw samples from a uniform distribution over [0, 1)."""
    return uniform(0, 1, size, **kwargs)


def randn(*size: int, **kwargs: Any) -> Any:
    """Draw samples from a standard normal distribution."""
    return normal(0, 1, size, **kwargs)


def randint(
    low: int, high: int | None = None, size: Any = None, dtype: Any = None, ctx: Context | None = None, out: Any = None
) -> Any:
    """Draw integers from [low, high), or from [0, low) if only low is given."""
    low, high = (0, low) if high is None else (low, high)
    dtype = "int64" if dtype in (None, "int", int) else dtype
    return call(
        "_npi_random_randint", (), out, ctx=ctx, low=low, high=high, shape=() if size is None else size, dtype=dtype
    )


def choice(
    a: Any, size: Any = None, replace: bool = True, p: Any = None, ctx: Context | None = None, out: Any = None
) -> Any:
    """Draw elements of an array, or integers below a, with equal probabilities or those in the array p."""
    given = [value for value in (a, p) if _is_array(value)]
    if p is not None and not _is_array(p):
        raise TypeError(f"choice expects p to be an array, received {type(p).__name__}")
    attrs = {"size": size, "replace": replace, "weighted": p is not None}
    if not _is_array(a):
        return call("_npi_choice", given, out, ctx=None if given else ctx, a=a, **attrs)
    return call("_npi_take", (a, call("_npi_choice", given, a=None, **attrs)), out)


def multinomial(n: int, pvals: Any, size: Any = None, **kwargs: Any) -> Any:
    """Draw the number of occurrences of each outcome in n experiments."""
    if _is_array(pvals):
        return call("_npi_multinomial", (pvals,), n=n, size=size)
    return call("_npi_multinomial", n=n, pvals=tuple(pvals), size=size)


def multivariate_normal(mean: Any, cov: Any, size: Any = None, check_valid: Any = None, tol: Any = None) -> Any:
    """Draw multivariate normal samples with a positive definite covariance. `check_valid` and `tol` are ignored."""
    zeros = (mean + einsum("...ij->...i", cov)) * 0  # zeros with the shape of one draw, which is unknown for a symbol
    dtype = "float32" if isinstance(mean, Symbol) else onp.dtype(mean.dtype).name
    noise = draw("_npi_normal_n", {"loc": zeros, "scale": 1.0}, size, None, dtype=dtype)
    return mean + einsum("...ij,...j->...i", cholesky(cov), noise)


def shuffle(x: Any) -> Any:
    """Shuffle the rows of x in place."""
    if isinstance(x, Symbol):
        return call("_npi_shuffle", (x,))
    call("_npi_shuffle", (x,), x)
    return None
