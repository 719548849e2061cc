"""Registers the pretend accelerator, and checks every array that is made in a test."""

import pretend
import pytest

import neomx as mx

pretend.register()
pytest.register_assert_rewrite("running")


@pytest.fixture(autouse=True)
def contexts(monkeypatch):
    """The contexts of all arrays made so far; an array whose tensor is on another device than it says is an error."""
    seen = set()
    make = mx.nd.NDArray.__init__

    def checked(self, data, ctx=None):
        make(self, data, ctx)
        seen.add(self._ctx)
        assert data.device == self._ctx.device or data.is_meta, (
            f"an array of {self._ctx} holds a tensor of {data.device}"
        )

    monkeypatch.setattr(mx.nd.NDArray, "__init__", checked)
    return seen
