"""Ops of mx.npx that only accept floats."""

import pytest

import neomx as mx


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: mx.npx.softmax(x, temperature=2.0),
        lambda x: mx.npx.log_softmax(x, temperature=2.0),
        lambda x: mx.npx.activation(x, act_type="relu"),
        lambda x: mx.npx.activation(x, act_type="tanh"),
    ],
)
def test_integers_raise(call, dtype):
    with pytest.raises(mx.MXNetError, match="expected an array of floats"):
        call(mx.np.array([1, 5], dtype=dtype))
