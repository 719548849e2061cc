"""mx.io: iterators that give batches, for programs that do not use gluon.data."""

from . import io
from .io import DataBatch, DataDesc, DataIter, NDArrayIter, PrefetchingIter, ResizeIter
from .mnist import MNISTIter

__all__ = ["DataBatch", "DataDesc", "DataIter", "MNISTIter", "NDArrayIter", "PrefetchingIter", "ResizeIter", "io"]
