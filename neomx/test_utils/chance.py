"""Statistical tests of random number generators. Needs scipy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base import MXNetError

Generator = Callable[[int], Any]


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise MXNetError('tests of random numbers need scipy: pip install "neomx[scipy]"') from error
    return stats


def _drawn(generator: Generator, count: int) -> np.ndarray:
    samples = generator(count)
    return np.asarray(samples.asnumpy() if hasattr(samples, "asnumpy") else samples).reshape(-1)


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Return buckets of equal probability for a distribution with this quantile function, and their probabilities."""
    assert nbuckets > 0, f"expected at least one bucket, received {nbuckets}"
    edges = [ppf(number / nbuckets) for number in range(nbuckets + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True)), [1.0 / nbuckets] * nbuckets


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Return whether the sample mean is within three standard errors of `mu`."""
    return bool(abs(_drawn(generator, nsamples).mean() - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """Return whether the sample variance is within three standard errors of sigma squared, as for normal samples."""
    error = 3 * np.sqrt(2 * sigma**4 / (nsamples - 1))
    return bool(abs(_drawn(generator, nsamples).var(ddof=1) - sigma**2) < error)


def chi_square_check(
    generator: Generator, buckets: Sequence[Any], probs: Sequence[float], nsamples: int = 1000000
) -> tuple[float, np.ndarray, np.ndarray]:
    """Run a chi-square test of samples against buckets with these probabilities; return (p, observed, expected).

    Buckets are (low, high) in ascending order for continuous values, or the values themselves for discrete ones.
    """
    assert len(buckets) == len(probs), f"received {len(probs)} probabilities for {len(buckets)} buckets"
    samples = _drawn(generator, nsamples)
    expected = nsamples * np.asarray(probs, dtype=np.float64)
    if isinstance(buckets[0], (list, tuple)):
        edges = [buckets[0][0], *(high for _, high in buckets)]
        observed = np.histogram(samples, bins=np.asarray(edges, dtype=np.float64))[0]
    else:
        observed = np.array([(samples == value).sum() for value in buckets])
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(_stats().chi2.sf(statistic, len(buckets) - 1)), observed, expected


def verify_generator(
    generator: Generator,
    buckets: Sequence[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """Assert that a generator passes the chi-square test at `alpha` in a fraction `success_rate` of the repeats.

    Returns the p values.
    """
    checks = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    values = [p for p, _, _ in checks]
    if sum(p > alpha for p in values) < nrepeat * success_rate:
        raise AssertionError(
            f"Generator test fails, Chi-square p={values}, observed={checks[-1][1]}, expected={checks[-1][2]}, "
            f"buckets={list(buckets)}, probs={list(probs)}"
        )
    return values
