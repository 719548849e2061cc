"""Memory use of executors. tests/symbol/test_symbol.py and the parity cases check the values."""

import weakref

import neomx as mx


def test_forward_frees_the_previous_graph():
    bound, freed = mx.sym.MakeLoss(mx.sym.exp(mx.sym.var("x"))).simple_bind(mx.cpu(), x=(3,)), []
    bound.forward(is_train=True)
    last = weakref.ref(bound._results[0])
    bound.set_monitor_callback(lambda name, array: freed.append(last() is None))
    bound.forward(is_train=True)
    assert freed and all(freed)
    bound.backward()
    assert bound.grad_dict["x"].asnumpy().tolist() == [1, 1, 1]


def test_backward_can_be_called_twice():
    bound = mx.sym.MakeLoss(mx.sym.var("x") * 3).simple_bind(mx.cpu(), grad_req="add", x=(2,))
    bound.forward(is_train=True)
    bound.backward()
    bound.backward()
    assert bound.grad_dict["x"].asnumpy().tolist() == [6, 6]
