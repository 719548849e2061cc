"""Gluon: networks, their parameters, their training and their data."""

from . import contrib, data, utils

__all__ = ["contrib", "data", "utils"]
