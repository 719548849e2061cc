"""Python runs this file in every process of a launched job, because the launcher puts its directory on PYTHONPATH.

Scripts then run as with plain Python, and so do the processes that they start.
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
    """Run the system's own sitecustomize, which this file shadows."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


neomx_aliases.install()
neomx_companions.install()
if _root not in sys.path:
    sys.path.append(_root)  # the location of neomx, if it is not installed
_run_hidden()
