"""`mx.elastic`: training that goes on when workers die or join. `neomx run -n 4 --elastic train.py` uses it.

for epoch in mx.elastic.epochs(10):  # in a process that joins, this starts at the epoch of the others
    for x, y in loader:
        ...
        trainer.step(batch_size)

A step is a transaction: all workers commit it, or none does. A worker that dies costs the step in which it dies. Its
samples are dealt to the others.
"""

from .training import Elastic, epochs, start_from_environment

__all__ = ["Elastic", "epochs", "start_from_environment"]
