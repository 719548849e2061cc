"""One thread a process, since tests run side by side on few cores; in CI the same random examples every time."""

import os

import pytest
import torch
from hypothesis import settings

import neomx  # noqa: F401  before any test uses torch: it may have to limit oneDNN

torch.set_num_threads(1)
pytest.register_assert_rewrite("launching")  # what its assertions found is shown, as in a test

settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
