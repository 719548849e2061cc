"""Networks that read text: GPT-2."""

from .gpt2 import GPT2, gpt2_large, gpt2_medium, gpt2_small, gpt2_tiny, gpt2_xl

__all__ = ["GPT2", "gpt2_large", "gpt2_medium", "gpt2_small", "gpt2_tiny", "gpt2_xl"]
