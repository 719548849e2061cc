"""mx.error: error types by name."""

from __future__ import annotations

from .base import MXNetError, register_error

__all__ = ["InternalError", "MXNetError", "register", "register_error"]

register = register_error


@register_error
class InternalError(MXNetError):
    """An internal error, which no program should be able to cause."""
