"""Saves two checkpoints with two workers. Worker 1 is lost during the second. Run by test_checkpoint_faults.py.

Arguments: directory, and "killed" or "hung".
"""

import os
import sys
import threading
import time

import neomx as mx
from neomx.checkpoint import snapshot

directory, how = sys.argv[1:]
net = mx.gluon.nn.Dense(64, in_units=64)
net.initialize()
ckpt = mx.checkpoint.Checkpointer(directory, net=net, signals=False)
ckpt.step()
ckpt.save()
ckpt.wait()
mx.dist.barrier()
if mx.dist.rank() == 1:
    blocks = snapshot.Snapshot.blocks

    def lost(self):
        """In the middle of writing the part."""
        yield next(blocks(self))[:1000]
        if how == "killed":
            os.kill(os.getpid(), 9)
        threading.Event().wait()

    snapshot.Snapshot.blocks = lost
ckpt.step()
ckpt.save()
began = time.monotonic()
if mx.dist.rank() == 0:
    ckpt.wait()  # a dropped checkpoint is a warning: the next one may succeed
    assert time.monotonic() - began < 60, "worker 0 has waited longer than the limit"
    print("worker 0 goes on", flush=True)
    os._exit(3)
ckpt.wait()
