"""oneDNN does not use AMX on virtual machines that hide its tiles, and only there."""

import logging
import os
import subprocess
import sys

import pytest
from launching import LIMIT

import neomx as mx
from neomx import onednn
from neomx.ops import OPS
from neomx.process import state

ENTRY = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Processor
cpuid level\t: {level}
flags\t\t: fpu vme avx512f {flags}
"""
HIDDEN = ENTRY.format(level=28, flags="amx_bf16 amx_tile amx_int8")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (HIDDEN, True),
        (HIDDEN + ENTRY.format(level=28, flags=""), True),
        (ENTRY.format(level=31, flags="amx_bf16 amx_tile amx_int8"), False),  # working AMX is not disabled
        (ENTRY.format(level=29, flags="amx_tile"), False),
        (ENTRY.format(level=16, flags="avx2"), False),
        ("processor : 0\nFeatures : fp asimd\n", False),  # ARM
        ("", False),
    ],
)
def test_detects_machines_that_hide_amx_tiles(text, hidden):
    assert onednn.hides_tiles(text) is hidden


@pytest.fixture
def unset(monkeypatch):
    """Unset the limit on any machine, and undo changes after the test."""
    monkeypatch.setenv(onednn.VARIABLE, "")
    monkeypatch.delenv(onednn.VARIABLE)
    monkeypatch.setattr(state, "onednn_limited", False)


def cpuinfo(tmp_path, text):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU is looked up on Linux only")
def test_limit_is_set_once_and_logged(unset, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "neomx"):
        onednn.limit(cpuinfo(tmp_path, HIDDEN))
        onednn.limit(cpuinfo(tmp_path, HIDDEN))
    assert os.environ[onednn.VARIABLE] == onednn.WITHOUT_AMX
    (line,) = caplog.messages
    assert f"{onednn.VARIABLE}={onednn.WITHOUT_AMX}" in line


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU is looked up on Linux only")
def test_limit_is_not_set_where_amx_works_or_variable_is_set(unset, tmp_path, monkeypatch, caplog):
    onednn.limit(cpuinfo(tmp_path, ENTRY.format(level=31, flags="amx_tile")))
    onednn.limit(str(tmp_path / "missing"))
    assert onednn.VARIABLE not in os.environ
    monkeypatch.setenv(onednn.VARIABLE, "AVX2")
    onednn.limit(cpuinfo(tmp_path, HIDDEN))
    assert os.environ[onednn.VARIABLE] == "AVX2"
    assert not caplog.messages


@pytest.mark.parametrize("hybridize", [False, True])
def test_late_error_names_the_variable(monkeypatch, hybridize):
    def fail(*args, **kwargs):
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(OPS["FullyConnected"], "fn", fail)
    net = mx.gluon.nn.Dense(2, in_units=2)
    net.initialize()
    if hybridize:
        net.hybridize()
    monkeypatch.setattr(state, "onednn_limited", True)
    with pytest.raises(mx.MXNetError, match=f"could not create a primitive.*{onednn.VARIABLE}={onednn.WITHOUT_AMX}"):
        net(mx.nd.ones((1, 2)))
    monkeypatch.setattr(state, "onednn_limited", False)
    with pytest.raises(mx.MXNetError) as raised:
        net(mx.nd.ones((1, 2)))
    assert onednn.VARIABLE not in str(raised.value)


TRAIN = """
{first}
import neomx as mx
net = mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Conv2D(64, 3), mx.gluon.nn.Flatten(), mx.gluon.nn.Dense(512))
net.initialize()
net.cast("bfloat16")
net(mx.nd.ones((32, 64, 8, 8), dtype="bfloat16"))
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 1e-4}})
for _ in range(2):
    with mx.autograd.record():
        loss = net(mx.nd.ones((32, 64, 8, 8), dtype="bfloat16")).square().mean()
    loss.backward()
    trainer.step(1)
print("loss", loss.astype("float32").asscalar())
"""


@pytest.mark.parametrize("first", ["", "import torch"])
@pytest.mark.parametrize("launcher", [[], ["-m", "neomx", "run", "-n", "2"]], ids=["alone", "run"])
def test_bfloat16_trains_on_this_machine(first, launcher, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(first=first))
    environ = {name: value for name, value in os.environ.items() if name != onednn.VARIABLE}
    ran = subprocess.run(
        [sys.executable, *launcher, str(script)], env=environ, capture_output=True, text=True, timeout=LIMIT
    )
    assert ran.returncode == 0, ran.stderr
    assert "loss" in ran.stdout
    assert ran.stderr.count("reports AMX") <= 1  # once, not once for each worker
