"""Files that are damaged, cut short or no such files at all: a clear error, never a traceback of the machinery."""

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
