"""`hvd.elastic`: a function that continues from its last commit, when a worker dies and when another one joins."""

import json
import os
import pathlib
import re
import time

import numpy as np
import pytest
from cluster import Cluster
from launching import LIMIT, neomx_run, write
from workers import elastic_horovod as program

import neomx as mx
import neomx.horovod as hvd
from neomx import autograd, gluon, nd

ROOT = pathlib.Path(__file__).resolve().parents[2]


def until(condition):
    """Wait for a condition."""
    limit = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def lines(out, member, name):
    """Return the values that a worker has logged under a name."""
    read = [json.loads(line) for line in (out / f"log-{member}.jsonl").read_text().splitlines()]
    return [line if name in ("call", "end") else line[name] for line in read if name in line]


def alone(steps):
    """Return the weights of one process that has the samples of `size` workers in each step."""
    mx.random.seed(1)  # the seed of worker 0
    net, loss_of = program.network(), gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    for epoch, batch, size in steps:
        parts = [program.batch_of(epoch, batch, rank) for rank in range(size)]
        x, y = (nd.concat(*each, dim=0) for each in zip(*parts, strict=True))
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.set_learning_rate(program.RATE * size)
        trainer.step(len(x))
    return [param.data().asnumpy() for param in net._collect_params_with_prefix().values()]


@pytest.mark.parametrize("phase", ["step", "allreduce"])
def test_others_continue_from_the_last_commit_and_a_worker_joins_at_the_next(tmp_path, phase):
    script = pathlib.Path(program.__file__)
    with Cluster(script, [tmp_path, phase, 3], output=tmp_path, DIES="1", WAITS="1") as cluster:
        until(lambda: cluster.generation() and cluster.generation()["members"] == [0])
        assert cluster.join() == 2
        until(lambda: cluster.store.get("elastic/joiner/1"))
        (tmp_path / "go").touch()
        assert cluster.wait() == {0: 0, 1: -9, 2: 0}
    (error,) = lines(tmp_path, 0, "error")
    assert "worker 1" in error and "is gone" in error
    assert error.startswith("hvd.allreduce of loss" if phase == "allreduce" else "a step of the training")
    # Commits are after batches 1, 3 and 5. Worker 1 dies in batch 3, and worker 2 enters at the commit after it.
    calls = [[call[name] for name in ("epoch", "batch", "size", "rank")] for call in lines(tmp_path, 0, "call")]
    assert calls == [[0, 0, 2, 0], [0, 2, 1, 0], [0, 4, 2, 0]]
    assert lines(tmp_path, 2, "call") == [{"call": "xx", "size": 2, "rank": 1, "epoch": 0, "batch": 4}]
    assert lines(tmp_path, 0, "reset") == [1, 2] and lines(tmp_path, 2, "reset") == [2]
    all_steps = [[epoch, batch] for epoch in range(program.EPOCHS) for batch in range(program.BATCHES)]
    assert lines(tmp_path, 0, "step") == [*all_steps[:3], *all_steps[2:]]
    assert lines(tmp_path, 2, "step") == all_steps[4:]
    ended = [lines(tmp_path, member, "end") for member in (0, 2)]
    assert ended[0] == ended[1] and ended[0][0]["end"] == "ended"
    assert [size for _, _, size in ended[0][0]["notes"]["seen"]] == [2, 1, 2, 2, 2, 2]

    ours, theirs = (nd.load(str(tmp_path / f"weights-{member}.params")) for member in (0, 2))
    expected = alone([(*step, 1 if step in ([0, 2], [0, 3]) else 2) for step in all_steps])
    for (name, array), value in zip(ours.items(), expected, strict=True):
        np.testing.assert_array_equal(array.asnumpy(), theirs[name].asnumpy())
        np.testing.assert_allclose(array.asnumpy(), value, rtol=0, atol=1e-5)  # sums in another order, and Adam


def test_job_that_is_not_elastic_only_starts_alike(tmp_path):
    done = neomx_run("-n", 2, program.__file__, tmp_path, "never", 0)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    for member in range(2):
        (call,) = lines(tmp_path, member, "call")
        assert (call["size"], call["rank"], call["batch"]) == (2, member, 0)
        assert not lines(tmp_path, member, "reset")
    ours, theirs = (nd.load(str(tmp_path / f"weights-{member}.params")) for member in range(2))
    assert all((array.asnumpy() == theirs[name].asnumpy()).all() for name, array in ours.items())


def test_example_goes_on_alone(tmp_path):
    path = os.pathsep.join([str(ROOT / "neomx" / "compat" / "startup"), str(ROOT)])  # as the launcher sets it
    example, printed = ROOT / "examples" / "horovod_elastic.py", tmp_path / "worker-0.log"
    with Cluster(example, ["--epochs", 3], output=tmp_path, PYTHONPATH=path) as cluster:
        until(lambda: "epoch 1: 2 workers" in printed.read_text())
        cluster.kill(1)
        assert cluster.wait() == {0: 0, 1: -9}
    assert "worker 1 is lost" in printed.read_text() and "epoch 3: 1 workers" in printed.read_text()
    assert float(re.findall(r"test accuracy ([\d.]+)", printed.read_text())[-1]) > 0.85


FAILING = """
    import neomx.horovod as hvd

    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(state.number)
        state.number += 1
        print("calls", calls, flush=True)
        if len(calls) == 1:
            raise hvd.HostsUpdatedInterrupt(skip_sync=True)
        if len(calls) == 2:
            state.commit()
        state.number = 9
        raise hvd.HorovodInternalError("the program always fails")

    hvd.init()
    train(hvd.elastic.ObjectState(number=0))
"""


def test_failure_that_repeats_without_a_commit_is_an_error(tmp_path):
    with Cluster(write(tmp_path, FAILING), workers=1, output=tmp_path) as cluster:
        assert cluster.wait() == {0: 1}
    printed = (tmp_path / "worker-0.log").read_text()
    assert "calls [0, 1, 2]" in printed and "[0, 1, 2, " not in printed
    assert "failed 2 times without a commit in between, although no worker was lost: the program always" in printed


# ---- one process ----


@pytest.fixture
def here():
    hvd.init()
    yield
    hvd.shutdown()


def trained():
    """Return a network and its Trainer, and a function that makes a step."""
    net = gluon.nn.Dense(2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})

    def step(seed):
        with autograd.record():
            loss = (net(nd.random.uniform(shape=(3, 4))) ** 2).sum()
        loss.backward()
        trainer.step(3)
        return [each.data().asnumpy() for each in net.collect_params().values()]

    return net, trainer, step


def test_restore_returns_to_the_last_commit(here):
    net, trainer, step = trained()
    state = hvd.elastic.MXNetState(net, trainer, epoch=0, best=[0.5, (1, None)], table={"a": nd.ones(2)})
    step(0)
    state.restore()  # before the first commit: the parameters had no shapes
    for epoch in range(2):
        mx.random.seed(epoch)
        step(epoch)
        state.epoch, state.best[0], state.table["a"][:] = epoch, epoch + 0.25, epoch
        state.commit()
    results = []
    for _ in range(2):  # the copy of the commit does not change
        mx.random.seed(5)
        results.append([step(5), step(6)])
        state.epoch, state.best, state.table["a"][:] = 9, "gone", 9
        trainer.set_learning_rate(7)
        state.restore()
        assert (state.epoch, state.best, trainer.learning_rate) == (1, [1.25, (1, None)], 0.1)
        assert state.table["a"].asnumpy().tolist() == [1, 1]
    for first, second in zip(*results, strict=True):
        assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_state_of_a_module(here):
    data = mx.io.NDArrayIter(np.arange(24, dtype="float32").reshape(8, 3), np.zeros(8), 4)
    module = mx.mod.Module(
        mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="softmax")
    )
    module.fit(data, num_epoch=1, optimizer="adam")
    state = hvd.elastic.MXNetState(module, epoch=1)
    results = []
    for _ in range(2):
        data.reset()
        for batch in data:
            module.forward_backward(batch)
            module.update()
        results.append({name: array.asnumpy() for name, array in module.get_params()[0].items()})
        state.epoch = 2
        state.restore()
        assert state.epoch == 1
    assert all((array == results[1][name]).all() for name, array in results[0].items())


def test_accumulated_gradients_are_dropped(here):
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize()
    net.collect_params().setattr("grad_req", "add")
    state = hvd.elastic.MXNetState(net.collect_params())
    with autograd.record():
        loss = net(nd.ones((1, 2)))
    loss.backward()
    state.restore()
    assert net.weight.grad().asnumpy().tolist() == [[0, 0]]


def test_position_of_a_loader_is_part_of_the_state(here):
    loader = gluon.data.DataLoader(mx.dist.shard(list(range(10)), shuffle=True, seed=3), 2)
    whole = [[batch.asnumpy().tolist() for batch in loader] for _ in range(2)]
    again = gluon.data.DataLoader(mx.dist.shard(list(range(10)), shuffle=True, seed=3), 2)
    state = hvd.elastic.ObjectState(loader=again, done=0)
    for state.done, _ in enumerate(again, 1):
        if state.done == 2:
            state.commit()
        if state.done == 4:
            break
    state.restore()
    assert state.done == 2
    assert [[batch.asnumpy().tolist() for batch in again] for _ in range(2)] == [whole[0][2:], whole[1]]
    plain = gluon.data.DataLoader(gluon.data.ArrayDataset(nd.ones(4)), 2)
    with pytest.raises(TypeError, match=re.escape("Create the DataLoader with mx.dist.shard(dataset)")):
        hvd.elastic.ObjectState(data=plain)


def test_run_calls_the_function_with_its_arguments(here):
    class Own(hvd.elastic.State):
        synced = 0

        def sync(self):
            self.synced += 1

    @hvd.elastic.run
    def train(state, factor, *, more):
        """Docstring."""
        return state.synced * factor + more

    state = Own()
    state.register_reset_callbacks([lambda: 1 / 0])
    assert train(state, 3, more=1) == 4 and train.__doc__ == "Docstring."
    state.check_host_updates()  # nothing to do
    with pytest.raises(NotImplementedError, match="Own does not implement save"):
        state.commit()

    @hvd.elastic.run
    def fails(state):
        raise hvd.HorovodInternalError("as it is")

    with pytest.raises(hvd.HorovodInternalError, match="as it is"):
        fails(state)


@pytest.mark.parametrize(
    ("kind", "words", "call"),
    [
        (mx.MXNetError, "net must be a gluon Block, received a list", lambda: hvd.elastic.MXNetState([1])),
        (mx.MXNetError, "trainer must be a gluon.Trainer, received a str", lambda: hvd.elastic.MXNetState(None, "sgd")),
        (ValueError, "'commit' of the state would hide a method", lambda: hvd.elastic.ObjectState(commit=1)),
        (TypeError, "attribute seen of the state is {1}", lambda: hvd.elastic.ObjectState(seen={1})),
        (TypeError, "train expects a state of hvd.elastic first", lambda: hvd.elastic.run(train)(3)),
    ],
)
def test_invalid_states_are_rejected(here, kind, words, call):
    with pytest.raises(kind, match=re.escape(words)):
        call()


def train(state):
    raise AssertionError
