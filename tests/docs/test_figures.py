"""Measured numbers on the pages come from the results in benchmarks/results."""

import json
import os
import sys
from xml.etree import ElementTree

import pytest
from doc_pages import ROOT

from benchmarks import measure, record
from scripts import figures

MACHINE = {"cpu": "AMD EPYC", "cores": 2, "memory_gb": 8.0, "python": "3.11.1", "torch": "2.13.0", "numpy": "2.4.0"}
FAST, SLOW = [0.001, 0.002, 0.002, 0.004], [0.002, 0.004, 0.004, 0.008]


def result(name, *rows):
    return record.Result(name, f"python benchmarks/{name}.py", "2030-01-02", 60.0, MACHINE | {"load": [0.1]}, [*rows])


def trained():
    """The result of a benchmark of training steps."""
    pairs = [(mode, against) for mode in ("imperative", "hybridized") for against in ("torch", "MXNet")]
    return result("train", *(record.row(mode, "LeNet", "s", FAST, SLOW, against=against) for mode, against in pairs))


@pytest.fixture
def tree(tmp_path):
    """A small repository with one result and one page."""
    (tmp_path / "docs" / "drawings").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Title\n\n<!-- figures: training-summary -->\nold\n<!-- end figures -->\n")
    trained().save(str(tmp_path / "benchmarks" / "results" / "train.json"))
    return tmp_path


def test_pages_are_up_to_date():
    assert [str(path) for path in figures.stale(figures.rendered(ROOT))] == [], "run `make render`"


def test_every_result_has_a_section_and_a_benchmark():
    names = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    assert set(figures.SECTIONS) == {*measure.BENCHMARKS, "coverage"}  # of `make coverage`
    own = {"task_runs"}  # of `make tasks`, for docs/tasks.md
    assert names <= {*figures.SECTIONS, *own}
    assert {needed for needed, _ in figures.BLOCKS.values()} <= {*figures.SECTIONS, *own}
    assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in measure.BENCHMARKS)


def test_check_names_stale_files_and_writes_nothing(tree, capsys):
    before = (tree / "README.md").read_text()
    assert figures.main(["--check"], tree) == 1
    named = capsys.readouterr().err
    assert all(f"{path} is not up to date" in named for path in ("README.md", "docs/measurements.md"))
    assert (tree / "README.md").read_text() == before
    assert not (tree / "docs" / "measurements.md").exists()


def test_rendered_files_pass_the_check(tree):
    assert figures.main([], tree) == 0
    assert figures.main(["--check"], tree) == 0
    assert "Training steps run 2.0 times as fast as in MXNet" in (tree / "README.md").read_text()
    assert (
        "| LeNet | neomx | 2.00 ms | MXNet | 4.00 ms | 0.50 | 0.50 to 0.50 |"
        in (tree / "docs" / "measurements.md").read_text()
    )
    drawing = ElementTree.parse(tree / "docs" / "drawings" / "measured-train.svg").getroot()
    texts = ["".join(each.itertext()) for each in drawing.iter()]
    assert "Training steps, 2030-01-02" in texts
    assert texts.count("0.50") == 4


def test_missing_results_are_said_to_be_missing(tree):
    figures.main([], tree)
    (tree / "benchmarks" / "results" / "train.json").unlink()
    assert figures.main(["--check"], tree) == 1
    assert figures.main([], tree) == 0
    assert figures.NOT_MEASURED in (tree / "README.md").read_text()
    assert not (tree / "docs" / "drawings" / "measured-train.svg").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- figures: no-such -->\n<!-- end figures -->\n", "README.md: unknown figures 'no-such'"),
        ("<!-- figures: training-summary -->\n", "must come in pairs"),
        ("<!-- figures: module-sentence -->\n<!-- figures: module-table -->\n<!-- end figures -->\n", "in pairs"),
    ],
)
def test_wrong_marks_are_refused(tree, capsys, text, message):
    (tree / "README.md").write_text(text)
    assert figures.main(["--check"], tree) == 1
    assert message in capsys.readouterr().err


def test_a_damaged_result_is_named(tree, capsys):
    (tree / "benchmarks" / "results" / "train.json").write_text('{"name": "train"}')
    assert figures.main([], tree) == 1
    assert "train.json: expected the results of a benchmark" in capsys.readouterr().err


def test_rows_have_medians_and_the_median_of_ratios():
    row = record.row("", "", "s", [1.0, 3.0, 2.0], [2.0, 2.0, 8.0], against="other")
    assert (row.ours, row.theirs, row.ratio, row.middle_half, row.rounds) == (2.0, 2.0, 0.5, None, 3)
    alone = record.row("", "", "MB", [5.0])
    assert (alone.ours, alone.theirs, alone.ratio) == (5.0, None, None)


def test_results_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "results" / "train.json"
    first = trained()
    first.save(str(path))
    kept = path.read_text()
    assert set(json.loads(kept)) == {"name", "command", "date", "seconds", "machine", "rows"}
    again = record.read(path)
    assert [row.ratio for row in again.rows] == [row.ratio for row in first.rows]

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(type(path), "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        result("train").save(str(path))
    assert path.read_text() == kept
    assert os.listdir(path.parent) == ["train.json"]


def test_no_file_is_written_without_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained().save("")
    assert os.listdir(tmp_path) == []


def test_commands_are_relative_and_leave_json_out():
    argv = [str(ROOT / "benchmarks" / "train.py"), "--oracle", str(ROOT / ".venv-oracle/bin/python"), "--rounds", "3"]
    assert record.command([*argv, "--json", "x.json"]) == (
        "python benchmarks/train.py --oracle .venv-oracle/bin/python --rounds 3"
    )


def test_unknown_benchmarks_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["measure.py", "nothing"])
    with pytest.raises(SystemExit, match="2"):
        measure.main()
    assert "unknown benchmark: nothing; expected some of: ops, train" in capsys.readouterr().err


# Rows that the blocks need, one result for each benchmark but `train`.
HOST, LINK = "a training step, one machine", "between the machines"
DIST = (
    ("neomx all-reduce", "torch DDP"),
    ("neomx all-reduce", "MXNet dist_sync"),
    ("neomx dist_sync by servers", "MXNet dist_sync"),
    ("neomx dist_async by servers", "MXNet dist_async"),
)
SENT = "sent in a step, 2 workers on each machine"


def others():
    row = record.row
    yield result("ops", row("small ops", "a + b", "s", FAST, SLOW, against="MXNet"))
    yield result("module", row("1 thread", "LeNet by Module.fit", "s", FAST, SLOW, against="MXNet"))
    yield result("records", row("ImageRecordIter", "1 thread", "pictures/s", SLOW, FAST, against="MXNet"))
    yield result("memory", row("peak of a process", "ResNet, imperative", "MB", [90.0], [100.0], against="torch"))
    calls = [row(name, "add", "us", SLOW, FAST, against="torch", quiet=1.5) for name in ("mx.nd", "mx.np")]
    yield result("np_ops", *calls)
    yield result("workers", row("training", "LeNet", "samples/s", SLOW, FAST, by="2 workers", against="1 worker"))
    names = ("neomx all-reduce", "torch DDP")
    crossed = [row(LINK, SENT, "bytes", [4e7], [4e7], by=name, against="the ring's bound") for name in names]
    crossed.append(row(LINK, "while communicating", "bytes/s", [1e8], [1.25e8], by=names[0], against="1 Gbit/s"))
    crossed.append(row(LINK, "hidden behind backward", "s", [-0.1], [0.3], by=names[0], against="all communication"))
    yield result("dist", *(row(HOST, "step", "s", FAST, SLOW, by=a, against=b) for a, b in DIST), *crossed)
    blocks = [row("GPT-2", "full", "s", FAST, SLOW, by=by, against="torch") for by in ("a Block", "a torch module")]
    yield result("layouts", *blocks)
    yield result("tasks", row("two workers", "translation", "samples/s", SLOW, FAST, against="torch DDP"))
    yield result("server_replicas", row("a training step", "dist_sync", "s", SLOW, FAST, "2 replicas", "1 replica"))
    killed = [row("2 workers", what, "s", [0.5], by="neomx") for what in ("next step", "full strength", "pause")]
    cost = row("2 workers", "step without failures", "s", SLOW, FAST, "--elastic", "plain")
    yield result("elastic", *killed, row("2 workers", "next step", "s", [9.0], by="torch elastic"), cost)
    saved = [row("1.00 GB", what, "MB/s", SLOW, FAST, against="dd") for what in ("writing", "saving")]
    times = [row("1.00 GB", what, "s", FAST, SLOW, against="writing") for what in ("pause", "resume")]
    yield result("checkpoint", *saved, *times)
    speed = row("speed", "store", "steps/s", SLOW, FAST, by="flood", against="control")
    cpu = [row("CPU", "store", "cores", [0.03], by=kind) for kind in ("quiet", "control", "flood")]
    yield result("flood", speed, *cpu)
    yield result("coverage", row("lines run by the quick tests", "all of neomx", "share", [0.875], by="tests"))


def curve(*losses):
    return [{"epoch": at + 1, "loss": loss, "accuracy": 1 - loss} for at, loss in enumerate(losses)]


def task_runs():
    more = {"metric": "accuracy", "target": 0.5, "lower": False, "seconds": 7.0, "samples_per_second": 10.0}
    curves = {"1": curve(0.5, 0.25), "2": curve(0.5, 0.25005)}
    one = {**more, "seeds": [1], "difference": 1e-4, "values": {"1": [0.75], "2": [0.74995]}, "curves": curves}
    three = {**one, "seeds": [1, 2, 3], "difference": 0.05, "values": {"1": [0.5, 0.6, 0.7], "2": [0.6, 0.7, 0.8]}}
    rows = [record.row("Text", "equal", "", [0.75], by="2 workers", **one)]
    return result("task_runs", *rows, record.row("Other data", "random", "", [0.7], by="2 workers", **three))


def test_tasks_show_the_difference_of_their_curves_and_the_range_of_seeds(tree):
    task_runs().save(str(tree / "benchmarks" / "results" / "task_runs.json"))
    (tree / "docs" / "tasks.md").write_text("<!-- figures: tasks-table -->\n<!-- end figures -->\n")
    assert figures.main([], tree) == 0
    text = (tree / "docs" / "tasks.md").read_text()
    assert "| equal | accuracy | at least 0.5 | 0.750 | 0.750 | 1e-04 | 7 s |" in text
    assert "| 0.600 (0.500 to 0.700) | 0.700 (0.600 to 0.800) | 5e-02 |" in text
    for name in ("text", "other-data"):
        drawing = ElementTree.parse(tree / "docs" / "drawings" / f"tasks-{name}.svg").getroot()
        assert len([each for each in drawing.iter() if each.tag.endswith("polyline")]) == 2


def test_every_block_and_section_can_be_made():
    found = {each.name: each for each in (trained(), task_runs(), *others())}
    for name in figures.BLOCKS:
        text = figures.text_of(name, found)
        assert figures.NOT_MEASURED not in text
        assert all(len(line) <= 120 or line.startswith("|") for line in text.splitlines()), name
    page = figures.page(found)
    assert page.count(figures.NOT_MEASURED) == 1  # np_step
    for name, each in found.items():
        if name in figures.SECTIONS and figures.drawn_rows(name, each):
            ElementTree.fromstring(figures.svg(name, each))
    assert "| 2 workers | torch elastic | 9.00 s | | |" in figures.text_of("elastic-table", found)
    assert "communication, 0 ms" in figures.text_of("dist-link", found)
    assert "takes 0.50 of the time of torch DDP and 0.50 of" in figures.text_of("dist-sentence", found)
