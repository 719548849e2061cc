"""mx.contrib.svrg_optimization: training with gradients of less variance."""

from . import svrg_module

__all__ = ["svrg_module"]
