"""Scan files for keys, tokens and passwords with detect-secrets; the exit status is 1 if it finds one.

detect-secrets calls every detector for every line, and most find nothing. No pattern of its detectors depends on where
a line begins or ends: a detector that finds nothing in the whole text of a file finds nothing in its lines. So each
text is searched as a whole first, and only files with a match are scanned line by line.
"""

import functools
import multiprocessing
import pathlib
import sys

from detect_secrets.core.plugins import initialize
from detect_secrets.plugins.base import BasePlugin
from detect_secrets.plugins.high_entropy_strings import HighEntropyStringsPlugin
from detect_secrets.pre_commit_hook import main as scan
from detect_secrets.settings import default_settings, get_settings

# In files of other types, such as TOML, detectors also look for unquoted values: these are always scanned.
SEARCHED = {".py", ".json", ".md"}
CHECKSUM = "^[0-9a-f]{40}$"  # SHA-1, not a secret


def finds(detector: BasePlugin, text: str) -> bool:
    """Return whether a detector finds anything in a text."""
    found = detector.analyze_string(text)
    if isinstance(detector, HighEntropyStringsPlugin):  # matches any quoted string of high entropy
        return any(detector.calculate_shannon_entropy(each) > detector.entropy_limit for each in found)
    return next(iter(found), None) is not None


@functools.cache
def detectors() -> list[BasePlugin]:
    """Return all detectors of detect-secrets, with their default settings."""
    with default_settings():
        return [initialize.from_plugin_classname(name) for name in get_settings().plugins]


def is_suspect(name: str) -> bool:
    """Return whether a file must be scanned line by line."""
    path = pathlib.Path(name)
    if path.suffix not in SEARCHED:
        return True
    text = path.read_text(encoding="utf-8")
    return any(finds(detector, text) for detector in detectors())


def main(names: list[str]) -> int:
    """Scan the files with these names; return the exit status."""
    with multiprocessing.Pool() as pool:
        suspects = [name for name, yes in zip(names, pool.map(is_suspect, names, chunksize=8), strict=True) if yes]
    return scan(["--no-verify", "--exclude-secrets", CHECKSUM, *suspects])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
