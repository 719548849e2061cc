"""`mx.mod`: training a symbol. Module, and modules made of several."""

from .base_module import BaseModule

__all__ = ["BaseModule"]
