"""`mx.metric`: evaluation metrics, accumulated over batches.

Every metric keeps two sums: the local one, which `reset_local` clears (after each line of a progress report), and the
global one, which `reset` clears. They are computed on the device of the arrays with one or two ops. NaN in the
predictions of a loss makes the result NaN; it is never skipped.
"""

from .. import ndarray, registry
from ..base import numeric_types, string_types
from .classification import F1, MCC, PCC, Accuracy, TopKAccuracy
from .error import (
    MAE,
    MSE,
    RMSE,
    Caffe,
    CrossEntropy,
    Loss,
    NegativeLogLikelihood,
    PearsonCorrelation,
    Perplexity,
    Torch,
)
from .evalmetric import (
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    check_label_shapes,
    create,
    np,
    register,
)

__all__ = [
    "Accuracy",
    "Caffe",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "F1",
    "Loss",
    "MAE",
    "MCC",
    "MSE",
    "NegativeLogLikelihood",
    "PCC",
    "PearsonCorrelation",
    "Perplexity",
    "RMSE",
    "TopKAccuracy",
    "Torch",
    "alias",
    "check_label_shapes",
    "create",
    "ndarray",
    "np",
    "numeric_types",
    "register",
    "registry",
    "string_types",
]
