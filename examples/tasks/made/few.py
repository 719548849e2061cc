"""A few labeled samples of each class."""

import numpy as np


def few_of_each(labels, count):
    """Return the indices of the first `count` samples of each class, and the indices of all others."""
    few = np.concatenate([np.flatnonzero(labels == each)[:count] for each in np.unique(labels)])
    return few, np.setdiff1d(np.arange(len(labels)), few)
