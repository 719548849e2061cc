"""`mx.nd.contrib`: the ops called `_contrib_...` in the table."""

from .control_flow import cond, foreach, while_loop  # noqa: F401
