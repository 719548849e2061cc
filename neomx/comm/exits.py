"""Detects immediately that this process is about to fail: exiting may take long, and other processes wait for it.

Python calls `sys.excepthook` for an uncaught exception, but not for an uncaught SystemExit (`raise SystemExit(3)`,
`sys.exit(3)` or `exit(3)`). For that, the interpreter only reads the attribute `code`, with no Python frame left on the
stack. So this module replaces that attribute of SystemExit, and nothing else, with a descriptor that checks what reads
it. Exceptions that the program catches are not reported, because they do not end the program.
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


def on_failure(tell: Callable[[str, str], None]) -> None:
    """Call `tell(why, error)` in the main thread when the program ends with an uncaught exception or a nonzero status.

    `error` is the exception in one line.
    """
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        tell(f"its program ended with {kind.__name__}", "".join(traceback.format_exception_only(error)).strip()[:1000])
        if kind is KeyboardInterrupt and previous is sys.__excepthook__:
            traceback.print_exception(kind, error, trace, limit=_depth_of_program(trace), chain=False)
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
    # Attributes of a built-in type are read-only. In CPython its namespace dict can be found this way and is writable.
    for namespace in gc.get_referents(SystemExit.__dict__):
        if isinstance(namespace, dict) and isinstance(namespace.get("code"), MemberDescriptorType):
            namespace["code"] = _Code(namespace["code"], tell)
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))  # invalidate the cache of attribute lookups
    if sys.version_info < (3, 12):
        sys.exit = _exit  # the built-in sets no code until the exception is caught


def _depth_of_program(trace: TracebackType | None) -> int:
    """Return the number of frames of a traceback that belong to the program, up to its call into neomx."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]
    return next((depth for depth, file in enumerate(files) if file.startswith(_OURS)), len(files)) or len(files)


class _Code:
    """Descriptor that replaces `SystemExit.code`."""

    def __init__(self, member: MemberDescriptorType, tell: Callable[[str, str], None]) -> None:
        self._member, self._tell = member, tell

    def __get__(self, error: SystemExit | None, kind: type[SystemExit] | None = None) -> object:
        if error is None:
            return self
        status: object = self._member.__get__(error, kind)
        by_python = sys._getframe().f_back is None and threading.current_thread() is threading.main_thread()
        if by_python and status not in (None, 0):
            with contextlib.suppress(Exception):  # the interpreter cannot handle an error here
                code = int(status) if isinstance(status, int) else 1
                self._tell(f"its program ended with exit code {code}", f"SystemExit: {status}")
        return status

    def __set__(self, error: SystemExit, status: object) -> None:
        self._member.__set__(error, status)

    def __delete__(self, error: SystemExit) -> None:
        self._member.__delete__(error)


def _exit(status: object = None, /) -> NoReturn:
    raise SystemExit(status)
