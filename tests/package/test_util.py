"""mx.util: NumPy semantics, decorators, environment variables."""

import threading

import pytest
from launching import LIMIT

import neomx as mx
from neomx import util


def test_np_shape_is_off_by_default_and_per_thread():
    seen = []
    assert not mx.is_np_shape()
    assert util.set_np_shape(True) is False
    try:
        thread = threading.Thread(target=lambda: seen.append(mx.is_np_shape()))
        thread.start()
        thread.join(LIMIT)
    finally:
        assert util.set_np_shape(False) is True
    assert seen == [False]


def test_np_shape_allows_scalars():
    x = mx.nd.arange(3)
    with mx.np_shape():
        assert x[1].shape == () and (x[1] + 1).shape == ()
        assert mx.nd.ones((2, 3))[1][1].shape == ()
        assert x.sum().shape == (1,)  # ops of nd keep their shapes
        assert x[mx.nd.array([0])].shape == (1,)
        with mx.np_shape(False):
            assert x[1].shape == (1,)
    assert x[1].shape == (1,)


def test_np_shape_scopes_can_be_nested():
    scope = util.np_shape()
    with scope:
        with scope:
            pass
        assert util.is_np_shape()
    assert not util.is_np_shape()


def test_use_np_shape_covers_the_methods_of_a_class():
    @mx.use_np_shape
    class Reader:
        """Kept."""

        def __init__(self):
            self.at_start = mx.is_np_shape()

        def method(self):
            return mx.is_np_shape()

        @staticmethod
        def static():
            return mx.is_np_shape()

        @classmethod
        def of_class(cls):
            return cls.__name__, mx.is_np_shape()

        @property
        def attribute(self):
            return mx.is_np_shape()

    reader = Reader()
    assert reader.at_start and reader.method() and reader.static() and reader.attribute
    assert reader.of_class() == ("Reader", True)
    assert Reader.__doc__ == "Kept." and not mx.is_np_shape()


def test_np_array_is_on_in_scopes_and_decorated_functions():
    @mx.use_np
    def function():
        """Kept."""
        return util.is_np_array() and util.is_np_shape()

    @util.use_np
    class Layer:
        def forward(self):
            return util.is_np_array() and util.is_np_shape()

    assert function.__doc__ == "Kept." and function.__name__ == "function"
    assert not mx.is_np_array()
    assert function() and Layer().forward()
    with util.np_array():
        assert util.is_np_array()
    with util.np_array(False):
        assert not util.is_np_array()
    assert not mx.is_np_shape()


def test_set_np_without_arrays():
    util.set_np(array=False)
    assert util.is_np_shape()
    util.reset_np()
    assert not util.is_np_shape()
    with pytest.raises(ValueError, match="NumPy shape semantics is required"):
        util.set_np(shape=False)


@pytest.mark.parametrize("decorator", ["use_np", "use_np_shape", "use_np_array"])
def test_only_callables_can_be_decorated(decorator):
    with pytest.raises(TypeError, match="can only decorate classes and callable objects"):
        getattr(util, decorator)(3)


def test_set_np_shape_requires_a_bool():
    with pytest.raises(TypeError, match="expected True or False, received 'on'"):
        util.set_np_shape("on")


def test_environment(monkeypatch):
    monkeypatch.setenv("NEOMX_TEST_VARIABLE", "1")
    util.setenv("NEOMX_TEST_VARIABLE", "2")
    assert util.getenv("NEOMX_TEST_VARIABLE") == "2"
    util.setenv("NEOMX_TEST_VARIABLE", None)
    assert util.getenv("NEOMX_TEST_VARIABLE") is None


def test_makedirs_and_set_module(tmp_path):
    util.makedirs(str(tmp_path / "a" / "b"))
    util.makedirs(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    assert util.set_module("mxnet.there")(type("T", (), {})).__module__ == "mxnet.there"


def test_gpus():
    assert util.get_gpu_count() == mx.num_gpus()
    with pytest.raises(ValueError, match="Expecting a gpu context"):
        util.get_cuda_compute_capability(mx.cpu())
    with pytest.raises(mx.MXNetError, match="this machine has"):
        util.get_gpu_memory(99)


def test_only_one_element_can_be_reshaped_to_a_scalar():
    with mx.np_shape():
        assert mx.nd.reshape(mx.nd.ones((1, 1)), ()).shape == ()
        assert mx.nd.random.uniform(mx.nd.zeros(()), mx.nd.ones(()), shape=()).shape == ()
    with pytest.raises(mx.MXNetError, match="expected a nonempty shape"):
        mx.nd.reshape(mx.nd.ones((3, 4)), ())
