"""Record what `amp.init` does to real MXNet 1.9.1, in a process for each dtype: it cannot be undone there."""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def record(dtype):
    import mxnet as mx
    from mxnet.contrib import amp

    from parity import amp_programs as programs

    recorded = {"lists": programs.lists(amp, "float16" if dtype == "float16" else amp.amp.bfloat16)}
    amp.init(dtype)
    recorded["symbols"] = programs.symbols(mx)
    if dtype == "bfloat16":
        recorded["arrays"] = programs.arrays(mx)
    else:
        recorded["own gradients"] = programs.own_gradients(mx)
        recorded["scales"] = programs.scales(mx, amp)
        recorded["own gradients later"] = programs.own_gradients(mx)  # the first Trainer has the scale of such losses
        recorded["public"], recorded["signatures"] = programs.public(amp), programs.signatures(amp)
    print(json.dumps(recorded, sort_keys=True))
    sys.stdout.flush()


def main():
    recorded = {}
    for dtype in ("float16", "bfloat16"):
        run = subprocess.run([sys.executable, __file__, dtype], stdout=subprocess.PIPE, timeout=300)
        recorded[dtype] = json.loads(run.stdout.decode().splitlines()[0])
    (HERE / "recorded" / "amp_init.json").write_text(json.dumps(recorded, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(sys.argv[1]) if len(sys.argv) > 1 else main()
