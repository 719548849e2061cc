"""Run random programs under real MXNet 1.9.1 and under neomx, and list where they differ.

    .venv/bin/python tests/parity/race.py shapes 500 [seed]      partial shapes in symbols
    .venv/bin/python tests/parity/race.py types 500 [seed]       partial dtypes in symbols
    .venv/bin/python tests/parity/race.py sparse 500 [seed]      storage and values of ops on sparse arrays

A program is a line of Python over `mx`, `s` (mx.sym) and `nd`, so that a difference can be read and run by hand.
"""

import ast
import json
import pathlib
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENGINES = {"mxnet": ROOT / ".venv-oracle/bin/python", "neomx": ROOT / ".venv/bin/python"}
MARK = "result: "  # MXNet prints lines of its own


# ---- what both engines do ----


def run(package):
    """Run the programs of standard input, a JSON string a line; print the result of each as JSON."""
    warnings.simplefilter("ignore")
    mx = __import__(package)
    import numpy as np
    from race_programs import HELPERS

    for line in sys.stdin:
        space = dict(mx=mx, s=mx.sym, nd=mx.nd, np=np, **HELPERS)
        mx.random.seed(0)
        try:
            result = str(eval(json.loads(line), space))
        except Exception as error:
            result = "raises " + ("MXNetError" if isinstance(error, RuntimeError) else type(error).__name__)
        print(MARK + json.dumps(result), flush=True)


def results(engine, programs):
    """The result of each program; after one that ends the process the next ones run in a new process."""
    found = []
    while len(found) < len(programs):
        rest = programs[len(found) :]
        done = subprocess.run(
            [str(ENGINES[engine]), str(HERE / "race.py"), "--run", engine],
            input="".join(json.dumps(program) + "\n" for program in rest),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=1800,
        )
        found += [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if line.startswith(MARK)]
        if len(found) < len(programs):
            found.append("ends the process")
    return found


# ---- the race ----


def main(kind, count, seed="0"):
    from race_programs import KINDS

    programs = KINDS[kind](int(count), int(seed))
    theirs, ours = results("mxnet", programs), results("neomx", programs)
    counts = {}
    for program, expected, received in zip(programs, theirs, ours):
        verdict = compare(expected, received)
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict != "equal":
            print("%s: %s\n    mxnet %s\n    neomx %s" % (verdict, program, expected, received))
    print("%s: %d programs: %s" % (kind, len(programs), ", ".join("%d %s" % (n, v) for v, n in sorted(counts.items()))))


def compare(expected, received):
    """How neomx's result relates to MXNet's."""
    if expected == received:
        return "equal"
    if "raises" in expected or "ends the process" in expected:
        return "only MXNet raises"
    if "raises" not in received and tells_more(ast.literal_eval(expected), ast.literal_eval(received)):
        return "neomx tells more"
    return "DIFFERENT"


def tells_more(expected, received):
    """Whether one knowledge of shapes or dtypes is the other one with unknown parts filled in."""
    if expected in (None, 0, -1, ()):
        return True
    if isinstance(expected, (list, tuple)) and isinstance(received, (list, tuple)):
        return len(expected) == len(received) and all(map(tells_more, expected, received))
    return expected == received


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    run(sys.argv[2]) if sys.argv[1] == "--run" else main(*sys.argv[1:])
