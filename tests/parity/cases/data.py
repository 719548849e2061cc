"""gluon.data and its neighbours: datasets, samplers, loaders, RecordIO, and gluon.utils."""

import collections
import os
import pickle
import struct
import tempfile

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)
MAGIC = struct.pack("<I", 0xCED7230A)


def square(x):
    return x * x


def add(x, y):
    return x + y


@program
def datasets_of_datasets(mx):
    data = mx.gluon.data
    numbers = data.SimpleDataset(list(range(10)))
    pairs = data.SimpleDataset([(i, 10 * i) for i in range(4)])
    lists = data.SimpleDataset([[1, 2], [3, 4]])
    return [
        list(numbers.transform(square)),
        list(numbers.transform(square, lazy=False)),
        type(numbers.transform(square)).__name__,
        type(numbers.transform(square, lazy=False)).__name__,
        list(pairs.transform(add)),
        list(pairs.transform_first(square)),
        list(numbers.transform_first(square, lazy=False)),
        lists.transform(lambda *args: args)[1],
        [list(numbers.shard(3, i)) for i in range(3)],
        [len(numbers.take(2).shard(3, i)) for i in range(3)],
        list(numbers.take(3)) + list(numbers.take(None)) + list(numbers.take(100)) + list(numbers.take(0)),
        list(numbers.sample(data.SequentialSampler(4, start=2))),
        list(numbers.filter(lambda x: x % 3 == 1)),
        list(pairs.filter(lambda item: item[0] > 1)),
        numbers[2:5],
        len(numbers.take(5).transform(square).filter(lambda x: x > 3)),
    ]


@program
def datasets_refuse(mx):
    data = mx.gluon.data
    numbers = data.SimpleDataset(list(range(10)))
    return [
        outcome(lambda: numbers.shard(3, 3)),
        outcome(lambda: numbers.shard(3, -1)),
        outcome(lambda: numbers.shard(0, 0)),
        outcome(lambda: len(numbers.take(-2))),
        outcome(lambda: numbers.sample([1, 2])),
        outcome(lambda: numbers[99]),
        outcome(lambda: data.ArrayDataset()),
        outcome(lambda: data.ArrayDataset([1], [1, 2])),
        outcome(lambda: data.ArrayDataset(mx.nd.ones((4, 2)))[7]),
        outcome(lambda: data.Dataset()[0]),
        outcome(lambda: len(data.Dataset())),
        outcome(lambda: iter(data.Sampler())),
        outcome(lambda: len(data.Sampler())),
    ]


@program
def array_dataset(mx):
    data = mx.gluon.data
    images, labels = mx.nd.arange(24).reshape((4, 3, 2)), mx.nd.arange(4)
    both = data.ArrayDataset(images, labels, [5, 6, 7, 8], data.SimpleDataset("abcd"))
    item = both[2]
    part = data.ArrayDataset(np.arange(4), [1, 2, 3, 4])[1:3]
    return [
        len(both),
        *item,
        [type(part).__name__ for part in item],
        data.ArrayDataset(images)[1],
        type(data.ArrayDataset(labels)[1]).__name__,
        data.ArrayDataset(np.arange(4))[1],
        *part,
    ]


@program
def samplers(mx):
    data = mx.gluon.data
    interval = mx.gluon.contrib.data.IntervalSampler
    np.random.seed(3)
    shuffled = [[int(i) for i in data.RandomSampler(10)] for _ in range(2)]
    results = [
        list(data.SequentialSampler(3)),
        list(data.SequentialSampler(3, start=5)),
        len(data.SequentialSampler(3, start=5)),
        shuffled,
        len(data.RandomSampler(10)),
        list(data.FilterSampler(lambda x: x > 5, data.SimpleDataset(list(range(10))))),
        len(data.FilterSampler(lambda x: x > 5, data.SimpleDataset(list(range(10))))),
        list(interval(13, 3)),
        list(interval(13, 3, rollover=False)),
        [len(interval(13, 3)), len(interval(13, 3, rollover=False))],
        list(interval(3, 3)),
        outcome(lambda: interval(3, 5)),
    ]
    for last_batch in ("keep", "discard", "rollover"):
        batches = data.BatchSampler(data.SequentialSampler(10), 3, last_batch)
        for _ in range(3):
            results += [len(batches), list(batches)]
    batches = data.BatchSampler(data.SequentialSampler(10), 3, "other")
    return results + [outcome(lambda: len(batches)), outcome(lambda: list(batches))]


def describe(batch):
    """A batch as nested lists of dtypes and values."""
    if isinstance(batch, (list, tuple)):
        return [describe(part) for part in batch]
    return [np.dtype(batch.dtype).name, batch.shape, batch.asnumpy().tolist()]


@program
def batchify(mx):
    make = mx.gluon.data.dataloader.default_batchify_fn
    items = {
        "int": [1, 2],
        "float": [1.5, 2.5],
        "bool": [True, False],
        "numpy": [np.float32(1), np.float32(2)],
        "int32": [np.int32(7), np.int32(8)],
        "uint8": [np.ones(2, "uint8")] * 2,
        "float16": [np.ones(2, "float16")] * 2,
        "float64": [np.ones((2, 1))] * 2,
        "lists": [[1, 2], [3, 4]],
        "arrays": [mx.nd.ones((2,), dtype="int32"), mx.nd.zeros((2,), dtype="int32")],
        "tuples": [(1, mx.nd.ones(2)), (2, mx.nd.zeros(2))],
        "nested": [(1, (2, 3)), (4, (5, 6))],
    }
    results = {name: str(describe(make(value))) for name, value in items.items()}
    results["mp"] = str(describe(mx.gluon.data.dataloader.default_mp_batchify_fn(items["tuples"])))
    results["ragged"] = outcome(lambda: make([mx.nd.ones(2), mx.nd.ones(3)]).asnumpy())
    results["mixed"] = outcome(lambda: make([mx.nd.ones(2), mx.nd.ones(2, dtype="uint8")]).asnumpy())
    return results


@program
def loader(mx):
    data = mx.gluon.data
    rng = np.random.RandomState(0)
    pairs = data.ArrayDataset(mx.nd.array(rng.normal(size=(10, 2))), mx.nd.arange(10))
    sampler = data.BatchSampler(data.SequentialSampler(10), 4, "rollover")
    loaders = [
        data.DataLoader(pairs, 4),
        data.DataLoader(pairs, 4, last_batch="discard"),
        data.DataLoader(pairs, 4, last_batch="rollover"),
        data.DataLoader(pairs, 4, shuffle=True),
        data.DataLoader(pairs, 4, sampler=data.SequentialSampler(5, start=3)),
        data.DataLoader(pairs, batch_sampler=sampler),
        data.DataLoader(pairs, 4, batchify_fn=lambda items: (len(items), sum(float(y) for _, y in items))),
        data.DataLoader(pairs, 4, num_workers=2),
        data.DataLoader(pairs, 4, num_workers=1, thread_pool=True, prefetch=0),
        data.DataLoader(pairs, 4, num_workers=1, auto_reload=True),
        data.DataLoader(pairs.transform(lambda x, y: (x * 2, int(y) + 1)), 4, num_workers=-1),
    ]
    results = []
    np.random.seed(1)
    for each in loaders:
        results.append(len(each))
        for _ in range(2):
            for batch in each:
                results += list(batch)
    results.append(next(iter(data.DataLoader(pairs, 4, pin_memory=True)))[0].context)
    return results


@program
def loader_refuses(mx):
    data = mx.gluon.data
    numbers = data.SimpleDataset(list(range(10)))
    sampler = data.SequentialSampler(10)
    batches = data.BatchSampler(sampler, 3)

    def kind(**kwargs):
        return outcome(lambda: data.DataLoader(numbers, **kwargs))

    return [
        kind(),
        kind(batch_size=2, batch_sampler=batches),
        kind(shuffle=True, batch_sampler=batches),
        kind(sampler=sampler, batch_sampler=batches),
        kind(last_batch="keep", batch_sampler=batches),
        kind(batch_size=2, shuffle=True, sampler=sampler),
        kind(batch_size=2, timeout=0),
        outcome(lambda: list(data.DataLoader(numbers, 2, last_batch="other"))),
    ]


@program
def record_files(mx):
    recordio = mx.recordio
    records = [b"hello", b"x" * 8 + MAGIC + b"y" * 4 + MAGIC + MAGIC + b"z", b"a" + MAGIC, b"", MAGIC, b"123456789"]
    with tempfile.TemporaryDirectory() as folder:
        path, index = os.path.join(folder, "a.rec"), os.path.join(folder, "a.idx")
        writer = recordio.MXRecordIO(path, "w")
        for record in records:
            writer.write(record)
        refused = outcome(writer.read)
        writer.close()
        with open(path, "rb") as file:
            plain_file = file.read()
        reader = recordio.MXRecordIO(path, "r")
        read = [reader.read() for _ in range(8)]
        reader.reset()
        read += [reader.read(), outcome(lambda: reader.write(b"x"))]
        reader.close()
        read.append(outcome(reader.read))

        writer = recordio.MXIndexedRecordIO(index, path, "w")
        places = [writer.tell()]
        for key, record in [(3, b"three"), (1, b"one"), (2, records[1]), (1, b"one again")]:
            writer.write_idx(key, record)
            places.append(writer.tell())
        places += [writer.keys, sorted(writer.idx.items()), outcome(lambda: writer.read_idx(1))]
        writer.close()
        with open(path, "rb") as file, open(index) as keys:
            indexed_file = [file.read(), keys.read()]
        reader = recordio.MXIndexedRecordIO(index, path, "r")
        found = [reader.keys, sorted(reader.idx.items()), [reader.read_idx(k) for k in (2, 1, 3)], reader.read()]
        reader.seek(3)
        found += [reader.read(), outcome(lambda: reader.read_idx(9)), outcome(lambda: reader.write_idx(4, b"x"))]
        copy = pickle.loads(pickle.dumps(reader))
        found += [copy.read_idx(2), copy.keys]
        dataset = mx.gluon.data.RecordFileDataset(path)
        found += [len(dataset), dataset[0], dataset[2]]
        text = os.path.join(folder, "t.idx")
        writer = recordio.MXIndexedRecordIO(text, path, "w", key_type=str)
        writer.write_idx("a b", b"1")
        writer.close()
        found.append(recordio.MXIndexedRecordIO(text, path, "r", key_type=str).keys)
        found.append(outcome(lambda: recordio.MXRecordIO(path, "a")))
    return [plain_file, refused, read, places, indexed_file, found]


@program
def record_headers(mx):
    recordio = mx.recordio
    header = recordio.IRHeader
    headers = [
        header(0, 2, 5, 7),
        header(3, 2.5, 2**40, 7),
        header(0, np.float32(1.5), 1, 2),
        header(0, [1, 2, 3], 5, 7),
        header(9, np.array([[1.5, 2.0]]), 5, 7),
        header(0, (1, 2), 0, 0),
        header(0, [], 1, 2),
    ]
    results = []
    for each in headers:
        packed = recordio.pack(each, b"data")
        unpacked, rest = recordio.unpack(packed)
        results += [packed, np.array(unpacked.label), [unpacked.flag, unpacked.id, unpacked.id2], rest]
    results.append(tuple(header._fields))
    return results


@program
def split_and_load(mx):
    utils = mx.gluon.utils
    x = mx.nd.arange(20).reshape((5, 4))
    two = [mx.cpu(0), mx.cpu(1)]
    parts = utils.split_and_load(np.arange(8).reshape(4, 2), two)
    results = [
        *utils.split_data(x, 3, even_split=False),
        *utils.split_data(x, 2, batch_axis=1),
        *utils.split_data(x, 7, even_split=False),
        *utils.split_data(np.ones((4, 2)), 2),
        *parts,
        [str(part.context) for part in parts],
        *utils.split_and_load(x, two, even_split=False),
        *utils.split_and_load(x, two, batch_axis=1),
        *utils.split_and_load([[1, 2], [3, 4]], [mx.cpu(0)]),
        utils.split_and_load(np.ones((2, 2), "int32"), [mx.cpu(0)])[0].dtype.__name__,
        utils.split_and_load(x, [mx.cpu(0)])[0] is x,
        outcome(lambda: utils.split_data(x, 2)),
        outcome(lambda: utils.split_and_load(x, two)),
    ]
    utils.split_data(x, 5)[1][:] = -1
    return results + [x]


@program
def clip_global_norm(mx):
    utils = mx.gluon.utils
    results = []
    for max_norm, check in ((1.0, True), (100.0, True), (1.0, False)):
        arrays = [mx.nd.array([3.0, 4.0]), mx.nd.array([[12.0]])]
        norm = utils.clip_global_norm(arrays, max_norm, check_isfinite=check)
        results += [type(norm).__name__, norm, *arrays]
    variable = mx.nd.array([1.0, 2.0])
    variable.attach_grad()
    with mx.autograd.record():
        loss = (variable * variable).sum()
    loss.backward()
    results += [utils.clip_global_norm([variable.grad], 0.5), variable.grad]
    return results + [outcome(lambda: utils.clip_global_norm([], 1.0))]


@program
def small_utils(mx):
    utils = mx.gluon.utils
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(b"hello")
        file.flush()
        checks = [
            utils.check_sha1(file.name, "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
            utils.check_sha1(file.name, "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434e"),
            # a file that is there is not fetched again
            utils.download("http://127.0.0.1:9/" + os.path.basename(file.name), path=os.path.dirname(file.name))
            == file.name,
            utils.download("http://127.0.0.1:9/x", path=file.name, retries=0) == file.name,
        ]
    hooks = collections.OrderedDict()
    handle = utils.HookHandle()
    with handle:
        handle.attach(hooks, square)
        attached = len(hooks)
    return checks + [
        [attached, len(hooks)],
        outcome(lambda: handle.attach(hooks, square)),
        [utils.shape_is_known(s) for s in ((1, 2), (0, 1), (), None)],
        outcome(lambda: utils.shape_is_known((-1, 2))),
        outcome(lambda: utils.download("http://127.0.0.1:9/x", retries=-1)),
        outcome(lambda: utils.download("http://127.0.0.1:9/", retries=0)),
        utils._get_repo_file_url("gluon/dataset/mnist", "a.gz"),
        utils._brief_print_list(list("abc")),
        utils._brief_print_list(list(range(20))),
        utils._indent("a\nb\nc", 2),
    ]
