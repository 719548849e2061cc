"""ImageRecordIter: parts, orders, random augmentation, threads and damaged files.

parity/cases/io_files.py compares everything that is not random with MXNet.
"""

import gc
import pathlib
import shutil
import subprocess
import sys
import threading
from random import Random

import numpy as np
import pytest
from launching import LIMIT, until

import neomx as mx
from neomx import recordio
from neomx.base import MXNetError
from neomx.formats import picture
from neomx.formats.records import RecordFile
from neomx.io.augment import Augmentation
from parity.cases.io_files import FIXTURES, pictures

RECORDS, INDEX = FIXTURES / "pictures.rec", FIXTURES / "pictures.idx"
POSITIONS = [int(line.split("\t")[1]) for line in INDEX.read_text().splitlines()]


def labels(iterator):
    return [
        label for batch in iterator for label in batch.label[0].asnumpy()[: iterator.batch_size - batch.pad].tolist()
    ]


def decoded():
    """Return the decoded images, RGB."""
    file = recordio.MXRecordIO(str(RECORDS), "r")
    return [picture.decode(recordio.unpack(file.read())[1]) for _ in range(10)]


def planes(pixels):
    return pixels.transpose(2, 0, 1).astype(np.float32)


def middle(pixels, height=20, width=24):
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def given(**attrs):
    """Return the ten images of an epoch."""
    return pictures(mx, **{"batch_size": 10, "preprocess_threads": 2, **attrs}).next().data[0].asnumpy()


# ---- parts and orders ----


@pytest.mark.parametrize("index", ["", str(INDEX)])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_each_record_is_in_one_part(parts, shuffle, index):
    for _ in range(2):
        seen = [
            labels(pictures(mx, batch_size=1, num_parts=parts, part_index=i, shuffle=shuffle, path_imgidx=index))
            for i in range(parts)
        ]
        assert sorted(sum(seen, [])) == list(range(10))
        if index:
            assert max(map(len, seen)) - min(map(len, seen)) <= 1


@pytest.mark.parametrize("index", ["", str(INDEX)])
def test_shuffled_epochs_have_different_orders(index):
    def orders(**attrs):
        iterator, found = pictures(mx, batch_size=5, shuffle=True, path_imgidx=index, **attrs), []
        for _ in range(3):
            found.append(labels(iterator))
            iterator.reset()
        return found

    first = orders()
    assert all(sorted(order) == list(range(10)) for order in first)
    assert len(set(map(tuple, first))) == 3
    assert orders() == first != orders(seed=1)
    assert orders(preprocess_threads=3) == first


def test_chunks_are_shuffled_too(tmp_path):
    """In a file much longer than a chunk, all records are read and neighbors are separated."""
    writer = recordio.MXRecordIO(str(tmp_path / "many.rec"), "w")
    picture_bytes = recordio.unpack(recordio.MXRecordIO(str(RECORDS), "r").read())[1]
    for i in range(1500):
        writer.write(recordio.pack(recordio.IRHeader(0, float(i), i, 0), picture_bytes))
    writer.close()
    attrs = {"path_imgrec": str(tmp_path / "many.rec"), "batch_size": 100, "shuffle": True, "shuffle_chunk_size": 1}
    order = labels(pictures(mx, data_shape=(3, 4, 4), **attrs))
    assert sorted(order) == list(range(1500))
    assert (tmp_path / "many.rec").stat().st_size > 1 << 20
    assert np.abs(np.diff(order)).mean() > 100


def test_several_files_are_read_in_sequence(tmp_path):
    for name in ("a.rec", "b.rec"):
        shutil.copy(RECORDS, tmp_path / name)
    twice = list(range(10)) * 2
    for uri in (str(tmp_path), f"{tmp_path}/a.rec;{tmp_path}/b.rec"):
        assert labels(pictures(mx, path_imgrec=uri, batch_size=5)) == twice
        parts = [labels(pictures(mx, path_imgrec=uri, batch_size=1, num_parts=3, part_index=i)) for i in range(3)]
        assert sum(parts, []) == twice
    with pytest.raises(MXNetError, match="needs exactly one record file, received 2"):
        pictures(mx, path_imgrec=str(tmp_path), path_imgidx=str(INDEX))


def test_epoch_continues_after_the_last_batch():
    """With batches larger than the file, an epoch starts where the previous one ended, unless that was the end."""
    iterator, seen = pictures(mx, batch_size=15), []
    for _ in range(4):
        seen.append([(int(b.label[0][0].asscalar()), b.pad) for b in iterator])
        iterator.reset()
    assert seen == [[(0, 5)], [(5, 10)], [(0, 5)], [(5, 10)]]


def test_record_with_magic_number_is_split(tmp_path):
    """A record that contains the magic number is split; no piece looks like the beginning of a record."""
    magic = b"\x0a\x23\xd7\xce"
    writer = recordio.MXRecordIO(str(tmp_path / "pieces.rec"), "w")
    for position in range(4):
        _, encoded = recordio.unpack(recordio.MXRecordIO(str(RECORDS), "r").read())
        writer.write(recordio.pack(recordio.IRHeader(0, float(position), position, 0), encoded + magic * 3 + b"end"))
    writer.close()
    for parts in (1, 2, 5, 40):
        attrs = {"path_imgrec": str(tmp_path / "pieces.rec"), "batch_size": 1, "num_parts": parts}
        seen = [labels_of_part(part_index=i, **attrs) for i in range(parts)]
        assert sum(seen, []) == [0, 1, 2, 3]
    file = RecordFile(str(tmp_path / "pieces.rec"))
    whole = file.read(0)
    assert file.length(0) == len(whole) and whole.endswith(magic * 3 + b"end")
    for size in (0, 24, len(whole) - 12, len(whole) - 5, len(whole), len(whole) + 9):
        assert file.begin(0, size) == whole[:size]


def labels_of_part(**attrs):
    try:
        return labels(pictures(mx, **attrs))
    except MXNetError as error:
        assert "no records in this part of" in str(error)
        return []


# ---- random augmentation ----


def test_random_crops_are_parts_of_the_images():
    seen = set()
    for pixels, cut in zip(decoded(), given(rand_crop=True), strict=True):
        tops, lefts = pixels.shape[0] - 20, pixels.shape[1] - 24
        places = [
            (top, left)
            for top in range(tops + 1)
            for left in range(lefts + 1)
            if np.array_equal(planes(pixels[top : top + 20, left : left + 24]), cut)
        ]
        assert len(places) == 1
        seen |= set(places)
    assert len(seen) > 5


def test_half_of_the_images_are_mirrored():
    expected = [planes(middle(pixels)) for pixels in decoded()]
    count = 0
    iterator = pictures(mx, batch_size=10, rand_mirror=True)
    for _ in range(10):
        for cut, whole in zip(iterator.next().data[0].asnumpy(), expected, strict=True):
            mirrored = np.array_equal(cut, whole[:, :, ::-1])
            assert mirrored or np.array_equal(cut, whole)
            count += mirrored
        iterator.reset()
    assert 30 <= count <= 70


def test_random_values_do_not_depend_on_threads_or_parts():
    attrs = {"rand_crop": True, "rand_mirror": True, "brightness": 0.3, "batch_size": 5, "path_imgidx": str(INDEX)}

    def all_of(**more):
        return np.concatenate([b.data[0].asnumpy() for b in pictures(mx, **attrs, **more)])

    one = all_of(preprocess_threads=1)
    np.testing.assert_array_equal(all_of(preprocess_threads=3), one)
    halves = [all_of(num_parts=2, part_index=i) for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(halves), one)
    assert not np.array_equal(all_of(seed_aug=1), one)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_color_changes_stay_within_limits(name):
    moved = 0
    for pixels, changed in zip(decoded(), given(**{name: 0.3}), strict=True):
        whole = planes(middle(pixels))
        grey = np.tensordot([0.114, 0.587, 0.299], whole, 1)
        goal = {"brightness": 0 * grey, "contrast": grey.mean() + 0 * grey, "saturation": grey}[name]
        away = 0.3 * np.abs(whole - goal) + 0.51
        assert (np.abs(changed - whole) <= away + 0.01 * np.abs(goal)).all()
        moved += not np.array_equal(changed, whole)
    assert moved >= 8


def test_hue_lightness_and_noise():
    whole = np.stack([planes(middle(pixels)) for pixels in decoded()])
    lighter = given(random_l=20)
    assert np.abs(lighter - whole).mean() > 5 and np.abs((lighter - whole).mean(axis=(1, 2, 3))).max() < 21
    for attrs in ({"random_h": 30}, {"random_s": 40}, {"pca_noise": 0.2}):
        changed = given(**attrs)
        assert 0.2 < np.abs(changed - whole).mean() < 60 and changed.min() >= 0 and changed.max() <= 255
    assert np.abs(given(pca_noise=0.05)[0] - whole[0]).max() < 30


def test_contrast_and_illumination_apply_after_the_mean():
    whole = np.stack([planes(middle(pixels)) for pixels in decoded()])
    lit = given(max_random_illumination=30.0, mean_r=100.0, mean_g=100.0, mean_b=100.0, scale=0.5) - (whole - 100) / 2
    assert np.ptp(lit, axis=(1, 2, 3)).max() < 1e-4 and 1 < np.abs(lit).max() <= 15
    contrasted = given(max_random_contrast=0.2, mean_r=100.0, mean_g=100.0, mean_b=100.0)
    far = np.abs(whole - 100) > 5
    ratios = contrasted[far] / (whole - 100)[far]
    assert 0.8 <= ratios.min() < 0.95 and 1.05 < ratios.max() <= 1.2001


def test_crops_by_area_and_aspect_ratio():
    pixels, random = np.zeros((60, 45, 3), np.uint8), Random(0)
    draws = Augmentation(min_random_area=0.2, max_random_area=0.5, min_aspect_ratio=0.75, max_aspect_ratio=4 / 3)
    shapes = [draws._piece_of_area(pixels, random).shape for _ in range(200)]
    areas = [h * w / 2700 for h, w, _ in shapes]
    aspects = [w / h for h, w, _ in shapes]
    assert 0.18 < min(areas) < 0.23 and 0.45 < max(areas) < 0.53
    assert 0.7 < min(aspects) < 0.8 and 1.25 < max(aspects) < 1.4
    assert Augmentation(min_random_area=2.0, max_random_area=2.0)._piece_of_area(pixels, random) is None
    assert given(random_resized_crop=True, min_random_area=0.2).shape == (10, 3, 20, 24)


def test_scales_and_rotations_stay_within_limits():
    pixels, random = np.full((60, 45, 3), 100, np.uint8), Random(0)
    scaled = Augmentation(min_random_scale=0.5, max_random_scale=2.0, min_img_size=30, max_img_size=100)
    edges = [edge for _ in range(100) for edge in scaled._warp(pixels, random).shape[:2]]
    assert min(edges) == 30 and max(edges) == 100
    turned = Augmentation(max_rotate_angle=10, fill_value=7, max_shear_ratio=0.1, max_aspect_ratio=0.1)
    corners = [turned._warp(pixels, random)[0, 0, 0] for _ in range(100)]
    assert 7 in corners and set(np.unique(turned._warp(pixels, random))) <= set(range(7, 101))
    cropped = Augmentation(min_crop_size=20, max_crop_size=30, rand_crop=True)
    assert cropped.apply(pixels, 8, 9, random).shape == (8, 9, 3)
    assert Augmentation(inter_method=10, resize=30).apply(pixels, 8, 9, random).shape == (8, 9, 3)


def test_boxes_follow_the_augmented_image():
    attrs = {"path_imgrec": str(FIXTURES / "objects.rec"), "batch_size": 6, "preprocess_threads": 2}
    chances = {
        "rand_mirror_prob": 0.5,
        "rand_pad_prob": 0.5,
        "max_pad_scale": 3.0,
        "rand_crop_prob": 0.7,
        "min_crop_scales": (0.4, 0.6),
        "max_crop_scales": "(0.9, 1.0)",
        "num_crop_sampler": 2,
        "min_crop_aspect_ratios": (0.5, 0.5),
        "max_crop_aspect_ratios": (2.0, 2.0),
        "min_crop_object_coverages": (0.5, 0.2),
        "random_hue_prob": 0.5,
        "max_random_hue": 20,
        "random_contrast_prob": 0.5,
        "max_random_contrast": 0.2,
    }
    for name in ("overlaps", "sample_coverages", "object_coverages"):
        chances.setdefault(f"min_crop_{name}", (0.0, 0.0))
        chances[f"max_crop_{name}"] = (1.0, 1.0)
    iterator, counts = pictures(mx, "ImageDetRecordIter", **attrs, **chances), set()
    for _ in range(20):
        batch = iterator.next()
        iterator.reset()
        for row in batch.label[0].asnumpy():
            number = int(row[3])
            objects = row[6 : 4 + number].reshape(-1, 5)
            assert (row[4 + number :] == -1).all() and len(objects) >= 1
            assert (objects[:, 1:] >= 0).all() and (objects[:, 1:] <= 1).all()
            assert (objects[:, 3] > objects[:, 1]).all() and (objects[:, 4] > objects[:, 2]).all()
            counts.add(len(objects))
    assert counts == {1, 2, 3}


# ---- threads ----


def threads_of(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_threads_end_with_the_iterator():
    gc.collect()
    before = len(threads_of("ImageRecordIter"))
    iterator = pictures(mx, preprocess_threads=3)
    iterator.next()
    threads = threads_of("ImageRecordIter")
    assert len(threads) > before
    del iterator  # there is no reference cycle, so this is enough
    for thread in threads[before:]:
        thread.join(LIMIT)
    assert len(threads_of("ImageRecordIter")) <= before


def test_program_can_exit_while_batches_are_decoded():
    code = (
        "import neomx as mx\n"
        f"it = mx.io.ImageRecordIter(path_imgrec={str(RECORDS)!r}, data_shape=(3, 600, 600), batch_size=10, "
        "prefetch_buffer=8, inter_method=4)\n"
        "it.next()\n"
        "print('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_a_reset_in_the_middle_begins_again():
    iterator = pictures(mx, batch_size=4, preprocess_threads=3, prefetch_buffer=2)
    for taken in (1, 2, 1, 0, 2):
        for i in range(taken):
            assert iterator.next().label[0].asnumpy().tolist() == list(range(4 * i, 4 * i + 4))
        iterator.reset()
    assert labels(iterator) == list(range(10))


def test_batches_are_decoded_ahead():
    iterator = pictures(mx, batch_size=1, preprocess_threads=1, prefetch_buffer=3)
    iterator.next()
    assert until(lambda: all(part.done() for batch in waiting(iterator) for part in batch._parts))
    assert len(waiting(iterator)) == 3


def waiting(iterator):
    return iterator._batches.gi_frame.f_locals["waiting"]


def test_batches_do_not_share_memory():
    iterator = pictures(mx, batch_size=5)
    first = iterator.next().data[0]
    kept = first.asnumpy().copy()
    iterator.next().data[0][:] = 0
    np.testing.assert_array_equal(first.asnumpy(), kept)


# ---- errors ----


@pytest.fixture
def damaged(tmp_path):
    """Return a function that writes damaged records and returns the arguments to read them."""

    def write(change):
        content = bytearray(RECORDS.read_bytes())
        content = change(content) or content
        (tmp_path / "damaged.rec").write_bytes(content)
        return {"path_imgrec": str(tmp_path / "damaged.rec"), "batch_size": 2}

    return write


@pytest.mark.parametrize("index", ["", str(INDEX)])
@pytest.mark.parametrize("missing", [1, 8, 700])
def test_truncated_file_is_read_up_to_the_damage(damaged, missing, index):
    attrs = damaged(lambda content: content[:-missing])
    with pytest.warns(UserWarning, match=rf"damaged.rec is truncated: .*byte {POSITIONS[9]}.*after 9 complete records"):
        iterator = pictures(mx, path_imgidx=index, **attrs)
        assert labels(iterator) == list(range(9))
    iterator.reset()
    assert labels(iterator)  # warns only once


@pytest.mark.parametrize("record", [4, 5])
def test_damaged_record_header_is_an_error(damaged, record):
    def change(content):
        content[POSITIONS[record]] ^= 1

    iterator = pictures(mx, **damaged(change))
    assert [iterator.next().label[0].asnumpy().tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(MXNetError, match=rf"damaged.rec is damaged: at byte {POSITIONS[record]} there is no record"):
        iterator.next()
    iterator.reset()
    assert iterator.next().pad == 0


def test_error_of_damaged_image_names_its_record(damaged):
    def change(content):
        content[POSITIONS[5] + 32 : POSITIONS[6]] = bytes(POSITIONS[6] - POSITIONS[5] - 32)

    iterator = pictures(mx, preprocess_threads=3, **damaged(change))
    assert [iterator.next().label[0].asnumpy().tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    message = rf"record 5 of .*damaged.rec \(at byte {POSITIONS[5]}\): cannot decode"
    with pytest.raises(MXNetError, match=message):
        iterator.next()


def test_image_record_iter_errors(tmp_path):
    pathlib.Path(tmp_path, "wrong.idx").write_text("0\t4\n")
    pathlib.Path(tmp_path, "text.idx").write_text("hello\n")
    pathlib.Path(tmp_path, "two.lst").write_text("0\t1\t2\n")
    pathlib.Path(tmp_path, "bad.lst").write_text("0\tx\tname\n")
    pathlib.Path(tmp_path, "empty.rec").write_bytes(b"")
    for message, attrs in {
        "cannot open nowhere.rec: no such file": {"path_imgrec": "nowhere.rec"},
        "path_imgrec must name a record file": {"path_imgrec": ""},
        "cannot read nowhere.idx: No such file": {"path_imgidx": "nowhere.idx"},
        "text.idx, line 1: expected a key, a tab and a position": {"path_imgidx": f"{tmp_path}/text.idx"},
        "is damaged: at byte 4 there is no record": {"path_imgidx": f"{tmp_path}/wrong.idx", "round_batch": False},
        "cannot read nowhere.lst: No such file": {"path_imglist": "nowhere.lst"},
        "bad.lst, line 1: expected an index, one or more labels": {"path_imglist": f"{tmp_path}/bad.lst"},
        "expected label_width=2 labels in each line": {"path_imglist": f"{tmp_path}/two.lst", "label_width": 2},
        "record 1 of .*the list path_imglist has no label for this record": {"path_imglist": f"{tmp_path}/two.lst"},
        "record 0 of .*expected label_width=2 labels, but the record has 1": {"label_width": 2},
        "label_width must be at least 1, received 0": {"label_width": 0},
        r"data_shape must be \(channels: 1, 3 or 4, height, width\), received \(20, 24\)": {"data_shape": (20, 24)},
        "record 0 of .*needs 4 channels, but the image has 3": {"data_shape": (4, 20, 24)},
        "the number of records, 10, must be bigger than batch_size, 21": {"batch_size": 21},
        "no records in this part of .*empty.rec": {"path_imgrec": f"{tmp_path}/empty.rec"},
        "dtype must be one of .*'float32', 'uint8', 'int8'.* received 'float16'": {"dtype": "float16"},
        "inter_method must be 0, 1, 2, 3, 4, 9 or 10, received 5": {"inter_method": 5},
        "random_resized_crop chooses position and size itself": {"random_resized_crop": True, "rand_crop": True},
        "record 0 of .*max_crop_size=90 exceeds the image size": {"max_crop_size": 90, "min_crop_size": 9},
        "min_crop_size and max_crop_size must be positive and in this order": {"max_crop_size": 9},
        "unknown augmenter aug_seq='aug_own'": {"aug_seq": "aug_own"},
        "seed_aug must be an integer or None, received 'x'": {"seed_aug": "x"},
    }.items():
        with pytest.raises(MXNetError, match=message):
            list(pictures(mx, **attrs))
    with pytest.warns(UserWarning, match="the unknown argument erbose is ignored: did you mean verbose"):
        pictures(mx, erbose=False)
    mx.nd.save(str(tmp_path / "mean.nd"), {"mean_img": mx.nd.zeros((3, 2, 2))})
    with pytest.raises(MXNetError, match=r"mean.nd has shape \(3, 2, 2\), expected data_shape=\(3, 20, 24\)"):
        pictures(mx, mean_img=str(tmp_path / "mean.nd"))


def test_image_det_record_iter_errors():
    objects = {"path_imgrec": str(FIXTURES / "objects.rec")}
    for message, attrs in {
        "label_pad_width=5 is less than the 17 labels of a record": {**objects, "label_pad_width": 5},
        "label_width=7 does not match the records, which have 17": {**objects, "label_width": 7},
        "resize_mode must be one of": {**objects, "resize_mode": "x"},
        "expected 2 values of min_ and max_crop_scales": {**objects, "rand_crop_prob": 1, "num_crop_sampler": 2},
        "at least one value for max_crop_trials": {**objects, "rand_crop_prob": 1, "max_crop_trials": ()},
        "min_crop_aspect_ratios=.* not be negative": {**objects, "rand_crop_prob": 1, "min_crop_aspect_ratios": (-1,)},
        "record 0 of .*expected a label of a header": {},
    }.items():
        with pytest.raises(MXNetError, match=message):
            pictures(mx, "ImageDetRecordIter", **attrs).next()


def test_paths_may_be_none():
    assert labels(pictures(mx, path_imgidx=None, path_imglist=None, mean_img=None)) == list(range(10))


def test_last_batch_without_round_batch_is_padded_with_zeros():
    *_, last = pictures(mx, batch_size=4, round_batch=False)
    assert last.pad == 2 and last.label[0].asnumpy().tolist() == [8, 9, 0, 0]
    assert not last.data[0][2:].asnumpy().any()
