"""Token counts."""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["count_tokens_from_str"]


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter | None = None,
) -> Counter:
    """Count the tokens in a text; the delimiters are regular expressions.

    The counts are added to `counter_to_update` if given. Returns the counter.
    """
    tokens = filter(None, re.split(f"{token_delim}|{seq_delim}", source_str))
    counter = Counter() if counter_to_update is None else counter_to_update
    counter.update(map(str.lower, tokens) if to_lower else tokens)
    return counter
