"""DropoutCell: dropout between cells."""

from __future__ import annotations

import numbers
from typing import Any

from .. import symbol
from ..symbol import Symbol
from . import sequence
from .base_cell import BaseRNNCell, RNNParams


class DropoutCell(BaseRNNCell):
    """Applies dropout to the input. It has no states."""

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None):
        super().__init__(prefix, params)
        if not isinstance(dropout, numbers.Number):
            raise AssertionError(f"dropout probability must be a number, received {dropout!r}")
        self.dropout = dropout

    @property
    def state_info(self) -> list[dict]:
        """An empty list."""
        return []

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Apply dropout to the input."""
        return symbol.Dropout(data=inputs, p=self.dropout) if self.dropout > 0 else inputs, states

    def unroll(
        self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None
    ) -> tuple[Any, list]:
        """Apply dropout, to the whole sequence in one op if it is one symbol."""
        self.reset()
        inputs = sequence.formatted(length, sequence.checked(length, inputs, layout), layout, merge_outputs)
        if isinstance(inputs, Symbol):
            return self(inputs, [])
        return super().unroll(length, inputs, begin_state, layout, merge_outputs)
