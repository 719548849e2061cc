"""Executors that share memory, and groups of executors on several contexts (`mx.executor_manager`)."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)
PARAMETERS = ["fc_weight", "fc_bias", "bn_gamma", "bn_beta"]


def network(mx):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn", fix_gamma=False), name="softmax")


def shares(a, b):
    """Whether writing to one array changes the other."""
    before = a.asnumpy().copy()
    a[:] = 77
    same = bool(b.asnumpy().ravel()[0] == 77)
    a[:] = before
    return same


def shared(a, b):
    return str(
        [
            [(name, shares(a.arg_dict[name], b.arg_dict[name])) for name in sorted(a.arg_dict)],
            [(name, shares(a.grad_dict[name], b.grad_dict[name])) for name in sorted(a.arg_dict)],
            [(name, shares(a.aux_dict[name], b.aux_dict[name])) for name in sorted(a.aux_dict)],
        ]
    )


@program
def memory_shared_with_an_executor(mx):
    net = network(mx)
    base = net.simple_bind(mx.cpu(), data=(6, 4))

    def bound(rows, **sharing):
        return shared(base, net.simple_bind(mx.cpu(), data=(rows, 4), **sharing))

    return [
        bound(6, shared_exec=base),
        bound(6, shared_arg_names=PARAMETERS),
        bound(6, shared_exec=base, shared_arg_names=PARAMETERS),
        bound(6, shared_exec=base, shared_arg_names=PARAMETERS, shared_buffer={}),
        bound(6, shared_exec=base, shared_arg_names=PARAMETERS[:1], shared_buffer={}),
        bound(6, shared_exec=base, shared_buffer={}),
        bound(3, shared_exec=base, shared_arg_names=PARAMETERS, shared_buffer={}),
        bound(9, shared_exec=base, shared_arg_names=PARAMETERS, shared_buffer={}),
        outcome(
            lambda: net.simple_bind(
                mx.cpu(), data=(6, 5), shared_exec=base, shared_arg_names=PARAMETERS, shared_buffer={}
            )
        ),
    ]


@program
def memory_shared_in_a_buffer(mx):
    net, buffer, results = network(mx), {}, []
    first = net.simple_bind(mx.cpu(), data=(6, 4), shared_arg_names=PARAMETERS, shared_buffer=buffer)
    for rows in (3, 9, 6):
        other = net.simple_bind(mx.cpu(), data=(rows, 4), shared_arg_names=PARAMETERS, shared_buffer=buffer)
        results += [shared(first, other), str(sorted((key, array.shape) for key, array in buffer.items()))]
    everything = {}
    first = net.simple_bind(mx.cpu(), data=(6, 4), shared_buffer=everything)
    second = net.simple_bind(mx.cpu(), data=(3, 4), shared_buffer=everything)
    return [*results, shared(first, second), str(sorted(everything))]


@program
def slices_of_a_batch(mx):
    split = mx.executor_manager._split_input_slice
    loads = [
        (10, [1, 2]),
        (7, [1, 1, 1]),
        (100, [0.3, 0.3, 0.4]),
        (11, [3, 1, 7, 2]),
        (3, [1, 1]),
        (5, [1, 1]),
        (9, [2, 1]),
    ]
    good = [str(split(batch, load)) for batch, load in loads]
    bad = [(2, [1, 1, 1]), (5, [1, 0]), (0, [1]), (6, [1, 1, 1, 1])]
    return good + [outcome(lambda b=batch, w=load: split(b, w)) for batch, load in bad]


@program
def loading_into_slices(mx):
    load = mx.executor_manager._load_general
    source = mx.nd.arange(12).reshape((4, 3))
    parts = [(slice(0, 1), mx.nd.zeros((1, 3))), (slice(1, 4), mx.nd.zeros((3, 3), ctx=mx.cpu(1)))]
    whole = mx.nd.zeros((4, 3))
    load([source, source], [parts, whole])
    return [parts[0][1], parts[1][1], whole, outcome(lambda: load([source], [[(slice(0, 3), mx.nd.zeros((3, 3)))]]))]


@program
def a_manager_trains_on_two_contexts(mx):
    net, rng = network(mx), np.random.RandomState(1)
    mx.executor_manager._check_arguments(net)
    data = mx.io.NDArrayIter(rng.rand(12, 4).astype("float32"), np.arange(12) % 3, 6)
    manager = mx.executor_manager.DataParallelExecutorManager(
        net, [mx.cpu(0), mx.cpu(1)], data, net.list_arguments(), PARAMETERS, net.list_auxiliary_states(), [1, 2]
    )
    arguments = {
        name: mx.nd.array(rng.uniform(-1, 1, arrays[0].shape))
        for name, arrays in zip(manager.param_names, manager.param_arrays)
    }
    states = {name: mx.nd.ones((3,)) for name in manager.aux_names}
    manager.set_params(arguments, states)
    metric, results = mx.metric.create("acc"), [str(manager.slices)]
    update = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1))
    for batch in data:
        manager.load_data_batch(batch)
        manager.forward(is_train=True)
        manager.backward()
        manager.update_metric(metric, batch.label)
        for i, (weights, grads) in enumerate(zip(manager.param_arrays, manager.grad_arrays)):
            for k, (weight, grad) in enumerate(zip(weights, grads)):
                update(i * 2 + k, grad, weight)
        results += [metric.get()[1], *[o.asnumpy() for e in manager.execgrp.train_execs for o in e.outputs]]
    manager.copy_to(arguments, states)
    return results + [arguments[name] for name in sorted(arguments)] + [states[name] for name in sorted(states)]


def bucketed(mx, lengths):
    """Outputs and weights of a manager's training on batches of these lengths, and of its last bucket."""

    def sym_gen(key):
        words = mx.sym.Embedding(mx.sym.var("data"), input_dim=7, output_dim=4, name="embed")
        net = mx.sym.FullyConnected(mx.sym.sum(words, axis=1) / key, num_hidden=3, name="fc")
        return mx.sym.SoftmaxOutput(net, mx.sym.var("label"), name="softmax")

    rng, parameters = np.random.RandomState(2), ["embed_weight", "fc_weight", "fc_bias"]

    def batch(key, length):
        data, label = mx.nd.array(rng.randint(0, 7, (4, length))), mx.nd.array(rng.randint(0, 3, 4))
        shapes = [("data", (4, length))], [("label", (4,))]
        return mx.io.DataBatch([data], [label], 0, None, key, shapes[0], shapes[1])

    class Batches:
        batch_size, default_bucket_key = 4, 6
        provide_data, provide_label = [("data", (4, 6))], [("label", (4,))]

    net = sym_gen(6)
    manager = mx.executor_manager.DataParallelExecutorManager(
        net, [mx.cpu(0), mx.cpu(1)], Batches, net.list_arguments(), parameters, [], sym_gen=sym_gen
    )
    values = {name: mx.nd.array(rng.uniform(-1, 1, a[0].shape)) for name, a in zip(parameters, manager.param_arrays)}
    manager.set_params(values, {})
    results = []
    for key, length in lengths:
        manager.load_data_batch(batch(key, length))
        manager.forward(is_train=True)
        manager.backward()
        for weights, grads in zip(manager.param_arrays, manager.grad_arrays):
            for weight, grad in zip(weights, grads):
                weight -= 0.5 * grad
        results += [o.asnumpy() for e in manager.curr_execgrp.train_execs for o in e.outputs]
    manager.copy_to(values, {})
    return results + [values[name] for name in parameters] + [outcome(lambda: manager.install_monitor(None))]


@program
def a_manager_with_buckets(mx):
    """Of one length: MXNet's manager fails at buckets of other lengths."""
    return bucketed(mx, [(3, 6), (6, 6), (5, 6), (3, 6)])


@program
def reshape_keeps_gradients_that_are_written(mx):
    symbol, shapes = network(mx), {"data": (4, 3)}
    names = symbol.list_arguments()
    found = dict(zip(names, symbol.infer_shape(**shapes)[0]))
    arrays = [mx.nd.ones(found[name]) for name in names]
    reqs = {name: "null" if name == "data" else "write" for name in names}
    grads, states = [mx.nd.zeros(a.shape) for a in arrays], [mx.nd.zeros((3,)), mx.nd.ones((3,))]
    bound = symbol.bind(mx.cpu(), arrays, args_grad=grads, grad_req=reqs, aux_states=states)
    smaller = bound.reshape(partial_shaping=True, data=(2, 3))
    return [[name for name in names if each.grad_dict[name] is not None] for each in (bound, smaller)]
