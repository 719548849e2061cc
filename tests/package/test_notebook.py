"""The example notebook: its cells run in order in one process, as in a kernel."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from launching import LIMIT, environment

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "examples" / "many_workers.ipynb"
# A kernel has no file: definitions of cells exist only in its __main__. The line separates the outputs of cells.
KERNEL = """
import json, sys
for number, cell in enumerate(json.load(sys.stdin)):
    exec(compile(cell, f"<cell {number}>", "exec"))
    print("-- end of the cell --", flush=True)
"""


@pytest.fixture(scope="module")
def cells():
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def outputs(cells):
    """Return the output of each cell."""
    sources = json.dumps(["".join(cell["source"]) for cell in cells])
    command, pipes = [sys.executable, "-c", KERNEL], {"capture_output": True, "text": True, "timeout": LIMIT}
    run = subprocess.run(command, input=sources, env=environment(NO_COLOR="1"), **pipes)
    assert run.returncode == 0, run.stderr
    return run.stdout.split("-- end of the cell --\n")[:-1]


def test_cell_trains_on_two_workers_and_shows_their_losses(outputs):
    trained, losses = outputs[2:4]
    for rank, prefix in enumerate(("", r"\[1\] ")):
        shown = re.findall(rf"^{prefix}epoch (\d): loss ([\d.]+) on 2500 digits$", trained, re.MULTILINE)
        table = [line.split()[rank + 1] for line in losses.splitlines()[1:]]
        assert [loss for _, loss in shown] == table
        assert float(table[-1]) < float(table[0]) / 2


def test_returned_weights_equal_those_of_one_worker(outputs):
    assert float(outputs[4].split()[-1]) > 0.85
    assert float(outputs[5].split()[-1]) < 1e-5


def test_stored_outputs_match_the_cells(cells, outputs):
    def without_numbers(text):
        return sorted(re.sub(r"\x1b\[\d+m|[\d.e-]+", "", text).splitlines())

    for cell, printed in zip(cells, outputs, strict=True):
        stored = "".join("".join(output["text"]) for output in cell["outputs"])
        assert without_numbers(stored) == without_numbers(printed)
