"""`mx.gluon.model_zoo`: well-known networks and their pretrained weights."""

from . import model_store, transformer, vision

__all__ = ["model_store", "transformer", "vision"]
