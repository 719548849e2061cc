"""Every module of the libraries imports under neomx, except those that need packages that are not installed here."""

import importlib
import pkgutil
import warnings

import pytest

# Prefixes of the names of modules that cannot be imported, and why.
NOT_HERE = {
    "gluoncv": ("gluoncv.torch", "gluoncv.auto"),  # for torch < 2; for autogluon
    "gluonnlp": (),
    "mxboard": (),
    "d2l": ("d2l.data.fashion_mnist",),  # imports a module that is missing in its package
}


def _modules(name, skipped):
    """Import a module and all its submodules. Return their names."""
    if name.startswith(skipped or ("-",)):
        return []
    module = importlib.import_module(name)
    found = [name]
    for _, below, _ in pkgutil.iter_modules(getattr(module, "__path__", ())):
        found += _modules(f"{name}.{below}", skipped)
    return found


@pytest.mark.parametrize("library, at_least", [("gluoncv", 237), ("gluonnlp", 86), ("mxboard", 19), ("d2l", 8)])
def test_imports(library, at_least):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(_modules(library, NOT_HERE[library])) >= at_least
