"""Files of text, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from ..base import MXNetError


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """(number, line) of every line that is not empty, from 1; a file that is no text is an error."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as error:
        raise MXNetError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MXNetError(f"cannot read {path}: it is no text ({error})") from error
