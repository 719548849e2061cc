"""Recording, backward, gradients of gradients, functions with gradients of their own."""

from parity.spec import family, outcome

case, program = family(__name__)


def variable(mx, values=(1.0, 2.0, 3.0), grad_req="write"):
    x = mx.nd.array(values)
    x.attach_grad(grad_req)
    return x


@program
def square(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * x
    y.backward()
    return [y, x.grad]


@program
def gradients_overwrite(mx):
    x = variable(mx)
    for k in (2, 5):
        with mx.autograd.record():
            y = x * k
        y.backward()
    return [x.grad]


@program
def gradients_add(mx):
    x = variable(mx, grad_req="add")
    for k in (2, 5):
        with mx.autograd.record():
            y = x * k
        y.backward()
    return [x.grad]


@program
def gradients_null(mx):
    x, w = variable(mx, grad_req="null"), variable(mx)
    with mx.autograd.record():
        y = x * w
    y.backward()
    return [w.grad, str(x.grad), outcome(lambda: only_null(mx))]


def only_null(mx):
    x = variable(mx, grad_req="null")
    with mx.autograd.record():
        y = x * 2
    y.backward()


@program
def one_variable_twice_in_a_graph(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * x + mx.nd.exp(x) * x
    y.backward()
    return [x.grad]


@program
def heads_and_head_gradients(mx):
    x = variable(mx)
    with mx.autograd.record():
        y, z = x * 2, x * 3
    mx.autograd.backward([y, z], [mx.nd.ones(3) * 2, None])
    first = x.grad.copy()
    with mx.autograd.record():
        y = x * x
    y.backward(mx.nd.array([1, 0, -1]))
    return [first, x.grad]


@program
def pause_cuts(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * 2
        with mx.autograd.pause():
            z = y * 5
        w = y + z
    w.backward()
    return [x.grad]


@program
def modes(mx):
    a = mx.autograd
    seen = [a.is_recording(), a.is_training()]
    with a.record():
        seen += [a.is_recording(), a.is_training()]
        with a.predict_mode():
            seen += [a.is_recording(), a.is_training()]
        with a.pause():
            seen += [a.is_recording(), a.is_training()]
        with a.pause(train_mode=True):
            seen += [a.is_recording(), a.is_training()]
    with a.record(train_mode=False):
        seen += [a.is_recording(), a.is_training()]
        with a.train_mode():
            seen += [a.is_recording(), a.is_training()]
    seen += [a.set_recording(True), a.set_recording(False), a.set_training(True), a.set_training(False)]
    return [str(seen)]


@program
def retain_graph(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    y.backward()
    return [x.grad, outcome(y.backward)]


@program
def errors(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x + 1
    y.backward()
    return [outcome(y.backward), outcome(mx.nd.ones(2).backward), outcome(lambda: mx.autograd.grad(y, [x]))]


@program
def in_place_while_recording_is_refused(mx):
    def plus(target):
        def run():
            x = variable(mx)
            with mx.autograd.record():
                y = target(x)
                y += x

        return run

    def item():
        x = variable(mx)
        with mx.autograd.record():
            y = x * 2
            y[:] = 1

    def leaf():
        x = variable(mx)
        with mx.autograd.record():
            x[:] = 1

    def constant():
        x, z = variable(mx), mx.nd.zeros(4)
        with mx.autograd.record():
            z[1:4] = x * 2

    return [outcome(plus(lambda x: x * 2)), outcome(item), outcome(leaf), outcome(constant)]


@program
def writing_outside_the_graph_while_recording(mx):
    x, z = variable(mx), mx.nd.zeros(3)
    with mx.autograd.record():
        z[:] = 5
        z += 1
        y = x * z
    y.backward()
    return [z, x.grad]


@program
def memory_changed_before_backward(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * x
    x[:] = 7
    y.backward()
    return [x.grad]


@program
def memory_changed_between_recordings(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * 2
    x[:] = 7
    with mx.autograd.record():
        z = y * x
    z.backward()
    return [x.grad]


@program
def update_in_place(mx):
    w = variable(mx)
    for _ in range(3):
        with mx.autograd.record():
            loss = (w * w).sum()
        loss.backward()
        w -= 0.1 * w.grad
    return [w, w.grad, loss]


@program
def attach_cuts(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * 2
    y.attach_grad()
    with mx.autograd.record():
        z = y * 3
    z.backward()
    return [x.grad, y.grad]


@program
def attach_inside_record(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * 2
        y.attach_grad()
        z = y * y
    z.backward()
    return [x.grad, y.grad]


@program
def detach_and_copies(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x.copy() * x.detach() + x.copyto(mx.cpu(1)).as_in_context(mx.cpu(0))
    y.backward()
    return [x.grad]


@program
def through_casts_slices_and_shapes(mx):
    x = variable(mx, [[1.0, 2.0], [3.0, 4.0]])
    with mx.autograd.record():
        y = x.astype("float64").astype("float32") * 2
        z = x[1] * 3 + x[:, 0] + x.reshape((-1,))[1:3] + x.T[0]
        w = y.sum() + z.sum()
    w.backward()
    return [x.grad]


@program
def comparison_is_constant(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = (x > 1) * x
    y.backward()
    return [x.grad]


@program
def out_joins_the_graph(mx):
    x, out = variable(mx), mx.nd.zeros(3)
    with mx.autograd.record():
        mx.nd.broadcast_mul(x, x, out=out)
        z = out * 2
    z.backward()
    return [out, x.grad]


@program
def mark_variables(mx):
    x, g = mx.nd.array([1.0, 2.0]), mx.nd.ones(2)
    mx.autograd.mark_variables([x], [g])
    with mx.autograd.record():
        y = x * x
    y.backward()
    h = mx.nd.ones(2)
    mx.autograd.mark_variables([x], [h], "add")
    with mx.autograd.record():
        y = x * x
    y.backward()
    return [g, h, x.grad]


@program
def grad(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x * x * x
    g = mx.autograd.grad(y, [x], retain_graph=True)
    return [g[0], x.grad, len(g), mx.autograd.grad(y, [x], head_grads=[mx.nd.array([1, 2, 3])])[0]]


@program
def grad_of_grad(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = mx.nd.log(x)  # MXNet differentiates few of its gradients again; tests/ndarray/test_autograd.py has the rest
        g = mx.autograd.grad(y, [x], create_graph=True, retain_graph=True)[0]
    g.backward()
    return [g, x.grad]


@program
def third_derivative(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = mx.nd.sin(x)
        for _ in range(2):
            y = mx.autograd.grad(y, [x], create_graph=True, retain_graph=True)[0]
    y.backward()
    return [y, x.grad]


@program
def grad_errors(mx):
    x, unused = variable(mx), variable(mx)
    with mx.autograd.record():
        y = x * 2
        z = y * 3
    return [
        outcome(lambda: mx.autograd.grad(z, [x, unused], retain_graph=True)),
        outcome(lambda: mx.autograd.grad(z, [mx.nd.ones(2)], retain_graph=True)),
    ]


@program
def function(mx):
    class Sigmoid(mx.autograd.Function):
        def forward(self, x):
            y = 1 / (1 + mx.nd.exp(-x))
            self.save_for_backward(y)
            return y

        def backward(self, dy):
            (y,) = self.saved_tensors
            return dy * y * (1 - y)

    x = variable(mx)
    with mx.autograd.record():
        y = Sigmoid()(x) * 2
    y.backward()
    return [y, x.grad, Sigmoid()(x)]


@program
def function_of_several(mx):
    class Both(mx.autograd.Function):
        def forward(self, x, y):
            self.save_for_backward(x)
            return x * 2, y * 3

        def backward(self, a, b):
            (x,) = self.saved_tensors
            return a * x, b * 10

    x = variable(mx)
    with mx.autograd.record():
        a, b = Both()(x, x)
        z = a + b
    z.backward()
    return [a, b, x.grad]


@program
def gradient_array_is_the_buffer(mx):
    x = variable(mx)
    g = x.grad
    zero = g.copy()
    with mx.autograd.record():
        y = x * 2
    y.backward()
    held = g.copy()
    x.grad[:] = 0
    return [zero, held, g, x.grad]


@program
def detach_of_states_in_a_loop(mx):
    w, h = variable(mx), mx.nd.zeros(3)
    grads = []
    for _ in range(3):
        h = h.detach()
        with mx.autograd.record():
            h = mx.nd.tanh(h + w)
            loss = h.sum()
        loss.backward()
        grads.append(w.grad.copy())
    return grads


@program
def several_contexts(mx):
    xs = [mx.nd.array([1.0, 2.0], ctx=mx.cpu(i)) for i in range(2)]
    for x in xs:
        x.attach_grad()
    with mx.autograd.record():
        losses = [(x * x * (i + 1)).sum() for i, x in enumerate(xs)]
    mx.autograd.backward(losses)
    return [xs[0].grad, xs[1].grad, str(xs[1].grad.context)]


@program
def custom_op(mx):
    class Scale(mx.operator.CustomOp):
        def __init__(self, k):
            super().__init__()
            self.k = k

        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * self.k + (10 if is_train else 0))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * self.k * in_data[0])

    @mx.operator.register("parity_scale")
    class ScaleProp(mx.operator.CustomOpProp):
        def __init__(self, k="1"):
            super().__init__(need_top_grad=True)
            self.k = float(k)

        def list_arguments(self):
            return ["data"]

        def list_outputs(self):
            return ["output"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []

        def create_operator(self, ctx, shapes, dtypes):
            return Scale(self.k)

    x = variable(mx)
    with mx.autograd.record():
        y = mx.nd.Custom(x, op_type="parity_scale", k=3)
    y.backward()
    return [y, x.grad, mx.nd.Custom(x, op_type="parity_scale", k=2)]


@program
def custom_op_with_state_and_label(mx):
    class Loss(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], mx.nd.softmax(in_data[0]))
            self.assign(out_data[1], req[1], in_data[1] * 2)
            aux[0][:] = aux[0] + 1

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            label = mx.nd.one_hot(in_data[1], depth=out_data[0].shape[1])
            self.assign(in_grad[0], req[0], out_data[0] - label)

    @mx.operator.register("parity_loss")
    class LossProp(mx.operator.CustomOpProp):
        def __init__(self):
            super().__init__(need_top_grad=False)

        def list_arguments(self):
            return ["data", "label"]

        def list_outputs(self):
            return ["probability", "doubled"]

        def list_auxiliary_states(self):
            return ["count"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0], in_shape[1]], [(1,)]

        def create_operator(self, ctx, shapes, dtypes):
            return Loss()

    x, label, count = mx.nd.array([[1.0, 2.0], [0.5, 0.1]]), mx.nd.array([1, 0]), mx.nd.zeros(1)
    x.attach_grad()
    with mx.autograd.record():
        p, d = mx.nd.Custom(x, label, count, op_type="parity_loss")
    p.backward()
    return [p, d, x.grad, count]


@program
def foreach(mx):
    w = variable(mx, [1.0, 2.0])
    with mx.autograd.record():
        outs, state = mx.nd.contrib.foreach(
            lambda d, s: (d * w + s, s + d), mx.nd.arange(6).reshape((3, 2)), mx.nd.zeros(2)
        )
        loss = outs.sum() + (state * w).sum()
    loss.backward()
    many, states = mx.nd.contrib.foreach(
        lambda d, s: ([d[0] * 2, d[1] + s[0]], [s[0] + d[0]]),
        [mx.nd.arange(6).reshape((3, 2)), mx.nd.ones((3, 2))],
        [mx.nd.zeros(2)],
    )
    return [outs, state, w.grad, many[0], many[1], states[0]]


@program
def while_loop(mx):
    w = variable(mx, [2.0])
    with mx.autograd.record():
        outs, last = mx.nd.contrib.while_loop(
            lambda i, s: i < 3, lambda i, s: (s * w, [i + 1, s * w]), [mx.nd.array([0.0]), mx.nd.array([1.0])], 3
        )
        loss = outs.sum()
    loss.backward()
    short, _ = mx.nd.contrib.while_loop(lambda i: i < 2, lambda i: (i, i + 1), mx.nd.array([0.0]), max_iterations=4)
    none, same = mx.nd.contrib.while_loop(lambda i: i < 0, lambda i: (i, i + 1), mx.nd.array([0.0]), max_iterations=4)
    return [
        outs,
        last[0],
        last[1],
        w.grad,
        short[:2],
        str(short.shape),
        str(none),
        same,
        outcome(lambda: mx.nd.contrib.while_loop(lambda i: i < 0, lambda i: (i, i), mx.nd.ones(1))),
    ]


@program
def cond(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = mx.nd.contrib.cond(x.sum() > 5, lambda: x * 2, lambda: x * 3)
    y.backward()
    return [y, x.grad, mx.nd.contrib.cond(mx.nd.zeros(1), lambda: mx.nd.ones(1), lambda: [mx.nd.zeros(2)])[0]]


@program
def heads_without_a_gradient(mx):
    ops = {
        "BlockGrad": lambda x: mx.nd.BlockGrad(x),
        "deeper": lambda x: mx.nd.BlockGrad(mx.nd.exp(x)) * 2,
        "argmax": lambda x: mx.nd.argmax(x, axis=0),
        "compare": lambda x: x > 2,
        "argsort": lambda x: x.argsort(),
        "ones_like": lambda x: mx.nd.ones_like(x),
        "one_hot": lambda x: mx.nd.one_hot(x, 4),
        "beside a root of zero": lambda x: (mx.nd.sqrt(x - 1) > 0) * x,
        "topk": lambda x: mx.nd.topk(x, k=2, ret_typ="both")[1],
    }
    results = {}
    for name, compute in ops.items():
        for grad_req in ("write", "add"):
            x = variable(mx, grad_req=grad_req)
            x.grad[:] = 5
            with mx.autograd.record():
                y = compute(x)
            y.backward()
            results[name + " " + grad_req] = x.grad
    return results


@program
def results_without_a_gradient_are_of_the_graph(mx):
    def write(make):
        x = variable(mx)
        with mx.autograd.record():
            y = make(x)
            y[:] = 1
        return "written"

    return [outcome(lambda: write(mx.nd.zeros_like)), outcome(lambda: write(lambda x: x > 2))]


@program
def state_goes_on_without_detach(mx):
    w, h, total = variable(mx), mx.nd.zeros(3), mx.nd.zeros(3)
    results = []
    for _ in range(3):
        with mx.autograd.record():
            h = mx.nd.tanh(w * (h + 1))
            total = total + h
            loss = (h * h).sum() + total.sum()
        loss.backward()
        results.append(w.grad.copy())
    return results


@program
def states_of_an_lstm_go_on_without_detach(mx):
    x = mx.nd.arange(24).reshape((3, 2, 4)) / 24
    weights = mx.nd.arange(220) / 2000
    weights.attach_grad()
    h = c = mx.nd.zeros((1, 2, 5))
    results = []
    for _ in range(3):
        with mx.autograd.record():
            y, h, c = mx.nd.RNN(x, weights, h, c, state_size=5, num_layers=1, mode="lstm", state_outputs=True)
            loss = (y * y).sum()
        loss.backward()
        results.append(weights.grad.copy())
    return results


@program
def another_graph_survives_a_backward(mx):
    w, v = variable(mx), variable(mx)
    with mx.autograd.record():
        fake = mx.nd.tanh(w)
        first = (fake.detach() * v).sum()
    first.backward()
    with mx.autograd.record():
        second = (fake * v).sum()
    second.backward()
    return [w.grad, v.grad]


@program
def writing_to_a_view_that_backward_needs(mx):
    results = []
    for view in (lambda y: y.reshape((3, 1)), lambda y: y.detach(), lambda y: y[1:], lambda y: y[:]):
        x = variable(mx)
        with mx.autograd.record():
            y = mx.nd.tanh(x)
            z = y * 2
        part = view(y)
        part += 1
        z.backward()
        results += [x.grad, y]
    return results


@program
def writing_to_a_recorded_copy(mx):
    x = variable(mx)
    with mx.autograd.record():
        copies = [mx.nd.identity(x), mx.nd.transpose(x), mx.nd.BlockGrad(x), mx.nd.flatten(x.reshape((3, 1)))]
    for y in copies:
        y += 1
        y *= 2
    return [x, *copies]


@program
def whole_slice_is_the_array(mx):
    x = variable(mx)
    with mx.autograd.record():
        y = x[:]
    return [str(y is x), str(x[...] is x), str(x[0:3] is x)]


@program
def a_head_counts_once_by_its_last_gradient(mx):
    results = []
    for heads, starts in (("yy", [1, 10]), ("yy", None), ("yyy", [1, 10, 100]), ("yzy", [1, 10, 100]), ("xx", [1, 10])):
        arrays = {"x": mx.nd.array([1.0, 2.0, 3.0])}
        arrays["x"].attach_grad()
        with mx.autograd.record():
            arrays["y"] = arrays["x"] * arrays["x"]
            arrays["z"] = arrays["y"] * 2
        mx.autograd.backward([arrays[name] for name in heads], starts and [mx.nd.ones(3) * start for start in starts])
        results.append(arrays["x"].grad)
    return results
