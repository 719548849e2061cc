"""One thread per process, because tests run in parallel on few cores; the same random seed for every test."""

import multiprocessing
import os
import random
import subprocess

# MKL chooses its kernels by the CPU. Their rounding decides whether the determinant of a singular matrix is 0.
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")

import numpy as np
import pytest
import torch
from hypothesis import settings

import neomx as mx  # before any test uses torch: it may limit oneDNN

torch.set_num_threads(1)
pytest.register_assert_rewrite("launching")  # its assertions show values, as in a test

settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")


def pytest_collection_modifyitems(items):
    """Mark tests in files that start processes, which `make quick` skips."""
    from launching import launcher, neomx_run  # only after its assertions are rewritten
    from server_jobs import Job

    starters = {id(each) for each in (subprocess, multiprocessing, neomx_run, launcher, Job)}
    for item in items:
        if any(id(value) in starters for value in vars(item.module).values()):
            item.add_marker("processes")


@pytest.fixture(autouse=True)
def seeded():
    """Seed the random numbers of every test, independently of the order of tests."""
    random.seed(0)
    np.random.seed(0)
    mx.random.seed(0)
