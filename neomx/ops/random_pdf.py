"""Probability densities of the distributions in random.py for samples, with arrays of parameters.

The parameters have the leading dimensions of `sample`. Its other dimensions are draws from the same distribution.
Counts are constants: for discrete distributions, only the parameters have gradients.
"""

from __future__ import annotations

import math

import torch

from ..base import MXNetError
from .shape import never_0d
from .table import op

Tensor = torch.Tensor


def _spread(sample: Tensor, parameter: Tensor, trailing: int = 0) -> Tensor:
    """Insert dimensions into `parameter` so that it broadcasts with `sample`. Its last `trailing` ones stay last."""
    lead = parameter.shape[: parameter.dim() - trailing]
    draws = sample.dim() - parameter.dim()
    if (
        draws < 0
        or sample.shape[: len(lead)] != lead
        or sample.shape[sample.dim() - trailing :] != parameter.shape[len(lead) :]
    ):
        raise MXNetError(
            f"expected sample to start with the dimensions of the parameters, {tuple(parameter.shape)}, "
            f"got {tuple(sample.shape)}"
        )
    if not sample.is_floating_point():
        raise MXNetError("expected arrays of a floating point type")
    return parameter.reshape(*lead, *[1] * draws, *parameter.shape[len(lead) :])


def _result(log_density: Tensor, is_log: bool) -> Tensor:
    return log_density if is_log else log_density.exp()


@op("_random_pdf_uniform", "random_pdf_uniform", same_dtype=True)
def pdf_uniform(sample: Tensor, low: Tensor, high: Tensor, *, is_log: bool = False) -> Tensor:
    """Density 1 / (high - low). Samples are assumed to be in range."""
    width = _spread(sample, high) - _spread(sample, low)
    return (-width.log() if is_log else 1 / width).expand_as(sample) + 0 * sample.detach()


@op("_random_pdf_normal", "random_pdf_normal", same_dtype=True)
def pdf_normal(sample: Tensor, mu: Tensor, sigma: Tensor, *, is_log: bool = False) -> Tensor:
    """Density of the normal distribution."""
    sigma = _spread(sample, sigma)
    distance = (sample - _spread(sample, mu)) / sigma
    return _result(-0.5 * distance * distance - sigma.log() - 0.5 * math.log(2 * math.pi), is_log)


@op("_random_pdf_gamma", "random_pdf_gamma", same_dtype=True)
def pdf_gamma(sample: Tensor, alpha: Tensor, beta: Tensor, *, is_log: bool = False) -> Tensor:
    """Density of the gamma distribution with shape alpha and rate beta."""
    a, b = _spread(sample, alpha), _spread(sample, beta)
    return _result(a * b.log() + (a - 1) * sample.log() - b * sample - a.lgamma(), is_log)


@op("_random_pdf_exponential", "random_pdf_exponential", same_dtype=True)
def pdf_exponential(sample: Tensor, lam: Tensor, *, is_log: bool = False) -> Tensor:
    """Density of the exponential distribution with rate lam."""
    rate = _spread(sample, lam)
    return _result(rate.log() - rate * sample, is_log)


@op("_random_pdf_poisson", "random_pdf_poisson", same_dtype=True)
def pdf_poisson(sample: Tensor, lam: Tensor, *, is_log: bool = False) -> Tensor:
    """Probability of a count under the Poisson distribution with rate lam."""
    rate, count = _spread(sample, lam), sample.detach()
    return _result(count * rate.log() - rate - (count + 1).lgamma(), is_log)


@op("_random_pdf_negative_binomial", "random_pdf_negative_binomial", same_dtype=True)
def pdf_negative_binomial(sample: Tensor, k: Tensor, p: Tensor, *, is_log: bool = False) -> Tensor:
    """Probability of the number of failures before the k-th success of probability p."""
    return _result(_log_negative_binomial(sample.detach(), _spread(sample, k), _spread(sample, p)), is_log)


@op("_random_pdf_generalized_negative_binomial", "random_pdf_generalized_negative_binomial", same_dtype=True)
def pdf_generalized_negative_binomial(sample: Tensor, mu: Tensor, alpha: Tensor, *, is_log: bool = False) -> Tensor:
    """Probability of a count under the negative binomial distribution with mean mu and dispersion alpha."""
    mu, alpha = _spread(sample, mu), _spread(sample, alpha)
    return _result(_log_negative_binomial(sample.detach(), 1 / alpha, 1 / (1 + mu * alpha)), is_log)


def _log_negative_binomial(count: Tensor, k: Tensor, p: Tensor) -> Tensor:
    ways = (count + k).lgamma() - (count + 1).lgamma() - k.lgamma()
    return ways + k * p.log() + count * (1 - p).log()


@op("_random_pdf_dirichlet", "random_pdf_dirichlet", same_dtype=True)
def pdf_dirichlet(sample: Tensor, alpha: Tensor, *, is_log: bool = False) -> Tensor:
    """Density of the Dirichlet distribution. The last axis contains the components of a sample."""
    a = _spread(sample, alpha, trailing=1)
    log_density = ((a - 1) * sample.log()).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)
    return _result(never_0d(log_density), is_log)
