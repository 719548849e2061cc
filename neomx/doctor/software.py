"""Versions of Python, neomx and the packages it needs, and the extras that are not installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import platform
import re
import sys
from collections.abc import Iterator

from .. import __version__
from .finding import Finding

# Each extra: the modules that neomx imports from it, and their purpose. pyproject.toml has the packages and versions.
EXTRAS = {
    "image": (("cv2",), "reading, writing and resizing images"),
    "scipy": (("scipy",), "conversion of sparse arrays to SciPy, and tests of random numbers"),
    "wire": (("cryptography",), "fast authentication of messages between hosts"),
    "tensorboard": (("tensorboard",), "writing scalars for TensorBoard"),
    "viz": (("graphviz",), "mx.viz.plot_network"),
    "onnx": (("onnx", "onnxscript"), "mx.onnx and neomx convert --to onnx"),
    "remote": (("fsspec",), "checkpoints at URLs, such as s3://"),
    "text": (("tokenizers",), "sub-words: gluon.data.text.SubwordTokenizer"),
    "transformers": (("transformers",), "running Hugging Face's models in addition to the model zoo"),
}
# a package, its version specifiers, and the extra that it belongs to
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[.*?\])?\s*([^;]*)(?:;.*?extra == ['\"]([\w-]+)['\"])?")


def check() -> Iterator[Finding]:
    """Yield versions and extras."""
    found = {"version": platform.python_version(), "executable": sys.executable, "system": platform.platform()}
    yield Finding("software.python", "ok", f"Python {found['version']} at {sys.executable} on {found['system']}",
                  values=found)  # fmt: skip
    where = str(pathlib.Path(__file__).parents[1])
    yield Finding("software.neomx", "ok", f"neomx {__version__} at {where}",
                  values={"version": __version__, "path": where})  # fmt: skip
    required = requirements()
    for package, least in required.get("", {"torch": "", "numpy": ""}).items():
        yield _package(package, least)
    for extra, (modules, purpose) in EXTRAS.items():
        yield _extra(extra, modules, purpose, required.get(extra, {}))


def requirements() -> dict[str, dict[str, str]]:
    """Return {extra: {package: minimum version}} from the installed metadata, with "" for neomx's own requirements.

    It is empty in a source tree that was not installed.
    """
    try:
        lines = importlib.metadata.requires("neomx") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        if match := _REQUIREMENT.match(line):
            least = re.search(r">=\s*([\d.]+)", match[2])
            found.setdefault(match[3] or "", {})[match[1]] = least[1] if least else ""
    return found


def version_of(package: str) -> str | None:
    """Return the installed version, without importing the package; None if not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_older(version: str, least: str) -> bool:
    """Return whether a version is older than another; suffixes are ignored: '2.13.0+cpu' is 2.13.0."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.split(r"[^\d.]", text)[0].split(".") if part]

    mine, wanted = numbers(version), numbers(least)
    longest = max(len(mine), len(wanted))
    return mine + [0] * (longest - len(mine)) < wanted + [0] * (longest - len(wanted))


def _package(package: str, least: str) -> Finding:
    version = version_of(package)
    check, values = f"software.{package}", {"version": version, "least": least}
    if version is None:
        return Finding(
            check, "problem", f"{package} is not installed", f'pip install "{_spec(package, least)}"', values
        )
    if least and is_older(version, least):
        finding = f"{package} {version} is older than {least}, which neomx needs"
        return Finding(check, "problem", finding, f'pip install --upgrade "{_spec(package, least)}"', values)
    return Finding(check, "ok", f"{package} {version}", values=values)


def _extra(extra: str, modules: tuple[str, ...], purpose: str, least_of: dict[str, str]) -> Finding:
    """Report an extra. A missing extra is not an error: the finding states its purpose and how to install it."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    versions = {package: version_of(package) for package in least_of}
    old = [f"{package} {versions[package]} (needs {least})" for package, least in least_of.items()
           if (version := versions[package]) and least and is_older(version, least)]  # fmt: skip
    check, remedy = f"software.extra.{extra}", f'pip install "neomx[{extra}]"'
    values = {"extra": extra, "installed": not missing, "missing": missing, "versions": versions}
    if len(missing) == len(modules):
        return Finding(check, "ok", f"extra {extra!r} is not installed; it is for {purpose}", remedy, values)
    if missing:
        return Finding(check, "warn", f"extra {extra!r} is incomplete: no module {', '.join(missing)}", remedy, values)
    if old:
        remedy = f'pip install --upgrade "neomx[{extra}]"'
        return Finding(check, "warn", f"extra {extra!r} has old versions: {', '.join(old)}", remedy, values)
    known = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    return Finding(check, "ok", f"extra {extra!r} is installed ({known or ', '.join(modules)})", values=values)


def _spec(package: str, least: str) -> str:
    return f"{package}>={least}" if least else package
