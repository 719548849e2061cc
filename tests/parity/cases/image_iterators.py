"""ImageIter and ImageDetIter: their batches in order, over every kind of source, and what they refuse."""

import os
import random
import tempfile

import numpy as np

from parity.pictures import pixels, png, seed
from parity.spec import family, outcome

case, program = family(__name__)
SHAPE = (3, 12, 16)


class Folder(object):
    """A folder with pictures, a list of them, and record files with one label and with two."""

    def __init__(self, mx, count=7):
        self.mx, self.count = mx, count

    def __enter__(self):
        self.holder = tempfile.TemporaryDirectory()
        self.path = self.holder.name
        recordio = self.mx.recordio
        one = recordio.MXIndexedRecordIO(self["one.idx"], self["one.rec"], "w")
        two = recordio.MXIndexedRecordIO(self["two.idx"], self["two.rec"], "w")
        with open(self["all.lst"], "w") as listed, open(self["two.lst"], "w") as listed_two:
            for i in range(self.count):
                data = png(pixels(i))
                with open(self["%d.png" % i], "wb") as file:
                    file.write(data)
                one.write_idx(i, recordio.pack(recordio.IRHeader(0, float(i), i, 0), data))
                two.write_idx(i, recordio.pack(recordio.IRHeader(0, [i, i + 0.5], i, 0), data))
                listed.write("%d\t%g\t%d.png\n" % (i, i * 10, i))
                listed_two.write("%d\t%g\t%g\t%d.png\n" % (i + 3, i * 10, i * 100, i))
        one.close()
        two.close()
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def __getitem__(self, name):
        return os.path.join(self.path, name)


def epoch(iterator, most=20):
    """Labels, pads and sums of the batches that are left."""
    found = []
    for _ in range(most):
        try:
            batch = iterator.next()
        except StopIteration:
            return found + ["end"]
        data = batch.data[0].asnumpy()
        assert data.dtype == np.float32 and batch.label[0].dtype is np.float32
        found.append((batch.label[0].asnumpy().tolist(), batch.pad, data.shape, round(float(data.mean()), 3)))
    return found + ["goes on"]


def told(iterator):
    return str([tuple(d) for d in iterator.provide_data] + [tuple(d) for d in iterator.provide_label])


def run(mx, epochs=2, **options):
    seed(1)
    iterator = mx.image.ImageIter(options.pop("batch_size", 3), options.pop("data_shape", SHAPE), **options)
    found = [told(iterator)]
    for _ in range(epochs):
        found.append(str(epoch(iterator)))
        iterator.reset()
    return found + [random.random()]


@program
def from_records(mx):
    with Folder(mx) as folder:
        source = dict(path_imgrec=folder["one.rec"])
        indexed = dict(source, path_imgidx=folder["one.idx"])
        found = run(mx, **source) + run(mx, **indexed) + run(mx, shuffle=True, **indexed)
        for part in range(3):
            found += run(mx, num_parts=3, part_index=part, shuffle=part == 2, **indexed)
        found += run(mx, path_imglist=folder["all.lst"], **indexed)
        found += run(mx, path_imglist=folder["all.lst"], **source)
        found += run(mx, data_name="x", label_name="y", dtype="int32", **source)
        found += run(mx, path_imgrec=folder["two.rec"], label_width=2)
        found += run(mx, label_width=2, **source)
        return found


@program
def last_batches(mx):
    with Folder(mx) as folder:
        found = []
        for handle in ("pad", "discard", "roll_over"):
            source = dict(path_imgrec=folder["one.rec"], last_batch_handle=handle)
            found += run(mx, 3, **source) + run(mx, 3, batch_size=7, **source)
            source["path_imgidx"] = folder["one.idx"]
            found += run(mx, 3, shuffle=True, **source)
            iterator = mx.image.ImageIter(3, SHAPE, **source)
            iterator.next()
            iterator.reset()  # in the middle
            found.append(str(epoch(iterator)))
            found.append(str(epoch(iterator)))  # not reset
            iterator.hard_reset()
            found.append(str(epoch(iterator)))
            iterator.reset()
            iterator.reset()
            found.append(str(epoch(iterator)))
        return found


@program
def from_lists(mx):
    with Folder(mx) as folder:
        items = [[1.0, "1.png"], [2, "2.png"], [[3], "3.png"], [[4.0], "0.png"], [np.array([5]), "4.png"]]
        found = run(mx, path_imglist=folder["all.lst"], path_root=folder.path)
        found += run(
            mx, path_imglist=folder["two.lst"], path_root=folder.path, label_width=2, num_parts=2, part_index=1
        )
        found += run(mx, path_imglist=folder["all.lst"], path_root=folder.path, shuffle=True, num_parts=2)
        found += run(mx, imglist=items, path_root=folder.path)
        found += run(
            mx, imglist=[[[1, 2], "1.png"], [[3, 4], "2.png"]], path_root=folder.path, label_width=2, batch_size=2
        )
        found += run(mx, imglist=[[1, 2, "1.png"], [3, 4, "2.png"]], path_root=folder.path, label_width=2, batch_size=2)
        with open(folder["again.lst"], "w") as file:
            file.write("3\t10\t0.png\n5\t20\t1.png\n3\t30\t2.png\n")
        found += run(mx, path_imglist=folder["again.lst"], path_root=folder.path)
        iterator = mx.image.ImageIter(2, SHAPE, imglist=items, path_root=folder.path, dtype="float64")
        label, data = iterator.next_sample()
        return found + [label, len(data), sorted(iterator.imglist), str(iterator.seq)]


@program
def with_augmenters(mx):
    with Folder(mx) as folder:
        source = dict(path_imgrec=folder["one.rec"], data_shape=(3, 6, 7))
        found = run(mx, rand_crop=True, rand_mirror=True, resize=8, **source)
        found += run(mx, rand_crop=True, rand_resize=True, mean=True, std=True, brightness=0.2, hue=0.1, **source)
        found += run(mx, aug_list=[mx.image.ForceResizeAug((7, 6)), mx.image.RandomGrayAug(0.0)], **source)
        iterator = mx.image.ImageIter(2, (3, 6, 7), path_imgrec=folder["one.rec"], mean=True, std=True, resize=8)
        return found + [iterator.next().data[0]]


@program
def a_subclass(mx):
    calls = []

    class Mine(mx.image.ImageIter):
        def next_sample(self):
            calls.append("next_sample")
            return super(Mine, self).next_sample()

        def read_image(self, fname):
            calls.append("read_image " + fname)
            return super(Mine, self).read_image(fname)

        def imdecode(self, s):
            calls.append("imdecode %d" % len(s))
            return super(Mine, self).imdecode(s)

        def check_valid_image(self, data):
            calls.append("check_valid_image")
            if len(calls) < 8:
                raise RuntimeError("not this one")

        def augmentation_transform(self, data):
            calls.append("augmentation_transform %s" % (data.shape,))
            return super(Mine, self).augmentation_transform(data) * 2

        def postprocess_data(self, datum):
            calls.append("postprocess_data %s" % (datum.shape,))
            return super(Mine, self).postprocess_data(datum) + 1

    with Folder(mx) as folder:
        iterator = Mine(2, SHAPE, path_imglist=folder["all.lst"], path_root=folder.path)
        batch = iterator.next()
        return [batch.data[0], batch.label[0], str(calls)]


@program
def iterators_refuse(mx):
    with Folder(mx) as folder:

        def make(**options):
            return mx.image.ImageIter(options.pop("batch_size", 3), options.pop("data_shape", SHAPE), **options)

        source = dict(path_imgrec=folder["one.rec"])
        with open(folder["broken.png"], "wb") as file:
            file.write(b"no picture")
        broken = [[0.0, "0.png"], [1.0, "broken.png"], [2.0, "2.png"], [3.0, "3.png"]]
        iterator = make(imglist=broken, path_root=folder.path, batch_size=2)
        kinds = (
            dict(),
            dict(shuffle=True, **source),
            dict(num_parts=2, **source),
            dict(num_parts=2, part_index=2, path_imgidx=folder["one.idx"], **source),
            dict(data_shape=(3, 4), **source),
            dict(data_shape=(1, 4, 5), **source),
            dict(dtype="uint8", **source),
            dict(no_such=1, **source),
            dict(path_imgrec=folder["nowhere.rec"]),
            dict(path_imglist=folder["nowhere.lst"], path_root=folder.path),
        )
        found = [outcome(lambda options=options: make(**options)) for options in kinds]
        kinds = (
            dict(path_imgrec=folder["two.rec"]),
            dict(path_imgrec=folder["two.rec"], label_width=3),
            dict(aug_list=[mx.image.CastAug()], data_shape=(3, 8, 8), **source),
            dict(imglist=[[1.0, "nowhere.png"]], path_root=folder.path),
            dict(imglist=[[1, 2, "1.png"]], path_root=folder.path),
        )
        found += [outcome(lambda options=options: make(**options).next()) for options in kinds]
        for _ in range(2):
            try:
                found.append(str(iterator.next().label[0].asnumpy().tolist()))
            except RuntimeError as error:
                found.append(str(error)[:32])
        return found


# ---- detection ----


class Boxes(Folder):
    """The same with labels for detection: a header of 4, objects of 6 numbers."""

    def __enter__(self):
        super(Boxes, self).__enter__()
        recordio, rng = self.mx.recordio, np.random.RandomState(0)
        writer = recordio.MXIndexedRecordIO(self["det.idx"], self["det.rec"], "w")
        for i in range(5):
            corners = np.sort(rng.uniform(0, 1, (1 + i % 3, 2, 2)), axis=1).reshape(-1, 4)
            objects = [[j] + list(box) + [0.5] for j, box in enumerate(corners)]
            label = np.concatenate([[4, 6, 40, 60]] + objects)
            writer.write_idx(i, recordio.pack(recordio.IRHeader(2, label, i, 0), png(pixels(i, 40, 60))))
        writer.close()
        return self


def det_epoch(iterator):
    found = []
    for batch in iterator:
        data = batch.data[0].asnumpy()
        found += [batch.label[0], batch.pad, str(data.shape), round(float(data.mean()), 2)]
    return found


def run_det(mx, folder, epochs=2, **options):
    seed(1)
    options.setdefault("path_imgrec", folder["det.rec"])
    iterator = mx.image.ImageDetIter(2, (3, 20, 24), **options)
    found = [told(iterator), str(iterator.label_shape)]
    for _ in range(epochs):
        found += det_epoch(iterator)
        iterator.reset()
    return found + [random.random()]


@program
def of_boxes(mx):
    with Boxes(mx) as folder:
        found = run_det(mx, folder)
        random_options = dict(
            path_imgidx=folder["det.idx"], shuffle=True, rand_crop=0.5, rand_pad=0.5, rand_mirror=True
        )
        for handle in ("pad", "discard", "roll_over"):
            found += run_det(mx, folder, last_batch_handle=handle, **random_options)
        found += run_det(mx, folder, path_imgidx=folder["det.idx"], num_parts=2, part_index=1, label_name="boxes")
        items = [[[2, 5, 0, 0.1, 0.1, 0.5, 0.5], "1.png"], [[2, 5] + [1, 0.1, 0.1, 0.5, 0.6] * 2, "2.png"]]
        found += run_det(mx, folder, path_imgrec=None, imglist=items, path_root=folder.path)
        found += run_det(mx, folder, aug_list=[mx.image.DetBorrowAug(mx.image.ForceResizeAug((24, 20)))])
        return found


@program
def shapes_of_boxes(mx):
    with Boxes(mx) as folder:
        iterator = mx.image.ImageDetIter(2, (3, 20, 24), path_imgrec=folder["det.rec"])
        other = mx.image.ImageDetIter(3, (3, 10, 12), path_imgrec=folder["det.rec"])
        iterator.reshape(label_shape=(6, 6))
        found = [told(iterator), str(iterator.label_shape)] + det_epoch(iterator)
        iterator.reshape(data_shape=(3, 30, 30))
        iterator.reset()
        found += [told(iterator), outcome(lambda: iterator.next())]
        found += [other.sync_label_shape(iterator) is iterator, told(other), told(iterator), str(other.label_shape)]
        for shape in ((1, 6), (9, 7), (7,)):
            found.append(outcome(lambda shape=shape: iterator.reshape(label_shape=shape)))
        found.append(outcome(lambda: iterator.reshape(data_shape=(3, 4))))
        found.append(outcome(lambda: iterator.sync_label_shape(3)))
        source = dict(path_imgrec=folder["det.rec"], batch_size=2)
        found.append(outcome(lambda: mx.image.ImageDetIter(data_shape=(3, 4), **source)))
        return found


@program
def labels_of_boxes(mx):
    rows = dict(
        good=[4, 5, 0, 0, 0, 0.1, 0.1, 0.5, 0.5],
        two=[2, 5, 0, 0.5, 0.1, 0.5, 0.5, 1, 0.1, 0.1, 0.2, 0.2],
        wide=[2, 6, 0, 0.1, 0.1, 0.5, 0.5, 9],
        nobody=[2, 5, -1, 0.1, 0.1, 0.5, 0.5],
        short=[2, 5, 0, 0.1],
        narrow=[2, 4, 0, 0.1, 0.1, 0.5],
        header=[1, 5, 0, 0.1, 0.1, 0.5, 0.5],
        odd=[2, 5, 0, 0.1, 0.1, 0.5, 0.5, 1],
        flat=[2, 5, 0, 0.5, 0.1, 0.5, 0.5],
        empty=[2, 5],
        far=[9, 5, 0, 0.1, 0.1, 0.5, 0.5],
    )
    with Boxes(mx) as folder:
        found = []
        for _, row in sorted(rows.items()):

            def make(row=row):
                items = [[row, "1.png"], [row, "2.png"]]
                iterator = mx.image.ImageDetIter(2, (3, 8, 8), imglist=items, path_root=folder.path)
                return str(iterator.label_shape)

            found.append(outcome(make))
        return found
