"""One thread a process, since tests run side by side on few cores; in CI the same random examples every time."""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
