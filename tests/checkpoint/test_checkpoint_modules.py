"""Checkpoints of Modules: `fit` and own loops resume to the bit with every iterator whose position is known."""

import contextlib
import gzip
import os
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import neomx as mx
from neomx import gluon
from neomx.checkpoint import Checkpointer, CheckpointError
from neomx.gluon.data import DataLoader
from neomx.recordio import IRHeader, MXIndexedRecordIO, pack_img

SAMPLES, FEATURES, BATCH, EPOCHS = 22, 6, 4, 3


class Killed(Exception):
    """Stands for the end of the process."""


def symbol(width=5):
    data = mx.sym.Variable("data")
    hidden = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=width, name="first")
    hidden = mx.sym.Dropout(mx.sym.BatchNorm(mx.sym.Activation(hidden, act_type="relu"), name="norm"), p=0.3)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="second"), name="softmax")


def rows(seed=3):
    rng = np.random.RandomState(seed)
    return rng.rand(SAMPLES, FEATURES).astype("float32"), rng.randint(0, 3, SAMPLES).astype("float32")


def csv_files(folder):
    data, label = rows()
    np.savetxt(folder / "data.csv", data, delimiter=",")
    np.savetxt(folder / "label.csv", label, delimiter=",")
    return {"data_csv": str(folder / "data.csv"), "label_csv": str(folder / "label.csv"), "data_shape": (FEATURES,)}


def mnist_files(folder):
    rng = np.random.RandomState(3)
    for name, kind, array in (
        ("images", 3, rng.randint(0, 256, (SAMPLES, 3, 2)).astype("uint8")),
        ("labels", 1, rng.randint(0, 3, SAMPLES).astype("uint8")),
    ):
        head = struct.pack(f">BBBB{kind}I", 0, 0, 8, kind, *array.shape)
        with gzip.open(folder / name, "wb") as file:
            file.write(head + array.tobytes())
    return {"image": str(folder / "images"), "label": str(folder / "labels"), "silent": True}


def record_files(folder):
    pytest.importorskip("cv2")
    rng = np.random.RandomState(3)
    with MXIndexedRecordIO(folder / "images.idx", folder / "images.rec", "w") as file:
        for i in range(SAMPLES):
            image = rng.randint(0, 256, (8, 8, 3)).astype("uint8")
            file.write_idx(i, pack_img(IRHeader(0, float(i % 3), i, 0), image, img_fmt=".png"))
    return {"path_imgrec": str(folder / "images.rec"), "path_imgidx": str(folder / "images.idx")}


def sentences():
    rng = np.random.RandomState(3)
    return [rng.randint(1, 9, 4 + i % 3).tolist() for i in range(40)]


def array_iter(**options):
    return mx.io.NDArrayIter(*rows(), batch_size=BATCH, **options)


def loader(**options):
    data, label = rows()
    return DataLoader(gluon.data.ArrayDataset(data, label), BATCH, shuffle=True, **options)


IMAGE = {"data_shape": (3, 6, 6), "batch_size": BATCH}
AUGMENTED = {"rand_crop": True, "rand_mirror": True}
ITERATORS = {
    "arrays": lambda folder: array_iter(),
    "shuffled": lambda folder: array_iter(shuffle=True),
    "discard": lambda folder: array_iter(shuffle=True, last_batch_handle="discard"),
    "roll over": lambda folder: array_iter(shuffle=True, last_batch_handle="roll_over"),
    "csv": lambda folder: mx.io.CSVIter(batch_size=BATCH, **csv_files(folder)),
    "mnist": lambda folder: mx.io.MNISTIter(batch_size=BATCH, shuffle=True, **mnist_files(folder)),
    "records": lambda folder: mx.io.ImageRecordIter(**record_files(folder), **IMAGE, **AUGMENTED, shuffle=True, seed=3),
    "records in chunks": lambda folder: mx.io.ImageRecordIter(
        **record_files(folder) | {"path_imgidx": ""}, **IMAGE, shuffle=True
    ),
    "images": lambda folder: mx.image.ImageIter(**record_files(folder), **IMAGE, shuffle=True, rand_crop=True),
    "images roll over": lambda folder: mx.image.ImageIter(
        **record_files(folder), **IMAGE, shuffle=True, last_batch_handle="roll_over"
    ),
    "resized": lambda folder: mx.io.ResizeIter(array_iter(shuffle=True), 4, reset_internal=False),
    "ahead": lambda folder: mx.io.PrefetchingIter(array_iter(shuffle=True)),
    "loader": lambda folder: mx.contrib.io.DataLoaderIter(loader(last_batch="discard")),
    "shard": lambda folder: mx.dist.shard(gluon.data.ArrayDataset(*rows()), shuffle=True, seed=7),
}


class Training:
    """A Module and its data, created as a program would."""

    def __init__(self, kind, folder, directory, every=1, kvstore="local", contexts=1, **options):
        mx.random.seed(5)
        np.random.seed(5)
        import random

        random.seed(5)
        self.data = ITERATORS[kind](folder)
        if kind == "shard":
            self.data.batch_size = BATCH
        self.module = mx.mod.Module(symbol(), context=[mx.cpu(i) for i in range(contexts)])
        loaders = None if kind == "shard" else self.data
        self.ckpt = Checkpointer(
            directory, module=self.module, loader=loaders, every=every, keep=None, signals=False, **options
        )
        self.kvstore = kvstore
        self.seen = []

    def fit(self, stop=None, epochs=EPOCHS, **options):
        """Train, up to `stop` batches, and return the weights."""
        count = 0

        def ended(param):
            nonlocal count
            count += 1
            self.seen.append((param.epoch, param.nbatch))
            if count == stop:
                self.ckpt.wait()
                raise Killed

        schedule = mx.lr_scheduler.FactorScheduler(3, 0.8, base_lr=0.1)
        settings = {"momentum": 0.9, "lr_scheduler": schedule}
        with contextlib.suppress(Killed):
            self.module.fit(
                self.data,
                num_epoch=epochs,
                optimizer="sgd",
                optimizer_params=settings,
                kvstore=self.kvstore,
                initializer=mx.init.Xavier(),
                batch_end_callback=ended,
                **options,
            )
        self.ckpt.close()
        return self.weights()

    def weights(self):
        arguments, states = self.module.get_params()
        found = {name: array.asnumpy() for name, array in {**arguments, **states}.items()}
        found["random"] = np.array([np.random.rand(), mx.nd.random.uniform(shape=1).asscalar()])
        found["updates"] = np.array([self.module._optimizer.num_update, self.module._optimizer.learning_rate])
        return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("kind", ITERATORS)
def test_fit_resumes_exactly(tmp_path, kind):
    whole = Training(kind, tmp_path, tmp_path / "whole")
    expected = whole.fit()
    batches = len(whole.seen)
    per_epoch = batches // EPOCHS
    for stop in (1, per_epoch - 1, per_epoch, per_epoch + 1, batches - 1, batches):
        Training(kind, tmp_path, tmp_path / str(stop)).fit(stop)
        again = Training(kind, tmp_path, tmp_path / str(stop))
        assert again.ckpt.restore() and again.ckpt.steps == stop
        assert_same(again.fit(), expected)
        assert again.seen == whole.seen[stop:]


@pytest.mark.parametrize("store", ["local", "device", None])
def test_several_contexts(tmp_path, store):
    """A store updates by default; with None the contexts train apart, which is refused."""
    if store is None:
        with pytest.raises(CheckpointError, match="each context trains parameters of its own"):
            Training("arrays", tmp_path, tmp_path / "none", kvstore=None, contexts=2).fit()
        return
    expected = Training("shuffled", tmp_path, tmp_path / "whole", kvstore=store, contexts=2).fit()
    Training("shuffled", tmp_path, tmp_path / "cut", kvstore=store, contexts=2).fit(8)
    again = Training("shuffled", tmp_path, tmp_path / "cut", kvstore=store, contexts=2)
    assert again.ckpt.restore()
    assert_same(again.fit(), expected)


def test_every_counts_the_steps_of_fit(tmp_path):
    training = Training("arrays", tmp_path, tmp_path / "saved", every=4)
    training.fit()
    steps = sorted(int(name[5:]) for name in os.listdir(tmp_path / "saved") if name.startswith("step-"))
    assert steps == [4, 8, 12, 16]


def test_the_callbacks_of_a_finished_epoch_are_not_repeated(tmp_path):
    """`report` after the validation: the resumed run begins with the next epoch."""

    def run(stop):
        training = Training("shuffled", tmp_path, tmp_path / f"best {bool(stop)}", every=1000, best="max")
        validated = []

        def report(param):
            validated.append(param.epoch)
            training.ckpt.report(param.epoch)
            if param.epoch == stop:
                training.ckpt.wait()
                raise Killed

        options = {"eval_data": array_iter(), "eval_end_callback": report}
        return training, validated, options

    training, validated, options = run(None)
    expected = training.fit(**options)
    assert validated == [0, 1, 2]
    training, validated, options = run(1)
    training.fit(**options)
    training, validated, options = run(5)
    assert training.ckpt.restore() and training.ckpt.epoch == 2
    assert_same(training.fit(**options), expected)
    assert validated == [2]


def test_a_save_in_a_callback_is_that_of_the_last_batch(tmp_path):
    expected = Training("shuffled", tmp_path, tmp_path / "whole", every=1000).fit()
    training = Training("shuffled", tmp_path, tmp_path / "cut", every=1000)

    def save(param):
        if len(training.seen) == 8:
            training.ckpt.save()
            training.ckpt.wait()
            raise Killed

    with pytest.raises(Killed):
        training.module.fit(
            training.data,
            num_epoch=EPOCHS,
            optimizer_params={"momentum": 0.9, "lr_scheduler": mx.lr_scheduler.FactorScheduler(3, 0.8, base_lr=0.1)},
            initializer=mx.init.Xavier(),
            batch_end_callback=[lambda param: training.seen.append(param.nbatch), save],
        )
    training.ckpt.close()
    again = Training("shuffled", tmp_path, tmp_path / "cut", every=1000)
    assert again.ckpt.restore()
    assert_same(again.fit(), expected)


@pytest.mark.filterwarnings("ignore:Parameters already initialized")
def test_two_calls_of_fit(tmp_path):
    whole = Training("shuffled", tmp_path, tmp_path / "whole")
    whole.module.fit(whole.data, num_epoch=1)
    whole.module.fit(whole.data, num_epoch=2)
    expected = whole.weights()
    whole.ckpt.close()
    cut = Training("shuffled", tmp_path, tmp_path / "cut")
    cut.module.fit(cut.data, num_epoch=1)

    def kill(param):
        if param.epoch == 1 and param.nbatch == 2:
            cut.ckpt.wait()
            raise Killed

    with pytest.raises(Killed):
        cut.module.fit(cut.data, num_epoch=2, batch_end_callback=kill)
    cut.ckpt.close()
    again = Training("shuffled", tmp_path, tmp_path / "cut")
    assert again.ckpt.restore() and again.ckpt.steps == 6 + 9
    again.module.fit(again.data, num_epoch=1)
    again.module.fit(again.data, num_epoch=2)
    assert_same(again.weights(), expected)
    again.ckpt.close()


@pytest.mark.parametrize("resets", ["before", "after"])
@pytest.mark.parametrize("kind", ["shuffled", "csv", "dataloader"])
def test_own_loops_resume_exactly(tmp_path, kind, resets):
    """A loop that resets its iterator before or after an epoch, and one over a DataLoader."""

    def run(directory, stop=None, resume=False):
        mx.random.seed(5)
        np.random.seed(5)
        data = loader() if kind == "dataloader" else ITERATORS[kind](tmp_path)
        shapes = [("data", (BATCH, FEATURES))], [("softmax_label", (BATCH,))]
        module = mx.mod.Module(symbol())
        module.bind(*shapes)
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
        ckpt = Checkpointer(directory, module=module, loader=data, every=1, keep=None, signals=False)
        assert ckpt.restore() is resume
        for _ in ckpt.epochs(EPOCHS):
            if resets == "before" and kind != "dataloader":
                data.reset()
            for batch in data:
                if kind == "dataloader":
                    batch = mx.io.DataBatch([batch[0]], [batch[1]])
                module.forward_backward(batch)
                module.update()
                ckpt.step()
                if ckpt.steps == stop:
                    ckpt.close()
                    return {}
            if resets == "after" and kind != "dataloader":
                data.reset()
        ckpt.close()
        arguments, states = module.get_params()
        found = {name: array.asnumpy() for name, array in {**arguments, **states}.items()}
        return {**found, "random": np.array([np.random.rand(), ckpt.steps])}

    expected = run(tmp_path / "whole")
    last = int(expected["random"][1])
    for stop in (1, 5, 6, 7, last - 1, last):
        run(tmp_path / str(stop), stop)
        assert_same(run(tmp_path / str(stop), resume=True), expected)


def test_buckets(tmp_path):
    def run(directory, stop=None, resume=False):
        mx.random.seed(5)
        np.random.seed(5)
        import random

        random.seed(5)
        data = mx.rnn.BucketSentenceIter(sentences(), BATCH, buckets=[4, 5, 6], invalid_label=0)

        def graph(length):
            words = mx.sym.Variable("data")
            embedded = mx.sym.Embedding(words, input_dim=10, output_dim=4, name="embed")
            out = mx.sym.FullyConnected(mx.sym.reshape(embedded, (-1, 4)), num_hidden=10, name="out")
            label = mx.sym.reshape(mx.sym.Variable("softmax_label"), (-1,))
            return mx.sym.SoftmaxOutput(out, label, name="softmax"), ("data",), ("softmax_label",)

        module = mx.mod.BucketingModule(graph, default_bucket_key=data.default_bucket_key)
        ckpt = Checkpointer(directory, module=module, loader=data, every=1, keep=None, signals=False)
        assert ckpt.restore() is resume

        def kill(param):
            if ckpt.steps == stop:
                ckpt.wait()
                raise Killed

        with contextlib.suppress(Killed):
            module.fit(data, num_epoch=2, optimizer="adam", batch_end_callback=kill, eval_metric="loss")
        ckpt.close()
        return {name: array.asnumpy() for name, array in module.get_params()[0].items()}

    expected = run(tmp_path / "whole")
    for stop in (3, 10, 13):
        run(tmp_path / str(stop), stop)
        assert_same(run(tmp_path / str(stop), resume=True), expected)


def test_gradients_that_add_up(tmp_path):
    def run(directory, stop=None, resume=False):
        mx.random.seed(5)
        np.random.seed(5)
        data = array_iter()
        module = mx.mod.Module(symbol())
        module.bind(data.provide_data, data.provide_label, grad_req="add")
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer_params={"learning_rate": 0.1})
        ckpt = Checkpointer(directory, module=module, loader=data, every=1, keep=None, signals=False)
        assert ckpt.restore() is resume
        for number, batch in enumerate(data, ckpt.steps):
            module.forward_backward(batch)
            if number % 3 == 2:
                module.update()
                for row in module._exec_group.grad_arrays:
                    row[0][:] = 0
            ckpt.step()
            if ckpt.steps == stop:
                break
        ckpt.close()
        return {name: array.asnumpy() for name, array in module.get_params()[0].items()}

    expected = run(tmp_path / "whole")
    run(tmp_path / "cut", 4)
    assert_same(run(tmp_path / "cut", resume=True), expected)


# ---- what is refused, before training starts ----


class Unknown(mx.io.DataIter):
    """An iterator of a program."""

    def __init__(self):
        super().__init__(BATCH)
        self.source = array_iter()
        self.provide_data, self.provide_label = self.source.provide_data, self.source.provide_label

    def next(self):
        return self.source.next()

    def reset(self):
        self.source.reset()


def test_an_unknown_iterator_is_refused_before_training(tmp_path):
    module = mx.mod.Module(symbol())
    with pytest.raises(mx.MXNetError, match="the position of a Unknown in its data cannot be saved"):
        Checkpointer(tmp_path, module=module, loader=Unknown())
    ckpt = Checkpointer(tmp_path, module=module, signals=False)
    heard = []
    stop = mx.events.subscribe_each(step=lambda **_: heard.append(1))
    with pytest.raises(mx.MXNetError, match="the position of a Unknown in its data cannot be saved"):
        module.fit(Unknown(), num_epoch=1)
    stop[0]()
    assert not heard
    ckpt.close()


def test_an_iterator_of_the_program_may_define_its_position(tmp_path):
    class Known(Unknown):
        def state(self):
            return self.source.state()

        def load_state(self, state, keeps=True):
            self.source.load_state(state, keeps)

    ITERATORS["own"] = lambda folder: Known()
    try:
        expected = Training("own", tmp_path, tmp_path / "whole").fit()
        Training("own", tmp_path, tmp_path / "cut").fit(8)
        again = Training("own", tmp_path, tmp_path / "cut")
        assert again.ckpt.restore()
        assert_same(again.fit(), expected)
    finally:
        del ITERATORS["own"]


def test_other_modules_are_refused(tmp_path):
    module = mx.mod.SequentialModule()
    with pytest.raises(mx.MXNetError, match="checkpoints of a SequentialModule are not supported"):
        Checkpointer(tmp_path, module=module)


def test_step_in_a_callback_of_fit_is_refused(tmp_path):
    training = Training("arrays", tmp_path, tmp_path / "saved")
    with pytest.raises(mx.MXNetError, match="fit counts the steps itself"):
        training.module.fit(training.data, num_epoch=1, batch_end_callback=lambda param: training.ckpt.step())
    training.ckpt.close()


def test_other_data_is_refused(tmp_path):
    Training("shuffled", tmp_path, tmp_path / "saved").fit(3)
    again = Training("arrays", tmp_path, tmp_path / "saved")
    again.ckpt.restore()
    with pytest.raises(mx.MXNetError, match="the position is in other data: 22 samples, shuffled, but"):
        again.fit()


def test_a_module_cannot_continue_a_trainer(tmp_path):
    net = gluon.nn.Dense(3, in_units=2)
    net.initialize()
    ckpt = Checkpointer(tmp_path, net=net, signals=False)
    ckpt.step()
    ckpt.save()
    ckpt.close()
    module = mx.mod.Module(symbol())
    module.bind([("data", (BATCH, FEATURES))], [("softmax_label", (BATCH,))])
    module.init_params()
    module.init_optimizer()
    ckpt = Checkpointer(tmp_path, module=module, signals=False)
    with pytest.raises(CheckpointError, match="of a 'gluon' training, but this is a 'module' training"):
        ckpt.restore()
    ckpt.close()
