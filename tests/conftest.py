"""One thread a process: tests run side by side on few cores."""

import torch

torch.set_num_threads(1)
