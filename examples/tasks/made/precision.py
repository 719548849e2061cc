"""Average precision, for tasks that rank their answers: labels of pictures, detected boxes."""

import numpy as np


def average_precision(scores, hits, positives):
    """Return the mean, over all `positives` to be found, of the precision at the answer that finds each one.

    `hits` says which of the answers are right. Positives that no answer finds count as 0.
    """
    order = np.argsort(-np.asarray(scores), kind="stable")
    right = np.asarray(hits, bool)[order]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    return precision[right].sum() / max(positives, 1)
