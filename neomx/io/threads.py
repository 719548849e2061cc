"""A thread pool for iterators that work ahead."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from ..base import MXNetError


class Threads(ThreadPoolExecutor):
    """A pool that is valid only in the process that created it: forked processes do not inherit its threads."""

    def __init__(self, number: int, who: str):
        super().__init__(number, thread_name_prefix=who)
        self._who, self._process = who, os.getpid()

    def check_process(self) -> None:
        """Raise MXNetError if used in another process."""
        if os.getpid() != self._process:
            raise MXNetError(
                f"this {self._who} belongs to process {self._process}; its threads do not exist in the forked process "
                f"{os.getpid()}. Create the iterator in the process that reads it"
            )
