"""Edges of arrays: views that write through, `inplace=`, files of empty arrays, graphs as ops, custom ops that fail."""

import os
import tempfile

from parity.spec import family, outcome

case, program = family(__name__)

VIEWS = [
    lambda x: x.reshape((4, 3)),
    lambda x: x.reshape((-1,)),
    lambda x: x.reshape((0, -1), reverse=True),
    lambda x: x.reshape(2, 6),
    lambda x: x.reshape(shape=(2, -1)),
    lambda x: x.reshape((-4, 1, 3, 4)),
    lambda x: x.reshape((5, 4)),
    lambda x: x.reshape((4, 3), inplace=True),
    lambda x: x.flatten(),
    lambda x: x.flatten(inplace=True),
    lambda x: x.flatten(inplace=False),
    lambda x: x.expand_dims(0),
    lambda x: x.expand_dims(0, inplace=True),
    lambda x: x.expand_dims(axis=-1, inplace=True),
    lambda x: x.expand_dims(axis=1, inplace=False),
    lambda x: x.expand_dims(axis=5, inplace=True),
    lambda x: x.expand_dims(),
    lambda x: x.reshape((3, 1, 4)).squeeze(),
    lambda x: x.reshape((3, 1, 4)).squeeze(inplace=True),
    lambda x: x.reshape((3, 1, 4)).squeeze(axis=1, inplace=True),
    lambda x: x.reshape((3, 1, 4)).squeeze(axis=0, inplace=True),
    lambda x: x.reshape((1, 3, 1, 4)).squeeze(axis=(0, 2), inplace=True),
    lambda x: x.transpose(inplace=True),
    lambda x: x.T,
    lambda x: x[1],
    lambda x: x[-1],
    lambda x: x[1:],
    lambda x: x[:, 1:],
    lambda x: x[::2],
    lambda x: x[1, 1:3],
    lambda x: x[None],
    lambda x: x[..., 0],
    lambda x: x[[0, 1]],
    lambda x: x._at(1),
    lambda x: x._slice(1, 3),
    lambda x: x.slice_axis(0, 1, 2),
    lambda x: x.swapaxes(0, 1),
    lambda x: x.split(3)[0],
    lambda x: x.tile(1),
    lambda x: x.astype("float32", copy=False),
    lambda x: x.detach(),
    lambda x: x.as_in_context(x.context),
    lambda x: x.copyto(x.context),
    lambda x: x.reshape_like(x),
]


@program
def writing_to_views(mx):
    """The array and the view, after the view was written to."""
    results = []
    for view in VIEWS:
        x = mx.nd.arange(12).reshape((3, 4))

        def write(view=view, x=x):
            y = view(x)
            y[:] = 100
            return y

        results += [outcome(write), x]
    return results


@program
def reshape_to_fewer_elements_is_a_value_error(mx):
    found = []
    for shape in ((2, 4), (3,), (-1, 5), (13, -1)):
        try:
            mx.nd.arange(12).reshape(shape)
            found.append("fits")
        except ValueError:
            found.append("ValueError")
    return found


@program
def gradients_of_views_made_in_place(mx):
    results = []
    for view in (
        lambda x: x.expand_dims(0, inplace=True),
        lambda x: x.flatten(inplace=True),
        lambda x: x.expand_dims(0).squeeze(inplace=True),
    ):
        x = mx.nd.arange(4)
        x.attach_grad()
        with mx.autograd.record():
            y = view(x) * x.reshape((1, 4)).sum()
        y.backward()
        results += [y, x.grad]
    return results


@program
def files_of_empty_arrays(mx):
    path = os.path.join(tempfile.mkdtemp(), "a.params")
    results = []
    with mx.util.np_shape(True):
        for saved in (
            mx.nd.zeros((0, 3)),
            {"a": mx.nd.zeros((0,)), "b": mx.nd.ones((1, 2))},
            [mx.nd.ones((1,))[0]],
            mx.nd.array([]),
        ):
            mx.nd.save(path, saved)
            loaded = mx.nd.load(path)
            results.append(str(list(loaded) if isinstance(loaded, dict) else len(loaded)))
            results += list(loaded.values()) if isinstance(loaded, dict) else loaded
    return results


@program
def a_symbol_as_an_op(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    x, y = mx.nd.array([1.0, 2.0]), mx.nd.array([3.0, 4.0])
    x.attach_grad()
    both = mx.nd.CachedOp(mx.sym.Group([a * b + 1, mx.sym.sum(a)]))
    with mx.autograd.record():
        first, second = both(x, y)
        z = first.sum() + second
    z.backward()
    out = [mx.nd.zeros(2), mx.nd.zeros(1)]
    both(x, y, out=out)
    twice = mx.nd.CachedOp(a * 2, [("static_alloc", "true")])
    return [first, second, x.grad, *out, twice(x), outcome(twice), outcome(lambda: twice(x, y))]


@program
def a_custom_op_that_fails(mx):
    """Its error is an MXNetError, raised once; what does not depend on it goes on."""

    class Fails(mx.operator.CustomOp):
        def __init__(self, fails_in):
            super().__init__()
            self.fails_in = fails_in

        def forward(self, is_train, req, in_data, out_data, aux):
            if self.fails_in == "forward":
                raise ValueError("no")
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            if self.fails_in == "backward":
                raise ValueError("no")
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("fails_at_an_edge")
    class Prop(mx.operator.CustomOpProp):
        def __init__(self, fails_in):
            super().__init__()
            self.fails_in = fails_in

        def create_operator(self, ctx, shapes, dtypes):
            if self.fails_in == "create":
                raise ValueError("no")
            return Fails(self.fails_in)

    results = []
    for fails_in in ("nothing", "forward", "backward", "create"):
        x = mx.nd.ones(2)
        x.attach_grad()

        def train(fails_in=fails_in, x=x):
            with mx.autograd.record():
                y = mx.nd.Custom(x, op_type="fails_at_an_edge", fails_in=fails_in)
            y.backward()
            return x.grad.asnumpy()

        results += [outcome(train), outcome(lambda: mx.nd.waitall() or (mx.nd.ones(2) + 1).asnumpy())]
    return results


@program
def private_names_of_arrays(mx):
    names = mx.nd.ndarray
    x = mx.nd.arange(6).reshape((3, 2))
    x.attach_grad()
    fresh = [bool(x._fresh_grad)]
    with mx.autograd.record():
        y = x * x
    y.backward()
    fresh.append(bool(x._fresh_grad))
    x._fresh_grad = False
    fresh.append(bool(x._fresh_grad))
    sparse = mx.nd.sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 1, 2]), shape=(2, 2))
    rows = mx.nd.sparse.row_sparse_array(([[1.0, 2.0]], [1]), shape=(3, 2))
    y = mx.nd.zeros((2, 2))
    y._sync_copyfrom(sparse.asnumpy())
    return [
        *fresh,
        x._at(1),
        x._slice(1, 3),
        mx.nd.zeros(2)._full(7),
        y,
        str(names.py_slice),
        str(names._STORAGE_TYPE_STR_TO_ID),
        str(names._STORAGE_TYPE_ID_TO_STR),
        str(names._GRAD_REQ_MAP),
        *[
            names._DTYPE_NP_TO_MX[x.astype(d).dtype]
            for d in ("float32", "float64", "float16", "uint8", "int32", "bool")
        ],
        str([names._DTYPE_MX_TO_NP[i].__name__ for i in range(7)]),
        sparse._num_aux,
        sparse._aux_data(0),
        sparse._aux_data(1),
        str([t.__name__ for t in sparse._aux_types]),
        rows._num_aux,
        rows._aux_data(0),
        str(rows._aux_type(0).__name__),
    ]


@program
def schedules_of_first_programs(mx):
    from importlib import import_module

    misc = import_module(mx.__name__ + ".misc")
    schedule = misc.FactorScheduler(2, 0.5)
    return [
        schedule.base_lr,
        *[schedule(i) for i in range(7)],
        outcome(lambda: misc.FactorScheduler(0)),
        outcome(lambda: misc.FactorScheduler(1, 1.5)),
        outcome(lambda: misc.LearningRateScheduler()(1)),
        misc.FactorScheduler(1).factor,
    ]
