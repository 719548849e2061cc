"""Chains of modules, beyond the comparison with MXNet in tests/parity/cases/chains.py."""

import numpy as np

import neomx as mx
from parity.cases.chains import classifier, layer, samples, values


def test_sequential_module_computes_input_gradients():
    chain = mx.mod.SequentialModule().add(layer(mx, 1, 5, "tanh"))
    chain.add(classifier(mx), take_labels=True, auto_wiring=True)
    data = samples(mx)
    chain.bind(data.provide_data, data.provide_label, inputs_need_grad=True)
    values(mx, chain)
    batch = data.next()
    chain.forward_backward(batch)
    (found,) = chain.get_input_grads()
    weight = {name: mx.nd.array(a) for name, a in chain.get_params()[0].items()}
    batch.data[0].attach_grad()
    with mx.autograd.record():
        hidden = mx.nd.tanh(mx.nd.FullyConnected(batch.data[0], weight["fc1_weight"], weight["fc1_bias"], num_hidden=5))
        scores = mx.nd.FullyConnected(hidden, weight["fc3_weight"], weight["fc3_bias"], num_hidden=3)
        loss = -mx.nd.pick(mx.nd.log_softmax(scores), batch.label[0]).sum()
    loss.backward()
    np.testing.assert_allclose(found.asnumpy(), batch.data[0].grad.asnumpy(), rtol=1e-4, atol=1e-6)


def test_python_module_works_alone():
    class Shifted(mx.mod.PythonModule):
        def _compute_output_shapes(self):
            return [("out", self._data_shapes[0][1])]

        def forward(self, data_batch, is_train=None):
            self.out = data_batch.data[0] + 1

        def get_outputs(self, merge_multi_context=True):
            return [self.out]

    module, data = Shifted(["data"], None, ["out"]), samples(mx)
    module.bind(data.provide_data)
    module.init_params()
    np.testing.assert_allclose(module.predict(data).asnumpy(), data.data[0][1].asnumpy() + 1)
