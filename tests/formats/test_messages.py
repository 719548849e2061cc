"""What is said of files that are not what they should be, and what is not said of those that are."""

import pickle

import numpy as np
import pytest

import neomx as mx
from neomx.base import MXNetError


def test_a_page_in_the_place_of_a_model_is_quoted(tmp_path):
    (tmp_path / "net.params").write_bytes(b"<html>404 not found</html>")
    with pytest.raises(MXNetError, match="it begins with b'<html>40', expected 0x112"):
        mx.nd.load(str(tmp_path / "net.params"))


def test_a_hostile_pickle_in_states_is_named_with_its_module():
    class Command:
        def __reduce__(self):
            import os

            return os.system, ("false",)

    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd"))
    with pytest.raises(MXNetError, match=r"class '(posix|nt)\.system'.*None of its code was run.*may be malicious"):
        updater.set_states(pickle.dumps(Command(), protocol=2))


def test_a_png_with_the_quality_of_a_jpeg_gives_no_warning(capfd):
    pytest.importorskip("cv2")
    image = np.arange(48, dtype="uint8").reshape(4, 4, 3)
    packed = mx.recordio.pack_img(mx.recordio.IRHeader(0, 1.0, 1, 0), image, img_fmt=".png")
    assert capfd.readouterr().err == ""
    assert (mx.recordio.unpack_img(packed)[1] == image).all()
