"""Handwritten digits for the programs of this directory: those included in neomx, or the full MNIST from files."""

from neomx import gluon, sample


def digits(folder=None):
    """Return uint8 pictures (n, 28, 28) and labels (n,) for training, then the same for testing.

    They are the 5000 and 1000 digits included in neomx, or the whole of MNIST if `folder` has its four files.
    """
    if not folder:
        return sample.digits()
    train, test = (gluon.data.vision.MNIST(folder, train=train)[:] for train in (True, False))
    return train[0].asnumpy()[..., 0], train[1], test[0].asnumpy()[..., 0], test[1]
