"""`mx.sym.contrib`: the ops called `_contrib_...` in the table, and loops and branches."""

from __future__ import annotations

from .control_flow import cond, foreach, while_loop  # noqa: F401
