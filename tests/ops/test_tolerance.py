"""The rule for parity tests lets rounding pass and nothing else; and it holds with other instruction sets."""

import instruction_sets
import numpy as np
import pytest
from launching import LIMIT

from parity import tolerance

EPS = 2.0**-23


def test_what_rounding_does_passes():
    rng = np.random.RandomState(0)
    terms = rng.uniform(-1, 1, (64, 2000)).astype("float32")
    one, other = terms.sum(axis=1), terms[:, ::-1].cumsum(axis=1)[:, -1]  # pairwise, and one after another
    assert (one != other).any()
    tolerance.check(one, other, terms=2000)


@pytest.mark.parametrize(
    ("received", "expected", "how"),
    [
        ([1.0001], [1.0], {}),  # more than float32 rounds
        ([1 + 200 * EPS], [1.0], {}),
        ([1 + 40 * EPS], [1.0], {"terms": 4}),
        ([3.0], [3.1], {"dtypes": ("float16",)}),
        ([np.nan], [1.0], {}),
        ([1.0], [np.nan], {}),
        ([np.inf], [1e30], {}),
        ([np.inf], [-np.inf], {}),
    ],
)
def test_what_is_wrong_does_not(received, expected, how):
    with pytest.raises(AssertionError, match="its tolerance"):
        tolerance.check(np.array(received, "float32"), np.array(expected, "float32"), **how)


def test_integers_are_equal_or_off_by_what_is_said():
    one, other = np.array([1, 250], "uint8"), np.array([1, 251], "uint8")
    tolerance.check(one, other, off=1)
    with pytest.raises(AssertionError):
        tolerance.check(one, other)
    with pytest.raises(AssertionError):
        tolerance.check(other, one[:1])


def test_a_factor_widens_it_and_infinities_are_equal():
    tolerance.check(np.array([1 + 200 * EPS, np.inf, np.nan]), np.array([1, np.inf, np.nan]), factor=2)


def test_the_lowest_instruction_set_gives_mxnets_numbers_too():
    """A part of `make test-isa`: the families with the longest sums."""
    found = instruction_sets.levels()
    if not found:
        pytest.skip("torch's kernels can be chosen by variables on x86-64 Linux only")
    families = "rnn: or conv: or linalg: or norm: or trainings:"
    run = instruction_sets.run(
        ["tests/ops/test_parity.py", "-k", families], next(iter(found.values())), capture_output=True, timeout=LIMIT
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
