"""mx.image beyond the recordings of MXNet: errors that name the image, small sources, threads, bounds."""

import pathlib
import threading

import numpy as np
import pytest

import neomx as mx
from neomx.formats import picture
from neomx.recordio import IRHeader, MXIndexedRecordIO, pack
from parity.pictures import FIXTURES, pixels, png

SHAPE = (3, 12, 16)


def records(tmp_path, pictures, label=float):
    """Write a record file and its index, from images or arbitrary bytes, and return their paths."""
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as writer:
        for number, data in enumerate(pictures):
            writer.write_idx(number, pack(IRHeader(0, label(number), number, 0), data))
    return {"path_imgrec": tmp_path / "a.rec", "path_imgidx": tmp_path / "a.idx"}


def labels(iterator):
    return [batch.label[0].asnumpy().tolist() for batch in iterator]


# ---- images ----


def test_opencv_has_no_threads_and_rounds_equally_in_all_threads():
    import cv2

    found = []
    image = pixels(1, 37, 53)

    def resize():
        found.append(picture.resize(image, 29, 20, 2))
        found.append(cv2.ipp.useIPP())

    resize()
    worker = threading.Thread(target=resize)
    worker.start()
    worker.join()
    assert cv2.getNumThreads() == 1 and found[1::2] == [False, False]
    assert (found[0] == found[2]).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_keep_their_channels(channels):
    image = np.ascontiguousarray(np.concatenate([pixels(), pixels(1)], axis=2)[:, :, :channels])
    assert (picture.decode(picture.encode(image, 3, ".png"), -1) == image).all()
    assert picture.resize(image, 5, 4, 1).shape == (4, 5, channels)
    padded = picture.pad(image, 1, 2, 3, 4, fill=9)
    assert padded.shape == (15, 23, channels) and (padded[0] == 9).all() and (padded[1:-2, 3:-4] == image).all()
    moved = picture.warp(image, np.array([[1.0, 0, 2], [0, 1, 1]]), 16, 12, interp=0, fill=7)
    assert (moved[1:, 2:] == image[:-1, :-2]).all() and (moved[0] == 7).all()


def test_convert_between_color_spaces():
    assert picture.convert(np.array([[[255, 0, 0]]], "uint8"), "RGB2HLS").tolist() == [[[0, 128, 255]]]
    assert picture.convert(pixels(), "RGB2GRAY").shape == (12, 16, 1)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: picture.decode(b""), "cannot decode 0 bytes"),
        (lambda: picture.encode(pixels(), 5, "png"), "img_fmt='png': expected '.jpg'"),
        (
            lambda: picture.encode(pixels().astype("int32"), 5, ".png"),
            r"expected a uint8 image .*, received int32 \(12, 16, 3\)",
        ),
        (lambda: picture.encode(pixels()[:, :, :2], 5, ".png"), r"received uint8 \(12, 16, 2\)"),
        (lambda: picture.resize(pixels(), 0, 5), r"resize of an image \(dtype uint8, shape \(12, 16, 3\)\) with"),
        (lambda: picture.resize(pixels(), 5, 5, 77), "Unknown interpolation"),
        (lambda: picture.resize(pixels().astype("int64"), 5, 5), "resize of an image \\(dtype int64"),
        (lambda: picture.pad(pixels(), -1, 0, 0, 0), "copyMakeBorder of an image"),
        (lambda: picture.convert(pixels()[:, :, :1], "RGB2HLS"), "cvtColor of an image"),
        (lambda: mx.image.imresize(mx.nd.zeros((4, 4)), 2, 2), r"_cvimresize.*expected an image"),
        (
            lambda: mx.image.imread(pathlib.Path(FIXTURES) / "none.jpg"),
            "cannot read the image .*none.jpg: No such file",
        ),
        (lambda: mx.image.imdecode("text"), "expects bytes or a uint8 array, received str"),
    ],
)
def test_image_functions_reject_invalid_input(call, told):
    with pytest.raises((mx.MXNetError, ValueError), match=told):
        call()


@pytest.mark.parametrize("interp", range(6))
@pytest.mark.parametrize("size", [(9, 7), (30, 25), (20, 5), (16, 12)])
def test_torch_resizes_as_opencv_does(monkeypatch, interp, size):
    image = mx.nd.array(np.stack([pixels(), pixels(1)]), dtype="uint8")
    by_opencv = [mx.nd.image.resize(x, size, interp=interp).asnumpy() for x in (image, image.astype("float32"))]
    monkeypatch.setattr(picture, "available", lambda: False)
    by_torch = [mx.nd.image.resize(x, size, interp=interp).asnumpy() for x in (image, image.astype("float32"))]
    assert np.abs(by_torch[0].astype(int) - by_opencv[0]).max() <= 1
    np.testing.assert_allclose(by_torch[1], by_opencv[1], atol=0.01)


def test_results_are_written_to_out():
    data, out = png(pixels()), mx.nd.zeros((12, 16, 3), dtype="uint8")
    assert mx.image.imdecode(data, out=out) is out and (out.asnumpy() == pixels()).all()
    small = mx.nd.zeros((4, 5, 3), dtype="uint8")
    assert mx.image.imresize(out, 5, 4, out=small) is small and small.asnumpy().any()
    with mx.cpu(1):
        assert mx.image.imdecode(data).context == mx.cpu(1)


# ---- iterators ----


def test_error_names_image_that_does_not_decode(tmp_path):
    source = records(tmp_path, [png(pixels()), b"not a picture", png(pixels(2)), png(pixels(3))])
    with pytest.raises(
        mx.MXNetError, match="Broken image index: 1, cannot decode 13 bytes that begin with b'not a pi'"
    ):
        mx.image.ImageIter(2, SHAPE, **source).next()
    iterator = mx.image.ImageIter(2, SHAPE, path_imgrec=source["path_imgrec"])
    with pytest.raises(mx.MXNetError, match=r"Broken image record number 2 of .*a.rec"):
        iterator.next()
    assert labels(iterator) == [[2.0, 3.0]]  # the iterator can continue
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(mx.MXNetError, match="Broken image filename: x.png, imdecode: expected the bytes of an image"):
        mx.image.ImageIter(1, SHAPE, imglist=[[1, "x.png"]], path_root=tmp_path).next()


def test_error_of_wrong_label_or_shape_names_the_image(tmp_path):
    source = records(tmp_path, [png(pixels(i)) for i in range(3)], label=lambda i: [i, i] if i else 0)
    with pytest.raises(ValueError, match="the label of index: 1 has 2 values, expected label_width=1"):
        mx.image.ImageIter(3, SHAPE, **source).next()
    with pytest.raises(ValueError, match=r"index: 0 has shape \(3, 12, 16\) after .*expected data_shape=\(3, 8, 8\)"):
        mx.image.ImageIter(3, (3, 8, 8), aug_list=[], **source).next()


def test_source_smaller_than_a_batch_is_repeated(tmp_path):
    source = records(tmp_path, [png(pixels(i)) for i in range(2)])
    batch = mx.image.ImageIter(5, SHAPE, **source).next()
    assert batch.label[0].asnumpy().tolist() == [0, 1, 0, 1, 0] and batch.pad == 3
    iterator = mx.image.ImageIter(5, SHAPE, path_imgrec=source["path_imgrec"], last_batch_handle="roll_over")
    assert labels(iterator) == []
    iterator.reset()
    assert labels(iterator) == [[0, 1, 0, 1, 0]]


def test_truncated_record_file_yields_complete_records(tmp_path):
    source = records(tmp_path, [png(pixels(i)) for i in range(4)])
    data = source["path_imgrec"].read_bytes()
    source["path_imgrec"].write_bytes(data[: len(data) - 50])
    with pytest.warns(RuntimeWarning, match="a.rec is truncated.* after 3 complete records"):
        assert labels(mx.image.ImageIter(2, SHAPE, path_imgrec=source["path_imgrec"])) == [[0, 1], [2, 0]]
    with pytest.raises(mx.MXNetError, match="cannot read the record 3 by .*a.idx: .*a.rec is truncated"):
        labels(mx.image.ImageIter(2, SHAPE, **source))


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({}, AssertionError, "needs a source"),
        ({"shuffle": True}, AssertionError, "needs the index of a .rec file, path_imgidx"),
        ({"batch_size": 0}, mx.MXNetError, "batch_size=0: expected at least 1"),
        ({"last_batch_handle": "keep"}, ValueError, "'keep': expected one of pad, discard, roll_over"),
        ({"path_imgidx": "none.idx"}, mx.MXNetError, "cannot open the index none.idx of .*a.rec: No such file"),
        ({"data_shape": (12, 16, 3)}, ValueError, r"3 channels, received data_shape=\(12, 16, 3\)"),
    ],
)
def test_image_iter_rejects_invalid_arguments(tmp_path, options, kind, told):
    source = records(tmp_path, [png(pixels())])["path_imgrec"] if options else None
    options = {"batch_size": 1, "data_shape": SHAPE, "path_imgrec": source, **options}
    with pytest.raises(kind, match=told):
        mx.image.ImageIter(**options)


@pytest.mark.parametrize("line", ["x\t1\ta.png", "1\tmany\ta.png", "1"])
def test_invalid_line_of_a_list_is_quoted(tmp_path, line):
    (tmp_path / "a.lst").write_text(f"0\t1\ta.png\n{line}\n")
    with pytest.raises(mx.MXNetError, match=r"a.lst, line 2: expected an index, labels and a file name"):
        mx.image.ImageIter(1, SHAPE, path_imglist=tmp_path / "a.lst", path_root=tmp_path)


def test_image_iter_in_other_iterators(tmp_path):
    iterator = mx.image.ImageIter(2, SHAPE, **records(tmp_path, [png(pixels(i)) for i in range(4)]))
    assert labels(mx.io.ResizeIter(iterator, 3)) == [[0, 1], [2, 3], [0, 1]]
    iterator.reset()
    assert labels(mx.io.PrefetchingIter(iterator)) == [[0, 1], [2, 3]]


# ---- augmenters ----


def test_random_crops_stay_within_their_bounds():
    image = mx.nd.array(pixels(0, 40, 60), dtype="uint8")
    for _ in range(50):
        out, (x, y, w, h) = mx.image.random_size_crop(image, (8, 8), (0.2, 0.5), (0.5, 2.0))
        assert out.shape == (8, 8, 3) and x >= 0 and y >= 0 and x + w <= 60 and y + h <= 40
        assert 0.19 < w * h / 2400 < 0.52 and 0.48 < w / h < 2.1


def test_detection_crops_cover_objects_as_requested():
    image = mx.nd.array(pixels(0, 40, 60), dtype="uint8")
    boxes = np.array([[0, 0.1, 0.2, 0.5, 0.6, 7], [1, 0.4, 0.3, 0.9, 0.95, 8]])
    crop, seen = mx.image.DetRandomCropAug(min_object_covered=0.6, area_range=(0.3, 0.9)), set()
    for _ in range(50):
        out, label = crop(image, boxes)
        assert (label[:, 1:5] >= 0).all() and (label[:, 1:5] <= 1).all() and set(label[:, 5]) <= {7, 8}
        seen.add((out.shape, len(label)))
        if out is not image:
            assert 0.29 < out.shape[0] * out.shape[1] / 2400 < 0.91
    assert len(seen) > 10


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.image.DetRandomCropAug(area_range=(0.5, 0.2)),
        lambda: mx.image.DetRandomCropAug(aspect_ratio_range=(2, 1)),
        lambda: mx.image.DetRandomPadAug(area_range=(0.2, 0.9)),
    ],
)
def test_invalid_ranges_are_rejected(make):
    with pytest.raises(ValueError, match=r"expected \(from, to\)"):
        make()


# ---- detection ----


def boxes_of(number):
    return [2, 5] + [number, 0.1, 0.2, 0.6, 0.9] * (1 + number % 2)


def test_error_of_wrong_object_width_names_the_image(tmp_path):
    source = records(
        tmp_path, [png(pixels(i)) for i in range(3)], lambda i: [2, 5 + i // 2] + [0, 0, 0, 1, 1, 1][: 5 + i // 2]
    )
    with pytest.raises(mx.MXNetError, match="the objects of index: 2 differ in width"):
        mx.image.ImageDetIter(2, SHAPE, **source)
    source = records(tmp_path, [png(pixels(i)) for i in range(3)])
    with pytest.raises(
        RuntimeError, match=r"Label shape is invalid: \(1,\). The label of index: 0 should have a header"
    ):
        mx.image.ImageDetIter(2, SHAPE, **source)


def test_augmenters_may_reject_an_image_but_op_errors_are_raised(tmp_path):
    class Refuse(mx.image.DetAugmenter):
        def __call__(self, src, label):
            if label[0, 0] == 1:
                raise RuntimeError("not this one")
            return src, label

    class Mistaken(mx.image.DetAugmenter):
        def __call__(self, src, label):
            return src + mx.nd.zeros((7, 7)), label

    source = records(tmp_path, [png(pixels(i)) for i in range(3)], boxes_of)
    found = labels(mx.image.ImageDetIter(1, SHAPE, aug_list=[Refuse()], **source))
    assert [batch[0][0][0] for batch in found] == [0, 2]
    with pytest.raises(mx.MXNetError, match="broadcast"):
        labels(mx.image.ImageDetIter(1, SHAPE, aug_list=[Mistaken()], **source))


def test_boxes_are_drawn(tmp_path):
    source = records(tmp_path, [png(np.zeros((40, 60, 3), "uint8"))] * 3, boxes_of)
    iterator = mx.image.ImageDetIter(2, (3, 40, 60), **source)
    drawn = list(iterator.draw_next(color=(255, 0, 0), thickness=1, id2labels={0: "cat"}))
    assert len(drawn) == 3 and all(image.shape == (40, 60, 3) and image.dtype == np.uint8 for image in drawn)
    assert drawn[1][8, 6].tolist() == [0, 0, 255] == drawn[1][36, 36].tolist()  # corners, BGR
    assert (drawn[0] > 0).sum() > (drawn[1] > 0).sum()  # the first has a text
    iterator = mx.image.ImageDetIter(2, (3, 40, 60), mean=True, std=True, **source)
    assert next(iterator.draw_next(color=(0, 0, 0), mean=True, std=True)).max() <= 1


def test_error_without_window_support_in_opencv(tmp_path):
    iterator = mx.image.ImageDetIter(1, SHAPE, **records(tmp_path, [png(pixels())], boxes_of))
    with pytest.raises(mx.MXNetError, match="cannot open a window"):
        next(iterator.draw_next(waitKey=1))
