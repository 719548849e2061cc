"""Parts of gluon that MXNet calls experimental."""

from . import cnn, data, nn, rnn

__all__ = ["cnn", "data", "nn", "rnn"]
