"""mx.contrib.svrg_optimization: training with variance-reduced gradients."""

from . import svrg_module

__all__ = ["svrg_module"]
