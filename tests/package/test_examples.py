"""The examples run and give the documented results."""

import pathlib
import sys

import numpy as np
from launching import neomx_run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))


def test_digits(tmp_path):
    import digits

    from neomx import nd

    file = str(tmp_path / "digits.params")
    assert digits.main(epochs=5, save=file) > 0.9
    assert sorted(nd.load(file)) == [f"p{i}" for i in range(6)]


def test_module_digits(tmp_path):
    import module_digits

    prefix = str(tmp_path / "lenet")
    first = module_digits.main(epochs=1, prefix=prefix)
    assert module_digits.main(epochs=2, prefix=prefix, load_epoch=1) > max(first, 0.9)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "lenet-0001.params",
        "lenet-0002.params",
        "lenet-symbol.json",
    ]


def test_distributed_digits_in_one_process(tmp_path, capsys):
    import distributed_digits

    from neomx import nd, process

    file = str(tmp_path / "digits.params")
    accuracy, speed, weights = distributed_digits.main(epochs=2, save=file)
    process.stop("sink progress")
    shown = capsys.readouterr()
    assert accuracy > 0.8 and speed > 0
    assert shown.out.startswith("accuracy 0.") and "epoch 1 of 2: 13 steps in" in shown.err
    saved = nd.load(file).values()
    assert all((a == b).min().asscalar() for a, b in zip(saved, weights, strict=True))


def test_demo_compares_two_workers_with_one(capfd):
    import demo

    assert demo.main(epochs=2) < 1e-5
    shown, errors = capfd.readouterr()
    rows = {line[:12].strip(): line.split() for line in shown.splitlines()}
    alone, together = rows["1 worker"], rows["2 workers"]
    assert alone[2] == together[2] and float(alone[2]) > 0.8  # the accuracy
    speeds = [float(row[3].replace(",", "")) for row in (alone, together)]
    assert abs(float(together[4]) - speeds[1] / speeds[0]) < 0.02
    assert errors.count("epoch 1 of 2: 13 steps in") == 2
    commands = [line.split() for line in shown.split("What to try next:")[1].splitlines() if " -m neomx run " in line]
    assert len(commands) == 3
    scripts = [word for command in commands for word in command if word.endswith(".py")]
    assert all((pathlib.Path(demo.__file__).parents[1] / script).exists() for script in scripts)


def test_cnn_from_scratch():
    import cnn_from_scratch

    assert cnn_from_scratch.main(epochs=1) > 0.85


def test_custom_op():
    import custom_op

    assert custom_op.main(epochs=2) > 0.8


def test_readme_program(tmp_path, monkeypatch):
    text = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    net, mx, x = names["net"], names["mx"], names["x"]
    assert names["loss"].mean().asscalar() < 1.5  # guessing gives 2.3
    loaded = mx.gluon.SymbolBlock.imports("digits-symbol.json", ["data"], "digits-0000.params")
    np.testing.assert_allclose(loaded(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)
    found = names["module"](x.to_torch()).detach().numpy()
    np.testing.assert_allclose(found, net(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_readme_program_on_two_workers(tmp_path):
    text = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "train.py").write_text(
        f"import os\nos.chdir({str(tmp_path)!r})\n{program}\nmx.dist.barrier()\n"
        "net.save_parameters(f'{mx.dist.rank()}.params')\n"
    )
    run = neomx_run("-n", 2, tmp_path / "train.py")
    assert run.returncode == 0 and "a separate model" not in run.stderr, run.stderr
    assert (tmp_path / "0.params").read_bytes() == (tmp_path / "1.params").read_bytes()
