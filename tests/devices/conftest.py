"""Registers the pretend accelerator, and checks every array that a test creates."""

import pretend
import pytest

import neomx as mx

pretend.register()
pytest.register_assert_rewrite("running")


@pytest.fixture(autouse=True)
def contexts(monkeypatch):
    """Return the contexts of all arrays created so far; fails if an array's tensor is on another device."""
    seen = set()
    make = mx.nd.NDArray.__init__

    def checked(self, data, ctx=None):
        make(self, data, ctx)
        seen.add(self._ctx)
        assert data.device == self._ctx.device or data.is_meta, f"an array on {self._ctx} has a tensor on {data.device}"

    monkeypatch.setattr(mx.nd.NDArray, "__init__", checked)
    return seen
