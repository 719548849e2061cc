"""A torch gradient scaler for ranks that step together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """A GradScaler for torch modules and optimizers. With `agree`, all ranks skip a step if one of them has to.

    `agree(found)` returns whether a gradient overflowed on any rank; `amp.loss_scaler.agree(group)` creates it. It is
    called once per optimizer and step, even on ranks without gradients.
    """

    def __init__(self, device: str = "cpu", agree: Callable[[bool], bool] | None = None, **settings: Any):
        super().__init__(device, **settings)
        self._agree = agree

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found = super()._unscale_grads_(*args, **kwargs)
        if self._agree is not None:
            anywhere = self._agree(any(bool(each) for each in found.values()))
            found = found or {torch.device(self._device): torch.zeros((), device=self._device)}
            for each in found.values():
                each.fill_(float(anywhere))
        return found
