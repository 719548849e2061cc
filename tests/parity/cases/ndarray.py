"""NDArray itself: what it says of itself, copies and views, conversions, contexts, printing."""

import copy
import pickle

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def small(mx, **kwargs):
    return mx.nd.array([[0, 1, 2], [3, 4, 5]], **kwargs)


@program
def properties(mx):
    x = small(mx)
    names = [str(v) for v in (x.shape, x.size, x.ndim, x.dtype, x.stype, x.context, x.ctx, x.grad, x.T.shape, len(x))]
    return [*names, x.T, str(x.writable)]


@program
def printing(mx):
    return [
        repr(small(mx)),
        str(mx.nd.ones((1,))),
        repr(mx.nd.array([1, 2], dtype="int32", ctx=mx.cpu(1))),
        "%s" % mx.nd.array([0.1, 1e-8, 1e8]),
        repr(mx.nd.ones((2, 0, 3)) if False else mx.nd.ones((2, 1, 3))),
        "{}".format(mx.nd.array([1.5], dtype="float64")),
        repr(mx.nd.arange(2000)),
    ]


@program
def default_dtypes(mx):
    sources = ([1, 2], (1,), [1.5], 5, True, np.float64(3), np.ones(2), np.ones(2, "int32"), np.ones(2, bool))
    made = [mx.nd.array(s) for s in sources] + [mx.nd.array(mx.nd.ones(2, dtype="int8"))]
    made += [mx.nd.zeros(2), mx.nd.ones(2, dtype="int64"), mx.nd.full((2,), 3), mx.nd.arange(3), mx.nd.eye(2)]
    return [str([m.dtype.__name__ for m in made]), str([m.shape for m in made])]


@program
def memory_that_is_shared(mx):
    shares = {
        "reshape method": lambda x: x.reshape((3, 2)),
        "reshape op": lambda x: mx.nd.reshape(x, shape=(3, 2)),
        "flatten": lambda x: x.flatten(),
        "expand_dims": lambda x: x.expand_dims(0),
        "squeeze": lambda x: x.squeeze(),
        "T": lambda x: x.T,
        "detach": lambda x: x.detach(),
        "columns": lambda x: x[:, 1:2],
        "rows": lambda x: x[0:1],
        "step": lambda x: x[::2],
        "all": lambda x: x[:],
        "astype": lambda x: x.astype("float32"),
        "astype without copy": lambda x: x.astype("float32", copy=False),
        "as_in_context": lambda x: x.as_in_context(mx.cpu()),
        "slice": lambda x: x.slice(begin=(0, 0), end=(1, 2)),
        "slice_axis": lambda x: x.slice_axis(axis=0, begin=0, end=1),
        "None": lambda x: x[None],
        "index array": lambda x: x[mx.nd.array([0])],
        "identity": lambda x: mx.nd.identity(x),
        "column": lambda x: x[:, 1],
        "last row": lambda x: x[-1],
        "broadcast_to": lambda x: x.broadcast_to((2, 3)),
        "swapaxes": lambda x: x.swapaxes(0, 1),
        "split": lambda x: x.split(num_outputs=2, axis=0)[0],
        "copy": lambda x: x.copy(),
        "abs": lambda x: mx.nd.abs(x),
        "stop_gradient": lambda x: mx.nd.stop_gradient(x),
    }
    results = {}
    for name, make in shares.items():
        x = small(mx)
        make(x)[:] = 9
        results[name] = x
    return results


@program
def writes_through_a_view_of_a_view(mx):
    x = mx.nd.zeros((2, 3, 4))
    y = x[1]
    y[2] = 5
    y.reshape((-1,))[0] = 7
    z = x[0:2]
    z += 1
    return [x, y, z]


@program
def source_changes_later(mx):
    x = small(mx)
    kept = [mx.nd.transpose(x), mx.nd.reshape(x, shape=(-1,)), x.copy(), x[:, 1], mx.nd.expand_dims(x, axis=0)]
    x[:] = 0
    return [*kept, x[0]]


@program
def in_place_operators(mx):
    x = small(mx)
    alias = x
    x += 1
    x *= mx.nd.array([1, 2, 3])
    x -= mx.nd.ones((2, 1))
    x /= 2
    x %= 3
    i = small(mx, dtype="int32")
    i += 1.7
    i *= 3
    return [x, str(alias is x), i, outcome(lambda: x.__iadd__(mx.nd.ones((3, 3)))), outcome(lambda: grow(mx))]


def grow(mx):
    x = mx.nd.ones((1, 3))
    x += mx.nd.ones((2, 3))
    return x


@program
def dtypes_of_arithmetic(mx):
    i, f = small(mx, dtype="int32"), small(mx)
    results = [i + 1.7, i * 2.5, i / 2, i % 2, i**2, 7 - i, 7 / (i + 1), i > 1, f == 2, f != 2, f <= 1, -i, abs(-i)]
    results += [f + np.float64(1), np.float32(2) * f, f + True, 2**f, 10 % (f + 1), i.astype("uint8") - 1]
    return [*results, str([r.dtype.__name__ for r in results])]


@program
def mixing_is_refused(mx):
    f, i = small(mx), small(mx, dtype="int32")
    return [
        outcome(lambda: f + i),
        outcome(lambda: f + mx.nd.ones((4, 3))),
        outcome(lambda: f + "1"),
        outcome(lambda: f + None),
        outcome(lambda: f + [1, 2, 3]),
        outcome(lambda: f + np.ones((2, 3))),
        outcome(lambda: np.ones((2, 3)) + f),
        outcome(lambda: mx.nd.elemwise_add(f, mx.nd.ones((1, 3)))),
        outcome(lambda: mx.nd.sum(f, foo=1)),
        outcome(lambda: f.reshape((4, 2))),
        outcome(lambda: f.reshape((3, 2), foo=1)),
        outcome(lambda: setattr(f, "foo", 1)),
        outcome(lambda: bool(f)),
        outcome(lambda: f.asscalar()),
        outcome(lambda: f == None),  # noqa: E711
        outcome(lambda: mx.nd.ones((2,), ctx=mx.gpu())),
    ]


@program
def truth_and_numbers(mx):
    return [
        bool(mx.nd.ones(1)),
        bool(mx.nd.zeros((1, 1))),
        mx.nd.array([3.5]).asscalar(),
        int(mx.nd.array([[7]], dtype="int32").asscalar()),
        str(type(mx.nd.ones(1).asscalar()).__name__),
        len([row for row in small(mx)]),
        sum(small(mx)[0]).asscalar(),
        hash(small(mx)) != 0,
    ]


@program
def copies(mx):
    x, y, z = small(mx), mx.nd.zeros((2, 3)), mx.nd.zeros((2, 3), dtype="int32")
    returned = x.copyto(y)
    (x + 0.5).copyto(z)
    return [
        y,
        str(returned is y),
        z,
        x.copyto(mx.cpu(1)),
        str(x.copyto(mx.cpu(1)).context),
        str(x.as_in_context(mx.cpu(0)) is x),
        outcome(lambda: x.copyto(mx.nd.zeros((3,)))),
        outcome(lambda: x.copyto("y")),
        copy.deepcopy(x),
        copy.copy(x),
        str(pickle.loads(pickle.dumps(small(mx, dtype="int32", ctx=mx.cpu(1)))).dtype),
        pickle.loads(pickle.dumps(x)),
    ]


@program
def conversions(mx):
    x = mx.nd.array([[0.4, 1.6], [-1.5, 300.0]])
    kinds = ("float16", "float64", "int32", "int64", np.float32, int, float, "int8")
    made = [x.astype(k) for k in kinds[:7]]
    back = mx.nd.from_numpy(np.arange(6, dtype="int64").reshape(2, 3))
    capsule = mx.nd.from_dlpack(mx.nd.to_dlpack_for_read(x))
    return [*made, str([m.dtype.__name__ for m in made]), back, str(back.dtype), capsule, x.asnumpy()]


@program
def from_numpy_shares(mx):
    source = np.arange(4, dtype="float32")
    x = mx.nd.from_numpy(source)
    x[:] = 7
    y = mx.nd.from_numpy(np.zeros(2), zero_copy=False)
    return [source, y, str(y.dtype), str(source.flags["WRITEABLE"])]


@program
def contexts(mx):
    made = [mx.cpu(), mx.cpu(1), mx.gpu(2), mx.cpu_pinned(), mx.Context("cpu", 3), mx.Context(mx.gpu(1))]
    with mx.cpu(2):
        inside, current = mx.nd.ones(2), mx.current_context()
        with mx.Context("cpu", 4):
            deeper = mx.context.current_context()
        after = mx.current_context()
    return [
        str(made),
        str([c.device_type for c in made]),
        str([c.device_id for c in made]),
        str([c.device_typeid for c in made]),
        mx.cpu() == mx.cpu(0),
        mx.cpu() == mx.cpu(1),
        mx.cpu() != mx.gpu(),
        hash(mx.cpu(1)) == hash(mx.cpu(1)),
        str([inside.context, current, deeper, after, mx.current_context()]),
        mx.context.num_gpus(),
        str((inside + 1).context),
        str((mx.nd.ones(2) + inside).context),
        str(mx.nd.array([1], ctx=mx.cpu(3)).context),
    ]


@program
def functions_that_take_numbers(mx):
    x, y = small(mx), mx.nd.ones((2, 3)) * 2
    names = "add subtract multiply divide modulo power maximum minimum equal not_equal greater greater_equal lesser"
    names += " lesser_equal logical_and logical_or logical_xor"
    results = {}
    for name in names.split():
        function = getattr(mx.nd, name)
        results[name] = function(x, y)
        results[name + " number"] = function(x, 2)
        results["number " + name] = function(2, x + 1)
    results["numbers"] = str([mx.nd.maximum(2, 3), mx.nd.power(2, 3), mx.nd.add(1, 2)])
    results["refused"] = outcome(lambda: mx.nd.add(x, "y"))
    return results


@program
def methods(mx):
    x = mx.nd.array([[0.1, -0.4, 0.9], [0.3, 0.7, -0.2]])
    names = "abs arcsin arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor flatten log_softmax max mean min"
    names += (
        " nansum norm ones_like prod radians relu rint round sigmoid sign sin sinh softmax softmin sort sqrt square"
    )
    names += (
        " squeeze sum tan tanh transpose trunc zeros_like argmax argmin argsort argmax_channel shape_array size_array"
    )
    results = {name: getattr(x, name)() for name in names.split() if name not in ("sqrt",)}
    results.update(
        clip=x.clip(-0.1, 0.5),
        expand=x.expand_dims(axis=1),
        flip=x.flip(axis=1),
        one_hot=mx.nd.array([1, 0]).one_hot(3),
        pick=x.pick(mx.nd.array([0, 2])),
        repeat=x.repeat(2, axis=0),
        tile=x.tile((2, 1)),
        take=x.take(mx.nd.array([1])),
        topk=x.topk(k=2),
        slice_axis=x.slice_axis(1, 0, 2),
        slice=x.slice((0, 1), (2, 3)),
        swapaxes=x.swapaxes(0, 1),
        broadcast_to=mx.nd.ones((1, 3)).broadcast_to((2, 3)),
        broadcast_like=mx.nd.ones((1, 3)).broadcast_like(x),
        reshape_like=x.reshape_like(mx.nd.ones((3, 2))),
        slice_like=x.slice_like(mx.nd.ones((1, 2))),
        pad=x.reshape((1, 1, 2, 3)).pad(mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)),
        split=x.split(num_outputs=3, axis=1)[1],
        sum_axis=x.sum(axis=1),
        sum_positional=x.sum(0),
        mean_keep=x.mean(axis=(0, 1), keepdims=True),
        transpose_axes=x.transpose((1, 0)),
        diag=x.diag(),
        depth=mx.nd.ones((1, 4, 1, 1)).depth_to_space(2),
    )
    return results


@program
def reshape_method(mx):
    x = mx.nd.arange(24).reshape((2, 3, 4))
    shapes = ((4, 6), (-1,), (0, -1), (-2,), (-3, 0), (0, -4, -1, 1, 0), (-1, 0))
    made = [x.reshape(s).shape for s in shapes] + [x.reshape(4, -1).shape, x.reshape(shape=(6, 4)).shape]
    return [str(made), str(x.reshape((-1, 0), reverse=True).shape), outcome(lambda: x.reshape((5, 5)))]


@program
def concatenating(mx):
    x, y = mx.nd.ones((2, 2)), mx.nd.zeros((2, 2))
    return [
        mx.nd.concatenate([x, y]),
        mx.nd.concatenate([x, y], axis=1),
        mx.nd.moveaxis(mx.nd.arange(6).reshape((1, 2, 3)), 0, 2),
        mx.nd.moveaxis(mx.nd.arange(6).reshape((1, 2, 3)), [0, 1], [-1, 0]),
        str([s.shape for s in mx.nd.split_v2(mx.nd.ones((4, 3)), 2)]),
        str([s.shape for s in mx.nd.split_v2(mx.nd.ones((4, 3)), (1, 3))]),
        mx.nd.onehot_encode(mx.nd.array([1, 0]), mx.nd.zeros((2, 3))),
        outcome(lambda: mx.nd.split_v2(mx.nd.ones((4, 3)), 3)),
    ]


@program
def linear_classifier(mx):
    """The program of the README, three steps of it."""
    rng = np.random.RandomState(0)
    x, y = mx.nd.array(rng.rand(8, 5)), mx.nd.array(rng.randint(0, 3, 8))
    w = mx.nd.zeros((5, 3))
    w.attach_grad()
    losses = []
    for _ in range(3):
        with mx.autograd.record():
            loss = -mx.nd.pick(mx.nd.log_softmax(mx.nd.dot(x, w)), y).mean()
        loss.backward()
        w -= 0.1 * w.grad
        losses.append(loss)
    return [*losses, w, w.grad]
