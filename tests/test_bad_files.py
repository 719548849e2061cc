"""Files that are damaged, cut short or no such files at all: a clear error, never a traceback of the machinery."""

import os
import signal

import numpy as np
import pytest

import neomx as mx
from neomx.base import MXNetError


def write_records(folder, number=3):
    """A small indexed record file; the paths of the index and of the records."""
    index, records = str(folder / "a.idx"), str(folder / "a.rec")
    writer = mx.recordio.MXIndexedRecordIO(index, records, "w")
    for key in range(number):
        writer.write_idx(key, mx.recordio.pack(mx.recordio.IRHeader(0, float(key), key, 0), b"data"))
    writer.close()
    return index, records


def test_an_index_of_bytes_that_are_no_text(tmp_path):
    index, records = write_records(tmp_path)
    with open(index, "ab") as file:
        file.write(b"\xff\xfe\t\x80\n")
    with pytest.raises(MXNetError, match=r"a\.idx, line 4: expected a key of type int"):
        mx.recordio.MXIndexedRecordIO(index, records, "r")


@pytest.mark.parametrize("place", [(50, 0, 5, 5), (-3, 0, 5, 5), (0, 0, 0, 5)])
def test_a_crop_outside_the_picture(place):
    with pytest.raises(MXNetError, match="has nothing of the image of shape"):
        mx.image.fixed_crop(mx.nd.ones((20, 30, 3)), *place)


def test_a_crop_over_the_edge_is_what_is_there():
    image = mx.nd.array(np.arange(20 * 30 * 3).reshape(20, 30, 3))
    assert (mx.image.fixed_crop(image, 28, 0, 5, 5) == image[0:5, 28:30]).asnumpy().all()


def picture_records(folder, number=6):
    """A record file of small pictures; the paths of the index and of the records."""
    index, records = str(folder / "p.idx"), str(folder / "p.rec")
    writer = mx.recordio.MXIndexedRecordIO(index, records, "w")
    for key in range(number):
        picture = np.full((8, 8, 3), key * 20, np.uint8)
        header = mx.recordio.IRHeader(0, float(key), key, 0)
        writer.write_idx(key, mx.recordio.pack_img(header, picture, img_fmt=".png", quality=3))
    writer.close()
    return index, records


def in_a_forked_process(use):
    """What `use` says in a process forked from this one, within ten seconds."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends the process if it waits for threads that it has not
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
def test_an_iterator_with_threads_in_a_forked_process(tmp_path, kind):
    if kind == "records":
        _, records = picture_records(tmp_path)
        batches = mx.io.ImageRecordIter(path_imgrec=records, data_shape=(3, 8, 8), batch_size=2)
    else:
        batches = mx.io.PrefetchingIter(mx.io.NDArrayIter(np.zeros((6, 2)), batch_size=2))
    batches.next()
    assert "Make the iterator in the process that reads it" in in_a_forked_process(batches.next)
    assert batches.next().pad == 0
