"""For the tests of `neomx doctor`: findings by name, and the table of docs/doctor.md."""

import pathlib
import re

from launching import ROOT

from neomx.doctor.engine import Engine

DOCUMENT = pathlib.Path(ROOT, "docs", "doctor.md")


def documented():
    """Return {pattern of a check's name: the names of its values} from the table of docs/doctor.md."""
    rows = re.findall(r"^\| (`[^|]*) \|([^|]*)\|$", DOCUMENT.read_text().split("## JSON")[1], re.MULTILINE)
    table = {}
    for names, values in rows:
        for name in re.findall(r"`([\w.]+)`", names):
            pattern = re.sub(r"\b(PACKAGE|EXTRA|KIND|N|VARIABLE)\b", r"\\w+", name.replace(".", r"\."))
            table.setdefault(pattern, set()).update(re.findall(r"`(\w+)`", values))
    return table


def by_name(findings):
    """Return findings by the names of their checks; each must be documented with its values and fit into two lines."""
    table = documented()
    found = {}
    for finding in findings:
        allowed = [values for pattern, values in table.items() if re.fullmatch(pattern, finding.check)]
        assert allowed, f"docs/doctor.md does not list {finding.check}"
        assert set(finding.values) <= set.union(*allowed), f"docs/doctor.md does not list all values of {finding}"
        assert finding.finding and "\n" not in finding.finding + finding.remedy
        assert finding.status in ("ok", "warn", "problem")
        assert finding.status == "ok" or finding.remedy, f"missing remedy: {finding}"
        found[finding.check] = finding
    return found


def engine(*lines, failure="", output=""):
    """Return the result of a trial that printed these lines."""
    return Engine(list(lines), failure, output)


TORCH = {"version": "2.13.0", "seconds": 1.0, "capability": "AVX2", "onednn": True, "threads": 2}
KERNEL = {"kernel": "float32 matrix product", "distance": 1e-7, "error": ""}
