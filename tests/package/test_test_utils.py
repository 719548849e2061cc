"""mx.test_utils beyond the recordings (parity/cases/testing.py): data, files, environment, randomness, mixed arrays."""

import bz2
import hashlib
import io
import os
import pathlib
import sys
import zipfile

import numpy as np
import pytest

import neomx as mx
from neomx import test_utils as t
from neomx.test_utils import data

# ---- comparisons ----


def test_arrays_compare_with_numpy_arrays_lists_and_numbers():
    assert t.same(mx.nd.ones(3), np.ones(3)) and t.almost_equal(mx.nd.ones(3), 1.0)
    t.assert_almost_equal(mx.nd.ones((2, 2)), [[1, 1], [1, 1]])
    t.assert_almost_equal(np.float32(1), mx.nd.array([1]))
    with pytest.raises(AssertionError, match=r"Location of maximum error: \(1,\), a=2\.0+, b=2\.5"):
        t.assert_almost_equal(mx.nd.array([1, 2]), [1, 2.5])


def test_sparse_arrays_are_compared_by_value():
    sparse = mx.nd.array([[0, 1], [0, 0]]).tostype("row_sparse")
    t.assert_almost_equal(sparse, np.array([[0, 1], [0, 0]]))


def test_difference_of_broadcast_arrays_is_located(capsys):
    with pytest.raises(AssertionError, match=r"Location of maximum error: \(1, 2\), a=1.0+, b=2.0+"):
        t.assert_almost_equal(
            np.ones((2, 3)) * [[2], [1]], np.array([2.0, 2, 2]) * [[1], [1]] * [[1, 1, 1], [0.5, 0.5, 1]]
        )
    assert "Maximum errors for vector of size 6" in capsys.readouterr().out


def test_differences_of_unsigned_values_do_not_wrap(capsys):
    with pytest.raises(AssertionError, match=r"Location of maximum error: \(1,\), a=1.0+, b=4.0+"):
        t.assert_almost_equal(np.array([1, 1], np.uint8), np.array([2, 4], np.uint8))


def test_assert_exception_names_the_expected_exception():
    with pytest.raises(AssertionError, match="expected KeyError from harmless, but it raised nothing"):

        def harmless():
            pass

        t.assert_exception(harmless, KeyError)


def test_sparse_array_without_rows():
    assert t.create_sparse_array_zd((0, 3), "row_sparse", density=0.5).shape == (0, 3)
    assert not t.create_sparse_array_zd((4, 3), "row_sparse", 0.5, rsp_indices=[]).asnumpy().any()


# ---- random arrays ----


def test_csr_arrays():
    np.random.seed(0)
    array, (indptr, indices, values) = t.rand_sparse_ndarray((50, 40), "csr", density=0.3, dtype="float64")
    dense = array.asnumpy()
    assert array.dtype == np.float64 and 0.25 < (dense != 0).mean() < 0.35 and 0 <= dense.min() <= dense.max() < 1
    assert indptr.asnumpy()[-1] == len(indices) == len(values)
    doubled = t.rand_ndarray((3, 3), "csr", 1, modifier_func=lambda value: 2.0)
    assert (doubled.asnumpy() == 2).all()
    shuffled = t.rand_sparse_ndarray((3, 50), "csr", 0.9, shuffle_csr_indices=True)[0]
    row = shuffled.indices.asnumpy()[: shuffled.indptr.asnumpy()[1]]
    assert list(row) != sorted(row) and sorted(row) == list(np.nonzero(shuffled.asnumpy()[0])[0])


def test_rows_of_a_power_law_double():
    array = t.rand_ndarray((16, 16), "csr", 0.3, distribution="powerlaw").asnumpy()
    counts = (array != 0).sum(axis=1)
    assert list(counts[:4]) == [2, 4, 8, 16] and counts.sum() == round(0.3 * 16 * 16)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (((2, 3), "coo"), "unknown storage type 'coo'"),
        (((2, 3, 4), "csr"), "two dimensions"),
        (((2, 3), "csr", 0.5, None, "zipf"), "Distribution not supported: zipf"),
    ],
)
def test_unknown_kinds_of_sparse_arrays_are_rejected(args, message):
    with pytest.raises(AssertionError, match=message):
        t.rand_sparse_ndarray(*args)


def test_matrices_have_the_promised_properties():
    orthonormal = t.new_orthonormal_matrix_2d(4)
    np.testing.assert_allclose(orthonormal @ orthonormal.T, np.eye(4), atol=1e-12)
    assert np.isreal(np.linalg.eigvals(t.new_matrix_with_real_eigvals_nd((2, 3, 3)))).all()
    symmetric = t.new_sym_matrix_with_real_eigvals_nd((2, 3, 3))
    np.testing.assert_allclose(symmetric, symmetric.transpose(0, 2, 1), atol=1e-12)


def test_default_context():
    t.set_default_context(mx.cpu(1))
    try:
        assert t.default_context() == mx.cpu(1) == mx.nd.ones(1).context
    finally:
        t.set_default_context(mx.cpu(0))


# ---- checks ----


def test_gradients_of_several_outputs_are_checked():
    x = mx.sym.var("x")
    at = {"x": np.array([0.5, 0.25])}
    t.check_numeric_gradient(mx.sym.Group([x * x, mx.sym.exp(x)]), at)
    with pytest.raises(AssertionError, match="BACKWARD_x"):
        t.check_numeric_gradient(mx.sym.Group([x * x, mx.sym.BlockGrad(mx.sym.exp(x))]), at)


def test_auxiliary_states_are_restored_between_differences():
    rng = np.random.RandomState(0)
    norm = mx.sym.BatchNorm(mx.sym.var("x"), name="bn", fix_gamma=False)
    at = {"x": rng.rand(4, 3), "bn_gamma": np.ones(3), "bn_beta": np.zeros(3)}
    states = {"bn_moving_mean": np.zeros(3), "bn_moving_var": np.ones(3)}
    t.check_numeric_gradient(norm, at, states, rtol=0.1, atol=1e-2)
    t.check_numeric_gradient(norm, at, states, use_forward_train=True, grad_nodes=["bn_gamma"], rtol=0.1, atol=1e-2)


def test_hybridized_blocks_are_compared():
    def dense(**kwargs):
        return mx.gluon.nn.Dense(3, in_units=2, **kwargs)

    def relu(**kwargs):
        return mx.gluon.nn.Activation("relu", **kwargs)

    x = mx.nd.array([[1, -2], [3, 4]])
    t.check_gluon_hybridize_consistency(dense, [x])
    t.check_gluon_hybridize_consistency(relu, [x], numpy_func=lambda a: np.maximum(a, 0))
    with pytest.raises(AssertionError, match="Items are not equal"):
        t.check_gluon_hybridize_consistency(relu, [x], numpy_func=np.abs)


def test_check_speed_returns_seconds():
    net = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="fc")
    at = {"x": np.ones((2, 2)), "fc_weight": np.ones((3, 2)), "fc_bias": np.ones(3)}
    assert 0 < t.check_speed(net, at, N=2) < 5
    assert 0 < t.check_speed(net, N=2, typ="forward", x=(2, 2)) < 5
    with pytest.raises(ValueError, match='"whole" or "forward"'):
        t.check_speed(net, typ="backward", x=(2, 2))


# ---- environment ----


def test_environment_is_restored(monkeypatch):
    monkeypatch.setenv("NEOMX_A", "1")
    monkeypatch.delenv("NEOMX_B", raising=False)
    with t.environment({"NEOMX_A": None, "NEOMX_B": "2"}):
        assert "NEOMX_A" not in os.environ and t.getenv("NEOMX_B") == "2"
        with t.environment("NEOMX_A", "3"):
            assert t.getenv("NEOMX_A") == "3"
        assert "NEOMX_A" not in os.environ
    assert os.environ["NEOMX_A"] == "1" and "NEOMX_B" not in os.environ


def test_stderr_is_discarded(capfd):
    with t.discard_stderr():
        os.write(2, b"lost")
    os.write(2, b"kept")
    assert capfd.readouterr().err == "kept"


def test_retry():
    calls = []

    @t.retry(3)
    def lucky(needed):
        calls.append(1)
        assert len(calls) >= needed
        return "done"

    assert lucky(3) == "done" and len(calls) == 3
    with pytest.raises(AssertionError):
        lucky(9)
    assert len(calls) == 6
    with pytest.raises(AssertionError, match="at least one try, received 0"):
        t.retry(0)


# ---- random numbers ----


def test_generators_are_checked_by_moments_and_buckets():
    rng = np.random.RandomState(0)

    def normal(count):
        return rng.normal(0, 1, count)

    assert t.mean_check(normal, 0, 1, 10000) and not t.mean_check(normal, 0.1, 1, 10000)
    assert t.var_check(normal, 1, 10000) and not t.var_check(normal, 1.1, 10000)
    from scipy import stats

    buckets, probs = t.gen_buckets_probs_with_ppf(lambda p: stats.norm.ppf(p, 0, 1), 5)
    assert probs == [0.2] * 5 and buckets[0][0] == -np.inf and buckets[2][0] == pytest.approx(-buckets[2][1])
    p_values = t.verify_generator(normal, buckets, probs, nsamples=10000)
    assert len(p_values) == 5 and all(0 <= p <= 1 for p in p_values)
    with pytest.raises(AssertionError, match="Generator test fails"):
        t.verify_generator(lambda count: rng.normal(0.2, 1, count), buckets, probs, nsamples=10000)
    p, observed, expected = t.chi_square_check(lambda n: mx.nd.array(rng.randint(0, 2, n)), [0, 1], [0.5, 0.5], 1000)
    assert p > 1e-3 and observed.sum() == expected.sum() == 1000


def test_error_without_scipy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(mx.MXNetError, match=r"neomx\[scipy\]"):
        t.chi_square_check(lambda n: np.zeros(n), [0, 1], [0.5, 0.5], 10)


# ---- data ----


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """A machine without a network, whose data directory is tmp_path."""

    def refuse(url, *args, **kwargs):
        raise mx.MXNetError(f"cannot download {url}: no network")

    monkeypatch.setattr("neomx.gluon.utils.download", refuse)
    monkeypatch.setattr("neomx.gluon.data.vision.datasets._download", lambda *args: refuse("http://x/mnist.gz"))
    monkeypatch.setattr(
        data, "MNIST", lambda **kwargs: mx.gluon.data.vision.MNIST(root=str(tmp_path / "none"), **kwargs)
    )
    monkeypatch.chdir(tmp_path)


def test_mnist_without_a_network_returns_the_sample(offline):
    with pytest.warns(UserWarning, match=r"cannot download .* digits included in neomx instead"):
        digits = t.get_mnist()
    sample = t.get_mnist(sample=True)
    assert digits["train_data"].shape == (5000, 1, 28, 28) and digits["test_label"].shape == (1000,)
    assert all((digits[name] == sample[name]).all() for name in sample)
    assert digits["train_data"].dtype == np.float32 and digits["train_label"].dtype == np.int8
    assert digits["train_data"].min() >= 0 and digits["train_data"].max() == 1


def test_mnist_as_files_and_iterators(offline, tmp_path):
    with pytest.warns(UserWarning, match="included in neomx"):
        train, validation = t.get_mnist_iterator(100, (1, 28, 28))
    assert sorted(os.listdir("data")) == [
        *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte", "train-labels-idx1-ubyte")
    ]
    sample = t.get_mnist(sample=True)
    batch = validation.next()
    assert batch.data[0].shape == (100, 1, 28, 28)
    np.testing.assert_allclose(batch.data[0].asnumpy(), sample["test_data"][:100] * (255 / 256), rtol=1e-6)
    assert (batch.label[0].asnumpy() == sample["test_label"][:100]).all()
    assert sum(1 for _ in train) == 50
    flat, _ = t.get_mnist_iterator(100, (784,), num_parts=2, part_index=1)  # the files exist: no warning
    assert flat.next().data[0].shape == (100, 784) and sum(1 for _ in flat) == 24


def zipped(**files):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return memory.getvalue()


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Returns {URL: content} for downloads, and the URLs that were downloaded."""
    contents, asked = {}, []

    def give(url, path, overwrite=False, retries=5, sha1_hash=None):
        asked.append(url)
        if sha1_hash is not None and hashlib.sha1(contents[url]).hexdigest() != sha1_hash:
            raise mx.MXNetError(f"{url} does not have the expected SHA-1 {sha1_hash}")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(contents[url])
        return path

    monkeypatch.setattr("neomx.gluon.utils.download", give)
    monkeypatch.chdir(tmp_path)
    return contents, asked


def test_archives_are_downloaded_once(served):
    contents, asked = served
    contents["http://x/a.zip"] = zipped(**{"one.txt": "1"})
    contents["http://x/b.bz2"] = bz2.compress(b"two")
    for _ in range(2):
        t.get_zip_data("d", "http://x/a.zip", "a.zip")
        t.get_bz2_data("d", "two.txt", "http://x/b.bz2", "b.bz2")
    assert pathlib.Path("d/one.txt").read_text() == "1" and pathlib.Path("d/two.txt").read_text() == "two"
    assert asked == ["http://x/a.zip", "http://x/b.bz2"]


def test_error_names_damaged_archive(served):
    contents, _ = served
    contents["http://x/a"] = b"damaged"
    with pytest.raises(mx.MXNetError, match=r"d/a\.zip is not a zip file.*Remove it"):
        t.get_zip_data("d", "http://x/a", "a.zip")
    with pytest.raises(mx.MXNetError, match=r"cannot unpack d/a\.bz2: Invalid.*Remove it"):
        t.get_bz2_data("d", "out", "http://x/a", "a.bz2")
    assert not os.path.exists("d/out")


def test_cifar_is_downloaded_unless_it_exists(served, monkeypatch):
    contents, asked = served
    names = ("train.rec", "test.rec", "train.lst", "test.lst")
    contents[data._CIFAR10] = zipped(**{f"cifar/{name}": name for name in names})
    with pytest.raises(mx.MXNetError, match="does not have the expected SHA-1"):
        t.get_cifar10()
    assert data._CIFAR10.startswith("https://")
    monkeypatch.setattr(data, "_CIFAR10_SHA1", hashlib.sha1(contents[data._CIFAR10]).hexdigest())
    t.get_cifar10()
    t.get_cifar10()
    assert len(asked) == 2 and sorted(os.listdir("data/cifar")) == sorted(names)


def test_models_are_downloaded(served):
    contents, asked = served
    address = {"symbol": "http://x/m-symbol.json", "params": "http://x/m-0012.params"}
    contents.update(dict.fromkeys(address.values(), b"content"))
    assert t.download_model("m", "d", {"m": address}) == (os.path.join("d", "m"), 0)
    assert sorted(os.listdir("d")) == ["m-0000.params", "m-symbol.json"]
    assert t.download_model("unknown") == (None, 0)
    with pytest.raises(AssertionError, match="missing the URL of its params file"):
        t.download_model("m", "d", {"m": {"symbol": address["symbol"]}})
    with pytest.raises(mx.MXNetError, match="SHA-1"):
        t.download_model("m", "e", {"m": {**address, "params_sha1": "0" * 40}})
    with pytest.raises(mx.MXNetError, match="its checksum is unknown.*https://data.mxnet.io/.*/resnet-18-symbol.json"):
        t.download_model("imagenet1k-resnet-18")
