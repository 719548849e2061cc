"""Small modules: mx.log, error, libinfo, library, rtc, runtime; ctypes helpers of mx.base; mx.contrib.tensorboard."""

import array
import collections
import ctypes
import logging
import re
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import neomx as mx


def lines_of(name, capsys, **kwargs):
    logger = mx.log.get_logger(name, **kwargs)
    logger.propagate = False
    for level in (mx.log.DEBUG, mx.log.INFO, 25, mx.log.WARNING, mx.log.ERROR, mx.log.CRITICAL):
        logger.log(level, "saw %d", level)
    return capsys.readouterr().err.splitlines()


def test_log_lines_have_level_time_and_location_in_color(capsys):
    lines = lines_of("neomx.test.colours", capsys, level=mx.log.DEBUG)
    heads = ["34mD", "32mI", "32mU", "31mW", "31mE", "31mC"]
    place = re.escape(__file__) + r":lines_of:\d+"
    for line, head in zip(lines, heads, strict=True):
        assert re.fullmatch(rf"\x1b\[{head}\d{{4}} \d\d:\d\d:\d\d \d+ {place}\]\x1b\[0m saw \d+", line), line


def test_logger_is_set_up_once(capsys, tmp_path):
    assert len(lines_of("neomx.test.once", capsys)) == 3  # warnings and above
    assert len(lines_of("neomx.test.once", capsys, level=mx.log.DEBUG)) == 3
    assert len(mx.log.get_logger("neomx.test.once").handlers) == 1
    root = logging.getLogger()
    before = list(root.handlers), root.level
    assert mx.log.get_logger() is root and (list(root.handlers), root.level) == before


def test_log_file_has_plain_lines(capsys, tmp_path):
    path = tmp_path / "x.log"
    path.write_text("old\n")
    assert lines_of("neomx.test.file", capsys, filename=str(path), filemode="w", level=mx.log.ERROR) == []
    assert path.read_text() == "saw 40\nsaw 50\n"
    mx.log.get_logger("neomx.test.file").handlers[0].close()


def test_exceptions_follow_the_log_line(capsys):
    logger = mx.log.get_logger("neomx.test.exception")
    logger.propagate = False
    try:
        raise ValueError("inside")
    except ValueError:
        logger.exception("seen")
    text = capsys.readouterr().err
    assert "seen\nTraceback" in text and text.endswith("ValueError: inside\n")


def test_old_name_of_get_logger_warns():
    with pytest.warns(DeprecationWarning, match="Use get_logger"):
        assert mx.log.getLogger("neomx.test.once") is logging.getLogger("neomx.test.once")


def test_errors_by_name():
    @mx.error.register
    class Lost(mx.MXNetError):
        pass

    assert mx.base.error_types["Lost"] is Lost
    assert mx.error.register("Gone", KeyError) is KeyError and mx.base.error_types["Gone"] is KeyError
    assert mx.error.register("Odd")(OSError) is OSError and mx.base.error_types["Odd"] is OSError
    assert issubclass(mx.error.InternalError, mx.error.MXNetError)
    assert mx.base.error_types["InternalError"] is mx.error.InternalError


def test_functions_that_need_libmxnet_raise_an_error(tmp_path):
    assert mx.libinfo.__version__ == "1.9.1"
    for find in (mx.libinfo.find_lib_path, mx.libinfo.find_include_path, mx.libinfo.find_conf_path):
        with pytest.raises(RuntimeError, match="does not include libmxnet"):
            find()
    with pytest.raises(mx.MXNetError, match="MXNDArrayCreate is a function of libmxnet"):
        mx.base.check_call(mx.base._LIB.MXNDArrayCreate(ctypes.byref(mx.base.NDArrayHandle())))
    with pytest.raises(mx.MXNetError, match="no libmxnet handles"):
        mx.base.c_handle_array([mx.nd.ones(1)])
    with pytest.raises(mx.MXNetError, match=r"Triton.*CustomOp"):
        mx.rtc.CudaModule("__global__ void f() {}")
    compiled = tmp_path / "ops.so"
    compiled.write_bytes(b"")
    with pytest.raises(mx.MXNetError, match=r"cannot load .*ops\.so: .*CustomOp"):
        mx.library.load(str(compiled))


def test_library_load_checks_the_file(tmp_path):
    with pytest.raises(mx.MXNetError, match="does NOT exist"):
        mx.library.load(str(tmp_path / "none.so"))
    (tmp_path / "a.py").write_text("")
    with pytest.raises(mx.MXNetError, match="is NOT a library file"):
        mx.library.load(str(tmp_path / "a.py"))


def test_ctypes_helpers():
    base = mx.base
    assert base.c_str("abc").value == b"abc"
    assert list(base.c_str_array(["a", "b"])) == [b"a", b"b"]
    assert list(base.c_array(base.mx_uint, [1, 2])) == [1, 2]
    assert list(base.c_array_buf(ctypes.c_int, array.array("i", [3, 4]))) == [3, 4]
    assert base.check_call(0) is None
    with pytest.raises(mx.MXNetError, match="error code -1"):
        base.check_call(-1)


def test_features():
    features = mx.runtime.Features()
    assert features is mx.runtime.Features()
    assert list(features.values()) == mx.runtime.feature_list() and len(features) == 32
    assert features.is_enabled("cuda") is (mx.num_gpus() > 0)
    assert features.is_enabled("DIST_KVSTORE") and features["DIST_KVSTORE"].name == "DIST_KVSTORE"
    assert "✔ DIST_KVSTORE" in repr(features) and "✖ TENSORRT" in repr(features)
    with pytest.raises(RuntimeError, match=r"Feature 'WINGS' is unknown, known features are: \['CUDA'"):
        features.is_enabled("wings")


def test_contrib_has_its_modules():
    import neomx.contrib.nd
    import neomx.contrib.symbol

    assert neomx.contrib.nd is mx.nd.contrib and neomx.contrib.symbol is mx.sym.contrib
    assert mx.contrib.autograd.grad and "tensorboard" in dir(mx.contrib)
    with pytest.raises(AttributeError, match="no attribute 'wings'"):
        mx.contrib.wings


Params = collections.namedtuple("Params", "epoch nbatch eval_metric locals")


def test_tensorboard_callback_writes_metrics(tmp_path):
    metric = mx.metric.Accuracy()
    metric.update([mx.nd.array([0, 1])], [mx.nd.array([[1, 0], [1, 0.0]])])
    callback = mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path), "train")
    callback(Params(2, 7, metric, None))
    callback(Params(2, 7, None, None))
    plain = mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path))
    plain(Params(3, 7, metric, None))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert sorted(events.Tags()["scalars"]) == ["accuracy", "train-accuracy"]
    (scalar,) = events.Scalars("train-accuracy")
    assert (scalar.step, scalar.value) == (2, 0.5)
    callback.summary_writer.close()
    plain.summary_writer.close()


def test_tensorboard_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(mx.MXNetError, match=r"neomx\[tensorboard\]"):
        mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path))
