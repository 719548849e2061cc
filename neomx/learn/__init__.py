"""`mx.learn`: ways to learn, each usable alone, on any number of workers.

transfer    freeze, unfreeze, discriminative rates, gradual unfreezing, another output layer
tasks       several tasks on a shared trunk, with three ways to weigh their losses
ema         a moving average of the weights
smoothing   label smoothing
accumulate  micro-batches, and clipping by the norm over all workers
early       early stopping
curriculum  the easiest samples first
search      random search and successive halving over hyperparameters
"""

from .accumulate import clipped_step, micro_batches
from .curriculum import Curriculum
from .early import EarlyStopping
from .ema import EMA
from .search import Trial, integers, log_uniform, random_search, successive_halving, table, uniform
from .smoothing import SmoothedCrossEntropyLoss
from .tasks import GradNorm, SharedTrunk, UncertaintyWeights, weighted_loss
from .transfer import depth_groups, discriminative_rates, freeze, replace_output, unfreeze, unfreeze_gradually

__all__ = [
    "EMA",
    "Curriculum",
    "EarlyStopping",
    "GradNorm",
    "SharedTrunk",
    "SmoothedCrossEntropyLoss",
    "Trial",
    "UncertaintyWeights",
    "clipped_step",
    "depth_groups",
    "discriminative_rates",
    "freeze",
    "integers",
    "log_uniform",
    "micro_batches",
    "random_search",
    "replace_output",
    "successive_halving",
    "table",
    "unfreeze",
    "unfreeze_gradually",
    "uniform",
    "weighted_loss",
]
