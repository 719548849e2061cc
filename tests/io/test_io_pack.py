"""`neomx pack`: lists, records, damaged images, the progress bar. MXNet reads fixtures/packed.rec in the recordings."""

import io
import os
import pathlib

import numpy as np
import pytest

import neomx as mx
from neomx import recordio
from neomx.bar import Bar, duration
from neomx.formats import picture
from neomx.launch.cli import main
from parity.cases.io_files import FIXTURES

FOLDERS = ("a", "b/x", "c")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Five images in each of three folders, one of them a PNG; their names identify them."""
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0)
    for folder in FOLDERS:
        pathlib.Path("photos", folder).mkdir(parents=True)
        for i in range(5):
            pixels = picture.resize(numbers.integers(0, 256, (5, 7, 3), dtype=np.uint8), 70 + i, 50, 2)
            kind = ".png" if i == 2 else ".jpg"
            pathlib.Path("photos", folder, f"{i}{kind}").write_bytes(picture.encode(pixels, 9, kind))
    pathlib.Path("photos/a/notes.txt").write_text("no picture")
    return tmp_path


def pack(*words):
    return main(["pack", *words])


def records(base):
    """Return {id: (header, bytes)}."""
    file = recordio.MXIndexedRecordIO(f"{base}.idx", f"{base}.rec", "r")
    return {key: recordio.unpack(file.read_idx(key)) for key in file.keys}


def entries(path):
    return [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]


def test_pack_a_folder(photos, capsys):
    assert pack("out/all", "photos", "--recursive", "--num-thread", "3") == 0
    lines = entries("out/all.lst")
    assert sorted(path for *_, path in lines) == sorted(
        f"{folder}/{i}.{'png' if i == 2 else 'jpg'}" for folder in FOLDERS for i in range(5)
    )
    assert {os.path.dirname(path): float(label) for _, label, path in lines} == {"a": 0, "b/x": 1, "c": 2}
    assert [path for *_, path in lines] != sorted(path for *_, path in lines)
    found = records("out/all")
    assert [int(number) for number, *_ in lines] == list(found) == list(range(15))
    for number, label, path in lines:
        header, encoded = found[int(number)]
        assert (header.label, header.id) == (float(label), int(number))
        original = picture.decode(pathlib.Path("photos", path).read_bytes())
        assert np.abs(picture.decode(encoded).astype(int) - original).mean() < 5
    output = capsys.readouterr()
    assert "label 1: b/x\n" in output.out and "out/all.rec: 15 images\n" in output.out
    assert output.err == ""  # no progress bar without a terminal
    assert sorted(os.listdir("out")) == ["all.idx", "all.lst", "all.rec"]


def test_iterator_reads_packed_records(photos):
    pack("all", "photos", "--recursive", "--resize", "40", "--center-crop", "--encoding", ".png")
    batch = mx.io.ImageRecordIter(path_imgrec="all.rec", data_shape=(3, 40, 40), batch_size=15).next()
    pixels = picture.decode(pathlib.Path("photos", entries("all.lst")[3][-1]).read_bytes())
    left = (pixels.shape[1] - 50) // 2
    expected = picture.resize(np.ascontiguousarray(pixels[:, left : left + 50]), 40, 40)
    np.testing.assert_array_equal(batch.data[0][3].asnumpy(), expected.transpose(2, 0, 1))
    assert batch.label[0].asnumpy().tolist() == [float(label) for _, label, _ in entries("all.lst")]


def test_pass_through_stores_files_unchanged(photos):
    assert pack("all", "photos", "--recursive", "--pass-through", "--no-shuffle") == 0
    found = records("all")
    assert [path for *_, path in entries("all.lst")] == sorted(path for *_, path in entries("all.lst"))
    for number, _, path in entries("all.lst"):
        assert found[int(number)][1] == pathlib.Path("photos", path).read_bytes()


def test_records_equal_the_fixture_that_mxnet_reads(tmp_path):
    assert pack(str(tmp_path / "packed"), str(FIXTURES / "photos"), "--recursive", "--pass-through") == 0
    for kind in ("lst", "idx", "rec"):
        assert (tmp_path / f"packed.{kind}").read_bytes() == (FIXTURES / f"packed.{kind}").read_bytes()


def test_lists_are_disjoint_and_reproducible_by_seed(photos):
    assert pack("s", "photos", "--recursive", "--list", "--train-ratio", "0.6", "--test-ratio", "0.2") == 0
    assert not pathlib.Path("s_train.rec").exists()
    lists = {name: entries(f"s_{name}.lst") for name in ("train", "val", "test")}
    assert {name: len(found) for name, found in lists.items()} == {"train": 9, "val": 3, "test": 3}
    assert len({path for found in lists.values() for *_, path in found}) == 15
    pack("same", "photos", "--recursive", "--list", "--train-ratio", "0.6", "--test-ratio", "0.2")
    assert entries("same_val.lst") == lists["val"]
    pack("other", "photos", "--recursive", "--list", "--train-ratio", "0.6", "--test-ratio", "0.2", "--seed", "1")
    assert entries("other_val.lst") != lists["val"]
    assert pack("s", "photos") == 0  # packs all lists of the prefix
    assert [len(records(f"s_{name}")) for name in ("train", "val", "test")] == [9, 3, 3]
    pack("chunk", "photos", "--recursive", "--list", "--chunks", "2")
    assert [len(entries(f"chunk_{i}.lst")) for i in range(2)] == [7, 8]


def test_several_labels(photos):
    pathlib.Path("l.lst").write_text("7\t1\t2.5\ta/0.jpg\n9\t3\t4\tc/1.jpg\n")
    assert pack("l.lst", "photos", "--pack-label") == 0
    assert {key: header.label.tolist() for key, (header, _) in records("l").items()} == {7: [1, 2.5], 9: [3, 4]}
    assert pack("l.lst", "photos") == 0
    assert {key: header.label for key, (header, _) in records("l").items()} == {7: 1, 9: 3}


def test_color_option(photos):
    pathlib.Path("l.lst").write_text("0\t1\ta/2.png\n")
    for color, channels in (("0", 1), ("1", 3), ("-1", 3)):
        assert pack("l.lst", "photos", "--color", color, "--encoding", ".png") == 0
        assert picture.decode(records("l")[0][1], -1).shape[2] == channels


def test_unreadable_images_are_reported_and_counted(photos, capsys):
    pathlib.Path("photos/a/bad.jpg").write_bytes(b"no picture")
    pack("l", "photos", "--recursive", "--list", "--no-shuffle")
    pathlib.Path("photos/c/4.jpg").unlink()
    capsys.readouterr()
    assert pack("l", "photos", "--num-thread", "2") == 1
    output = capsys.readouterr()
    assert "a/bad.jpg is skipped: cannot decode 10 bytes" in output.err
    assert "c/4.jpg is skipped: No such file or directory" in output.err
    assert output.out == "l.rec: 14 images, 2 skipped\n"
    assert len(records("l")) == 14 and 5 not in records("l")


def test_errors_of_pack(photos, capsys):
    pathlib.Path("bad.lst").write_text("0\t1\n")
    pathlib.Path("empty").mkdir()
    for message, words in {
        "nowhere is not a folder": ("all", "nowhere"),
        "no image (.jpeg, .jpg, .png) in photos; pass --recursive": ("all", "photos"),
        "no image (.gif) in photos\n": ("all", "photos", "--recursive", "--exts", ".gif"),
        "list x.lst does not exist": ("x.lst", "photos"),
        "bad.lst, line 1: expected an index, one or more labels and a path": ("bad.lst", "photos"),
        "--quality must be between 0 and 100, received 200": ("all", "photos", "--quality", "200"),
        "--quality must be between 0 and 9, received 95": ("all", "photos", "--quality", "95", "--encoding", ".png"),
        "--test-ratio must be between 0 and 0.5, received 0.6": (
            *("all", "photos", "--train-ratio", "0.5", "--test-ratio", "0.6"),
        ),
        "--num-thread must be at least 1, received 0": ("all", "photos", "--num-thread", "0"),
    }.items():
        assert pack(*words) == 2
        assert message in capsys.readouterr().err


def test_failed_packing_keeps_the_old_file(photos, monkeypatch):
    pack("all", "photos", "--recursive")
    before = pathlib.Path("all.rec").read_bytes()
    monkeypatch.setattr("neomx.io.pack._record", lambda entry, options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pack("all", "photos")
    assert pathlib.Path("all.rec").read_bytes() == before
    assert sorted(name for name in os.listdir() if name.startswith("all")) == ["all.idx", "all.lst", "all.rec"]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_progress_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    now, terminal = [0.0], Terminal()
    bar = Bar(1000, "pictures", terminal, lambda: now[0])
    bar.show(1)
    assert terminal.getvalue() == ""  # at most ten updates per second
    now[0] = 10.0
    bar.show(500)
    text = terminal.getvalue()
    assert text.startswith("\r\x1b[K███") and text.endswith(" 50%  500/1,000 pictures, 50/s, 0:10 left")
    assert len(text) < 85
    bar.say("a line")
    bar.erase()
    assert terminal.getvalue().endswith("left\r\x1b[Ka line\n")
    assert duration(3661) == "1:01:01"
