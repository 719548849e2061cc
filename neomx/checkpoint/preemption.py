"""Signals that announce the end of a process: SIGTERM and SIGUSR1 request a checkpoint and then an exit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODE = 75  # EX_TEMPFAIL: the program saved a checkpoint and ended before it was done; start it again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Preemption:
    """Calls `tell` once one of these signals arrives, until it is closed. Handlers of the program are kept."""

    def __init__(self, tell: Callable[[], None]):
        self._tell, self._process = tell, os.getpid()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # handlers need the main thread
            for number in SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process:  # not in a forked process
            self._tell()

    def close(self) -> None:
        """Restore the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                if signal.getsignal(number) == self._note:
                    signal.signal(number, handler)
            self._before = {}
