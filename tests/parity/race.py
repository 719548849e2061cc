"""Run random programs under real MXNet 1.9.1 and under neomx, and list where they differ.

    .venv/bin/python tests/parity/race.py shapes 500 [seed]      partial shapes in symbols
    .venv/bin/python tests/parity/race.py types 500 [seed]       partial dtypes in symbols
    .venv/bin/python tests/parity/race.py sparse 500 [seed]      storage and values of ops on sparse arrays
    .venv/bin/python tests/parity/race.py np 500 [seed]          statements of mx.np, mx.npx and autograd (race_np.py)
    .venv/bin/python tests/parity/race.py gluon 100 [seed]       Gluon networks in NumPy mode (race_gluon.py)

A program is a line of Python over `mx`, `s` (mx.sym) and `nd`, or a list of statements, so that a difference can be
read and run by hand.
"""

import ast
import json
import pathlib
import signal
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENGINES = {"mxnet": ROOT / ".venv-oracle/bin/python", "neomx": ROOT / ".venv/bin/python"}
MARK = "result: "  # MXNet prints lines of its own
SECONDS = 300  # for one program, after which its process ends; the first one imports much


# ---- what both engines do ----


def run(package):
    """Run the programs of standard input, a JSON string a line; print the result of each as JSON."""
    warnings.simplefilter("ignore")
    mx = __import__(package)
    import numpy as np
    import race_gluon  # noqa: F401  # whose helpers programs call
    from race_np import steps
    from race_programs import HELPERS

    for line in sys.stdin:
        signal.alarm(SECONDS)
        space = dict(mx=mx, s=mx.sym, nd=mx.nd, np=np, steps=steps, **HELPERS)
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
        )
        found += [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if line.startswith(MARK)]
        if len(found) < len(programs):
            found.append("ends the process")
    return found


# ---- the race ----


def main(kind, count, seed="0"):
    import race_gluon
    import race_np
    from race_programs import KINDS

    statements = {"np": race_np.programs, "gluon": race_gluon.programs}
    if kind in statements:
        race_statements(statements[kind](int(count), int(seed)))
        return
    programs = KINDS[kind](int(count), int(seed))
    theirs, ours = results("mxnet", programs), results("neomx", programs)
    counts = {}
    for program, expected, received in zip(programs, theirs, ours):
        verdict = compare(expected, received)
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict != "equal":
            print("%s: %s\n    mxnet %s\n    neomx %s" % (verdict, program, expected, received))
    print("%s: %d programs: %s" % (kind, len(programs), ", ".join("%d %s" % (n, v) for v, n in sorted(counts.items()))))


def race_statements(programs):
    """Race programs of several statements; the second engine is told which of them MXNet refused."""
    from race_np import WORST, verdict

    theirs = [json.loads(each) if each[:1] == "[" else each for each in results("mxnet", [run_by(p) for p in programs])]
    refused = [[i for i, step in enumerate(each) if isinstance(step, dict) and "raises" in step] for each in theirs]
    ours = results("neomx", [run_by(*each) for each in zip(programs, refused)])
    counts = {}
    for program, expected, received in zip(programs, theirs, ours):
        if isinstance(expected, str):
            worst = "only MXNet " + expected
        elif received[:1] != "[":
            worst = "ONLY NEOMX: " + received
            print("%s: %r" % (worst, program))
        else:
            steps = list(zip(program + ["at the end"], expected, json.loads(received)))
            worst, (line, theirs_, ours_) = max(
                ((verdict(e, r), (p, e, r)) for p, e, r in steps), key=lambda v: WORST.index(v[0])
            )
            if worst not in WORST[:2]:
                print("%s: %s\n  %s\n    mxnet %s\n    neomx %s" % (worst, "\n  ".join(program), line, theirs_, ours_))
        counts[worst] = counts.get(worst, 0) + 1
    print("%d programs: %s" % (len(programs), ", ".join("%d %s" % (n, v) for v, n in sorted(counts.items()))))


def run_by(program, refused=()):
    return "steps(mx, %r, %r)" % (program, list(refused))


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
