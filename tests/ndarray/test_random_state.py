"""mx.random.RandomState: the distributions of mx.random with their own state."""

import inspect

import numpy as np
import pytest

import neomx as mx
from neomx import nd

DRAWS = {
    "uniform": ((2, 5), {"shape": (3, 4)}),
    "normal": ((1, 2), {"shape": 8}),
    "randn": ((2, 3), {"loc": 1.0}),
    "randint": ((0, 100), {"shape": 9}),
    "exponential": ((2.0,), {"shape": 5}),
    "gamma": ((2.0, 1.0), {"shape": 5}),
    "poisson": ((4.0,), {"shape": 9}),
    "negative_binomial": ((3, 0.4), {"shape": 9}),
    "generalized_negative_binomial": ((3.0, 0.4), {"shape": 9}),
    "multinomial": ((nd.array([0.2, 0.3, 0.5]),), {"shape": 9}),
    "shuffle": ((nd.arange(20),), {}),
}


def drawn(state, name):
    args, options = DRAWS[name]
    return getattr(state, name)(*args, **options).asnumpy()


def test_every_distribution_of_the_module_is_there():
    others = {"RandomState", "rng", "seed"}
    assert set(DRAWS) == set(mx.random.__all__) - others
    for name in DRAWS:
        expected = [*inspect.signature(getattr(mx.random, name)).parameters]
        assert [*inspect.signature(getattr(mx.random.RandomState, name)).parameters] == ["self", *expected]


@pytest.mark.parametrize("name", DRAWS)
def test_equal_seeds_give_equal_numbers_of_the_same_kind(name):
    first, second, other = (mx.random.RandomState(seed) for seed in (7, 7, 8))
    for _ in range(2):  # the state advances
        values = drawn(first, name)
        np.testing.assert_array_equal(drawn(second, name), values)
    like = drawn(mx.random, name)
    assert (values.shape, values.dtype) == (like.shape, like.dtype)
    assert any((drawn(other, name) != values).any() for _ in range(3))


def test_state_and_module_are_independent():
    state = mx.random.RandomState(3)
    expected = [drawn(mx.random.RandomState(3), "uniform"), *[None] * 2]
    mx.random.seed(1)
    alone = drawn(mx.random, "normal")
    mx.random.seed(1)
    np.testing.assert_array_equal(drawn(state, "uniform"), expected[0])
    np.testing.assert_array_equal(drawn(mx.random, "normal"), alone)


def test_values_follow_the_distribution():
    values = mx.random.RandomState(0).normal(2, 3, shape=20000).asnumpy()
    assert abs(values.mean() - 2) < 0.1 and abs(values.std() - 3) < 0.1  # 5 standard errors are 0.1 and 0.08


def test_seeding_starts_again():
    state = mx.random.RandomState(-5)
    before = drawn(state, "uniform")
    state.seed(-5)
    np.testing.assert_array_equal(drawn(state, "uniform"), before)
    assert (drawn(mx.random.RandomState(5), "uniform") != before).any()
    mx.random.seed(2)
    unseeded = drawn(mx.random.RandomState(), "uniform")
    mx.random.seed(2)
    np.testing.assert_array_equal(drawn(mx.random.RandomState(), "uniform"), unseeded)
    with pytest.raises(ValueError, match="the seed must be an int, received 'a'"):
        mx.random.RandomState("a")
