"""Python runs this by itself in every process of a launched job, since the launcher puts this directory on PYTHONPATH.

A script then runs as plain Python would run it, and so do the processes that it starts.
"""

import importlib.machinery
import importlib.util
import os
import sys

import neomx_aliases
import neomx_companions

_here = os.path.dirname(os.path.abspath(__file__))
_root = os.path.dirname(os.path.dirname(os.path.dirname(_here)))


def _run_hidden() -> None:
    """Run the system's own sitecustomize, which ours hides."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


neomx_aliases.install()
neomx_companions.install()
if _root not in sys.path:
    sys.path.append(_root)  # where neomx is, if it is not installed
_run_hidden()
