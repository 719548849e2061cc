"""Scripts written for MXNet run unchanged: `import mxnet` loads neomx, and the roles of MXNet's launcher work."""

import socket
import subprocess
import sys

import pytest
from launching import LIMIT, environment, write

from neomx.launch.cli import main

ALIASES = """
    import multiprocessing
    import os
    import sys

    sys.path.insert(0, sys.argv[1])  # contains another mxnet
    import mxnet as mx
    import mxnet.ndarray as nd
    from mxnet import autograd, gluon
    from mxnet.gluon import nn
    from mxnet.gluon.data.vision import transforms

    import neomx
    import neomx.horovod
    import neomx.gluon.data.vision.transforms

    def child(queue):
        import mxnet
        queue.put(mxnet.nd.__name__)

    def spawned():
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        name = queue.get()
        process.join()
        return name

    if __name__ == "__main__":
        assert mx.__version__ == "1.9.1" and mx.parallel is neomx.parallel and mx.cpu is neomx.cpu
        assert mx.nd is nd is neomx.nd and gluon is neomx.gluon and nn is neomx.gluon.nn
        assert autograd is neomx.autograd and not hasattr(autograd, "__path__")
        assert transforms is neomx.gluon.data.vision.transforms
        assert mx.__name__ == mx.__spec__.name == "mxnet" and nn.__spec__.name == "neomx.gluon.nn"
        assert mx.nd.ones((2,)).sum().asscalar() == 2
        import numpy as np
        assert np.float is float and np.Inf == np.inf and np.product is np.prod  # as before NumPy 1.24
        assert np.fromstring(b"\\x01\\x02", np.uint8).tolist() == [1, 2] == np.fromstring("1 2", int, sep=" ").tolist()
        assert np.bool(1) is np.bool_(1) or np.bool is bool
        import gluoncv
        assert not gluoncv.found_torch
        try:
            import mxnet.nothing
        except ModuleNotFoundError as error:
            assert error.name == "mxnet.nothing", error
        else:
            raise AssertionError
        import byteps.mxnet
        import horovod.mxnet as hvd
        assert hvd is neomx.horovod and byteps.mxnet is hvd
        import horovod.mxnet.elastic
        from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
        assert horovod.mxnet.elastic is hvd.elastic is mx.horovod.elastic is neomx.horovod.elastic
        assert HorovodInternalError is hvd.HorovodInternalError is hvd.elastic.HorovodInternalError
        assert HostsUpdatedInterrupt is hvd.elastic.HostsUpdatedInterrupt
        if sys.argv[2:]:
            assert spawned() == "neomx.ndarray"
        assert __file__ == sys.argv[0] and sys.path[1] == os.path.dirname(__file__)
        print("all good")
"""

# GluonCV accepts that torch is missing, but rejects a newer version.
GLUONCV = """
from .check import _require_pytorch_version
try:
    _require_pytorch_version("1.4.0", "2.0.0")
    found_torch = True
except ImportError:
    found_torch = False
"""


@pytest.fixture
def elsewhere(tmp_path):
    """A directory with another library named mxnet, and one that behaves like GluonCV."""
    (tmp_path / "other" / "mxnet").mkdir(parents=True)
    (tmp_path / "other" / "mxnet" / "__init__.py").write_text("raise ImportError('the other mxnet')")
    (tmp_path / "other" / "gluoncv").mkdir()
    (tmp_path / "other" / "gluoncv" / "__init__.py").write_text(GLUONCV)
    (tmp_path / "other" / "gluoncv" / "check.py").write_text("def _require_pytorch_version(*v): raise RuntimeError(v)")
    return str(tmp_path / "other")


def test_import_mxnet_loads_neomx_in_launched_scripts_and_their_children(tmp_path, elsewhere, capfd):
    assert main(["run", write(tmp_path, ALIASES), elsewhere, "spawn"]) == 0
    assert "all good" in capfd.readouterr().out


def test_explicit_compat_import(tmp_path, elsewhere):
    script = write(tmp_path, "\n    import neomx.compat.mxnet" + ALIASES)
    ran = subprocess.run([sys.executable, script, elsewhere], env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "all good" in ran.stdout


def test_shadowed_sitecustomize_runs_and_traceback_is_plain(tmp_path, capfd, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.customized = 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    script = write(tmp_path, "print('customized', customized)\nraise ValueError('x')\n")
    assert main(["run", script]) == 1
    out, err = capfd.readouterr()
    assert out == "customized 1\n"
    head = 'Traceback (most recent call last):\n  File "' + script + '", line 2, in <module>\n    raise ValueError'
    assert err.startswith(head)


ROLES = """
    import mxnet as mx

    kv = mx.kv.create("dist_sync")
    shape = (3, 2)
    kv.init("w", mx.nd.ones(shape))
    kv.push("w", mx.nd.ones(shape) * (kv.rank + 1))
    out = mx.nd.zeros(shape)
    kv.pull("w", out=out)
    print("worker", kv.rank, kv.num_workers, out.asnumpy().ravel().tolist())
"""


def test_roles_of_mxnets_launcher(tmp_path):
    """One script runs as scheduler, server and workers with DMLC_* variables, as under MXNet's launch.py.

    For scheduler and server, `import mxnet` does not return; neither does kv.create of a script that imports neomx.
    """
    theirs = write(tmp_path, "    import neomx.compat.mxnet\n" + ROLES.lstrip("\n"), "theirs.py")
    ours = write(tmp_path, ROLES.replace("import mxnet", "import neomx"), "ours.py")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    common = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "NEOMX_TIMEOUT": str(LIMIT)}
    common |= {"DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    roles = [("scheduler", theirs), ("server", ours), ("worker", theirs), ("worker", ours)]
    started = [
        subprocess.Popen([sys.executable, script], env=environment(DMLC_ROLE=role, **common), text=True, **pipes)
        for role, script in roles
    ]
    try:
        said = [process.communicate(timeout=LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert [process.returncode for process in started] == [0, 0, 0, 0], said
    assert [out for out, _ in said[:2]] == ["", ""]
    assert sorted(out for out, _ in said[2:]) == [f"worker {rank} 2 {[3.0] * 6}\n" for rank in range(2)]
