"""Activation layers."""

from __future__ import annotations

from typing import Any

from ... import initializer
from ..block import HybridBlock

__all__ = ["ELU", "GELU", "SELU", "Activation", "LeakyReLU", "PReLU", "Swish"]


class Activation(HybridBlock):
    """Elementwise activation: 'relu', 'sigmoid', 'softrelu', 'softsign' or 'tanh'."""

    def __init__(self, activation: str, **kwargs: Any):
        self._act_type = activation  # set first: the automatic name depends on it
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """x where x is positive, `alpha` * x elsewhere."""

    def __init__(self, alpha: float, **kwargs: Any):
        if alpha < 0:
            raise AssertionError(f"alpha, the slope of LeakyReLU, must be at least 0, received {alpha!r}")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


QUARTER = initializer.Constant(0.25)


class PReLU(HybridBlock):
    """LeakyReLU with learned slopes: one for all channels, or one for each of `in_channels`."""

    def __init__(self, alpha_initializer: Any = QUARTER, in_channels: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """x where x is positive, `alpha` * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """Scaled ELU, whose constants preserve mean 0 and variance 1 from layer to layer."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x times the cumulative distribution function of the standard normal distribution at x."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """x * sigmoid(`beta` * x)."""

    def __init__(self, beta: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(self._beta * x, name="fwd")
