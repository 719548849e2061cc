"""Install the wheel into an empty virtual environment and run it there, without this tree: `make test-wheel`.

First it checks the package without extras: every module is imported, README's first program runs in one process and on
two workers, and functions that need an extra must name it. Then each extra is installed and used. This needs a package
index, a few minutes, and 2 GB of disk. It prints a line for each step, and exits with code 1 at the first failure.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
EXTRAS = ("image", "scipy", "tensorboard", "text", "viz", "onnx", "wire", "transformers")
DATA = """
import neomx as mx
from neomx.gluon.model_zoo import model_store
assert len(mx.gluon.data.vision.MNIST(train=True, sample=True)) == 5000
assert mx.contrib.text.embedding.get_pretrained_file_names("glove")
assert model_store._model_sha1
"""


class Environment:
    """A virtual environment, and a working directory outside of the tree."""

    def __init__(self, folder: pathlib.Path, python: str, constraints: pathlib.Path):
        self.folder, self.constraints = folder, constraints
        self.work = folder / "work"
        self.work.mkdir()
        run("create an empty virtual environment", [python, "-m", "venv", str(folder / "venv")], self.work)

    def program(self, name: str) -> str:
        """Return the path of a program of the environment."""
        return str(self.folder / "venv" / "bin" / name)

    def install(self, *requirements: str) -> None:
        """Install by pip, with the tested versions."""
        options = ["install", "--quiet", "--constraint", str(self.constraints)]
        run(
            f"install {' '.join(requirements)}",
            [self.program("python"), "-m", "pip", *options, *requirements],
            self.work,
        )

    def run(self, what: str, *command: str) -> str:
        """Run a program of the environment; return its output."""
        return run(what, [self.program(command[0]), *command[1:]], self.work)

    def doctor(self) -> dict[str, dict[str, object]]:
        """Return the findings of neomx doctor, which must not report a problem."""
        said = json.loads(self.run("neomx doctor --json", "neomx", "doctor", "--json"))
        return {finding["check"]: finding for finding in said["findings"]}


def run(what: str, command: list[str], folder: pathlib.Path) -> str:
    """Run a command without this process's Python environment; exits this program on failure."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env={**environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=3600
    )
    print(f"{'ok' if done.returncode == 0 else 'FAILED':6} {time.monotonic() - began:6.1f} s  {what}", flush=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, what: str) -> None:
    """Exit this program unless the condition holds."""
    print(f"{'ok' if holds else 'FAILED':6} {'':8}  {what}", flush=True)
    if not holds:
        sys.exit(1)


def build(folder: pathlib.Path) -> pathlib.Path:
    """Build the wheel from the source distribution, and return its path."""
    run(
        "build sdist and wheel",
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(TREE)],
        TREE,
    )
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    print(f"       {wheel.name}: {wheel.stat().st_size:,} bytes; {source.name}: {source.stat().st_size:,} bytes")
    return wheel


def check_core(venv: Environment) -> None:
    """Check the package without extras."""
    venv.run("pip check", "python", "-m", "pip", "check")
    where = venv.run("neomx is imported from the environment", "python", "-c", "import neomx; print(neomx.__file__)")
    expect(where.startswith(str(venv.folder / "venv")), f"it is {where.strip()}")
    venv.run("import all modules; missing extras are named", "python", str(TREE / "tests" / "package" / "extras.py"))
    venv.run("read data files", "python", "-c", DATA)
    found = venv.doctor()
    for extra in EXTRAS:
        finding = found[f"software.extra.{extra}"]
        expect(finding["remedy"] == f'pip install "neomx[{extra}]"', f"neomx doctor says how to install {extra}")
    program = re.search(r"```python\n(.*?)```", (TREE / "README.md").read_text(), re.DOTALL)
    assert program is not None
    (venv.work / "train.py").write_text(program[1])
    venv.run("README's first program", "python", "train.py")
    shown = venv.run("neomx inspect digits-0000.params", "neomx", "inspect", "digits-0000.params", "--stats")
    expect("conv" in shown and "float32" in shown, "it lists the parameters")
    venv.run("neomx inspect digits-symbol.json", "neomx", "inspect", "digits-symbol.json")
    venv.run("README's first program on two workers", "neomx", "run", "-n", "2", "train.py")
    venv.run("... with a parameter server", "neomx", "run", "-n", "2", "-s", "1", "train.py")
    (venv.work / "alias.py").write_text("import mxnet\nassert mxnet.nd.ones(2).sum().asscalar() == 2\n")
    venv.run("import mxnet in a launched program", "neomx", "run", "-n", "1", "alias.py")


def check_extra(venv: Environment, wheel: pathlib.Path, extra: str) -> None:
    """Check the package with one more extra."""
    venv.install(f"{wheel}[{extra}]")
    venv.run(
        f"import all modules, and use the extra {extra}",
        "python",
        str(TREE / "tests" / "package" / "extras.py"),
        "--with",
        extra,
    )
    values = venv.doctor()[f"software.extra.{extra}"]["values"]
    venv.run("pip check", "python", "-m", "pip", "check")
    expect(isinstance(values, dict) and values["installed"] is True, f"neomx doctor finds the extra {extra}")


def main() -> None:
    """Build, install and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter that creates the environment")
    parser.add_argument("--extras", nargs="*", default=EXTRAS, help="extras to check (default: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="neomx-wheel-") as name:
        folder = pathlib.Path(name)
        wheel = build(folder / "dist")
        venv = Environment(folder, options.python, TREE / "constraints.txt")
        venv.run("Python's version", "python", "--version")
        venv.install(str(wheel))
        check_core(venv)
        for extra in options.extras:
            check_extra(venv, wheel, extra)
    print("the wheel works without this tree")


if __name__ == "__main__":
    main()
