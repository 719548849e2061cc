"""Linear probes, which measure how well classes can be read from the features of a frozen network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from .. import autograd, dist
from ..base import MXNetError
from ..ndarray import NDArray


def features(net: Callable[[NDArray], NDArray], batches: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs of `net`, one row per sample, and the labels, from batches of (samples, labels).

    The network runs in prediction mode, and autograd does not record it.
    """
    rows, labels = [], []
    with autograd.pause():
        for x, y in batches:
            out = net(x)
            rows.append(out.reshape((len(out), -1)).asnumpy())
            labels.append(y.asnumpy())
    if not rows:
        raise MXNetError("features: there are no batches")
    return np.concatenate(rows), np.concatenate(labels)


class LinearProbe:
    """Logistic regression on frozen features.

    `fit` minimizes the mean cross-entropy over the samples of all workers plus l2 / 2 times the sum of squared weights,
    after it has scaled each feature to mean 0 and variance 1. It computes in double precision, starts at zero and uses
    at most `steps` steps of L-BFGS, until the largest gradient is below 1e-6. The result depends on nothing random, nor
    on how the samples are divided among workers.
    """

    def __init__(self, classes: int, l2: float = 1e-3, steps: int = 500):
        if classes < 2:
            raise ValueError(f"classes must be at least 2, received {classes}")
        if not l2 > 0:
            raise ValueError(f"l2 must be positive, so that the solution is unique, received {l2!r}")
        self._classes, self._l2, self._steps = classes, float(l2), steps
        self._mean = self._scale = self.weight = torch.zeros(0)  # (features,), (features,), (classes, features + 1)

    def fit(self, features: Any, labels: Any) -> LinearProbe:
        """Fit to this worker's features (samples, features) and labels (samples,). All workers must call it."""
        x, y = _tensor(features), self._labels(features, labels)
        count = _total(torch.tensor([float(len(x))], dtype=x.dtype))
        if not count:
            raise MXNetError("LinearProbe.fit received no samples on any worker")
        self._mean = _total(x.sum(0)) / count
        deviation = (_total((x - self._mean).square().sum(0)) / count).sqrt()
        varies = deviation > 1e-9 * self._mean.abs()  # the deviation of a constant is zero only up to rounding
        self._scale = torch.where(varies, deviation, torch.ones_like(deviation))
        self.weight = torch.zeros(self._classes, x.shape[1] + 1, dtype=x.dtype, requires_grad=True)
        self._minimize(self._scaled(x), y, count)
        return self

    def _minimize(self, x: torch.Tensor, y: torch.Tensor, count: torch.Tensor) -> None:
        weight = self.weight
        search = torch.optim.LBFGS(
            [weight],
            max_iter=self._steps,
            max_eval=2 * self._steps,
            tolerance_grad=1e-6,
            tolerance_change=0,
            history_size=20,
            line_search_fn="strong_wolfe",
        )

        def objective() -> float:
            with torch.enable_grad():
                local = torch.nn.functional.cross_entropy(x @ weight.T, y, reduction="sum")
                (slope,) = torch.autograd.grad(local, weight)
            summed = _total(torch.cat([local.detach().view(1), slope.view(-1)])) / count
            kept = weight.detach().clone()
            kept[:, -1] = 0  # the bias is not regularized
            weight.grad = summed[1:].view_as(weight) + self._l2 * kept
            return float(summed[0] + self._l2 / 2 * kept.square().sum())

        search.step(objective)  # type: ignore[no-untyped-call, arg-type]
        objective()
        assert weight.grad is not None
        rest = float(weight.grad.abs().max())
        if rest > 1e-5:
            warnings.warn(
                f"LinearProbe: the gradient is still {rest:.1e} after {self._steps} steps. "
                "Pass more steps or a larger l2",
                stacklevel=3,
            )
        weight.requires_grad_(False)

    def predict(self, features: Any) -> np.ndarray:
        """Return the most likely class of each sample."""
        if not len(self._mean):
            raise MXNetError("LinearProbe: call fit first")
        return (self._scaled(_tensor(features)) @ self.weight.T).argmax(1).numpy()

    def accuracy(self, features: Any, labels: Any) -> float:
        """Return the share of samples of all workers whose class is predicted correctly. All workers must call it."""
        right = torch.from_numpy(self.predict(features)) == self._labels(features, labels)
        found = _total(torch.tensor([float(right.sum()), float(len(right))], dtype=torch.float64))
        return float(found[0] / max(float(found[1]), 1.0))

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        """Return scaled features, followed by a 1 for the bias."""
        if x.shape[1:] != self._mean.shape:
            raise MXNetError(f"LinearProbe was fitted to {len(self._mean)} features, received {x.shape[1]}")
        return torch.cat([(x - self._mean) / self._scale, x.new_ones(len(x), 1)], 1)

    def _labels(self, features: Any, labels: Any) -> torch.Tensor:
        y = np.asarray(labels.asnumpy() if isinstance(labels, NDArray) else labels)
        if y.shape != (len(features),):
            raise ValueError(f"expected one label for each of {len(features)} samples, received the shape {y.shape}")
        if len(y) and not (y.min() >= 0 and y.max() < self._classes):
            raise ValueError(f"labels must be from 0 to {self._classes - 1}, received {y.min()} to {y.max()}")
        return torch.from_numpy(y.astype("int64"))


def _tensor(features: Any) -> torch.Tensor:
    x = np.ascontiguousarray(features.asnumpy() if isinstance(features, NDArray) else features, "float64")
    if x.ndim != 2:
        raise ValueError(f"expected features of shape (samples, features), received {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError("features must be finite, received NaN or infinity")
    return torch.from_numpy(x)


def _total(x: torch.Tensor) -> torch.Tensor:
    return dist.all_reduce(x) if dist.size() > 1 else x
