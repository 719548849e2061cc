"""Notices that this process is about to end by a failure, at once: ending may take long, and others wait for it.

Python tells `sys.excepthook` of an uncaught exception, but nobody of an uncaught SystemExit: `raise SystemExit(3)`,
`sys.exit(3)` or `exit(3)`. All that it does with one is to read its `code`, with no Python frame left on the stack. So
that attribute, and nothing else of SystemExit, is replaced by one that looks who reads it. What a program catches is
not noticed, for it does not end the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import MemberDescriptorType, TracebackType
from typing import NoReturn

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def on_failure(tell: Callable[[str], None]) -> None:
    """Call `tell(why)` in the main thread when the program ends by an exception or a status other than success."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        tell(f"its program ended by {kind.__name__}")
        if kind is KeyboardInterrupt and previous is sys.__excepthook__:
            traceback.print_exception(kind, error, trace, limit=_depth_of_program(trace), chain=False)
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
    # A built-in type refuses assignments to its attributes; its namespace, found this way in CPython, takes them.
    for namespace in gc.get_referents(SystemExit.__dict__):
        if isinstance(namespace, dict) and isinstance(namespace.get("code"), MemberDescriptorType):
            namespace["code"] = _Code(namespace["code"], tell)
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))  # attribute lookups are cached
    if sys.version_info < (3, 12):
        sys.exit = _exit  # Python's own raises no SystemExit with a code until something catches it


def _depth_of_program(trace: TracebackType | None) -> int:
    """How many frames of a traceback belong to the program, before it calls us: where we wait is of no use to it."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]
    return next((depth for depth, file in enumerate(files) if file.startswith(_OURS)), len(files)) or len(files)


class _Code:
    """SystemExit.code."""

    def __init__(self, member: MemberDescriptorType, tell: Callable[[str], None]) -> None:
        self._member, self._tell = member, tell

    def __get__(self, error: SystemExit | None, kind: type[SystemExit] | None = None) -> object:
        if error is None:
            return self
        status: object = self._member.__get__(error, kind)
        by_python = sys._getframe().f_back is None and threading.current_thread() is threading.main_thread()
        if by_python and status not in (None, 0):
            with contextlib.suppress(Exception):  # the interpreter has no use for an error here
                self._tell(f"its program ended with exit code {int(status) if isinstance(status, int) else 1}")
        return status

    def __set__(self, error: SystemExit, status: object) -> None:
        self._member.__set__(error, status)

    def __delete__(self, error: SystemExit) -> None:
        self._member.__delete__(error)


def _exit(status: object = None, /) -> NoReturn:
    raise SystemExit(status)
