"""`mx.checkpoint`: saves the whole state of a training in the background, and resumes it at the exact step.

ckpt = mx.checkpoint.Checkpointer("checkpoints", net=net, trainer=trainer, loader=loader, every=500)
ckpt.restore()
for epoch in ckpt.epochs(10):
    for x, y in loader:
        ...
        trainer.step(len(x))
        ckpt.step()
ckpt.close()
"""

from .automatic import epochs, start_from_environment
from .checkpointer import Checkpointer
from .manifest import CheckpointError
from .preemption import EXIT_CODE

__all__ = ["EXIT_CODE", "CheckpointError", "Checkpointer", "epochs", "start_from_environment"]
