"""`python -m neomx train.py`: runs a script like plain Python in one process, with `import mxnet` loading neomx."""

import os
import re
import subprocess
import sys

import pytest
from launching import LIMIT, environment, write

from neomx.launch.script import command_line, is_program

COMMANDS = ("run", "convert")


def run(*arguments, cwd, **variables):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        ([], False),
        (["run", "train.py"], False),
        (["convert"], False),  # although a file has this name
        (["nothing"], False),
        (["--help"], False),
        (["train", "run"], True),
        (["nothing.py"], True),
        (["./run"], True),
        (["-m", "package.module"], True),
    ],
)
def test_command_takes_precedence_over_a_file_without_suffix_or_path(argv, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "convert"):
        (tmp_path / name).touch()
    assert is_program(argv, COMMANDS) is program


@pytest.mark.parametrize(
    ("original", "argv", "expected"),
    [
        ("python -m neomx a.py -m neomx", "a.py -m neomx", "python"),
        ("python -u -X dev -m neomx a.py 1", "a.py 1", "python -u -X dev"),
        ("python -mneomx a.py", "a.py", "python"),
        ("python /bin/neomx -m a", "-m a", "python"),
        ("python -m pdb -m neomx a.py", "a.py", "python -m pdb"),
        ("python -m coverage run -m neomx a.py", "a.py", "python -m coverage run"),
    ],
)
def test_options_of_python_and_debuggers_are_kept(original, argv, expected):
    assert command_line(original.split(), argv.split()) == expected.split()


PLACE = """
    import os, sys
    print(__name__, __file__, sys.argv, sys.path[0] == os.path.dirname(__file__), sys.flags.optimize)
    print(sys.modules["__main__"].__dict__ is globals(), __spec__ and __spec__.name, __package__, os.getcwd())
    if sys.argv[1:] == ["exit"]:
        sys.exit(7)
    def f():
        raise ValueError("no")
    f()
"""


@pytest.mark.parametrize("arguments", [["exit"], ["--lr", "1"]])
@pytest.mark.parametrize("program", [["sub/script.py"], ["-m", "sub.script"]])
def test_script_runs_as_under_plain_python(tmp_path, arguments, program):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", PLACE)
    ours = run("-O", "-m", "neomx", *program, *arguments, cwd=tmp_path)
    plain = run("-O", *program, *arguments, cwd=tmp_path)
    assert plain.returncode == (7 if arguments == ["exit"] else 1) and "__main__" in plain.stdout
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_missing_script_and_isolated_python_are_reported(tmp_path):
    missing = run("-m", "neomx", "nothing.py", cwd=tmp_path)
    assert missing.returncode == 2 and "can't open file" in missing.stderr
    code = f"import sys; sys.path.insert(0, {environment()['PYTHONPATH']!r}); sys.argv[1:] = ['nothing.py']\n"
    isolated = run("-E", "-c", code + "from neomx.launch.cli import main; sys.exit(main())", cwd=tmp_path)
    assert isolated.returncode == 2 and "Omit -E, -I and -S" in isolated.stderr


CHILDREN = """
    import multiprocessing
    import horovod.mxnet as hvd
    import mxnet as mx
    import numpy as np
    from mxnet import gluon

    class Squares(gluon.data.Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, i):
            return np.float(i * i), mx.nd.array([i])

    def double(i):
        return float((mx.nd.array([i]) * 2).asscalar())

    if __name__ == "__main__":
        assert mx.__version__ == "1.9.1" and hvd.__name__ == "neomx.horovod"
        batches = list(gluon.data.DataLoader(Squares(), batch_size=4, num_workers=2))
        print([float(x.sum().asscalar()) for x, _ in batches], batches[0][1].shape)
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                print(method, pool.map(double, [1, 2]))
"""


def test_child_processes_of_a_script_import_mxnet_too(tmp_path):
    done = run("-m", "neomx", write(tmp_path, CHILDREN), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[14.0, 126.0] (4, 1)", "fork [2.0, 4.0]", "spawn [2.0, 4.0]"]


WORKERS = """
    import sys

    import mxnet as mx
    import horovod.mxnet as hvd

    hvd.init()
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((2,)))
    kv.push("w", mx.nd.ones((2,)) * (kv.rank + 1))
    out = mx.nd.zeros((2,))
    kv.pull("w", out=out)
    # torchrun makes stdout unbuffered, so that print() writes piece by piece, between those of the other worker
    sys.stdout.write(f"worker {hvd.rank()} of {kv.num_workers} {out.asnumpy().tolist()}\\n")
"""


@pytest.mark.parametrize("entrance", ["-m neomx", "import neomx.compat.mxnet"])
def test_under_torchrun(tmp_path, entrance):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    by_module = entrance == "-m neomx"
    script = write(tmp_path, WORKERS if by_module else f"    {entrance}\n{WORKERS}")
    done = run(*launcher, *(["-m", "neomx"] if by_module else []), script, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"worker .*", done.stdout)) == [f"worker {rank} of 2 [3.0, 3.0]" for rank in range(2)]


def test_plain_python_needs_one_line_in_the_script(tmp_path):
    without = run(write(tmp_path, WORKERS), cwd=tmp_path)
    assert without.returncode == 1 and "No module named 'mxnet'" in without.stderr
    with_it = run(write(tmp_path, "    import neomx.compat.mxnet\n" + WORKERS), cwd=tmp_path)
    assert with_it.returncode == 0, with_it.stderr
    assert with_it.stdout == "worker 0 of 1 [1.0, 1.0]\n"
    assert os.listdir(tmp_path) == ["script.py"]
