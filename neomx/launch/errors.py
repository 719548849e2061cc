"""The error of an invalid configuration."""

from __future__ import annotations

from ..base import MXNetError


class ConfigurationError(MXNetError):
    """The configuration of a job is invalid; nothing was started."""
