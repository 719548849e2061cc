"""The command `neomx check`: its output, its exit codes, and how it suggests to start a script."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from launching import environment
from reading import read

from neomx.check.program import check
from neomx.check.starting import starts, translate
from neomx.launch.cli import main

MODULE = '''"""Train on records that im2rec.py packed."""
from __future__ import print_function
import argparse
import logging
import mxnet as mx


def conv(data, num_filter, name, kernel=(3, 3), stride=(1, 1), pad=(1, 1)):
    c = mx.symbol.Convolution(data=data, num_filter=num_filter, kernel=kernel, stride=stride, pad=pad, no_bias=True,
                              workspace=256, name="conv_" + name)
    bn = mx.symbol.BatchNorm(data=c, fix_gamma=False, eps=2e-5, momentum=0.9, name="bn_" + name)
    return mx.symbol.Activation(data=bn, act_type="relu", name="relu_" + name)


def get_symbol(num_classes):
    data = mx.symbol.Variable(name="data")
    body = mx.symbol.Pooling(data=conv(data, 32, "1"), pool_type="max", kernel=(2, 2), stride=(2, 2))
    pool = mx.symbol.Pooling(data=conv(body, 64, "2"), global_pool=True, kernel=(7, 7), pool_type="avg")
    fc = mx.symbol.FullyConnected(data=mx.symbol.Flatten(data=pool), num_hidden=num_classes, name="fc1")
    return mx.symbol.SoftmaxOutput(data=fc, name="softmax")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--kv-store", type=str, default="device")
    args = parser.parse_args()
    kv = mx.kvstore.create(args.kv_store)
    train = mx.io.ImageRecordIter(path_imgrec="train.rec", data_shape=(3, 224, 224), batch_size=32, shuffle=True,
                                  rand_crop=False, mean_r=123.68, num_parts=kv.num_workers, part_index=kv.rank)
    devs = [mx.gpu(int(i)) for i in args.gpus.split(",")]
    model = mx.mod.Module(context=devs, symbol=get_symbol(1000), data_names=["data"], label_names=["softmax_label"])
    schedule = mx.lr_scheduler.MultiFactorScheduler(step=[30000, 60000], factor=0.1)
    model.fit(train, eval_metric=["accuracy", mx.metric.create("top_k_accuracy", top_k=5)], kvstore=kv, optimizer="nag",
              optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-4, "lr_scheduler": schedule},
              initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2), num_epoch=90,
              batch_end_callback=mx.callback.Speedometer(32, 50), epoch_end_callback=mx.callback.do_checkpoint("model"))
    sym, arg_params, aux_params = mx.model.load_checkpoint("model", 90)


if __name__ == "__main__":
    main()
'''
HOROVOD = """
import mxnet as mx
import horovod.mxnet as hvd
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision
hvd.init()
ctx = mx.gpu(hvd.local_rank())
net = vision.get_model("resnet50_v1", classes=10, pretrained=False)
net.initialize(mx.init.MSRAPrelu(), ctx=ctx)
net.hybridize(static_alloc=True, static_shape=True)
hvd.broadcast_parameters(net.collect_params(), root_rank=0)
opt = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.1 * hvd.size(), multi_precision=True))
trainer = hvd.DistributedTrainer(net.collect_params(), opt)
digits = gluon.data.vision.MNIST(train=True).transform_first(lambda x: x.astype("float32"))
data = gluon.data.DataLoader(digits, batch_size=64, shuffle=True, last_batch="discard", num_workers=2)
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
for x, y in data:
    with autograd.record():
        loss = loss_of(net(x.as_in_context(ctx)), y.as_in_context(ctx))
    loss.backward()
    trainer.step(64)
"""
SPARSE = """
import mxnet as mx
from mxnet import nd
kv = mx.kv.create("dist_async")
csr = mx.nd.sparse.csr_matrix((nd.ones(3), nd.array([0, 1, 2]), nd.array([0, 1, 2, 3])), shape=(3, 4))
w = nd.zeros((4, 2)).tostype("row_sparse")
print(w.indices, w.retain(nd.array([1])), mx.nd.sparse.zeros("row_sparse", (4, 2)))
kv.init("w", w)
kv.row_sparse_pull("w", out=w, row_ids=nd.arange(2))
x, weight = mx.sym.Variable("data", stype="csr"), mx.sym.Variable("weight", stype="row_sparse", shape=(4, 2))
out = mx.symbol.broadcast_add(mx.symbol.sparse.dot(x, weight), mx.sym.Variable("bias", shape=(2,)))
executor = out.simple_bind(ctx=mx.cpu(), data=(8, 4), grad_req="write")
shapes = out.infer_shape(data=(8, 4))
print(out.get_internals().list_outputs(), out["broadcast_add0_output"], mx.viz.plot_network(out))
"""
GLUON = """
import mxnet as mx
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super(Net, self).__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential(prefix="")
            self.body.add(nn.Conv2D(channels=8, kernel_size=3, activation="relu"), nn.GlobalAvgPool2D(), nn.Flatten())
            self.scale = self.params.get("scale", shape=(1,), init=mx.init.One())

    def hybrid_forward(self, F, x, scale):
        return F.broadcast_mul(self.body(x), scale)

ctx = [mx.gpu(0), mx.gpu(1)]
net = Net()
net.initialize(mx.init.Xavier(), ctx=ctx)
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3})
for x, y in gluon.data.DataLoader(gluon.data.ArrayDataset(nd.ones((8, 1, 4, 4)), nd.ones((8,))), batch_size=4):
    parts = gluon.utils.split_and_load(x, ctx, even_split=False)
    with autograd.record():
        losses = [(net(part) ** 2).mean() for part in parts]
    autograd.backward(losses)
    trainer.step(4)
net.export("net")
"""


def found(text):
    findings, facts = check(read(text))
    return [(each.kind, each.name) for each in findings if each.kind != "runs"], starts(read(text), facts)


def test_typical_mxnet_programs_have_nothing_missing():
    findings, ways = found(MODULE)
    assert findings == [("differs", "mx.io.ImageRecordIter(shuffle)")]
    assert [way.command for way in ways] == [
        "python -m neomx train.py",
        "neomx run -n 2 train.py --kv-store dist_sync",
    ]
    findings, ways = found(HOROVOD)
    assert findings == []
    assert [way.command for way in ways] == ["python -m neomx train.py", "neomx run -n 2 train.py"]
    findings, ways = found(SPARSE)
    assert findings == [("differs", "mx.kv.create(name)")]
    assert [way.command for way in ways] == ["neomx run -n 2 -s 1 train.py"]
    findings, ways = found(GLUON)
    assert findings == []
    assert "line 16 has several contexts" in ways[1].why


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("import neomx as mx\n", ["python train.py"]),
        ("import neomx.compat.mxnet\nimport mxnet as mx\n", ["python train.py"]),
        ("import gluoncv\n", ["python -m neomx train.py"]),
        (
            "import mxnet as mx\nt = Trainer(kvstore='dist_sync')\n",
            ["python -m neomx train.py", "neomx run -n 2 train.py"],
        ),
        (
            "import mxnet as mx\n# launch.py -n 4 -s 2 -H hosts --launcher ssh python train.py --kv-store dist_sync\n",
            ["python -m neomx train.py", "neomx run -n 4 -s 2 train.py --kv-store dist_sync"],
        ),
    ],
)
def test_suggested_start_commands(text, commands):
    assert [way.command for way in found(text)[1]] == commands


@pytest.mark.parametrize(
    ("line", "notes"),
    [("", True), ("data = mx.dist.shard(data)\n", False), ("it = mx.io.CSVIter('a', num_parts=2)\n", False)],
)
def test_script_that_does_not_divide_its_data_gets_a_note(line, notes):
    starts = found(f"import mxnet as mx\n{line}t = Trainer(kvstore='dist_sync')\n")[1]
    assert ("every worker would read all of the data" in starts[-1].why) is notes


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("-np 4 python train.py --lr 1", "neomx run -n 4 train.py --lr 1"),
        ("-np 8 -H a:4,b:4 -bind-to none python train.py", "neomx run --hosts a:4,b:4 train.py"),
        ("-n 2 --num-servers=2 python train.py", "neomx run -n 2 -s 2 train.py"),
        ("-n 2 -s 0 ./run.sh", "neomx run -n 2 mine.py"),
        ("--help", None),
        ("-n workers train.py", None),
    ],
)
def test_commands_of_other_launchers_are_translated(arguments, command):
    assert translate(arguments, "mine.py") == command


def test_variables_of_other_launchers_are_noted():
    findings, _ = found(
        "import os, mxnet as mx\nrank = os.environ['DMLC_WORKER_ID'], os.environ['OMPI_COMM_WORLD_RANK']\n"
    )
    assert findings == [("note", "DMLC_WORKER_ID"), ("note", "OMPI_COMM_WORLD_RANK")]


BAD = "import mxnet as mx\nx = mx.nd.zeroz((2,))\nmx.random.seed(1)\nmx.nd.zeroz(1), mx.nd.ones(1)\n"


def test_report_as_text(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(BAD)
    assert main(["check", "train.py"]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120
    assert out.replace("\n    ", " ").splitlines() == [
        "train.py:2: missing: mx.nd.zeroz (also line 4): neomx has no such name; it has mx.nd.zeros.",
        "train.py:3: differs: mx.random.seed: Random numbers: the same seed gives the same numbers in every run of "
        "neomx, but not MXNet's numbers. [docs/differences.md#numbers-that-cannot-be-the-same]",
        "train.py: 3 names run on neomx, of which 1 differs from MXNet; 1 missing",
        "train.py: start it with `python -m neomx train.py`: line 1 imports mxnet. Or add `import neomx.compat.mxnet` "
        "before it, for python and torchrun",
    ]
    assert main(["check", "-v", "train.py"]) == 1
    assert "train.py:4: runs: mx.nd.ones\n" in capsys.readouterr().out


def test_report_as_json(tmp_path, capsys):
    (tmp_path / "train.py").write_text(BAD)
    assert main(["check", "--json", str(tmp_path / "train.py")]) == 1
    ((file,),) = json.loads(capsys.readouterr().out).values()
    assert file["names"] == {"error": 0, "missing": 1, "differs": 1, "note": 0, "runs": 3}
    first = {"kind": "missing", "line": 2, "column": 5, "name": "mx.nd.zeroz", "link": "", "cell": None}
    assert {**first, "message": "neomx has no such name; it has mx.nd.zeros."} in file["findings"]
    assert file["start"][0]["command"] == f"python -m neomx {tmp_path / 'train.py'}"


def test_summary_of_several_files(tmp_path, capsys):
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "b.py").write_text("import mxnet as mx\nmx.nd.zeros(1)\n")
    (tmp_path / "c.py").write_text("import os\n")
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith("3 files, of which 2 use MXNet; nothing is missing for 1 of these\n")
    assert main(["check", str(tmp_path / "b.py"), str(tmp_path / "c.py")]) == 0
    capsys.readouterr()
    assert main(["check", str(tmp_path / "c.py")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'c.py'}: does not import mxnet\n"


def test_names_registered_in_one_file_are_known_in_others(tmp_path, capsys):
    (tmp_path / "own.py").write_text("import mxnet as mx\n@mx.optimizer.register\nclass Own(mx.optimizer.SGD): pass\n")
    (tmp_path / "train.py").write_text("import mxnet as mx\nmx.optimizer.create('own')\n")
    assert main(["check", str(tmp_path / "train.py")]) == 1
    assert main(["check", str(tmp_path)]) == 0


def test_file_that_python_cannot_parse_is_an_error(tmp_path, capsys):
    (tmp_path / "old.py").write_text("import mxnet as mx\nprint 'x'\n")
    assert main(["check", str(tmp_path / "old.py")]) == 1
    out = capsys.readouterr().out.replace("\n    ", " ")  # long lines are folded
    assert f"{tmp_path / 'old.py'}:2: error: Python 2 syntax (a print statement)" in out


@pytest.mark.parametrize("arguments", [["nothing.py"], ["--diff", "x.py"], ["--fix", "--json", "x.py"]])
def test_wrong_arguments_are_rejected(arguments, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    assert main(["check", *arguments]) == 2
    assert capfd.readouterr().err.startswith("neomx: ")


def test_script_is_not_run_and_help_needs_no_torch(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os, mxnet as mx\nos.mkdir('ran')\n")
    code = (
        "import sys; from neomx.launch.cli import main\n"
        f"assert main(['check', {os.fspath(script)!r}]) == 0\n"
        "assert 'train' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert run.returncode == 0 and not (tmp_path / "ran").exists(), run.stderr
    code = "import sys; from neomx.launch.cli import main\ntry: main(['check', '--help'])\n"
    code += "finally: assert 'torch' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert run.returncode == 0 and "neomx check --fix --diff train.py" in run.stdout, run.stderr


def test_page_shows_the_output_of_the_command(tmp_path, capsys, monkeypatch):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "check.md").read_text()
    script = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    shown = re.search(r"```\n\$ neomx check train.py\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    main(["check", "train.py"])
    assert shown == capsys.readouterr().out
