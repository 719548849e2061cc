"""One thread a process, since tests run side by side on few cores; the same random numbers whatever ran before."""

import os
import random

import numpy as np
import pytest
import torch
from hypothesis import settings

import neomx as mx  # before any test uses torch: it may have to limit oneDNN

torch.set_num_threads(1)
pytest.register_assert_rewrite("launching")  # what its assertions found is shown, as in a test

settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers, in whichever order tests run."""
    random.seed(0)
    np.random.seed(0)
    mx.random.seed(0)
