"""Parts of gluon that MXNet calls experimental."""

from . import cnn, data, nn

__all__ = ["cnn", "data", "nn"]
