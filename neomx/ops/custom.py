"""The `Custom` op: calls what programs registered with `mx.operator.register`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base import MXNetError, suggest
from .table import Ctx, op

# op_type -> function(tensors, parameters, ctx) -> tensors. `mx.operator` fills it.
REGISTERED: dict[str, Callable[..., Sequence[torch.Tensor]]] = {}


@op("Custom")
def custom(*data: torch.Tensor, op_type: str, ctx: Ctx | None = None, **parameters: Any) -> Any:
    """An operation written in Python: a CustomOp, found by the name that its CustomOpProp was registered under."""
    if op_type not in REGISTERED:
        raise MXNetError(
            f"no custom op is registered as {op_type!r}.{suggest(op_type, REGISTERED)} Use @mx.operator.register"
        )
    outputs = REGISTERED[op_type](data, parameters, ctx)
    return outputs[0] if len(outputs) == 1 else list(outputs)
