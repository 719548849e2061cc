"""`npx.image`: ops on images, and the functions and classes of `mx.image`."""

from __future__ import annotations

from ..image import *  # noqa: F403
from ..ops.table import OPS
from .ops import make_function

for _name in OPS:
    _short = _name.removeprefix("_npx__image_")
    if _short != _name:
        globals()[_short] = make_function(_name, _short)
