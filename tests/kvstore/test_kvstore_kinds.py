"""Stores by name, user-defined stores, and the arithmetic of compression, in one process."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.base import MXNetError
from neomx.comm import compress


@pytest.mark.parametrize(
    "name", ["dist", "dist_sync", "dist_device_sync", "dist_sync_device", "p3store_dist", "horovod"]
)
def test_distributed_store_in_one_process_has_one_worker(name):
    kv = mx.kv.create(name)
    assert (kv.type, kv.rank, kv.num_workers, kv.get_num_dead_node(6)) == (name, 0, 1, 0)
    out = mx.nd.zeros((2,))
    kv.broadcast("a", mx.nd.ones((2,)) * 3, out=out)
    assert out.asnumpy().tolist() == [3, 3]
    kv.pushpull("a", [mx.nd.ones((2,)), mx.nd.ones((2,))], out=out)
    assert out.asnumpy().tolist() == [2, 2]
    kv.barrier()


@pytest.mark.parametrize("name", ["dist_async", "dist_device_async", "dist_async_device", "dist_stale"])
def test_asynchronous_store_without_servers_explains_how_to_start_them(name):
    with pytest.raises(MXNetError, match="neomx run -n 2 -s 1"):
        mx.kv.create(name)


def test_unknown_name_is_rejected_with_the_common_ones():
    with pytest.raises(MXNetError, match="'dist_synch'.*Did you mean dist_sync.*'local' or 'device'.*'dist_stale'"):
        mx.kv.create("dist_synch")
    with pytest.raises(ValueError, match="staleness"):
        mx.kv.create("dist_sync", staleness=2)


def test_user_defined_store():
    class Echo(mx.kv.KVStoreBase):
        """Stores nothing."""

        rank, num_workers = 0, 1

        def broadcast(self, key, value, out, priority=0):
            value.copyto(out)

        def pushpull(self, key, value, out=None, priority=0):
            value.copyto(value if out is None else out)

        @staticmethod
        def is_capable(capability):
            return False

    assert mx.kv.KVStoreBase.register(Echo) is Echo
    try:
        kv = mx.kv.create("echo")
        assert isinstance(kv, Echo) and kv.type == "echo"
        out = mx.nd.zeros((2,))
        kv.broadcast("a", mx.nd.ones((2,)), out=out)
        assert out.asnumpy().tolist() == [1, 1]
        with pytest.raises(NotImplementedError, match="'echo' does not implement set_optimizer"):
            kv.set_optimizer(mx.optimizer.SGD())
        with pytest.warns(UserWarning, match="'echo' is already registered"):
            mx.kv.KVStoreBase.register(Echo)
    finally:
        del mx.kv.KVStoreBase.kv_registry["echo"]
    with pytest.raises(AssertionError, match="derived from KVStoreBase"):
        mx.kv.KVStoreBase.register(int)


def definition(kind, threshold, residual, gradient):
    """Return what is sent for one gradient, in numpy; updates the residual in place."""
    residual += gradient
    if kind == "2bit":
        sent = np.where(residual >= threshold, threshold, np.where(residual <= -threshold, -threshold, 0))
    else:
        sent = np.where(residual > threshold, 1, -1)
    residual -= sent.astype("float32")
    return sent.astype("float32")


@pytest.mark.parametrize("kind, threshold", [("2bit", 0.5), ("2bit", 0.3), ("1bit", 0.0), ("1bit", 0.2)])
@pytest.mark.parametrize("count", [1, 3, 4, 8, 9, 31, 1000])
def test_bit_compression_follows_its_definition(kind, threshold, count):
    random = np.random.RandomState(count)
    compressor, other = (compress.make({"type": kind, "threshold": threshold}) for _ in range(2))
    residual = np.zeros(count, "float32")
    for _ in range(5):
        gradient = random.uniform(-1, 1, count).astype("float32")
        before = gradient.copy()
        sent = compressor.encode("k", torch.from_numpy(gradient))
        assert sent.dtype == torch.uint8
        assert sent.nbytes == -(-count // (4 if kind == "2bit" else 8))
        found = other.decode(sent, torch.empty(count)).numpy()
        np.testing.assert_array_equal(found, definition(kind, np.float32(threshold), residual, gradient))
        np.testing.assert_array_equal(gradient, before)
    np.testing.assert_array_equal(compressor.residuals["k"].numpy(), residual)


def test_each_key_has_its_residual_and_any_shape():
    compressor = compress.make({"type": "2bit"})
    for shape in [(2, 3), (5,), ()]:
        data = compressor.encode(shape, torch.full(shape, 0.3))
        assert not compressor.decode(data, torch.ones(shape)).any()
        data = compressor.encode(shape, torch.full(shape, 0.3))
        assert (compressor.decode(data, torch.ones(shape)) == 0.5).all()


def test_fp16_compression():
    compressor = compress.make({"type": "fp16"})
    tensor = torch.linspace(-3, 3, 7)
    sent = compressor.encode("k", tensor)
    assert sent.dtype == torch.uint8 and sent.nbytes == 14
    assert torch.equal(compressor.decode(sent, torch.empty(7)), tensor.half().float())
    message = torch.cat([torch.zeros(1, dtype=torch.uint8), sent])  # starts at an odd byte offset
    assert torch.equal(compressor.decode(message[1:], torch.empty(7)), tensor.half().float())


@pytest.mark.parametrize(
    "params, kind, said",
    [
        ("2bit", AssertionError, "a dict"),
        ({}, MXNetError, "need a 'type'"),
        ({"type": "2bits"}, MXNetError, "Did you mean 2bit"),
        ({"type": None}, MXNetError, "2bit, 1bit, fp16"),
        ({"type": ["2bit"]}, MXNetError, "2bit, 1bit, fp16"),
        ({"type": "2bit", "thresold": 1}, MXNetError, "thresold"),
        ({"type": "2bit", "threshold": 0}, MXNetError, "greater than 0"),
        ({"type": "2bit", "threshold": float("nan")}, MXNetError, "greater than 0"),
        ({"type": "1bit", "threshold": float("inf")}, MXNetError, "finite"),
        ({"type": "2bit", "threshold": "high"}, MXNetError, "a number"),
    ],
)
def test_invalid_settings_are_rejected(params, kind, said):
    with pytest.raises(kind, match=said):
        compress.make(params)


def test_unsupported_arrays_and_messages_are_rejected():
    compressor = compress.make({"type": "2bit"})
    with pytest.raises(MXNetError, match="key weight: .*float32.*fp16"):
        compressor.encode("weight", torch.ones(3, dtype=torch.float64))
    compressor.encode("bias", torch.ones(3))
    with pytest.raises(MXNetError, match="key bias: expected 3 elements, .* received 4"):
        compressor.encode("bias", torch.ones(4))
    with pytest.raises(MXNetError, match="expected 3 bytes for 9 elements of 2bit, received 2"):
        compressor.decode(torch.zeros(2, dtype=torch.uint8), torch.empty(9))
