"""Error messages for invalid files, and no warnings for valid ones."""

import pickle

import numpy as np
import pytest

import neomx as mx
from neomx.base import MXNetError


def test_html_page_instead_of_params_is_quoted(tmp_path):
    (tmp_path / "net.params").write_bytes(b"<html>404 not found</html>")
    with pytest.raises(MXNetError, match="it begins with b'<html>40', expected 0x112"):
        mx.nd.load(str(tmp_path / "net.params"))


def test_error_of_hostile_pickle_names_its_class():
    class Command:
        def __reduce__(self):
            import os

            return os.system, ("false",)

    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd"))
    with pytest.raises(MXNetError, match=r"class '(posix|nt)\.system'.*None of its code was run.*may be malicious"):
        updater.set_states(pickle.dumps(Command(), protocol=2))


def test_png_with_jpeg_quality_does_not_warn(capfd):
    pytest.importorskip("cv2")
    image = np.arange(48, dtype="uint8").reshape(4, 4, 3)
    packed = mx.recordio.pack_img(mx.recordio.IRHeader(0, 1.0, 1, 0), image, img_fmt=".png")
    assert capfd.readouterr().err == ""
    assert (mx.recordio.unpack_img(packed)[1] == image).all()
