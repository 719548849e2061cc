"""`mx.gluon.contrib.nn`: parallel branches, pixel shuffling, sparse embeddings, synchronized batch normalization."""

from . import basic_layers
from .basic_layers import *  # noqa: F403

__all__ = basic_layers.__all__
