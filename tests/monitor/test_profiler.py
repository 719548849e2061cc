"""mx.profiler: the trace of a small program, its table, and errors."""

import json
import os
import re
import subprocess
import sys

import pytest
from launching import LIMIT

import neomx as mx
from neomx import profiler
from neomx.ops.table import OPS
from neomx.profiler import trace
from neomx.symbol.lowering import LOWERED


@pytest.fixture(autouse=True)
def fresh():
    """Start each test without a profile, and leave no file at the end of the session."""
    yield
    profiler.set_state("stop")
    profiler._trace.clear()
    profiler._trace.stats.clear()
    profiler._config.update(profiler._DEFAULTS)


def read(path):
    with open(path) as file:
        return json.load(file)["traceEvents"]


def names(events, category):
    return [event["name"] for event in events if event.get("cat") == category]


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """The events, the table and the JSON of a program with all kinds of events."""
    path = str(tmp_path_factory.mktemp("profile") / "trace.json")
    x = mx.nd.ones((20, 20))
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    executor = symbol.simple_bind(mx.cpu(), data=(2, 3))
    net = mx.gluon.nn.Dense(3)
    net.initialize()
    net.hybridize()
    net(x)  # both graphs are lowered before the profile starts
    mx.nd.tan(x)
    profiler.set_config(filename=path, profile_all=True, aggregate_stats=True)
    profiler.set_state("run")
    for _ in range(3):
        mx.nd.dot(x, x) + 1
    domain = profiler.Domain("train")
    task, frame, event = domain.new_task("load"), domain.new_frame("batch"), profiler.Event("think")
    for span in (task, frame, event):
        span.start()
    mx.nd.exp(x)
    for span in (task, frame, event):
        span.stop()
    counter = domain.new_counter("seen", 5)
    counter += 3
    counter -= 1
    domain.new_marker("here").mark("thread")
    profiler.pause()
    mx.nd.sin(x)
    profiler.Event("unseen").start()
    counter += 100
    profiler.resume()
    with profiler.scope("inner"):
        mx.nd.cos(x)
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 4)))
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    mx.sym.relu(mx.sym.var("a")).eval(a=x)  # lowered while the profile runs
    profiler.set_state("stop")
    mx.nd.tan(x)
    table, as_json = profiler.dumps(sort_by="count"), profiler.dumps(format="json", sort_by="min", ascending=True)
    profiler.dump()
    return read(path), table, json.loads(as_json)


def test_ops_have_the_names_of_mxnet(profile):
    ops = names(profile[0], "operator")
    assert ops.count("dot") == 3 and ops.count("_plus_scalar") == 3
    assert ops.count("FullyConnected") == 2  # the executor's and the hybrid layer's
    assert ops.count("exp") == ops.count("cos") == ops.count("relu") == ops.count("sum") == 1


def test_paused_or_stopped_code_is_not_profiled(profile):
    assert not {"sin", "tan", "unseen"} & {event["name"] for event in profile[0]}


def test_ops_enclose_kernels_of_the_engine(profile):
    op = next(event for event in profile[0] if event["name"] == "exp")
    kernel = next(event for event in profile[0] if event["name"] == "aten::exp")
    assert op["ts"] <= kernel["ts"] and kernel["ts"] + kernel["dur"] <= op["ts"] + op["dur"]
    assert (op["pid"], op["tid"]) == (kernel["pid"], kernel["tid"])


def test_backward_ops_are_profiled(profile):
    assert names(profile[0], "backward").count("AddmmBackward0") == 2


def test_user_defined_tasks_counters_and_markers(profile):
    by_name = {}
    for event in profile[0]:
        by_name.setdefault(event["name"], []).append(event)
    assert [event["ph"] for event in by_name["load"]] == ["b", "e"] and by_name["load"][0]["cat"] == "train"
    assert [event["ph"] for event in by_name["batch"]] == ["b", "e"] and by_name["batch"][0]["cat"] == "train,frame"
    assert by_name["load"][0]["id"] != by_name["batch"][0]["id"]
    (think,) = by_name["think"]
    (exp,) = by_name["exp"]
    assert think["ph"] == "X" and think["dur"] > 0
    # The two clocks agree within about 10 us, which is also the duration of an op.
    assert think["ts"] - 1000 < exp["ts"] < think["ts"] + think["dur"] + 1000
    assert [event["args"]["seen"] for event in by_name["seen"]] == [5, 8, 7]
    (here,) = by_name["here"]
    assert (here["ph"], here["s"], here["cat"]) == ("i", "t", "train,instant_marker")
    assert by_name["inner"][0]["dur"] >= by_name["cos"][0]["dur"]


def test_memory_is_recorded_as_a_counter(profile):
    values = [event["args"]["Memory: cpu/0"] for event in profile[0] if event["name"] == "Memory: cpu/0"]
    assert max(values) >= 20 * 20 * 4
    assert profile[2]["Memory"]["Device Storage"]["Memory: cpu/0"]["Max"] == max(values) / 1000


def test_table_is_consistent_with_the_events(profile):
    sections = dict(re.findall(r"^(\S.*)\n={17}\n(.*\n.*\n(?:.+\n)*)", profile[1], re.MULTILINE))
    assert {"operator", "backward", "train", "train,frame", "event", "Device Storage"} <= set(sections)
    head, rule, *rows = sections["operator"].splitlines()
    assert head.split("  ")[0] == "Name" and head.endswith("Avg Time (ms)") and set(rule) == {"-", " "}
    fields = [row.split() for row in rows]
    counts = [int(count) for _, count, *_ in fields]
    assert counts == sorted(counts, reverse=True) and counts[0] == 3
    for _, count, total, least, most, average in fields:
        assert float(least) <= float(average) <= float(most) <= float(total) + 1e-4
        assert float(average) == pytest.approx(float(total) / int(count), abs=1e-4)


def test_json_is_consistent_with_the_table(profile):
    ops = profile[2]["Time"]["operator"]
    assert ops["dot"]["Count"] == 3 and list(ops["dot"]) == ["Count", "Total", "Min", "Max", "Avg"]
    assert [op["Min"] for op in ops.values()] == sorted(op["Min"] for op in ops.values())
    assert profile[2]["Counter"]["train"]["seen"] == {"Count": 3, "Min": 5.0, "Max": 8.0, "Avg": 20 / 3}
    assert profile[2]["Unit"] == {"Time": "ms", "Memory": "kB"}


def test_profiling_hooks_are_removed_afterwards(profile):
    assert not any(hasattr(op.fn, "plain") for op in OPS.values())
    assert not any(hasattr(value, "plain") for run in LOWERED for value in run.__globals__.values())


def test_shape_inference_is_not_profiled_as_ops(tmp_path):
    path = tmp_path / "t.json"
    profiler.set_config(filename=str(path))
    profiler.set_state("run")
    made = mx.sym.zeros((2, 3)) + mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3)
    assert made.infer_shape(x=(2, 4))[1] == [(2, 3)]
    profiler.dump()
    assert names(read(path), "operator") == []


def test_profile_can_continue_after_dump(tmp_path):
    path = tmp_path / "t.json"
    profiler.set_config(filename=str(path), aggregate_stats=True)
    profiler.set_state("run")
    mx.nd.exp(mx.nd.ones(2))
    profiler.dump(finished=False)
    assert names(read(path), "operator").count("exp") == 1
    mx.nd.exp(mx.nd.ones(2))
    assert "exp                                     2 " in profiler.dumps(reset=True)
    assert "exp " not in profiler.dumps()
    profiler.dump()
    assert names(read(path), "operator").count("exp") == 2
    mx.nd.exp(mx.nd.ones(2))
    with pytest.raises(mx.MXNetError, match="Profiler hasn't been run"):
        profiler.dump()
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


def test_continuous_dump_writes_when_paused(tmp_path):
    path = tmp_path / "t.json"
    profiler.set_config(filename=str(path), continuous_dump=True, dump_period=2)
    profiler.set_state("run")
    mx.nd.exp(mx.nd.ones(2))
    profiler.pause()
    assert "exp" in names(read(path), "operator")
    assert profiler.dumps() == ""  # no aggregate_stats


def test_op_errors_are_unchanged_while_profiling(tmp_path):
    profiler.set_config(filename=str(tmp_path / "t.json"))
    profiler.set_state("run")
    with pytest.raises(mx.MXNetError, match=r"^dot: .*received lhs: float32\[2, 3\]"):
        mx.nd.dot(mx.nd.ones((2, 3)), mx.nd.ones((2, 3)))


def test_each_worker_writes_its_own_file(tmp_path, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trace.session, "is_open", lambda: False)  # another test in this process may have opened one
    profiler.set_config(filename=str(tmp_path / "t.json"))
    profiler.set_state("run")
    profiler.dump()
    assert [entry.name for entry in tmp_path.iterdir()] == ["rank1_t.json"]


def test_deprecated_names_still_work_with_a_warning(tmp_path):
    path = tmp_path / "old.json"
    with pytest.warns(UserWarning, match="use profiler.set_config"):
        profiler.profiler_set_config("all", str(path))
    for state in ("run", "stop"):
        with pytest.warns(UserWarning, match="use profiler.set_state"):
            profiler.profiler_set_state(state)
    with pytest.warns(UserWarning, match="use profiler.dump"):
        profiler.dump_profile()
    assert path.exists()
    with pytest.warns(UserWarning), pytest.raises(mx.MXNetError, match="received 'most'"):
        profiler.profiler_set_config("most")


def test_flags_may_be_strings(tmp_path):
    mx.profiler.set_config(filename=str(tmp_path / "p.json"), aggregate_stats="False", profile_all="1")
    assert mx.profiler._config["aggregate_stats"] is False
    assert mx.profiler._config["profile_all"] is True
    with pytest.raises(mx.MXNetError, match="profile_memory must be True or False, received 'yes'"):
        mx.profiler.set_config(profile_memory="yes")
    with pytest.raises(ValueError, match="'x'"):
        mx.profiler.Domain("d").new_counter("c").set_value("x")
    mx.profiler.set_config()


def test_bad_input_is_named(tmp_path):
    with pytest.raises(mx.MXNetError, match=r"unknown argument 'file_name'\. Did you mean filename"):
        profiler.set_config(file_name="x.json")
    with pytest.raises(mx.MXNetError, match="in a directory that exists"):
        profiler.set_config(filename=str(tmp_path / "none" / "x.json"))
    with pytest.raises(ValueError, match="expected 'run' or 'stop', received 'on'"):
        profiler.set_state("on")
    with pytest.raises(mx.MXNetError, match="a worker can only profile itself"):
        profiler.set_state("run", profile_process="server")
    with pytest.raises(ValueError, match="received 'master'"):
        profiler.pause("master")
    with pytest.raises(AssertionError, match="format: xml"):
        profiler.dumps(format="xml")
    with pytest.raises(AssertionError, match="sort_by: name"):
        profiler.dumps(sort_by="name")
    with pytest.raises(mx.MXNetError, match="expected a scope among global, process, thread"):
        profiler.Domain("d").new_marker("m").mark("room")


def test_spans_without_start_or_profile_are_ignored():
    task = profiler.Task(profiler.Domain("d"), "t")
    task.stop()
    task.start()
    task.stop()
    assert str(task) == "t" and profiler._trace.is_empty


def test_autostart_profiles_from_import_to_exit(tmp_path):
    environment = {**os.environ, "MXNET_PROFILER_AUTOSTART": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    for arguments in (["-m", "neomx", "--help"], ["-c", "import neomx as mx; mx.nd.exp(mx.nd.ones(2))"]):
        assert not os.listdir(tmp_path)  # the command itself writes nothing
        command = [sys.executable, *arguments]
        subprocess.run(command, cwd=tmp_path, env=environment, timeout=LIMIT, check=True, capture_output=True)
    assert "exp" in names(read(tmp_path / "profile.json"), "operator")
