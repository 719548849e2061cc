"""Additional samplers and text datasets."""

from . import sampler, text
from .sampler import IntervalSampler
from .text import WikiText2, WikiText103

__all__ = ["IntervalSampler", "WikiText2", "WikiText103", "sampler", "text"]
