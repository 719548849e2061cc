"""The tolerance of parity tests accepts only rounding errors, also with other instruction sets."""

import instruction_sets
import numpy as np
import pytest
from launching import LIMIT

from parity import tolerance

EPS = 2.0**-23


def test_rounding_differences_pass():
    rng = np.random.RandomState(0)
    terms = rng.uniform(-1, 1, (64, 2000)).astype("float32")
    one, other = terms.sum(axis=1), terms[:, ::-1].cumsum(axis=1)[:, -1]  # pairwise and sequential summation
    assert (one != other).any()
    tolerance.check(one, other, terms=2000)


@pytest.mark.parametrize(
    ("received", "expected", "how"),
    [
        ([1.0001], [1.0], {}),  # beyond float32 rounding
        ([1 + 200 * EPS], [1.0], {}),
        ([1 + 40 * EPS], [1.0], {"terms": 4}),
        ([3.0], [3.1], {"dtypes": ("float16",)}),
        ([np.nan], [1.0], {}),
        ([1.0], [np.nan], {}),
        ([np.inf], [1e30], {}),
        ([np.inf], [-np.inf], {}),
    ],
)
def test_larger_differences_fail(received, expected, how):
    with pytest.raises(AssertionError, match="its tolerance"):
        tolerance.check(np.array(received, "float32"), np.array(expected, "float32"), **how)


def test_integers_must_be_equal_or_within_off():
    one, other = np.array([1, 250], "uint8"), np.array([1, 251], "uint8")
    tolerance.check(one, other, off=1)
    with pytest.raises(AssertionError):
        tolerance.check(one, other)
    with pytest.raises(AssertionError):
        tolerance.check(other, one[:1])


def test_factor_widens_tolerance_and_infinities_are_equal():
    tolerance.check(np.array([1 + 200 * EPS, np.inf, np.nan]), np.array([1, np.inf, np.nan]), factor=2)


def test_lowest_instruction_set_matches_mxnet():
    """A part of `make test-isa`: the case families with the longest sums."""
    found = instruction_sets.levels()
    if not found:
        pytest.skip("torch's kernels can be chosen by variables on x86-64 Linux only")
    families = "rnn: or conv: or linalg: or norm: or trainings:"
    run = instruction_sets.run(
        ["tests/ops/test_parity.py", "-k", families], next(iter(found.values())), capture_output=True, timeout=LIMIT
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
