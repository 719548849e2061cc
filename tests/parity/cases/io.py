"""mx.io: descriptions, batches, and what the iterators give, sharded or not."""

import contextlib
import os
import struct
import tempfile

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def rows(n):
    return np.arange(2.0 * n).reshape(n, 2), np.arange(n)


def seen(batches):
    """Labels and padding of every batch."""
    return [([int(v) for v in b.label[0].asnumpy().ravel()], b.pad) for b in batches]


def epochs(iterator, n):
    """What n epochs give, and where the cursor is after each."""
    results = []
    for _ in range(n):
        results.append((seen(iterator), getattr(iterator, "cursor", None)))
        iterator.reset()
    return results


@contextlib.contextmanager
def digit_files(n=10):
    """A directory with n small images and their labels, numbered, as IDX files."""
    images = np.arange(n * 6).reshape(n, 2, 3) % 256
    with tempfile.TemporaryDirectory() as directory:
        for name, values in (("images", images), ("labels", np.arange(n))):
            with open(os.path.join(directory, name), "wb") as file:
                file.write(struct.pack(">BBBB%dI" % values.ndim, 0, 0, 8, values.ndim, *values.shape))
                file.write(values.astype("uint8").tobytes())
        yield directory


def digit_iter(mx, directory, **attrs):
    attrs = dict(dict(image="images", label="labels", silent=True, shuffle=False, batch_size=2), **attrs)
    paths = {k: os.path.join(directory, attrs.pop(k)) for k in ("image", "label")}
    return mx.io.MNISTIter(**paths, **attrs)


@program
def descriptions(mx):
    desc = mx.io.DataDesc
    plain, full = desc("data", (2, 3)), desc("x", [2], "int32", layout="TNC")
    pairs = [("a", (1,)), ("b", (2,))]
    return [
        plain,
        full,
        tuple(plain),
        len(full),
        plain == ("data", (2, 3)),
        plain == desc("data", (2, 3), np.float16),
        [plain.dtype, plain.layout, full.dtype, full.layout, full.shape],
        [desc.get_batch_axis(layout) for layout in ("NCHW", "TNC", "CN", "", None, "CHW")],
        desc.get_list(pairs, [("b", "int32"), ("a", np.float16)]),
        desc.get_list(pairs, None),
        outcome(lambda: desc.get_list(pairs, [("b", "int32")])),
    ]


@program
def batches(mx):
    batch, zeros = mx.io.DataBatch, mx.nd.zeros
    whole = batch([zeros((2, 3))], [zeros(2)], 1, [4, 5], "key", [("a", (2, 3))], [("b", (2,))])
    return [
        whole,
        batch([zeros(2)]),
        batch([]),
        batch((zeros(1), zeros(2))),
        [whole.pad, whole.index, whole.bucket_key, whole.provide_data, whole.provide_label],
        [batch([]).pad, batch([]).index, batch([]).bucket_key, batch([]).label, batch([]).provide_data],
        outcome(lambda: batch(zeros(2))),
        outcome(lambda: batch([], zeros(2))),
    ]


@program
def an_iterator_of_ones_own(mx):
    class Counting(mx.io.DataIter):
        provide_data, provide_label = [("data", (1,))], []

        def __init__(self):
            super(Counting, self).__init__(1)
            self.at = 0

        def iter_next(self):
            self.at += 1
            return self.at <= 2

        def reset(self):
            self.at = 0

        def getdata(self):
            return [mx.nd.array([self.at])]

        def getpad(self):
            return 0

        def getindex(self):
            return [self.at]

    base, mine = mx.io.DataIter(3), Counting()
    given = [(float(b.data[0].asscalar()), b.label, b.pad, b.index) for b in mine]
    mine.reset()
    return [
        [base.batch_size, mx.io.DataIter().batch_size, iter(base) is base, base.reset(), base.iter_next()],
        [base.getdata(), base.getlabel(), base.getindex(), base.getpad()],
        outcome(base.next),
        outcome(lambda: next(base)),
        given,
        next(mine).data[0],
        mine.batch_size,
    ]


@program
def arrays_in_batches(mx):
    results = []
    for handle in ("pad", "discard", "roll_over"):
        for n, size in ((10, 4), (11, 4), (8, 4), (5, 1), (4, 4)):
            iterator = mx.io.NDArrayIter(*rows(n), batch_size=size, last_batch_handle=handle)
            results.append(epochs(iterator, 5))
            iterator.hard_reset()
            results.append(seen(iterator))
    for handle in ("pad", "discard"):  # fewer samples than a batch
        results.append(epochs(mx.io.NDArrayIter(*rows(3), batch_size=7, last_batch_handle=handle), 2))
    return results


@program
def resets_in_the_middle(mx):
    results = []
    for handle in ("pad", "discard", "roll_over"):
        for steps in ("nr", "nh", "err", "erh", "ernr", "eh"):
            iterator = mx.io.NDArrayIter(*rows(11), batch_size=4, last_batch_handle=handle)
            calls = {"n": iterator.next, "r": iterator.reset, "h": iterator.hard_reset, "e": lambda i=iterator: list(i)}
            for step in steps:
                calls[step]()
            results += [iterator.cursor, seen(iterator)]
    return results


@program
def shuffled_arrays(mx):
    """The order comes from numpy's random numbers, so it can be the same."""
    results = []
    for handle in ("pad", "discard", "roll_over"):
        np.random.seed(5)
        iterator = mx.io.NDArrayIter(*rows(11), batch_size=4, shuffle=True, last_batch_handle=handle)
        results.append(epochs(iterator, 4))
        iterator.hard_reset()
        batch = iterator.next()
        results += [batch.data[0], batch.label[0]]
    return results


@program
def names_shapes_and_dtypes(mx):
    x, y = rows(4)
    make = mx.io.NDArrayIter
    ints = make(mx.nd.array(y, dtype="int32"), mx.nd.array(y, dtype="uint8"), 3)
    halves = make(x.astype("float16"), y.astype("int64"), 3)
    iterators = [
        make(x, y, 2),
        make({"b": x, "a": y}, {"l": y, "k": x}, 2),
        make([x, y], [y, x], 2),
        make([x], [y], 2),
        make(x, None, 2),
        make(x, y, 2, data_name="q", label_name="z", layout="NT"),
        make(x, {}, 2),
        make([[1, 2], [3, 4]]),
        ints,
        halves,
    ]
    results = [(i.provide_data, i.provide_label, i.batch_size, i.num_data) for i in iterators]
    for iterator in iterators:
        batch = iterator.next()
        results.append([(a.shape, np.dtype(a.dtype).name) for a in batch.data + batch.label])
        results.append([batch.pad, batch.index, batch.bucket_key, batch.provide_data])
    return results


@program
def shuffled_arrays_are_float32(mx):
    """NDArrays too, as networks of float32 need them."""
    results = []
    for dtype in ("uint8", "int64", "float64", "float16"):
        for shuffle in (False, True):
            x = mx.nd.array(rows(5)[0], dtype=dtype)
            iterator = mx.io.NDArrayIter([x, x.tostype("row_sparse")], mx.nd.array(rows(5)[1], dtype=dtype), 2, shuffle)
            batch = iterator.next()
            results.append([iterator.provide_data, iterator.provide_label])
            results.append([np.dtype(a.dtype).name for a in batch.data + batch.label])
    return results


@program
def samples_along_the_n_of_the_layout(mx):
    """Time first; as many steps as samples, since MXNet counts samples along the first axis."""
    x, y = np.arange(50).reshape(5, 5, 2), np.arange(25).reshape(5, 5)
    return [
        epochs(mx.io.NDArrayIter(x, y, batch_size, last_batch_handle=handle, layout="TNC"), 2)
        for batch_size, handle in ((2, "pad"), (2, "discard"), (5, "pad"), (5, "roll_over"))
    ]


@program
def the_parts_of_next(mx):
    x, y = rows(10)
    results = []
    for handle in ("pad", "discard", "roll_over"):
        it = mx.io.NDArrayIter(x, y, 4, last_batch_handle=handle)
        results.append([it.cursor, it.getpad(), it.getindex(), outcome(it.getdata), outcome(it.getlabel)])
        for _ in range(3):
            results += [it.iter_next(), it.getdata()[0], it.getlabel()[0], it.getpad(), it.cursor]
        results += [it.iter_next(), outcome(it.getdata), outcome(it.next)]
    return results


@program
def batches_are_copies_of_living_arrays(mx):
    source = mx.nd.zeros((6, 2))
    iterator = mx.io.NDArrayIter(source, None, 2)
    first = iterator.next().data[0]
    first[:] = 7
    results = [source.copy()]
    source[:] = 5
    return results + [iterator.next().data[0], first]


@program
def sparse_arrays(mx):
    dense = mx.nd.array(np.arange(20).reshape(10, 2) % 3)
    make = mx.io.NDArrayIter
    csr = make(dense.tostype("csr"), None, 4, last_batch_handle="discard")
    results = [csr.provide_data]
    for iterator in (csr, make(dense.tostype("row_sparse"), None, 4)):
        for batch in iterator:
            results += [batch.data[0], batch.data[0].stype, batch.pad]
    return results


@program
def arrays_refused(mx):
    make = mx.io.NDArrayIter
    return [
        outcome(lambda: make(None, None, 2)),
        outcome(lambda: make("a", None, 2)),
        outcome(lambda: make(3)),
        outcome(lambda: make((rows(4)[0],))),
        outcome(lambda: make({"a": object()})),
        outcome(lambda: make(rows(4)[0], 3)),
    ]


@program
def digits(mx):
    with digit_files() as directory:
        it = digit_iter(mx, directory, batch_size=4)
        batch = it.next()
        results = [it.provide_data, it.provide_label, it.batch_size, batch, batch.data[0], batch.label[0], batch.pad]
        results += [batch.index, it.getdata(), it.getlabel(), it.getpad(), it.getindex(), batch.provide_data]
        results += [bool(it.iter_next()), it.getlabel(), bool(it.iter_next()), outcome(it.next), outcome(it.next)]
        it.reset()
        results += [seen(it), seen(it)]
        it.reset()
        it.next()
        it.reset()
        results += [it.next().label[0], it.next().data[0], outcome(it.next)]
        fresh = digit_iter(mx, directory, batch_size=4)
        results += [fresh.getlabel(), fresh.getdata(), bool(fresh.iter_next()), fresh.getlabel()]
        flat = digit_iter(mx, directory, flat=True, data_name="x", label_name="y", ctx="cpu", prefetch_buffer=1)
        results += [flat.provide_data, flat.provide_label, flat.next().data[0]]
        more = digit_iter(mx, directory, input_shape=(1, 2, 3), dtype="float32", batch_size="5", flat="0")
        return results + [more.provide_data, seen(more)]


@program
def digits_in_parts(mx):
    results = []
    for n in (10, 23):
        with digit_files(n) as directory:
            for parts in range(1, 8):
                results.append(
                    [seen(digit_iter(mx, directory, batch_size=1, num_parts=parts, part_index=i)) for i in range(parts)]
                )
            results.append([seen(digit_iter(mx, directory, num_parts=3, part_index=i)) for i in range(3)])
    return results


@program
def digits_refused(mx):
    with digit_files() as directory:
        wrong = (
            dict(num_parts=3, part_index=3),
            dict(num_parts=3, part_index=-1),
            dict(part_index=1),
            dict(num_parts=0),
            dict(num_parts=-1),
            dict(batch_size=0),
            dict(batch_size="many"),
            dict(batch_size=2.5),
            dict(batch_size=None),
            dict(shuffle="maybe"),
            dict(shuffle=2),
            dict(seed="x"),
            dict(ctx="disk"),
            dict(dtype="float16"),
            dict(dtype="what"),
            dict(image="nowhere"),
            dict(label="nowhere"),
            dict(image="labels"),
        )
        return [outcome(lambda attrs=attrs: digit_iter(mx, directory, **attrs)) for attrs in wrong]


@program
def resized(mx):
    inner = mx.io.NDArrayIter(*rows(10), batch_size=4)
    longer = mx.io.ResizeIter(inner, 5)
    results = [longer.batch_size, longer.size, longer.provide_data, longer.provide_label, longer.reset_internal]
    results += [seen(longer), outcome(longer.next), longer.iter_next(), longer.cur]
    results += [epochs(longer, 2)]
    longer.reset()
    results += [longer.iter_next(), longer.getdata()[0], longer.getlabel()[0], longer.getindex(), longer.getpad()]
    for internal in (True, False):
        results.append(epochs(mx.io.ResizeIter(inner, 2, reset_internal=internal), 3))
        inner.reset()
    inner.default_bucket_key = 7
    return results + [mx.io.ResizeIter(inner, 1).default_bucket_key, hasattr(longer, "default_bucket_key")]


@program
def prefetched(mx):
    def inner(**attrs):
        return mx.io.NDArrayIter(*rows(10), batch_size=4, **attrs)

    one = mx.io.PrefetchingIter(inner())
    results = [one.batch_size, one.n_iter, one.provide_data, one.provide_label, seen(one), outcome(one.next)]
    one.reset()
    results += [epochs(one, 2)]
    one.next()
    one.reset()
    results += [seen(one)]
    one.reset()
    results += [one.iter_next(), one.getdata()[0], one.getlabel()[0], one.getindex(), one.getpad()]
    two = mx.io.PrefetchingIter(
        [inner(), inner(data_name="more")],
        rename_data=[{"data": "d1"}, {"more": "d2"}],
        rename_label=[{"softmax_label": "l1"}, {"softmax_label": "l2"}],
    )
    batch = two.next()
    results += [two.provide_data, two.provide_label, batch.provide_data, batch.provide_label, len(batch.data), batch]
    return results + [batch.pad, batch.index, [b.pad for b in two]]
