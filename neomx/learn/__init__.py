"""`mx.learn`: ways to train a network, beyond a loss and labels for every sample."""

from __future__ import annotations

from .byol import BYOL
from .contrastive import NTXentLoss
from .episodes import Episodes, MatchingNet, PrototypicalNet
from .gather import gather
from .maml import adapt, call_with, maml_loss
from .masked import (
    MaskedPatchLoss,
    MaskedTokenLoss,
    count_masked,
    from_patches,
    hide_patches,
    patch_mask,
    to_patches,
)
from .probe import LinearProbe, features
from .pseudo import FixMatchLoss, PseudoLabelLoss, confident
from .rotation import rotations
from .views import Views

__all__ = [
    "BYOL",
    "Episodes",
    "FixMatchLoss",
    "LinearProbe",
    "MaskedPatchLoss",
    "MaskedTokenLoss",
    "MatchingNet",
    "NTXentLoss",
    "PrototypicalNet",
    "PseudoLabelLoss",
    "Views",
    "adapt",
    "call_with",
    "confident",
    "count_masked",
    "features",
    "from_patches",
    "gather",
    "hide_patches",
    "maml_loss",
    "patch_mask",
    "rotations",
    "to_patches",
]
