"""Results of `make dist`: the files of the wheel and of the source distribution, their metadata, and the extras.

`make test-wheel` installs the wheel into an empty environment and runs it; these tests need no network.
"""

import email
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from launching import LIMIT, ROOT, environment

import neomx

try:
    import tomllib
except ImportError:  # Python 3.10, where pytest provides it
    import tomli as tomllib

BUILD = "import sys; from setuptools import build_meta as b; print(b.build_wheel('out')); print(b.build_sdist('out'))"
UNTRACKED = (".*", "__pycache__", "*.egg-info", "build", "dist", "fuzz-failures")


def pyproject():
    return tomllib.loads(pathlib.Path(ROOT, "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the tree with both distributions in `out`, because building leaves files in the source tree."""
    tree = tmp_path_factory.mktemp("build") / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*UNTRACKED))
    files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    run = subprocess.run([sys.executable, "-c", BUILD], cwd=tree, capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    assert "Deprecat" not in run.stderr
    return tree, files


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = (built[0] / "out").glob("*.whl")
    with zipfile.ZipFile(path) as file:
        yield file


def info(wheel, name):
    return wheel.read(f"neomx-{neomx.__version__}.dist-info/{name}").decode()


def test_wheel_contains_only_the_package(built, wheel):
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert files == {name for name in built[1] if name.startswith("neomx/")}
    for needed in (
        "neomx/py.typed",
        "neomx/sample/train-images-idx3-ubyte.gz",
        "neomx/compat/startup/sitecustomize.py",
    ):
        assert needed in files
    assert len(set(wheel.namelist())) == len(wheel.namelist())


def test_source_distribution_contains_the_whole_tree(built):
    (path,) = (built[0] / "out").glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert built[1] - names == set(), "add these to MANIFEST.in"


def test_metadata_is_complete(wheel):
    said = email.message_from_string(info(wheel, "METADATA"))
    assert (said["Name"], said["Version"]) == ("neomx", neomx.__version__)
    assert said["License-Expression"] == "Apache-2.0" and said["License-File"] == "LICENSE"
    assert info(wheel, "licenses/LICENSE") == pathlib.Path(ROOT, "LICENSE").read_text()
    assert said["Author"] == "The neomx authors" and said["Summary"] and said["Keywords"]
    assert said["Description-Content-Type"] == "text/markdown" and "# neomx" in said.get_payload()
    pythons = [line.rpartition(" :: ")[2] for line in said.get_all("Classifier") if "Python :: 3." in line]
    assert said["Requires-Python"] == f">={pythons[0]}" and pythons == ["3.10", "3.11", "3.12", "3.13"]
    assert set(said.get_all("Provides-Extra")) == set(pyproject()["project"]["optional-dependencies"])
    assert info(wheel, "entry_points.txt").split() == ["[console_scripts]", "neomx", "=", "neomx.launch.cli:main"]


def test_constraints_pin_every_dependency():
    def name_of(requirement):
        return requirement.partition(">")[0].partition("[")[0]

    project = pyproject()["project"]
    needed = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    pinned = {line.partition("==")[0] for line in pathlib.Path(ROOT, "constraints.txt").read_text().splitlines()}
    assert {name_of(requirement) for requirement in needed} - pinned - {"neomx"} == set()


def test_every_module_imports_without_extras_and_errors_name_the_extra():
    program = pathlib.Path(__file__).with_name("extras.py")
    command = [sys.executable, str(program), "--hide"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert run.returncode == 0 and run.stdout.endswith("everything is as expected\n"), run.stdout + run.stderr
