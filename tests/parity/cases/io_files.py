"""mx.io's iterators over files: CSV, LibSVM and RecordIO. The pictures are those of tests/fixtures/pictures.rec."""

import contextlib
import os
import pathlib
import tempfile

import numpy as np

from parity.spec import CASES, family, outcome

case, program = family(__name__)

FIXTURES = pathlib.Path(__file__).resolve().parent.parent.parent / "fixtures"
FOUR_ROWS = "1,2,3\n2,3,4\n3,4,5\n4,5,6\n"


@contextlib.contextmanager
def files(**texts):
    """A directory to be in, with these texts as files; a _ in the name stands for its last dot."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        try:
            for name, text in texts.items():
                pathlib.Path(".".join(name.rsplit("_", 1))).write_text(text)
            yield
        finally:
            os.chdir(before)


def told(batch):
    """All that a batch tells."""
    index = None if batch.index is None else np.asarray(batch.index).astype("int64").tolist()
    arrays = [(a.shape, np.dtype(a.dtype).name, a.stype) for a in batch.data + batch.label]
    values = [a.asnumpy().astype("float64").round(4).tolist() for a in batch.data + batch.label]
    return [arrays, values, batch.pad, index]


def epochs(iterator, n):
    given = [iterator.provide_data, iterator.provide_label, iterator.batch_size]
    for _ in range(n):
        given.append([told(batch) for batch in iterator])
        iterator.reset()
    return given


@program
def csv_rows(mx):
    with files(d_csv=FOUR_ROWS, one_csv="10\n20\n30\n40\n", two_csv="10,1\n20,2\n30,3\n40,4\n", more_csv="7,8,9\n"):

        def rows(n, **attrs):
            return epochs(mx.io.CSVIter(**dict(dict(data_csv="d.csv", data_shape=(3,), batch_size=2), **attrs)), n)

        return [
            rows(2),
            rows(5, batch_size=3),
            rows(3, batch_size=3, round_batch=False),
            rows(2, batch_size=3, label_csv="one.csv", data_shape=(3, 1)),
            rows(2, label_csv="two.csv", label_shape=(2,), data_shape=(1, 3)),
            rows(1, dtype="int32", label_csv="one.csv"),
            rows(1, dtype="int64", label_csv="one.csv", batch_size="4"),
            rows(1, dtype="float32", data_shape="(3,)", data_name="x", label_name="y", ctx="cpu", prefetch_buffer=1),
            rows(1, data_csv="d.csv;more.csv", batch_size=5),
            rows(2, batch_size=6),
            rows(1, label_shape=(2,)),
            rows(1, label_csv="one.csv", label_shape=(1, 1)),
        ]


@program
def csv_numbers(mx):
    with files(d_csv="1.5,-2.25,3e-3\n1e10,nan,inf\n"):
        return [mx.io.CSVIter(data_csv="d.csv", data_shape=(3,), batch_size=2).next().data[0]]


@program
def csv_refused(mx):
    with files(
        d_csv=FOUR_ROWS, short_csv="1,2,3\n2,4\n", one_csv="1\n2\n", two_csv="1,1\n2,2\n3,3\n4,4\n", empty_csv=""
    ):

        def rows(**attrs):
            attrs = dict(dict(data_csv="d.csv", data_shape=(3,), batch_size=2), **attrs)
            return list(mx.io.CSVIter(**{k: v for k, v in attrs.items() if v is not None}))

        wrong = (
            dict(data_csv="short.csv"),
            dict(data_csv="nowhere.csv"),
            dict(data_csv="empty.csv"),
            dict(data_shape=(4,)),
            dict(data_shape=(2,)),
            dict(label_csv="one.csv"),
            dict(label_csv="two.csv"),
            dict(batch_size=9),
            dict(batch_size="many"),
            dict(dtype="float64"),
            dict(dtype="what"),
            dict(data_shape=None),
            dict(batch_size=None),
            dict(data_csv=None),
        )
        return [outcome(lambda attrs=attrs: rows(**attrs)) for attrs in wrong]


SPARSE = "1.0 0:0.5 2:1.2\n-2.0\n-3.0 0:0.6 1:2.4 2:1.2\n4 2:-1.2\n"
SPARSE_LABELS = "1.0\n-2.0 0:0.125\n-3.0 2:1.2\n4 1:1.0 2:-1.2\n"


@program
def sparse_rows(mx):
    with files(d_t=SPARSE, l_t=SPARSE_LABELS):

        def rows(n, **attrs):
            return epochs(mx.io.LibSVMIter(**dict(dict(data_libsvm="d.t", data_shape=(3,), batch_size=2), **attrs)), n)

        given = [rows(2), rows(5, batch_size=3), rows(2, batch_size=3, label_libsvm="l.t", label_shape=(3,))]
        for batch in mx.io.LibSVMIter(data_libsvm="d.t", data_shape=(3,), batch_size=2):
            csr = batch.data[0]
            given += [csr.indices, csr.indptr, csr.data, batch]
        return given


@program
def sparse_rows_refused(mx):
    with files(d_t=SPARSE, l_t=SPARSE_LABELS):

        def rows(**attrs):
            return list(mx.io.LibSVMIter(**dict(dict(data_libsvm="d.t", data_shape=(3,), batch_size=2), **attrs)))

        wrong = (
            dict(data_libsvm="nowhere.t"),
            dict(label_libsvm="l.t"),
            dict(label_shape=(2,)),
            dict(round_batch=False),
            dict(data_shape=(3, 1)),
            dict(num_parts=3, part_index=3),
            dict(batch_size=9),
        )
        return [outcome(lambda attrs=attrs: rows(**attrs)) for attrs in wrong]


def pictures(mx, kind="ImageRecordIter", **attrs):
    usual = dict(
        path_imgrec=str(FIXTURES / "pictures.rec"),
        data_shape=(3, 20, 24),
        batch_size=4,
        verbose=False,
        preprocess_threads=1,
    )
    return getattr(mx.io, kind)(**dict(usual, **attrs))


def seen(iterator, n=1):
    given = [iterator.provide_data, iterator.provide_label, iterator.batch_size]
    for _ in range(n):
        for b in iterator:
            given.append((b.label[0].asnumpy().round(3).tolist(), b.pad, np.asarray(b.index).tolist()))
        iterator.reset()
    return given


@program
def records_in_batches(mx):
    return [
        seen(pictures(mx), 2),  # later, MXNet tells the padding of a buffer that it uses again
        seen(pictures(mx, batch_size=5), 2),
        seen(pictures(mx, batch_size=12), 2),
        seen(pictures(mx, data_name="x", label_name="y", data_shape="(3,20,24)", batch_size="10")),
        seen(pictures(mx, "ImageRecordIter_v1"), 2),
        seen(pictures(mx, "ImageRecordUInt8Iter"), 1),
        seen(pictures(mx, "ImageRecordInt8Iter"), 1),
        seen(pictures(mx, "ImageRecordUInt8Iter_v1", round_batch=False), 1)[:5],
        seen(pictures(mx, path_imgidx=str(FIXTURES / "pictures.idx")), 2),
    ]


@program
def the_parts_of_next_over_records(mx):
    it = pictures(mx)
    given = [isinstance(it, mx.io.MXDataIter), isinstance(it, mx.io.DataIter)]
    given += [it.getlabel(), bool(it.iter_next()), it.getlabel(), it.getdata(), it.getpad(), it.getindex()]
    fresh = pictures(mx, batch_size=5)
    return given + [fresh.next().label[0], fresh.next().pad, outcome(fresh.next), outcome(fresh.next)]


@program
def labels_of_records(mx):
    lines = ["%d\t%d\t%d\tname.jpg\n" % (i, 100 + i, -i) for i in range(10)]
    with files(l_lst="".join(lines), short_lst="".join(lines[:5])):
        return [
            seen(pictures(mx, path_imglist="l.lst", label_width=2)),
            seen(pictures(mx, path_imglist="l.lst")),
            outcome(lambda: seen(pictures(mx, path_imglist="short.lst"))),
            outcome(lambda: seen(pictures(mx, path_imglist="nowhere.lst"))),
            outcome(lambda: seen(pictures(mx, label_width=2))),
            outcome(lambda: seen(pictures(mx, label_width=0))),
        ]


def first_pictures(mx, **attrs):
    """Three of the pictures, of the three sizes; whole numbers as such, since they take less room."""
    data = pictures(mx, **dict(dict(batch_size=3), **attrs)).next().data[0].asnumpy()
    whole = np.issubdtype(data.dtype, np.floating) and (data == data.round()).all() and data.min() >= 0
    return data.astype("uint8") if whole and data.max() <= 255 else data


@program
def pictures_cut_and_sized(mx):
    settings = (
        {},
        dict(data_shape=(3, 64, 60)),
        dict(data_shape=(3, 44, 64)),
        dict(data_shape=(1, 20, 24)),
        dict(resize=30),
        dict(resize=70, inter_method=0),
        dict(resize=30, inter_method=2),
        dict(resize=30, inter_method=3),
        dict(resize=30, inter_method=4),
        dict(resize=70, inter_method=9),
        dict(resize=30, inter_method=9),
        dict(pad=5, data_shape=(3, 52, 54)),
        dict(pad=5, data_shape=(3, 52, 54), fill_value=10),
        dict(mirror=True),
        dict(max_crop_size=15, min_crop_size=15),
        dict(random_resized_crop=True),
        dict(min_random_scale=0.5, max_random_scale=0.5),
        dict(dtype="uint8", mean_r=10.0, mirror=True, scale=0.5),
        dict(dtype="int8"),
        dict(data_shape=(3, 55, 20), inter_method=9),
        dict(dtype="int8", mean_r=98.68, mean_g=120.3, mean_b=9.5),
        dict(dtype="int8", mean_r=100.0, mean_g=120.0, mean_b=130.0, scale=0.5, std_r=2.0),
    )
    return [first_pictures(mx, **attrs) for attrs in settings]


@program
def pictures_normalized(mx):
    settings = (
        dict(mean_r=10.0, mean_g=20.0, mean_b=30.0),
        dict(mean_r=123.68, mean_g=116.78, mean_b=103.94, std_r=58.4, std_g=57.1, std_b=57.4, mirror=True),
        dict(scale=1.0 / 255),
        dict(mean_r=127.5, scale=0.5, std_g=4.0),
        dict(data_shape=(1, 20, 24), mean_r=50.0, std_r=2.0),
    )
    return [first_pictures(mx, batch_size=2, **attrs) for attrs in settings]


@program
def the_mean_picture(mx):
    with files():
        given = [first_pictures(mx, mean_img="mean.bin", batch_size=5)]
        saved = mx.nd.load("mean.bin")
        given += [sorted(saved), saved["mean_img"], first_pictures(mx, mean_img="mean.bin", mean_r=50.0)]
        return given + [first_pictures(mx, mean_img="mean.bin", mirror=True, scale=0.5, std_r=2.0)]


@program
def pictures_warped(mx):
    settings = (
        dict(rotate=30, fill_value=0),
        dict(rotate=215, inter_method=9),
        dict(max_random_scale=0.7, min_random_scale=0.7, inter_method=9),
        dict(rotate=30, inter_method=4),
        dict(rotate=90),
        dict(max_random_scale=1.5, min_random_scale=1.5),
        dict(max_aspect_ratio=1.5, min_aspect_ratio=1.5),
        dict(min_img_size=80),
        dict(max_img_size=30),
    )
    return [first_pictures(mx, **attrs) for attrs in settings]


@program
def pictures_enlarged(mx):
    """The sizes are reckoned with float32: the first is 84 by 104, not 105."""
    settings = (
        dict(data_shape=(3, 84, 10), inter_method=0, batch_size=1),
        dict(data_shape=(3, 53, 57), inter_method=9),
        dict(data_shape=(3, 41, 22), resize=17),
        dict(data_shape=(3, 50, 50), max_random_scale=1.38, min_random_scale=1.38, inter_method=9),
        dict(rotate=30, inter_method=2),
    )
    return [first_pictures(mx, **attrs) for attrs in settings]


CASES["io_files"]["pictures_warped"].off = 1  # a place between two 32nds of a pixel, reckoned from float32
CASES["io_files"]["pictures_enlarged"].off = 1  # OpenCV's versions round cubic interpolation otherwise


@program
def records_refused(mx):
    wrong = (
        dict(path_imgrec="nowhere.rec"),
        dict(data_shape=(20, 24)),
        dict(data_shape=(2, 20, 24)),
        dict(data_shape=(4, 20, 24)),
        dict(batch_size="many"),
        dict(batch_size=25),
        dict(num_parts=2, part_index=2),
        dict(num_parts=0),
        dict(dtype="float16"),
        dict(resize=30, inter_method=5),
        dict(max_crop_size=100, min_crop_size=90),
        dict(random_resized_crop=True, rand_crop=True),
        dict(rand_crop="maybe"),
        dict(scale="much"),
    )
    return [outcome(lambda attrs=attrs: seen(pictures(mx, **attrs))) for attrs in wrong]


@program
def loaders_as_iterators(mx):
    from importlib import import_module

    iterator = import_module(mx.__name__ + ".contrib.io").DataLoaderIter
    data = mx.gluon.data.ArrayDataset(np.arange(16, dtype="f").reshape(8, 2), np.arange(8, dtype="f"))
    one = iterator(mx.gluon.data.DataLoader(data, 4))
    named = iterator(mx.gluon.data.DataLoader(data, 4), "x", "y", "float16")
    uneven = iterator(mx.gluon.data.DataLoader(data, 3))
    return [
        epochs(one, 2),
        epochs(named, 1),
        [(b.label[0].asnumpy()[: 3 - b.pad].tolist(), b.data[0].shape, b.pad) for b in uneven],
    ]


@program
def pictures_with_objects(mx):
    def objects(**attrs):
        usual = dict(path_imgrec=str(FIXTURES / "objects.rec"), batch_size=4)
        return pictures(mx, "ImageDetRecordIter", **dict(usual, **attrs))

    given = [seen(objects()), seen(objects(label_pad_width=30, batch_size=3)), seen(objects(rand_mirror_prob=1.0))]
    for attrs in (
        dict(),
        dict(resize_mode="fit"),
        dict(resize_mode="shrink", data_shape=(3, 48, 100)),
        dict(resize_mode="fit", data_shape=(3, 48, 100)),
        dict(resize=80),
        dict(rand_mirror_prob=1.0),
        dict(mean_r=10.0, std_r=2.0, scale=0.5),
        dict(resize_mode="fit", mean_r=10.0, std_r=2.0, mean_g=5.0),
        dict(resize_mode="fit", resize=10, data_shape=(3, 60, 60)),
        dict(resize_mode="fit", resize=53, data_shape=(3, 31, 47)),
        dict(resize_mode="fit", data_shape=(3, 59, 61)),
    ):
        batch = objects(batch_size=3, **attrs).next()
        given += [batch.data[0].asnumpy()[1:], batch.label[0]]
    for attrs in (dict(label_pad_width=5), dict(label_width=7), dict(resize_mode="x"), dict(path_imgrec="nowhere.rec")):
        given.append(outcome(lambda attrs=attrs: objects(**attrs).next()))
    return given


def middle_objects(mx, epochs=3, **attrs):
    """Each picture with its labels: how large it was given, and what became of a box in its middle, 0.1 wide."""
    lines = [f"{i}\t2\t5\t0\t0.45\t0.45\t0.55\t0.55\t{i}.png\n" for i in range(6)]
    with files(objects_lst="".join(lines)):
        usual = dict(path_imgrec=str(FIXTURES / "objects.rec"), path_imglist="objects.lst", batch_size=1)
        iterator = pictures(mx, "ImageDetRecordIter", **dict(usual, **attrs))
        for _ in range(epochs):
            for batch in iterator:
                yield batch.data[0].asnumpy()[0], batch.label[0].asnumpy()[0].astype("float64")
            iterator.reset()


@program
def pieces_of_a_given_size(mx):
    """The aspect of a piece is one of pixels; no object that is whole in a piece speaks against it."""
    given = []
    for scale, aspect in ((0.8, 1.0), (0.75, 0.9), (0.7, 1.1)):
        attrs = dict(min_crop_scales=(scale,), max_crop_scales=(scale + 1e-6,))
        attrs.update(min_crop_aspect_ratios=(aspect,), max_crop_aspect_ratios=(aspect + 1e-6,))
        for _, label in middle_objects(mx, rand_crop_prob=1, **attrs):
            given.append((0.1 / (label[9:11] - label[7:9])).round(4).tolist())
    return given


def whole(length):
    """What a length in pixels, known to rounding, may be cut to."""
    return {int(length - 1e-3), int(length + 1e-3)}


@program
def pixels_of_pieces_and_borders(mx):
    """Where a piece or a border begins and how large it is are cut to whole pixels each; boxes are not moved so."""
    plains = [data for data, _ in middle_objects(mx, 1, data_shape=(3, 48, 48))][2::3]  # the square ones
    pieces = dict(rand_crop_prob=1, min_crop_scales=(0.75,), max_crop_scales=(0.9,), min_crop_object_coverages=(0.99,))
    given = []
    for attrs, edge in ((pieces, 48), (dict(rand_pad_prob=1, max_pad_scale=2.0), 100)):
        shown = middle_objects(mx, data_shape=(3, edge, edge), resize_mode="shrink", **attrs)
        for (data, label), plain in zip(list(shown)[2::3], plains * 3):
            height, width = (int(n) for n in label[1:3])
            scales = 0.1 / (label[9:11] - label[7:9])
            starts = 48 * (0.45 - label[7:9] * scales)
            if edge == 48:
                good = [
                    (data[:, :height, :width] == plain[:, y : y + height, x : x + width]).all()
                    for x in whole(starts[0])
                    for y in whole(starts[1])
                ]
                sizes = width in whole(48 * scales[0]) and height in whole(48 * scales[1])
            else:
                places = [(x, y) for x in whole(-starts[0]) for y in whole(-starts[1])]
                good = [(data[:, y : y + 48, x : x + 48] == plain).all() for x, y in places]
                ends = 48 * (scales - 1) + starts
                sizes = any(width - 48 - x in whole(ends[0]) and height - 48 - y in whole(ends[1]) for x, y in places)
            between_pixels = abs(48 * scales - (48 * scales).round()).max() > 1e-3
            given.append((bool(any(good)), bool(sizes), bool(between_pixels)))
    return given


@program
def what_neomx_packed(mx):
    """The file that `neomx pack` makes of tests/fixtures/photos (tests/io/test_io_pack.py compares it byte by byte)."""
    given = [seen(pictures(mx, path_imgrec=str(FIXTURES / "packed.rec"), path_imgidx=str(FIXTURES / "packed.idx")))]
    file = mx.recordio.MXIndexedRecordIO(str(FIXTURES / "packed.idx"), str(FIXTURES / "packed.rec"), "r")
    for line in (FIXTURES / "packed.lst").read_text().splitlines():
        number, label, path = line.split("\t")
        header, content = mx.recordio.unpack(file.read_idx(int(number)))
        same = content == (FIXTURES / "photos" / path).read_bytes()
        given.append((path, header.flag, header.label == float(label), header.id == int(number), header.id2, same))
    return given
