"""A training that is stopped any number of times, at any step, ends with the bits of one that never stopped."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from random_trainings import check


@pytest.mark.parametrize("seed", range(16))
def test_stopped_anywhere_it_ends_with_the_same_bits(tmp_path, seed):
    check(tmp_path, seed)
