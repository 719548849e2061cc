"""Run the key-value store's programs under real MXNet 1.9.1, with its scheduler, two servers and real workers.

.venv-oracle/bin/python tests/parity/record_kvstore.py [program ...]      write tests/parity/recorded/kvstore.npz
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "recorded" / "kvstore.npz"
LIMIT = 150  # seconds a job may take
TRIES = 4  # MXNet's processes do not always find each other
sys.path.insert(0, str(HERE.parent))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def job(name, workers, folder):
    """Run one program on so many workers; whether all of them ended well. Each leaves its results in the folder."""
    from parity.kvstore_programs import PROGRAMS

    environ = dict(os.environ, **PROGRAMS[name].environ, MXNET_STORAGE_FALLBACK_LOG_VERBOSE="0", OMP_NUM_THREADS="1")
    command = [sys.executable, __file__, "--worker", name, folder]
    if "dist" not in PROGRAMS[name].kind:
        return subprocess.run(command, env=environ, timeout=LIMIT).returncode == 0
    environ.update(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_port()), DMLC_NODE_HOST="127.0.0.1")
    environ.update(DMLC_NUM_WORKER=str(workers), DMLC_NUM_SERVER="2")
    helpers = [
        subprocess.Popen([sys.executable, "-c", "import mxnet"], env=dict(environ, DMLC_ROLE=role))
        for role in ("scheduler", "server", "server")
    ]
    started = [subprocess.Popen(command, env=dict(environ, DMLC_ROLE="worker")) for _ in range(workers)]
    end = time.time() + LIMIT
    while time.time() < end and any(process.poll() is None for process in started):
        time.sleep(0.1)
    well = all(process.poll() == 0 for process in started)
    for process in started + helpers:
        process.kill()
        process.wait()
    return well


def worker(name, folder):
    """One worker's part: its results go to a file."""
    import mxnet as mx

    from parity.kvstore_programs import PROGRAMS
    from parity.spec import plain

    assert mx.__version__ == "1.9.1", mx.__version__
    rank, results = PROGRAMS[name].run(mx)
    np.savez(os.path.join(folder, "%d.npz" % rank), **{key: plain(value) for key, value in results.items()})


def main(names):
    from parity.kvstore_programs import PROGRAMS

    recorded = dict(np.load(str(RECORDED))) if names and RECORDED.exists() else {}
    for name in names or PROGRAMS:
        for workers in PROGRAMS[name].workers:
            with tempfile.TemporaryDirectory() as folder:
                if not any(job(name, workers, folder) for _ in range(TRIES)):
                    sys.exit("%s with %d workers: MXNet did not end well" % (name, workers))
                prefix = "%s|%d|" % (name, workers)
                recorded = {key: value for key, value in recorded.items() if not key.startswith(prefix)}
                for rank in range(workers):
                    for key, value in np.load(os.path.join(folder, "%d.npz" % rank)).items():
                        recorded["%s%d|%s" % (prefix, rank, key)] = value
            np.savez_compressed(str(RECORDED), **recorded)
            print("%s with %d workers" % (name, workers), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main(sys.argv[1:])
