"""All families of cases, and what real MXNet gave for them: the files that `make record` writes."""

import importlib
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
FAMILIES = sorted(path.stem for path in (HERE / "cases").glob("[a-z]*.py"))
for _family in FAMILIES:
    importlib.import_module(f"parity.cases.{_family}")
RECORDED = {}


def recorded(family: str) -> dict[str, dict[str, np.ndarray]]:
    """What MXNet gave: {case id: {result: value}}."""
    if family not in RECORDED:
        cases: dict[str, dict[str, np.ndarray]] = {}
        with np.load(HERE / "recorded" / f"{family}.npz") as file:
            for key in file.files:
                name, _, result = key.rpartition("|")
                cases.setdefault(name, {})[result] = file[key]
        RECORDED[family] = cases
    return RECORDED[family]
