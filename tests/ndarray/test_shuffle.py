"""shuffle: rows in random order, which depends on the seed."""

import numpy as np

import neomx as mx


def test_shuffle_keeps_rows_intact():
    x = mx.nd.array(np.arange(300).reshape(100, 3))
    y = mx.nd.shuffle(x).asnumpy()
    assert not np.array_equal(y, x.asnumpy())
    np.testing.assert_array_equal(y[np.argsort(y[:, 0])], x.asnumpy())


def test_same_seed_repeats_the_order():
    x = mx.nd.array(np.arange(50), dtype="int32")
    mx.random.seed(7)
    first, second = mx.nd.shuffle(x), mx.nd.shuffle(x)
    mx.random.seed(7)
    again = mx.nd.shuffle(x)
    assert first.dtype == np.int32
    np.testing.assert_array_equal(first.asnumpy(), again.asnumpy())
    assert not np.array_equal(first.asnumpy(), second.asnumpy())


def test_all_orders_are_equally_likely():
    mx.random.seed(1)
    x = mx.nd.array([0, 1, 2])
    seen = {}
    for _ in range(1200):
        order = tuple(mx.nd.shuffle(x).asnumpy().astype(int))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert all(140 < count < 260 for count in seen.values())
