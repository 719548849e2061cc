"""SequentialModule, PythonModule and PythonLossModule: shapes, outputs, metrics and weights of chains."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def layer(mx, number, units, act_type):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=units, name="fc%d" % number)
    return mx.mod.Module(mx.sym.Activation(net, act_type=act_type, name="act%d" % number), label_names=[])


def classifier(mx, number=3):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc%d" % number)
    return mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))


def samples(mx, batch=8):
    rng = np.random.RandomState(4)
    data = rng.uniform(-1, 1, (32, 6)).astype("float32")
    return mx.io.NDArrayIter(data, data[:, :3].argmax(1).astype("float32"), batch)


def values(mx, module):
    """The same first values of the parameters everywhere."""
    rng = np.random.RandomState(5)
    module.init_params(mx.init.Zero())
    arguments = module.get_params()[0]
    module.set_params({n: mx.nd.array(rng.uniform(-0.5, 0.5, arguments[n].shape)) for n in sorted(arguments)}, {})


def weights(module):
    arguments, states = module.get_params()
    return [arguments[name] for name in sorted(arguments)] + [states[name] for name in sorted(states)]


def trained(mx, chain, epochs=2):
    data = samples(mx)
    chain.bind(data.provide_data, data.provide_label)
    values(mx, chain)
    chain.init_optimizer(optimizer_params={"learning_rate": 0.3, "momentum": 0.5})
    metric, results = mx.metric.create(["acc", "ce"]), [str(chain.output_shapes), str(chain.label_shapes)]
    for _ in range(epochs):
        data.reset()
        metric.reset()
        for batch in data:
            chain.forward(batch)
            chain.backward()
            chain.update()
            chain.update_metric(metric, batch.label)
        results += metric.get()[1]
    return results + weights(chain) + [chain.score(samples(mx), "acc")[0][1], chain.predict(samples(mx))]


@program
def a_chain_of_three(mx):
    chain = mx.mod.SequentialModule()
    chain.add(layer(mx, 1, 7, "tanh")).add(layer(mx, 2, 5, "relu"), auto_wiring=True)
    chain.add(classifier(mx), take_labels=True, auto_wiring=True)
    return [*trained(mx, chain), str(chain.data_names), str(chain.output_names), str(chain.symbol)]


@program
def names_that_fit_need_no_wiring(mx):
    head = mx.sym.FullyConnected(mx.sym.var("act1_output"), num_hidden=3, name="head")
    last = mx.mod.Module(mx.sym.SoftmaxOutput(head, name="softmax"), data_names=["act1_output"])
    chain = mx.mod.SequentialModule().add(layer(mx, 1, 7, "tanh")).add(last, take_labels=True)
    return trained(mx, chain, epochs=1)


@program
def a_loss_in_python(mx):
    scores = mx.mod.Module(
        mx.sym.softmax(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")), label_names=[]
    )
    loss = mx.mod.PythonLossModule(
        grad_func=lambda s, y: s.asnumpy() - np.eye(3, dtype="float32")[y.asnumpy().astype(int)]
    )
    return trained(mx, mx.mod.SequentialModule().add(scores).add(loss, take_labels=True, auto_wiring=True))


@program
def a_layer_in_python(mx):
    class Doubling(mx.mod.PythonModule):
        def _compute_output_shapes(self):
            return [("doubled", self._data_shapes[0][1])]

        def forward(self, data_batch, is_train=None):
            self.kept = data_batch.data[0]

        def get_outputs(self, merge_multi_context=True):
            return [self.kept * 2]

        def backward(self, out_grads=None):
            self.grads = [out_grads[0] * 2]

        def get_input_grads(self, merge_multi_context=True):
            return self.grads

    chain = mx.mod.SequentialModule().add(layer(mx, 1, 7, "tanh"))
    chain.add(Doubling(["data"], None, ["doubled"]), auto_wiring=True)
    return trained(mx, chain.add(classifier(mx), take_labels=True, auto_wiring=True))


@program
def a_chain_for_prediction(mx):
    chain = mx.mod.SequentialModule().add(layer(mx, 1, 4, "tanh")).add(layer(mx, 2, 2, "tanh"), auto_wiring=True)
    chain.bind([("data", (8, 6))], for_training=False)
    values(mx, chain)
    return [str(chain.label_shapes), str(chain.data_shapes[0]), chain.predict(samples(mx))]


@program
def what_chains_refuse(mx):
    def chain(*modules):
        made = mx.mod.SequentialModule()
        for module in modules:
            made.add(module, auto_wiring=True)
        return made

    one = chain(layer(mx, 1, 4, "tanh"))
    twice = chain(layer(mx, 1, 6, "tanh"), layer(mx, 1, 6, "relu"))
    twice.bind([("data", (8, 6))])
    apart = mx.mod.SequentialModule().add(layer(mx, 1, 4, "tanh")).add(layer(mx, 2, 4, "tanh"))
    loss = mx.mod.PythonLossModule()
    loss.bind([("data", (8, 6))], [("softmax_label", (8,))])
    loss.init_params()
    return [
        outcome(lambda: one.add(classifier(mx), label=True)),
        outcome(lambda: one.init_params()),
        outcome(lambda: one.data_shapes),
        outcome(lambda: chain().bind([("data", (8, 6))])),
        outcome(lambda: chain(layer(mx, 1, 4, "tanh")).bind([("data", (8, 6))], shared_module=one)),
        outcome(lambda: twice.init_params()),
        outcome(lambda: apart.bind([("data", (8, 6))])),
        outcome(lambda: loss.backward([mx.nd.ones((8, 6))])),
        outcome(lambda: loss.backward()),
        outcome(lambda: loss.get_outputs(merge_multi_context=False)),
        outcome(lambda: mx.mod.PythonLossModule(data_names=["a", "b"])),
        outcome(lambda: mx.mod.PythonLossModule(grad_func=1)),
        outcome(lambda: mx.mod.PythonModule(["data"], None, ["out"]).bind([("other", (2, 2))])),
        outcome(lambda: mx.mod.PythonModule(["data"], None, ["out"]).bind([("data", (2, 2))])),
    ]
