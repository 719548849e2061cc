"""Signals that announce the end of a process: SIGTERM and SIGUSR1 request a checkpoint and then an exit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from ..process import state

EXIT_CODE = 75  # EX_TEMPFAIL: the program saved a checkpoint and ended before it was done; start it again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Preemption:
    """Calls `tell` when one of these signals arrives, until it is closed. Handlers of the program are kept."""

    def __init__(self, tell: Callable[[], None]):
        self.tell, self.process = tell, os.getpid()
        self.has_stepped = False  # whether its Checkpointer counts steps
        self.has_saved = False  # whether its Checkpointer has saved because of a signal
        state.preemptions.append(self)
        if threading.current_thread() is threading.main_thread():  # handlers need the main thread
            for number in SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, _note)

    def must_wait(self) -> bool:
        """Whether another Checkpointer of the program has not saved yet."""
        return any(each.has_stepped and not each.has_saved for each in state.preemptions)

    def close(self) -> None:
        """Stop listening. The last one restores the handlers."""
        if self in state.preemptions:
            state.preemptions.remove(self)
        if not state.preemptions and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is _note:
                    signal.signal(number, signal.SIG_DFL)


def _note(number: int, frame: FrameType | None) -> None:
    for each in list(state.preemptions):
        if each.process == os.getpid():  # not in a forked process
            each.tell()
