"""`mx.learn`: ways to learn, each usable alone, on any number of workers.

transfer    freeze, unfreeze, discriminative rates, gradual unfreezing, another output layer
tasks       several tasks on a shared trunk, with three ways to weigh their losses
ema         a moving average of the weights
smoothing   label smoothing
accumulate  micro-batches, and clipping by the norm over all workers
early       early stopping
curriculum  the easiest samples first
search      random search and successive halving over hyperparameters
episodes    few examples: episodes, prototypical and matching networks
maml        few examples: weights from which a few steps lead to a new task
contrastive, byol, rotation, masked     pretraining without labels
probe       a linear classifier that measures features
pseudo      few labels and many samples without: pseudo-labels, FixMatch
views       two augmented views of a sample; gather: the rows of all workers, with gradients
"""

from .accumulate import clipped_step, micro_batches
from .byol import BYOL
from .contrastive import NTXentLoss
from .curriculum import Curriculum
from .early import EarlyStopping
from .ema import EMA
from .episodes import Episodes, MatchingNet, PrototypicalNet
from .gather import gather
from .maml import adapt, call_with, maml_loss
from .masked import MaskedPatchLoss, MaskedTokenLoss, count_masked, from_patches, hide_patches, patch_mask, to_patches
from .probe import LinearProbe, features
from .pseudo import FixMatchLoss, PseudoLabelLoss, confident
from .rotation import rotations
from .search import Trial, integers, log_uniform, random_search, successive_halving, table, uniform
from .smoothing import SmoothedCrossEntropyLoss
from .tasks import GradNorm, SharedTrunk, UncertaintyWeights, weighted_loss
from .transfer import depth_groups, discriminative_rates, freeze, replace_output, unfreeze, unfreeze_gradually
from .views import Views

__all__ = [
    "BYOL",
    "Curriculum",
    "EMA",
    "EarlyStopping",
    "Episodes",
    "FixMatchLoss",
    "GradNorm",
    "LinearProbe",
    "MaskedPatchLoss",
    "MaskedTokenLoss",
    "MatchingNet",
    "NTXentLoss",
    "PrototypicalNet",
    "PseudoLabelLoss",
    "SharedTrunk",
    "SmoothedCrossEntropyLoss",
    "Trial",
    "UncertaintyWeights",
    "Views",
    "adapt",
    "call_with",
    "clipped_step",
    "confident",
    "count_masked",
    "depth_groups",
    "discriminative_rates",
    "features",
    "freeze",
    "from_patches",
    "gather",
    "hide_patches",
    "integers",
    "log_uniform",
    "maml_loss",
    "micro_batches",
    "patch_mask",
    "random_search",
    "replace_output",
    "rotations",
    "successive_halving",
    "table",
    "to_patches",
    "unfreeze",
    "unfreeze_gradually",
    "uniform",
    "weighted_loss",
]
