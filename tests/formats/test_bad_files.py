"""Damaged, truncated and invalid files raise a clear error, never an internal traceback."""

import os
import resource
import signal
import struct
from contextlib import contextmanager

import numpy as np
import pytest
from launching import LIMIT

import neomx as mx
from neomx.base import MXNetError
from neomx.formats import picture
from neomx.formats.atomic import replacing
from neomx.io.lists import read_list
from neomx.launch import cli


def write_records(folder, number=3):
    """Write a small indexed record file; return the paths of the index and of the records."""
    index, records = str(folder / "a.idx"), str(folder / "a.rec")
    writer = mx.recordio.MXIndexedRecordIO(index, records, "w")
    for key in range(number):
        writer.write_idx(key, mx.recordio.pack(mx.recordio.IRHeader(0, float(key), key, 0), b"data"))
    writer.close()
    return index, records


def test_index_that_is_not_text_is_an_error(tmp_path):
    index, records = write_records(tmp_path)
    with open(index, "ab") as file:
        file.write(b"\xff\xfe\t\x80\n")
    with pytest.raises(MXNetError, match=r"a\.idx, line 4: expected a key of type int"):
        mx.recordio.MXIndexedRecordIO(index, records, "r")


@pytest.mark.parametrize("place", [(50, 0, 5, 5), (-3, 0, 5, 5), (0, 0, 0, 5)])
def test_crop_outside_the_image_is_an_error(place):
    with pytest.raises(MXNetError, match="does not overlap the image of shape"):
        mx.image.fixed_crop(mx.nd.ones((20, 30, 3)), *place)


def test_crop_over_the_edge_is_clipped():
    image = mx.nd.array(np.arange(20 * 30 * 3).reshape(20, 30, 3))
    assert (mx.image.fixed_crop(image, 28, 0, 5, 5) == image[0:5, 28:30]).asnumpy().all()


def picture_records(folder, number=6):
    """Write a record file of small images; return the paths of the index and of the records."""
    index, records = str(folder / "p.idx"), str(folder / "p.rec")
    writer = mx.recordio.MXIndexedRecordIO(index, records, "w")
    for key in range(number):
        picture = np.full((8, 8, 3), key * 20, np.uint8)
        header = mx.recordio.IRHeader(0, float(key), key, 0)
        writer.write_idx(key, mx.recordio.pack_img(header, picture, img_fmt=".png", quality=3))
    writer.close()
    return index, records


def in_a_forked_process(use):
    """Return the message of the error that `use` raises in a forked process."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(LIMIT))  # kills the process if it waits for threads that do not exist
        try:
            use()
            os.write(here, b"no error")
        except MXNetError as error:
            os.write(here, str(error).encode())
        finally:
            os._exit(0)
    os.close(here)
    with os.fdopen(there) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["records", "prefetched"])
def test_iterator_with_threads_refuses_a_forked_process(tmp_path, kind):
    if kind == "records":
        _, records = picture_records(tmp_path)
        batches = mx.io.ImageRecordIter(path_imgrec=records, data_shape=(3, 8, 8), batch_size=2)
    else:
        batches = mx.io.PrefetchingIter(mx.io.NDArrayIter(np.zeros((6, 2)), batch_size=2))
    batches.next()
    assert "Create the iterator in the process that reads it" in in_a_forked_process(batches.next)
    assert batches.next().pad == 0


@contextmanager
def files_no_longer_than(size):
    """Limit the size of files, like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder):
    """Return the files of a folder by name."""
    return {name: (folder / name).read_bytes() for name in os.listdir(folder) if (folder / name).is_file()}


def test_packing_on_a_full_disk_keeps_the_old_files(tmp_path, capsys):
    noise = np.random.RandomState(0).randint(0, 255, (12, 60, 60, 3)).astype(np.uint8)
    (tmp_path / "photos").mkdir()
    for number, pixels in enumerate(noise):
        (tmp_path / "photos" / f"{number}.png").write_bytes(picture.encode(pixels, 3, ".png"))
    command = ["pack", str(tmp_path / "a"), str(tmp_path / "photos"), "--pass-through"]
    assert cli.main(command) == 0
    before = contents(tmp_path)
    with files_no_longer_than(50_000):
        assert cli.main(command) == 2
    assert "a.rec: File too large" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["torch", "onnx", "params", "safetensors"])
def test_converting_on_a_full_disk_leaves_no_partial_file(tmp_path, capsys, kind):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=200, name="fc")
    prefix = str(tmp_path / "a")
    mx.model.save_checkpoint(prefix, 1, net, {"fc_weight": mx.nd.ones((200, 300)), "fc_bias": mx.nd.zeros(200)}, {})
    before = contents(tmp_path)
    with files_no_longer_than(50_000):
        assert cli.main(["convert", prefix, "--to", kind, "-o", prefix + "2", "--shape", "data:1,300"]) == 2
    assert "File too large" in capsys.readouterr().err
    after = contents(tmp_path)
    after.pop("a2-symbol.json", None)  # a separate complete file, written before the arrays
    assert after == before


def test_terminated_command_leaves_no_partial_file(tmp_path, monkeypatch):
    def write_a_part(options):
        with replacing(tmp_path / "a.rec") as file:
            file.write(b"half")
            os.kill(os.getpid(), signal.SIGTERM)
            file.write(b"the rest")
        return 0

    monkeypatch.setattr("neomx.io.pack.main", write_a_part)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        cli.main(["pack", str(tmp_path / "a"), str(tmp_path)])
    assert ended.value.code == 143
    assert os.listdir(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_checkpoint_names_without_prefix_are_an_error(tmp_path):
    prefix = str(tmp_path / "a")
    mx.sym.var("data").save(prefix + "-symbol.json")
    mx.nd.save(prefix + "-0001.params", {"fc_weight": mx.nd.ones(2)})
    with pytest.raises(
        ValueError, match=r"a-0001\.params contains 'fc_weight', but names must begin with arg: or aux:"
    ):
        mx.model.load_checkpoint(prefix, 1)


def object_records(folder, label, flag=None):
    """Write a record file of one image with this label, and `flag` as the number of its values."""
    records = str(folder / "o.rec")
    writer = mx.recordio.MXRecordIO(records, "w")
    pixels = np.zeros((8, 8, 3), np.uint8)
    record = mx.recordio.pack_img(mx.recordio.IRHeader(0, label, 0, 0), pixels, img_fmt=".png", quality=3)
    writer.write(record if flag is None else struct.pack("<I", flag) + record[4:])
    writer.close()
    return records


def test_invalid_object_labels_are_an_error(tmp_path):
    records = object_records(tmp_path, [2, np.nan, 0, 0.1, 0.1, 0.5, 0.5])
    with pytest.raises(RuntimeError, match="Label shape is invalid"):
        mx.image.ImageDetIter(1, (3, 8, 8), path_imgrec=records)
    with pytest.raises(MXNetError, match="expected a label of a header"):
        mx.io.ImageDetRecordIter(path_imgrec=records, data_shape=(3, 8, 8), batch_size=1).next()


def test_record_declaring_too_many_labels_is_an_error(tmp_path):
    records = object_records(tmp_path, [2, 5, 0, 0.1, 0.1, 0.5, 0.5], flag=0xFFFFFFF0)
    with pytest.raises(MXNetError, match="labels"):
        mx.io.ImageDetRecordIter(path_imgrec=records, data_shape=(3, 8, 8), batch_size=1).next()


def test_embedding_file_in_another_encoding_is_an_error(tmp_path):
    (tmp_path / "vectors.txt").write_bytes(b"caf\xe9 1 2\n")
    with pytest.raises(ValueError, match=r"vectors\.txt is not utf"):
        mx.contrib.text.embedding.CustomEmbedding(str(tmp_path / "vectors.txt"))


@pytest.mark.parametrize("content", [b"0\t1\t\xff\xfe.png\n", b"no tabs here\n"])
def test_invalid_image_list_is_an_error(tmp_path, content):
    path = tmp_path / "a.lst"
    path.write_bytes(content)
    with pytest.raises(MXNetError, match="a.lst"):
        mx.image.ImageIter(2, (3, 8, 8), path_imglist=str(path), path_root=str(tmp_path))
    with pytest.raises(MXNetError, match="a.lst"):
        read_list(str(path))


def test_libsvm_file_that_is_not_text_is_an_error(tmp_path):
    path = tmp_path / "a.libsvm"
    path.write_bytes(b"1 0:2\n0 \xff:1\n")
    with pytest.raises(MXNetError, match="a.libsvm: it is not text"):
        mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=1)
