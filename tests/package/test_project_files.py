"""Project files: workflows, templates, hooks, the Makefile's help, the changelog and the citation."""

import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from launching import LIMIT, ROOT

import neomx

try:
    import tomllib
except ImportError:  # Python 3.10, where pytest provides it
    import tomli as tomllib

TREE = pathlib.Path(ROOT)
WORKFLOWS = sorted((TREE / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((TREE / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


class NoDuplicates(yaml.SafeLoader):
    """Rejects duplicate keys, of which YAML would use the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"duplicate key among {keys}"
        return super().construct_mapping(node, deep)


def read(path):
    return yaml.load(path.read_text(), NoDuplicates)


def project():
    return tomllib.loads((TREE / "pyproject.toml").read_text())["project"]


def targets():
    """Return {target of the Makefile: its line of help}."""
    found, line = {}, ""
    for text in (TREE / "Makefile").read_text().splitlines():
        if text.startswith("# "):
            line = line or text[2:]
        elif match := re.match(r"([a-z][a-z-]*):", text):
            found[match[1]], line = line, ""
        elif not re.match(r"[A-Z]+ \?=", text):
            line = ""
    return found


def test_every_target_has_a_line_of_help():
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (TREE / "Makefile").read_text(), re.MULTILINE)
    assert set(phony.split()) == set(targets())
    assert [name for name, line in targets().items() if not line or len(line) > 100] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="needs the program make")
def test_make_help_lists_every_target():
    run = subprocess.run(["make", "help"], cwd=TREE, capture_output=True, text=True, timeout=LIMIT)
    listed = dict(re.findall(r"^make ([a-z-]+) +(.*)$", run.stdout, re.MULTILINE))
    assert listed == targets(), run.stderr


def test_workflows_and_forms_exist():
    assert {"ci.yml", "release.yml"} <= {path.name for path in WORKFLOWS}
    assert {"bug.yml", "feature.yml"} <= {path.name for path in FORMS}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_valid(path):
    said = read(path)
    assert {"name", "permissions", "jobs"} < said.keys() and True in said  # YAML reads the key `on` as true
    assert said["permissions"] == {"contents": "read"}, "a job that needs more must request it"
    for job in said["jobs"].values():
        assert job["runs-on"] and 0 < job["timeout-minutes"] <= 120
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= said["jobs"].keys()
        matrix = job.get("strategy", {}).get("matrix", {})
        assert set(re.findall(r"\{\{ matrix\.(\w+)", yaml.dump(job))) == matrix.keys()
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+|[0-9a-f]{40})", step["uses"])
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                assert target in targets()


def test_tests_run_on_every_python_that_the_package_supports():
    tested = read(TREE / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    supported = [line.rpartition(" :: ")[2] for line in project()["classifiers"] if "Python :: 3." in line]
    assert tested == supported


def test_only_the_publishing_job_may_request_an_identity():
    jobs = read(TREE / ".github" / "workflows" / "release.yml")["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and jobs["publish"]["environment"] == "pypi"
    assert "run" not in str([list(step) for step in jobs["publish"]["steps"]]), "it publishes existing artifacts"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_form_is_valid(path):
    said = read(path)
    assert {"name", "description", "body"} <= said.keys() <= {"name", "description", "body", "labels"}
    ids = [element["id"] for element in said["body"] if element["type"] != "markdown"]
    assert len(set(ids)) == len(ids) > 0
    for element in said["body"]:
        assert element["type"] in ("markdown", "textarea", "input", "dropdown", "checkboxes")
        assert element["attributes"]["value" if element["type"] == "markdown" else "label"]


def test_hooks_use_tools_of_the_environment():
    (local,) = read(TREE / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    tools = {re.split(r"[>\[]", requirement)[0] for requirement in project()["optional-dependencies"]["dev"]}
    for hook in local["hooks"]:
        assert {"id", "name", "entry", "language"} <= hook.keys() and hook["language"] == "system"
        program, *words = hook["entry"].split()
        if program == "make":
            assert words[-1] in targets()
        else:
            name = program.removeprefix(".venv/bin/")
            assert name != program and (words[1] if name == "python" else name) in tools


def test_citation_has_the_current_version():
    said = read(TREE / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= said.keys() and said["type"] == "software"
    assert (str(said["version"]), said["license"]) == (neomx.__version__, project()["license"])
    assert [author["name"] for author in said["authors"]] == [author["name"] for author in project()["authors"]]


def test_changelog_has_the_expected_format():
    text = (TREE / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    for part in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert sections == [name for name in SECTIONS if name in sections]
    assert [line for line in text.splitlines() if len(line) > 120] == []


def test_project_pages_exist():
    for name in ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "LICENSE"):
        assert (TREE / name).stat().st_size > 300
    assert (TREE / ".github" / "pull_request_template.md").exists()
    commands = re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", (TREE / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert {one or other for one, other in commands} <= targets().keys()
