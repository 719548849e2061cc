"""Threads that work ahead for an iterator."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from ..base import MXNetError


class Threads(ThreadPoolExecutor):
    """A pool of the process that made it. A forked process has none of its threads, and would wait for them forever."""

    def __init__(self, number: int, who: str):
        super().__init__(number, thread_name_prefix=who)
        self._who, self._process = who, os.getpid()

    def check_process(self) -> None:
        """Refuse to be used in another process."""
        if os.getpid() != self._process:
            raise MXNetError(
                f"this {self._who} belongs to process {self._process}, and its threads are not in process "
                f"{os.getpid()}, forked from it. Make the iterator in the process that reads it"
            )
