"""Keep what MXNet 1.9.1 makes of each case's op as a symbol; run by .venv-oracle's python."""

import gzip
import importlib
import json
import pathlib
import sys

import mxnet as mx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from parity import spec, symbol_cases  # noqa: E402


def main():
    for path in sorted((HERE / "cases").glob("[a-z]*.py")):
        importlib.import_module("parity.cases." + path.stem)
    found = {}
    for cases in spec.CASES.values():
        for case in cases.values():
            if isinstance(case, spec.Case):
                found[case.id] = symbol_cases.facts(mx, case)
    path = HERE / "recorded" / "symbol_cases.json.gz"
    path.write_bytes(gzip.compress(json.dumps(found, sort_keys=True).encode(), mtime=0))
    print("%d symbols, %d bytes" % (len(found), path.stat().st_size))


if __name__ == "__main__":
    main()
