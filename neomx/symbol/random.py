"""`mx.sym.random`: random samples. Distribution parameters are numbers or symbols."""

from __future__ import annotations

from typing import Any

from ..base import _Null, numeric_types
from ..ops.table import OPS
from .build import create
from .symbol import Symbol

__all__ = [
    "exponential",
    "gamma",
    "generalized_negative_binomial",
    "multinomial",
    "negative_binomial",
    "normal",
    "poisson",
    "randint",
    "randn",
    "shuffle",
    "uniform",
]


def _create(op_name: str, inputs: Any, kwargs: dict[str, Any]) -> Symbol:
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    given = {key: value for key, value in kwargs.items() if value is not _Null}
    return create(OPS[op_name], op_name, inputs, given, Symbol, name, attr)


def _draw(kind: str, parameters: dict[str, Any], shape: Any, dtype: Any, kwargs: dict[str, Any]) -> Symbol:
    """Use the op for numbers, or the op for arrays if the parameters are symbols."""
    values = list(parameters.values())
    if isinstance(values[0], Symbol):
        other = [v for v in values if not isinstance(v, Symbol)]
        if other:
            raise AssertionError(
                f"{kind}: the parameters must all be symbols or all be numbers, received both: {other[0]!r}"
            )
        return _create(f"_sample_{kind}", values, {"shape": shape, "dtype": dtype, **kwargs})
    for value in values:
        if isinstance(value, Symbol):
            raise AssertionError(f"{kind}: the parameters must all be symbols or all be numbers, received both")
        if not isinstance(value, numeric_types):
            raise ValueError(f"{kind}: expected symbols or numbers as parameters, received {type(value).__name__}")
    return _create(f"_random_{kind}", (), {**parameters, "shape": shape, "dtype": dtype, **kwargs})


def uniform(low: Any = 0, high: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw samples from a uniform distribution over [`low`, `high`)."""
    return _draw("uniform", {"low": low, "high": high}, shape, dtype, kwargs)


def normal(loc: Any = 0, scale: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw samples from a normal distribution."""
    return _draw("normal", {"loc": loc, "scale": scale}, shape, dtype, kwargs)


def randn(*shape: int, **kwargs: Any) -> Symbol:
    """Draw samples of shape `shape` from a normal distribution."""
    loc, scale, dtype = kwargs.pop("loc", 0), kwargs.pop("scale", 1), kwargs.pop("dtype", _Null)
    return _draw("normal", {"loc": loc, "scale": scale}, shape, dtype, kwargs)


def poisson(lam: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw samples from a Poisson distribution."""
    return _draw("poisson", {"lam": lam}, shape, dtype, kwargs)


def exponential(scale: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw samples from an exponential distribution with mean `scale`."""
    return _draw("exponential", {"lam": 1.0 / scale}, shape, dtype, kwargs)


def gamma(alpha: Any = 1, beta: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw samples from a gamma distribution."""
    return _draw("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, kwargs)


def negative_binomial(k: Any = 1, p: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw the number of failures before the k-th success, with success probability p."""
    return _draw("negative_binomial", {"k": k, "p": p}, shape, dtype, kwargs)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any
) -> Symbol:
    """Draw samples from a negative binomial distribution, parameterized by mean and dispersion."""
    return _draw("generalized_negative_binomial", {"mu": mu, "alpha": alpha}, shape, dtype, kwargs)


def multinomial(data: Symbol, shape: Any = _Null, get_prob: bool = True, dtype: Any = "int32", **kwargs: Any) -> Symbol:
    """Draw indices with the probabilities in `data`; with `get_prob`, also return their log likelihoods."""
    return _create("_sample_multinomial", (data,), {"shape": shape, "get_prob": get_prob, "dtype": dtype, **kwargs})


def shuffle(data: Symbol, **kwargs: Any) -> Symbol:
    """Return the rows of `data` in random order."""
    return _create("_shuffle", (data,), kwargs)


def randint(low: Any, high: Any, shape: Any = _Null, dtype: Any = _Null, **kwargs: Any) -> Symbol:
    """Draw integers from [`low`, `high`)."""
    return _draw("randint", {"low": low, "high": high}, shape, dtype, kwargs)
