"""Independent tasks on groups of workers: results equal those of one process, and all workers receive them."""

import pathlib
import re

import numpy as np
import pytest
import torch
from launching import LIMIT, SOON, neomx_run, write

import neomx as mx
from neomx.parallel.tasks import shares, tasks
from neomx.parallel.values import decode, encode

HERE = pathlib.Path(__file__).parents[1]


def test_tasks_on_four_workers():
    ended = neomx_run("-n", 4, HERE / "workers" / "several_tasks.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    names = (
        *("models_at_once", "a_queue", "heavier_first", "heads_on_a_trunk"),
        *("uneven_data", "nested", "layouts", "failures", "different"),
    )
    assert [name for name in names if f"{name} holds" in ended.stdout] == list(names)


DIES = """
    import os, sys, time
    import neomx as mx
    from neomx.parallel.tasks import tasks
    rank = mx.dist.rank()

    def die():
        with open(sys.argv[1], "w") as file:
            file.write(str(time.time()))
        os._exit(9)

    try:
        tasks({"a": lambda: 1, "b": lambda: 2, "c": die})
    except mx.MXNetError as error:
        print(f"{rank}: at {time.time()}: {error}", flush=True)
        raise
"""


def test_all_workers_name_a_worker_that_dies_in_its_task(tmp_path):
    ended = neomx_run("-n", 3, "--timeout", LIMIT, write(tmp_path, DIES), tmp_path / "died")
    assert ended.returncode != 0
    said = re.findall(r"(\d): at ([\d.]+): wait of all tasks did not complete: (worker 2 .* is gone)", ended.stdout)
    assert {rank for rank, _, _ in said} == {"0", "1"}, ended.stdout + ended.stderr
    assert max(float(at) for _, at, _ in said) - float((tmp_path / "died").read_text()) < SOON


def test_tasks_run_in_sequence_in_one_process():
    order = []
    found = tasks({"a": lambda: order.append("a"), "b": (lambda: order.append("b") or {"x": mx.nd.ones((2,))}, 2)})
    assert order == ["b", "a"]
    assert list(found) == ["a", "b"]
    assert found["a"] is None
    assert found["b"]["x"].asnumpy().tolist() == [1, 1]


def test_error_in_one_process_keeps_its_cause():
    with pytest.raises(mx.MXNetError, match="task 'bad'.*worker 0: KeyError: 'x'.*not started: 'never'") as caught:
        tasks({"good": lambda: 1, "bad": lambda: {}["x"], "never": lambda: 2})
    assert isinstance(caught.value.__cause__, KeyError)
    assert mx.dist.size() == 1


@pytest.mark.parametrize(
    ("weights", "workers", "least", "expected"),
    [
        ([1, 1], 4, 1, [2, 2]),
        ([1, 3], 4, 1, [1, 3]),
        ([1, 1, 1], 4, 1, [2, 1, 1]),
        ([1, 100], 4, 2, [2, 2]),
        ([5, 3, 2], 10, 1, [5, 3, 2]),
        ([1, 1], 2, 1, [1, 1]),
    ],
)
def test_workers_are_divided_in_proportion(weights, workers, least, expected):
    assert shares(weights, workers, least) == expected


@pytest.mark.parametrize(
    ("given", "how", "kind", "text"),
    [
        ({}, {}, TypeError, "received {}"),
        ([len], {}, TypeError, "a dictionary of tasks"),
        ({"a": 3}, {}, TypeError, "received 'a': 3"),
        ({"a": (len, 0)}, {}, TypeError, "with a weight greater than 0"),
        ({"a": (len, True)}, {}, TypeError, "with a weight greater than 0"),
        ({1: len}, {}, TypeError, "received 1"),
        ({"a": dict}, {"workers": 2}, ValueError, "workers must be from 1 to 1.*received 2"),
    ],
)
def test_invalid_tasks_are_rejected(given, how, kind, text):
    with pytest.raises(kind, match=text):
        tasks(given, **how)


def test_values_round_trip():
    given = {
        "plain": [1, -2.5, float("inf"), None, True, "text", (1, ("a",))],
        3: torch.arange(6, dtype=torch.int16).view(2, 3).t(),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "scalar": torch.tensor(3.0),
        "numpy": np.arange(4.0).reshape(2, 2)[:, 1],
        "number": np.float32(2),
        "flags": np.array([True, False]),
        "empty": torch.empty(0, 3),
    }
    found = decode(encode(given))
    assert list(found) == list(given)
    assert found["plain"] == given["plain"]
    assert torch.equal(found[3], given[3])
    assert torch.equal(found["half"], given["half"])
    assert found["scalar"].shape == ()
    assert found["numpy"].tolist() == [1.0, 3.0]
    assert type(found["number"]) is np.float32
    assert found["flags"].dtype == np.bool_
    assert found["empty"].shape == (0, 3)
    array = decode(encode(mx.nd.array([[1, 2]], dtype="int32")))
    assert isinstance(array, mx.nd.NDArray)
    assert array.dtype == np.int32
    assert array.asnumpy().tolist() == [[1, 2]]


@pytest.mark.parametrize("value", [object(), {"a": [lambda: 1]}, np.array(["text"]), {"a": {1, 2}}])
def test_unsupported_values_are_rejected(value):
    with pytest.raises(TypeError, match="expected arrays, tensors, numbers"):
        encode(value)


def test_corrupt_bytes_are_rejected():
    content = encode({"a": torch.ones(3)})
    for spoiled in (content[:-1], torch.cat([content, content[:1]]), content[8:], torch.zeros(4, dtype=torch.uint8)):
        with pytest.raises(mx.MXNetError, match="expected a value that a worker encoded"):
            decode(spoiled.clone())
    named = encode(torch.ones(1)).numpy().tobytes().replace(b'"float32"', b'"Storage"')
    with pytest.raises(mx.MXNetError, match="expected a value"):
        decode(torch.frombuffer(bytearray(named), dtype=torch.uint8))


LAYOUT = """
    import neomx as mx
    layout = mx.parallel.Layout.from_env()
    print(mx.dist.size(), layout, layout.coordinates(), flush=True)
"""


def test_script_finds_the_layout_it_was_started_with(tmp_path):
    ended = neomx_run("--layout", "data=2,tensor=1", write(tmp_path, LAYOUT))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 data=2 {'pipeline': 0, 'data': 1, 'shard': 0, 'tensor': 0}" in ended.stdout
