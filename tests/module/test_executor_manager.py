"""`mx.executor_manager` beyond the parity cases (tests/parity/cases/executors.py)."""

import numpy as np
import pytest

import neomx as mx
from parity.cases.executors import PARAMETERS, bucketed, network


def test_buckets_share_weights():
    *results, _ = bucketed(mx, [(3, 3), (6, 6), (5, 5), (3, 3), (8, 8)])
    first, last = results[0], results[-4]
    assert first.shape == last.shape == (2, 3)
    np.testing.assert_allclose([first.sum(1), last.sum(1)], 1, rtol=1e-5)
    embedding = results[-3].asnumpy()
    assert embedding.shape == (7, 4)
    assert len(np.unique(embedding)) == 28


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m._split_input_slice(2, [1, 1, 1]), ValueError, "Some splits are empty: 2 sample"),
        (lambda m: m._split_input_slice(2, []), ValueError, "work_load_list is empty"),
        (
            lambda m: m._check_arguments(mx.sym.FullyConnected(mx.sym.var("a"), mx.sym.var("a"), num_hidden=2)),
            ValueError,
            'duplicated argument name "a"',
        ),
        (
            lambda m: m._load_general([mx.nd.ones((2,))], [[(slice(0, 1), mx.nd.ones((1,)))]]),
            AssertionError,
            "Expected 1, got 2",
        ),
    ],
)
def test_invalid_input_raises(call, error, words):
    with pytest.raises(error, match=words):
        call(mx.executor_manager)


def test_methods_called_out_of_order_raise():
    net, data = network(mx), mx.io.NDArrayIter(np.zeros((4, 4)), np.zeros(4), 2)
    arguments = (net.list_arguments(), PARAMETERS, net.list_auxiliary_states())
    make = mx.executor_manager.DataParallelExecutorManager
    with pytest.raises(AssertionError, match="work load. Expected a list of 1, received"):
        make(net, [mx.cpu()], data, *arguments, work_load_list=[1, 2])
    with pytest.raises(mx.MXNetError, match="load_data_batch first"):
        make(net, [mx.cpu()], data, *arguments).forward()
