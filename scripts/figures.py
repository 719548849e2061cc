"""Render the results of benchmarks (benchmarks/results/*.json): `make render`, and at the end of `make figures`.

    python scripts/figures.py [--check]

It writes

- docs/measurements.md, a table for each benchmark;
- docs/drawings/measured-NAME.svg, the ratios as bars;
- the text between `<!-- figures: NAME -->` and `<!-- end figures -->` in README.md and in pages of docs/, made by the
  function of that name below.

With `--check` it writes nothing, names the files that are not up to date, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.record import Result, Row, read, write  # noqa: E402  # found by the line above
from scripts import task_figures  # noqa: E402

Results = Mapping[str, Result]
NOT_MEASURED = "Not measured yet; run `make figures`."
MARK = re.compile(r"<!-- figures: (?P<name>[\w-]+) -->\n(?:(?!<!-- figures: ).)*?<!-- end figures -->", re.S)
BEGIN, END = "<!-- figures: ", "<!-- end figures -->"


# ---- numbers ----


def digits(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    size = abs(value)
    return f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"


def amount(value: float | None, unit: str) -> str:
    """Return a number with a unit that suits its size."""
    if value is None:
        return ""
    if unit == "s":
        return f"{digits(value * 1e6)} µs" if abs(value) < 1e-3 else f"{digits(value * 1e3)} ms"
    if unit == "us":
        return f"{digits(value)} µs"
    if unit in ("bytes", "bytes/s"):
        return f"{value / 1e6:.1f} MB{unit[5:]}"
    if unit == "share":
        return f"{value:.1%}".replace("%", " %")
    if unit == "cores":
        return f"{value:.1%}".replace("%", " % of a core")
    if unit == "objects":
        return f"{value:.0f} objects"
    return f"{digits(value)} {unit}" if unit else f"{value:.1g}"


def ratio(row: Row) -> str:
    return "" if row.ratio is None else f"{row.ratio:.2f}"


def middle(row: Row) -> str:
    return "" if row.middle_half is None else "{:.2f} to {:.2f}".format(*row.middle_half)


def times_as_fast(row: Row) -> str:
    """Return how many times as fast ours is, of a row of times."""
    assert row.unit == "s" and row.ratio
    return f"{1 / row.ratio:.1f}"


def span(rows: Sequence[Row], fast: bool = False) -> str:
    """Return the least and the greatest ratio of rows; with `fast`, of how many times as fast ours is."""
    ratios = [1 / row.ratio if fast else row.ratio for row in rows if row.ratio]
    ends = [f"{each:.{1 if fast else 2}f}" for each in (min(ratios), max(ratios))]
    return " to ".join(dict.fromkeys(ends))


# ---- Markdown ----


def wrapped(text: str) -> str:
    """Return a paragraph in lines of at most 120 characters."""
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines).replace("|  |", "| |").replace("|  |", "| |")


def where(result: Result) -> str:
    """Return when and on what a result was measured, without a period at the end."""
    cpu, cores = result.machine["cpu"], result.machine["cores"]
    article = "an" if cpu[:1] in "AEIOU" else "a"
    return f"{result.date}, {cores} core{'s' * (cores > 1)} of {article} {cpu}"


def find(result: Result, **wanted: str) -> list[Row]:
    """Return the rows whose fields have these values."""
    return [row for row in result.rows if all(getattr(row, name) == value for name, value in wanted.items())]


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Rows by their group, in the order of the first of each."""
    for name in dict.fromkeys(row.group for row in rows):
        yield name, [row for row in rows if row.group == name]


def listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


# ---- blocks of pages ----

Block = Callable[[Result], str]
BLOCKS: dict[str, tuple[str, Block]] = {}  # by name: the result that it needs, and what makes the text


def block(name: str, result: str) -> Callable[[Block], Block]:
    """Register a function that makes the text of a block from a result."""

    def add(make: Block) -> Block:
        BLOCKS[name] = (result, make)
        return make

    return add


def text_of(name: str, results: Results) -> str:
    """Return the text of a block."""
    needed, make = BLOCKS[name]
    return make(results[needed]) if needed in results else NOT_MEASURED


@block("training-steps", "train")
def training_steps(result: Result) -> str:
    """One thread, against MXNet in both modes and against torch."""
    rows = []
    for mine in find(result, group="imperative", against="MXNet"):
        hybrid = find(result, group="hybridized", against="MXNet", what=mine.what)
        torch = find(result, group="imperative", against="torch", what=mine.what)
        cells = [mine.what, amount(mine.ours, "s"), amount(mine.theirs, "s"), times_as_fast(mine)]
        rows.append([*cells, *map(times_as_fast, hybrid), *map(ratio, torch)])
    head = ["a training step", "neomx", "MXNet 1.9.1", "times as fast", "hybridized, times as fast"]
    note = f"Measured on {where(result)}, one thread. The last column is the time of a step relative to the same model \
written by hand in torch."
    return table([*head, "time, relative to torch"], rows) + "\n\n" + wrapped(note)


@block("training-summary", "train")
def training_summary(result: Result) -> str:
    """The ranges of both comparisons in a sentence."""
    eager, hybrid = (find(result, group=mode, against="MXNet") for mode in ("imperative", "hybridized"))
    said = f"take {span(find(result, against='torch'))} of the time of the same models written by hand in torch"
    if eager and hybrid:
        speeds = f"{span(eager, fast=True)} times as fast as in MXNet (hybridized {span(hybrid, fast=True)} times)"
        said = f"run {speeds}, and {said}"
    return wrapped(f"Training steps {said} ({where(result)}, one thread).")


@block("module-table", "module")
def module_table(result: Result) -> str:
    """Epochs by symbols, with one thread and with two."""
    threads = list(dict.fromkeys(row.group for row in result.rows))
    rows = []
    for name in dict.fromkeys(row.what for row in result.rows):
        found = {row.group: ratio(row) for row in find(result, what=name)}
        rows.append([name, *(found.get(each, "") for each in threads)])
    note = f"The time of an epoch, relative to MXNet's: below 1, neomx is faster. Measured on {where(result)}."
    return table(["", *threads], rows) + "\n\n" + wrapped(note)


@block("module-sentence", "module")
def module_sentence(result: Result) -> str:
    """`Module.fit` of a LeNet."""
    (row,) = find(result, what="LeNet by Module.fit", group="1 thread")
    return wrapped(f"`Module.fit` of a LeNet is {times_as_fast(row)} times as fast as MXNet's with one thread.")


@block("records-sentence", "records")
def records_sentence(result: Result) -> str:
    """Pictures per second, for each number of threads."""
    parts = [f"{row.ratio:.1f} times with {row.what}" for row in result.rows]
    return wrapped(f"`ImageRecordIter` decodes more images per second than MXNet's: {listed(parts)}.")


@block("memory-sentence", "memory")
def memory_sentence(result: Result) -> str:
    """The peak of training ResNet-18."""
    found = find(result, group="peak of a process", against="torch")
    parts = [f"{row.ratio:.2f} ({row.what.rpartition(', ')[2]})" for row in found]
    return wrapped(f"Training ResNet-18 takes {listed(parts)} times the memory of the same program in torch.")


@block("coverage-sentence", "coverage")
def coverage_sentence(result: Result) -> str:
    """The share of lines that the quick tests run."""
    share = f"{result.rows[0].ours:.0%}".replace("%", " %")
    return wrapped(
        f"The quick tests, which start no processes, run {share} of the lines of the package. The tests with workers, "
        "servers and launchers run more, which is not measured."
    )


@block("calls-sentence", "np_ops")
def calls_sentence(result: Result) -> str:
    """What a call costs beside torch's op."""
    parts = []
    for name in ("mx.nd", "mx.np"):
        over = [row.extra["quiet"] for row in find(result, group=name)]
        parts.append(f"{statistics.median(over):.1f} µs for `{name}` (at most {max(over):.1f} µs)")
    return wrapped(f"A call costs more than the torch op that does the same work: in the median {listed(parts)}.")


@block("workers-sentence", "workers")
def workers_sentence(result: Result) -> str:
    """The speed-up of two workers."""
    (row,) = find(result, unit="samples/s")
    return wrapped(f"Two workers train a LeNet on {row.ratio:.2f} times as many samples per second as one.")


@block("dist-table", "dist")
def dist_table(result: Result) -> str:
    """Steps of two workers, and copies; all times."""
    rows = [
        [f"{group}: {row.what}", row.by, amount(row.ours, "s"), row.against, amount(row.theirs, "s"), ratio(row)]
        for group, found in groups(result.rows)
        for row in found
        if group != "between the machines"
    ]
    head = ["", "", "time", "against", "time", "ratio"]
    return table(head, rows) + "\n\n" + wrapped(f"Measured on {where(result)}. MXNet trains with two servers.")


@block("dist-link", "dist")
def dist_link(result: Result) -> str:
    """What crosses the link between two machines."""
    found = {(row.by, row.what): row for row in find(result, group="between the machines")}
    if not found:
        return NOT_MEASURED
    ours, ddp = (found[name, "sent in a step, 2 workers on each machine"] for name in ("neomx all-reduce", "torch DDP"))
    full, hidden = (found["neomx all-reduce", what] for what in ("while communicating", "hidden behind backward"))
    return wrapped(
        f"With two workers on each machine, a step sends {amount(ours.ours, 'bytes')} in each direction, {ratio(ours)} "
        f"times the least that a ring of two machines can send; DDP sends {amount(ddp.ours, 'bytes')}. While gradients "
        f"travel, the link is {amount(full.ratio, 'share')} full. Of {amount(hidden.theirs, 's')} of communication, "
        f"{max(hidden.ours, 0.0) * 1e3:.0f} ms are hidden behind backward."
    )


@block("dist-sentence", "dist")
def dist_sentence(result: Result) -> str:
    """Two workers on one machine against torch and MXNet."""
    ways = {
        "neomx all-reduce": "with all-reduce",
        "neomx dist_sync by servers": "with two servers",
        "neomx dist_async by servers": "with two servers asynchronously",
    }
    others = {"torch DDP": "torch DDP", "MXNet dist_sync": "MXNet's `dist_sync`", "MXNet dist_async": "MXNet's"}
    parts = []
    for by, way in ways.items():
        found = [row for row in find(result, group="a training step, one machine", by=by) if row.against in others]
        if found:
            parts.append(f"{listed([f'{ratio(row)} of the time of {others[row.against]}' for row in found])} {way}")
    said = "; ".join(parts)
    return wrapped(f"On two workers, a step of an MLP of 10 million parameters takes {said}.")


@block("replicas-sentence", "server_replicas")
def replicas_sentence(result: Result) -> str:
    """What a second holder of each parameter costs while nothing fails."""
    parts = [f"{amount(row.ours, 's')} instead of {amount(row.theirs, 's')} with `{row.what}`" for row in result.rows]
    text = f"With two holders a step takes {listed(parts)}, {listed([ratio(row) for row in result.rows])} of the time"
    return wrapped(f"{text}. Measured on {where(result)}.")


@block("elastic-table", "elastic")
def elastic_table(result: Result) -> str:
    """How long the others need after a kill, by contestant and number of workers."""
    columns = {"next step": "next step", "full strength": "full strength", "pause": "longest pause while it joins"}
    rows = []
    for group, found in groups(result.rows):
        for by in dict.fromkeys(row.by for row in found if row.what in columns):
            mine = {row.what: row for row in found if row.by == by}
            cells = [f"{mine[what].ours:.2f} s" if what in mine else "" for what in columns]
            rows.append([group, by, *cells])
    said = f"Medians of the rounds, from the kill of a worker. Measured on {where(result)}."
    return table(["", "", *columns.values()], rows) + "\n\n" + wrapped(said)


@block("elastic-sentence", "elastic")
def elastic_sentence(result: Result) -> str:
    """What --elastic costs while nothing fails."""
    (cost,) = find(result, what="step without failures")
    return wrapped(
        f"While nothing fails, a step with `--elastic` takes {amount(cost.ours, 's')}, without it "
        f"{amount(cost.theirs, 's')}: {cost.ratio:.3f} of the time."
    )


@block("checkpoint-sentence", "checkpoint")
def checkpoint_sentence(result: Result) -> str:
    """How fast checkpoints are written and read, and how long they stop the training."""
    rows = {row.what: row for row in result.rows}
    writing, saving, pause, resume = (rows[what] for what in ("writing", "saving", "pause", "resume"))
    return wrapped(
        f"{writing.group} of parameters and states of Adam are written at {amount(writing.ours, 'MB/s')}, "
        f"{ratio(writing)} of the speed of `dd` with `conv=fsync` and {ratio(saving)} of that of `torch.save` with "
        f"fsync. The training pauses for {amount(pause.ours, 's')}, {amount(pause.ratio, 'share')} of the time of "
        f"writing. To restore them takes {amount(resume.ours, 's')} with all checksums verified; `torch.load` takes "
        f"{amount(resume.theirs, 's')}. Measured on {where(result)}."
    )


@block("layouts-table", "layouts")
def layouts_table(result: Result) -> str:
    """All layouts, a Block and a torch module against torch."""
    rows = []
    for mine in find(result, by="a Block"):
        (module,) = find(result, by="a torch module", group=mine.group, what=mine.what)
        cells = [f"{mine.group}, {mine.what}", amount(mine.theirs, "s"), amount(mine.ours, "s"), ratio(mine)]
        rows.append([*cells, amount(module.ours, "s"), ratio(module)])
    head = ["", "torch", "a Block", "ratio", "a torch module", "ratio"]
    return table(head, rows) + "\n\n" + wrapped(f"Measured on {where(result)}.")


@block("layouts-sentence", "layouts")
def layouts_sentence(result: Result) -> str:
    """A GPT-2 under each layout."""
    names = {"full": "fully sharded", "tensor=2": "with tensor parallelism", "pipeline=2": "as a pipeline"}
    found = [row for row in find(result, group="GPT-2", by="a Block") if row.what in names]
    parts = [f"{ratio(row)} {names[row.what]}" for row in found]
    start = "The time of a training step of GPT-2 on two workers, relative to the same written by hand in torch, is"
    return wrapped(f"{start} {listed(parts)}.")


@block("flood-table", "flood")
def flood_table(result: Result) -> str:
    """CPU of the listening process, and speed, under a flood."""
    rows = []
    for place in dict.fromkeys(row.what for row in result.rows):
        cpu = {row.by: amount(row.ours, "cores") for row in find(result, what=place, unit="cores")}
        (speed,) = find(result, what=place, by="flood", against="control")
        rows.append([f"`{place}`", cpu["quiet"], cpu["flood"], f"{ratio(speed)} ({middle(speed) or 'few rounds'})"])
    head = ["connections arrive at the", "CPU of its process, no flood", "CPU, flood", "speed, flood / control"]
    return table(head, rows) + "\n\n" + wrapped(f"Measured on {where(result)}.")


@block("tasks-table", "task_runs")
def tasks_table(result: Result) -> str:
    """Every task, on one worker and on two, with the curves of each group."""
    parts = []
    for group, rows in groups(result.rows):
        parts.append(f"**{group}**")
        parts.append(f"![Curves of {group.lower()}, on one worker and on two](drawings/{task_figures.slug(group)})")
        parts.append(table(task_figures.HEAD, task_figures.table_rows(rows)))
    return "\n\n".join([*parts, wrapped(f"Measured on {where(result)}, one thread for each worker.")])


@block("tasks-speed", "tasks")
def tasks_speed(result: Result) -> str:
    """The speed of tasks on two workers, in a sentence."""
    ratios = [row.ratio for row in result.rows if row.ratio]
    mean, least = statistics.geometric_mean(ratios), min(ratios)
    return wrapped(
        f"On two workers, {len(ratios)} of these tasks train {mean:.2f} times as fast (geometric mean; the least "
        f"{least:.2f}) as the same networks written by hand in torch with DistributedDataParallel: "
        "[measurements](measurements.md#tasks)."
    )


def with_blocks(page: str, text: str, results: Results) -> str:
    """Return a page's text with all of its blocks made again."""

    def made(match: re.Match[str]) -> str:
        if match["name"] not in BLOCKS:
            known = ", ".join(sorted(BLOCKS))
            raise ValueError(f"{page}: unknown figures '{match['name']}'; expected one of: {known}")
        return f"{BEGIN}{match['name']} -->\n\n{text_of(match['name'], results)}\n\n{END}"

    if not text.count(BEGIN) == text.count(END) == len(MARK.findall(text)):
        raise ValueError(f"{page}: '{BEGIN}NAME -->' and '{END}' must come in pairs, each on a line of its own")
    return MARK.sub(made, text)


# ---- plots ----

STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #1f2430; }
    .group { font-size: 13px; font-weight: 600; }
    .small { fill: #555d70; }
    .end { text-anchor: end; }
    .better { fill: #2f8f6b; }
    .worse { fill: #c07a2c; }
    line { stroke: #555d70; stroke-dasharray: 4 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e3e6ef; }
      .small { fill: #aab2c5; }
      .better { fill: #58c79a; }
      .worse { fill: #e0a25a; }
      line { stroke: #aab2c5; }
    }
"""
LEFT, WIDTH, LINE = 400, 720, 22  # where bars begin; the width of a drawing; the height of a bar with its space


def label(row: Row) -> str:
    """Return what a bar compares."""
    mine = row.by.removeprefix("neomx").strip()
    parts = [row.what if row.what not in mine else "", mine, f"against {row.against}"]
    return ", ".join(filter(None, parts))


def plot(title: str, axis: str, rows: Sequence[Row], more_is_better: bool) -> str:
    """Return an SVG with a bar for each ratio, and a line where the ratio is 1."""
    scale = (WIDTH - LEFT - 60) / max(1.0, *(row.ratio or 0 for row in rows))
    drawn, y = [], 58
    for group, found in groups(rows):
        drawn.append(f'<text class="group" x="10" y="{y + 14}">{escape(group)}</text>')
        y += LINE
        for row in found:
            assert row.ratio is not None
            kind = "better" if (row.ratio >= 1) == more_is_better or row.ratio == 1 else "worse"
            width = row.ratio * scale
            drawn.append(f'<text class="end" x="{LEFT - 8}" y="{y + 14}">{escape(label(row))}</text>')
            drawn.append(f'<rect class="{kind}" x="{LEFT}" y="{y + 3}" width="{width:.1f}" height="{LINE - 7}"/>')
            drawn.append(f'<text class="end" x="{WIDTH - 10}" y="{y + 14}">{row.ratio:.2f}</text>')
            y += LINE
        y += 6
    one = LEFT + scale
    said = "; ".join(f"{row.group}, {label(row)}: {row.ratio:.2f}" for row in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" width="{WIDTH}" height="{y + 8}" '
        'role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(axis)}. {escape(said)}.</desc>',
        f"<style>{STYLE}  </style>",
        f'<text class="group" x="10" y="20">{escape(title)}</text>',
        f'<text class="small" x="10" y="40">{escape(axis)}</text>',
        *drawn,
        f'<line x1="{one:.1f}" y1="50" x2="{one:.1f}" y2="{y}"/>',
        f'<text class="small" x="{one + 4:.1f}" y="52">1</text>',
    ]
    return "\n  ".join(lines) + "\n</svg>\n"


# ---- the page ----

INTRODUCTION = """# Measurements

This page is made from the results of benchmarks in `benchmarks/results`. `make figures` measures all of them again in
about half an hour and renders this page; `make figures ONLY=train` measures one. Measure on a machine that does nothing
else. Measuring against MXNet needs Python 3.11, and `dist` needs root for its network namespaces.

**How.** Both sides run in turns, in one run, so that a noisy machine disturbs them alike. The number of a side is the
median of its rounds. A ratio is the median of the rounds' ratios, the first side by the second. "Middle half" is the
range of ratios that half of the rounds are in: if it is wide, the ratio is uncertain. Ratios of times below 1 are in
favor of the first side, and so are ratios of speeds above 1. MXNet is version 1.9.1.

The load average is that of the minute before a benchmark began. If several run one after the other, it includes the
one before.
"""


class Section:
    """A part of the page: one benchmark."""

    def __init__(self, title: str, text: str, plot_of: str = "", code: bool = False, more_is_better: bool = False):
        self.title = title
        self.text = text
        self.plot_of = plot_of  # the unit of the rows that are drawn; none are if it is empty
        self.code = code  # whether workloads are code
        self.more_is_better = more_is_better


SECTIONS = {
    "train": Section(
        "Training steps",
        """Forward, backward and the update of small and middle-sized models in one process with one thread: the same
        Gluon program under neomx and MXNet, and the model written by hand in torch with a fused optimizer.""",
        "s",
    ),
    "ops": Section(
        "Operators",
        """Calls of operators on small arrays, forward and backward of the ones that compute much, and updates of
        optimizers, against MXNet with one thread.""",
        "s",
    ),
    "module": Section(
        "Symbols and Module",
        "Epochs of 20 batches of 64 samples, by `Module.fit` and by an executor, against MXNet.",
        "s",
    ),
    "records": Section(
        "Reading pictures",
        """`ImageRecordIter` decodes 500 JPEGs of 256x256 to 400x300 pixels, cuts them to 224x224 and normalizes them,
        with as many threads as MXNet's.""",
        "pictures/s",
        more_is_better=True,
    ),
    "memory": Section(
        "Memory",
        """The peak of a process that trains ResNet-18 against the same program in torch, and what 10,000 steps of an
        MLP add to the memory and the objects of a process after its first 1,000.""",
    ),
    "np_ops": Section(
        "Cost of a call",
        """CPU time of calls on 2x2 arrays, against the torch op that does the same work. The difference is what neomx
        adds. The first group shows what Python itself takes.""",
        code=True,
    ),
    "np_step": Section("NumPy mode", "CPU time of a training step of a small MLP in NumPy mode and in nd mode."),
    "workers": Section(
        "One worker and two",
        "`make demo`, repeated: a LeNet on 5,000 digits, on one worker and on two, with one thread each.",
    ),
    "dist": Section(
        "Two workers",
        """Training steps of an MLP of 10 million parameters, 32 samples for each worker, one thread for each process:
        by all-reduce and with two parameter servers, against torch's DDP (bucket views, fused SGD) and MXNet. Two
        machines are network namespaces that are joined by a link of 1 Gbit/s.""",
        "s",
    ),
    "server_replicas": Section(
        "Replicas of servers",
        """The training steps of the section above on two workers and two servers, with `--server-replicas 2` against
        the same without. Nothing fails. Both jobs run at the same time and step in turns.""",
    ),
    "elastic": Section(
        "A worker is killed",
        """The last worker of a job that trains the MLP of the section above is killed, and replaced at once. The first
        rows say how long it takes from the kill to the next step that the others commit without it, and to the first
        step with the replacement; the pause is the longest step of the others until then, minus an ordinary one.
        torchrun restarts all workers, here without reading a checkpoint. torchft has a lighthouse with heartbeats of
        one second. The last row compares steps with and without `--elastic` while nothing fails.""",
    ),
    "checkpoint": Section(
        "Checkpoints",
        """A training with Adam saves and resumes, in turns with `dd` to the same disk (`conv=fsync`) and with
        torch.save (and fsync) and torch.load of the same content. The pause is the time that `save` takes, and by which
        the next update is longer than usual.""",
    ),
    "layouts": Section(
        "Layouts",
        """A Block with a Trainer and a torch module under layouts, on two workers, against the same written by hand
        in torch: DistributedDataParallel, `fully_shard`, `parallelize_module` with `loss_parallel`, and
        `Schedule1F1B` with four micro-batches.""",
        "s",
    ),
    "tasks": Section(
        "Tasks",
        """Training on two workers with one thread each: networks of [the task programs](tasks.md), hybridized, against
        the same networks written by hand in torch with DistributedDataParallel, a DataLoader and a fused Adam (a sparse
        one for recommendation). A step includes loading the batch.""",
        "samples/s",
        more_is_better=True,
    ),
    "flood": Section(
        "A flood of connections",
        """A training while strangers connect 400 times a second to a port of the job. In the control they connect to a
        port that no process serves, so that their own use of the CPU is in both.""",
    ),
    "coverage": Section(
        "Coverage",
        """The share of the package's lines that are run by the tests that start no processes. Launchers, workers and
        servers run in processes of their own, so all tests together run more of `launch`, `comm`, `kvstore` and
        `parallel`.""",
    ),
}


def drawing(name: str) -> str:
    return f"measured-{name}.svg"


def drawn_rows(name: str, result: Result) -> list[Row]:
    """Return the rows of a result that its plot shows."""
    unit = SECTIONS[name].plot_of
    shown = [row for row in result.rows if unit and row.unit == unit and row.ratio]
    return [row for row in shown if "hidden" not in row.what and not row.by.startswith("MXNet")]


def svg(name: str, result: Result) -> str:
    """Return the plot of a result."""
    section = SECTIONS[name]
    kind, better = ("speed", "longer") if section.more_is_better else ("time", "shorter")
    axis = f"{kind}, relative to the other side; the line is 1; {better} is better"
    return plot(f"{section.title}, {result.date}", axis, drawn_rows(name, result), section.more_is_better)


def section_of(name: str, result: Result) -> str:
    """Return the part of the page about one result."""
    section, machine = SECTIONS[name], result.machine
    facts = (
        f"Measured on {where(result)}, {machine['memory_gb']:.0f} GB of memory; Python {machine['python']}, torch "
        f"{machine['torch']}, NumPy {machine['numpy']}; load average {machine['load'][0]:.2f} at the start."
    )
    if result.seconds >= 3:  # less if other programs did the work
        facts += f" The run took {result.seconds / 60:.1f} minutes."
    parts = [f"## {section.title}", wrapped(section.text), wrapped(facts), f"```sh\n{result.command}\n```"]
    if drawn_rows(name, result):
        parts.append(f"![The ratios of the table below as bars](drawings/{drawing(name)})")
    for group, rows in groups(result.rows):
        parts.append(f"**{group[0].upper()}{group[1:]}**" if not section.code else f"**{group}**")
        parts.append(group_table(rows, section.code))
        if means := list(mean_lines(rows)):
            parts.append("\n".join(means))
    return "\n\n".join(parts)


def group_table(rows: Sequence[Row], code: bool) -> str:
    """Return the table of a group of rows; columns in which nothing stands are left out."""
    head = ["", "", "this", "against", "other", "difference", "ratio", "middle half"]
    cells = []
    for row in rows:
        what = f"`{row.what}`" if code else row.what
        over = amount(row.extra["quiet"], row.unit) if "quiet" in row.extra else ""
        numbers = [amount(row.ours, row.unit), row.against, amount(row.theirs, row.unit), over]
        cells.append([what, row.by, *numbers, ratio(row), middle(row)])
    kept = [at for at in range(len(head)) if any(row[at] for row in cells)]
    return table([head[at] for at in kept], [[row[at] for at in kept] for row in cells])


def mean_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Geometric means of ratios, where a group has several against one other side."""
    units = ("s", "samples/s")
    for against in dict.fromkeys(row.against for row in rows if row.unit in units and row.by == "neomx"):
        found = [row.ratio for row in rows if row.against == against and row.ratio]
        if len(found) > 2:
            yield f"Geometric mean of the ratios against {against}: {statistics.geometric_mean(found):.2f}."


def page(results: Results) -> str:
    """Return the text of docs/measurements.md."""
    parts = [INTRODUCTION.rstrip()]
    for name, section in SECTIONS.items():
        if name in results:
            parts.append(section_of(name, results[name]))
        else:
            parts += [f"## {section.title}", wrapped(section.text), NOT_MEASURED]
    return "\n\n".join(parts) + "\n"


# ---- files ----


def load(folder: pathlib.Path) -> dict[str, Result]:
    """Return the results that exist, by name."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}


def rendered(root: pathlib.Path) -> dict[pathlib.Path, str | None]:
    """Return what each file should contain; None for a drawing that should not exist."""
    results, docs = load(root / "benchmarks" / "results"), root / "docs"
    measurements = docs / "measurements.md"
    drawn = [*(docs / "drawings").glob(drawing("*")), *(docs / "drawings").glob("tasks-*.svg")]
    wanted: dict[pathlib.Path, str | None] = dict.fromkeys(drawn)
    for name in results.keys() & SECTIONS.keys():
        if drawn_rows(name, results[name]):
            wanted[docs / "drawings" / drawing(name)] = svg(name, results[name])
    if "task_runs" in results:
        for group, rows in groups(results["task_runs"].rows):
            wanted[docs / "drawings" / task_figures.slug(group)] = task_figures.drawing(group, rows)
    wanted[measurements] = page(results)
    for path in (root / "README.md", *sorted(docs.rglob("*.md"))):
        if path != measurements and BEGIN in (text := path.read_text()):
            wanted[path] = with_blocks(str(path.relative_to(root)), text, results)
    return wanted


def stale(wanted: Mapping[pathlib.Path, str | None]) -> list[pathlib.Path]:
    """Return the files whose contents differ from what they should be."""
    return sorted(path for path, text in wanted.items() if text != (path.read_text() if path.exists() else None))


def main(arguments: Sequence[str] | None = None, root: pathlib.Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is not up to date")
    args = parser.parse_args(arguments)
    try:
        wanted = rendered(root)
    except ValueError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1
    old = stale(wanted)
    for path in old:
        if args.check:
            print(f"{path.relative_to(root)} is not up to date; run `make render`", file=sys.stderr)
            continue
        if (text := wanted[path]) is None:
            path.unlink()
        else:
            write(path, text)
        print(path.relative_to(root))
    return 1 if args.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
