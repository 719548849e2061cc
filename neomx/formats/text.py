"""Text files, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from ..base import MXNetError


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for every nonempty line, counted from 1. Raises MXNetError if the file is not text."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as error:
        raise MXNetError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MXNetError(f"cannot read {path}: it is not text ({error})") from error
