"""Parts of gluon that MXNet calls experimental."""

from . import data

__all__ = ["data"]
