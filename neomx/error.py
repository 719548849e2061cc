"""mx.error: kinds of errors, by name."""

from __future__ import annotations

from .base import MXNetError, register_error

__all__ = ["InternalError", "MXNetError", "register", "register_error"]

register = register_error


@register_error
class InternalError(MXNetError):
    """Something that should not happen whatever a program does."""
