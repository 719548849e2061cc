"""Random programs of `mx.np`, `mx.npx` and autograd in NumPy mode, for race.py. Needs numpy alone.

A program is a list of statements. Each is made from a template, whose placeholders are filled with variables of earlier
statements; NumPy runs the statement to know the shape of its result. A few statements that NumPy refuses are kept:
both engines should refuse them too.
"""

import json
import random
import re
import warnings
from functools import partial

import numpy as onp
import tolerance

# ---- what both engines run ----


def steps(mx, lines, refused=()):
    """What each statement gave, and at the end the values of all arrays, as JSON.

    Statements that MXNet `refused` run on copies, so that all others see what they see in MXNet.
    """
    space = {"mx": mx, "np": mx.np, "npx": mx.npx, "onp": onp}
    space.update((name, partial(helper, mx)) for name, helper in HELPERS.items())
    mx.npx.set_np()
    try:
        found = [_step(line, _copies(space) if i in refused else space) for i, line in enumerate(lines)]
        found.append({name: shown(value) for name, value in space.items() if hasattr(value, "asnumpy")})
    finally:
        mx.npx.reset_np()
    return json.dumps(found)


def _step(line, space):
    target = re.match(r"\w+", line).group()
    new = target not in space
    try:
        exec(line, space)
        return shown(space[target])
    except Exception as error:
        if new:
            space.pop(target, None)
        return {"raises": [kind.__name__ for kind in type(error).__mro__]}


def _copies(space):
    return {name: value.copy() if hasattr(value, "asnumpy") else value for name, value in space.items()}


def shown(value):
    """A result as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    if hasattr(value, "asnumpy") or isinstance(value, onp.ndarray):
        array = value.asnumpy() if hasattr(value, "asnumpy") else value
        kind = "ndarray" if "ndarray" in [each.__name__ for each in type(value).__mro__] else "NDArray"
        return {"array": kind, "dtype": str(array.dtype), "shape": list(value.shape), "values": array.ravel().tolist()}
    name = type(value).__name__.rstrip("_")
    if isinstance(value, onp.generic):
        value = value.item()
    return {"type": name, "value": value if isinstance(value, (bool, int, float, str, type(None))) else name}


def data(mx, seed, *shape, lo=-2, hi=2, dtype="float32"):
    """An array of random numbers."""
    return mx.np.array(onp.random.RandomState(seed).uniform(lo, hi, size=shape), dtype=dtype)


def grads(mx, function, *variables, req="write", times=1):
    """What a function of variables gives, and their gradients."""
    variables = [variable.copy() for variable in variables]
    for variable in variables:
        variable.attach_grad(req)
    for _ in range(times):
        with mx.autograd.record():
            result = function(*variables)
        head = onp.random.RandomState(result.size).uniform(-1, 1, size=result.shape)
        result.backward(mx.np.array(head, dtype=result.dtype))
    return [result] + [variable.grad for variable in variables]


def second(mx, function, variable):
    """The first and the second derivative of the sum of a function."""
    variable = variable.copy()
    variable.attach_grad()
    with mx.autograd.record():
        (first,) = mx.autograd.grad(function(variable), [variable], create_graph=True, retain_graph=True)
        total = (first * first).sum()
    total.backward()
    return [first.as_np_ndarray(), variable.grad]


HELPERS = {"grads": grads, "second": second, "data": data}  # of programs, called with mx first

# ---- how results are compared ----

WORST = ["equal", "only MXNet raises", "other kind of error", "only neomx raises", "DIFFERENT"]


def verdict(expected, received):
    """How neomx's result of a step relates to MXNet's."""
    if isinstance(expected, dict) and "raises" in expected:
        if not isinstance(received, dict) or "raises" not in received:
            return "only MXNet raises"
        kinds = received["raises"]
        alike = expected["raises"][0] in kinds or ("MXNetError" in expected["raises"] and "MXNetError" in kinds)
        return "equal" if alike else "other kind of error"
    if isinstance(received, dict) and "raises" in received:
        return "only neomx raises"
    if isinstance(expected, list) or isinstance(received, list):
        if not isinstance(expected, list) or not isinstance(received, list) or len(expected) != len(received):
            return "DIFFERENT"
        return max(map(verdict, expected, received), key=WORST.index, default="equal")
    if received is None:  # an array that neomx did not return
        return "DIFFERENT"
    if not {"type", "array"} & set(expected):  # arrays by name
        return verdict(*[[each.get(name) for name in expected] for each in (expected, received)])
    if "array" in expected and "array" in received:
        if any(expected[each] != received[each] for each in ("array", "dtype", "shape")):
            return "DIFFERENT"
        values = [onp.array(each["values"], dtype=each["dtype"]) for each in (received, expected)]
        return "equal" if tolerance.used(*values, factor=64) <= 1 else "DIFFERENT"
    same = expected == received or str(expected) == str(received)  # nan is not nan
    if not same and expected.get("type") == received.get("type") and expected.get("type", "").startswith("float"):
        same = tolerance.used(onp.float32(received["value"]), onp.float32(expected["value"]), factor=64) <= 1
    return "equal" if same else "DIFFERENT"


# ---- how programs are made ----

DTYPES = ["float32"] * 8 + ["float64"] * 2 + ["float16", "int32", "int32", "int64", "int8", "uint8", "bool"]
SHAPES = [(3,), (4,), (2, 3), (3, 2), (2, 3), (3, 3), (1, 3), (2, 1), (2, 2, 3), (2, 1, 3), (1,), ()]
SHAPES += [(0,), (0, 3), (2, 0)]
SCALARS = "2 -1 0 1 3 0.5 -1.5 2.0 1.0 0.25 True False onp.float32(1.5) onp.float64(0.5) onp.int64(2) 7 100 -3".split()

UNARY = """abs absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh deg2rad degrees exp
expm1 fabs fix floor isfinite isinf isnan isneginf isposinf log log10 log1p log2 logical_not
negative rad2deg radians reciprocal rint sign sin sinh sqrt square tan tanh trunc bitwise_not invert""".split()
BINARY = """add subtract multiply divide true_divide mod remainder power maximum minimum arctan2 hypot copysign ldexp
equal not_equal greater greater_equal less less_equal bitwise_and bitwise_or bitwise_xor lcm""".split()
OPERATORS = "+ - * / % ** == != > >= < <= & | ^".split()
REDUCED = "sum prod mean max min std var any all amax amin".split()
SMOOTH = "exp sin cos tanh square arctan arcsinh expm1 negative".split()

TEMPLATES = {
    "arithmetic": [
        "{v} {operator} {w}",
        "{v} {operator} {w}",
        "{v} {operator} {s}",
        "{v} {operator} {s}",
        "{s} {operator} {v}",
        "np.{binary}({v}, {w})",
        "np.{binary}({v}, {s})",
        "np.{binary}({s}, {v})",
        "np.{unary}({v})",
        "np.{unary}({f})",
        "-{v}",
        "~{v}",
        "abs({v})",
        "round({f}, {p})",
        "np.clip({v}, {s}, {s})",
        "{v}.clip({n}, {p})",
        "np.around({f}, {n})",
        "np.nan_to_num({f})",
        "{v}.astype({dt})",
        "np.where({b}, {v}, {w})",
        "np.where({v} > {s}, {v}, {s})",
        "np.where({v} > {s}, {s}, {v})",
        "np.where({v} > {s}, {s}, {s})",
        "np.add({v}, {w}, out={like})",
        "np.{unary}({f}, out={like})",
    ],
    "indexing": ["{v}[{key}]"] * 6 + ["{v}.take({idx}, axis={axis}, mode={mode})", "np.take({v}, {idx}, mode={mode})"],
    "reductions": [
        "np.{reduced}({v}, axis={axes}, keepdims={bool})",
        "np.{reduced}({v}, axis={axes})",
        "{v}.{reduced}()",
        "{v}.{reduced}(axis={axis}, keepdims={bool})",
        "np.sum({v}, axis={axes}, dtype={dt})",
        "np.mean({v}, axis={axes}, dtype={dt})",
        "np.prod({v}, axis={axes}, dtype={dt})",
        "np.std({v}, axis={axes}, ddof={bool})",
        "np.var({f}, axis={axes}, dtype={dt})",
        "np.sum({v}, axis={axis}, out=np.sum({v}, axis={axis}) * 0)",
        "np.cumsum({v}, axis={axis})",
        "np.cumsum({v})",
        "np.cumsum({v}, axis={axis}, dtype={dt})",
        "np.argmax({v}, axis={axis})",
        "np.argmin({v})",
        "{v}.argmax(axis={axis})",
        "np.average({f}, axis={axes})",
        "np.average({f}, weights=abs({f}) + 1, returned=True)",
        "np.percentile({f}, {q}, axis={axes}, interpolation={interpolation}, keepdims={bool})",
        "np.quantile({f}, {q} / 100, axis={axes})",
        "np.percentile({v}, np.array([10, 50]))",
        "np.trace({m})",
        "np.trace({m}, {n})",
        "np.diff({v}, n={p}, axis={axis})",
        "np.ediff1d({v})",
        "np.histogram({f}, bins=3, range=(-1, 2))",
        "np.bincount({c})",
        "np.count_nonzero({v})",
    ],
    "products": [
        "np.dot({f}, {f})",
        "np.dot({m}, {m}.T)",
        "{m}.dot({m}.T)",
        "{m} @ {m}.T",
        "np.matmul({f}, {f})",
        "np.inner({f}, {f})",
        "np.outer({f}, {f})",
        "np.vdot({f}, {f})",
        "np.tensordot({f}, {f}, axes={p})",
        "np.tensordot({f}, {f}, axes=0)",
        "np.tensordot({m}, {m}, axes=([{axis}], [{axis}]))",
        "np.einsum({einsum}, {m}, {m}.T)",
        "np.einsum('ij->ji', {m})",
        "np.einsum('ij->', {m})",
        "np.einsum('i...->...', {f})",
        "np.einsum('...,...->...', {f}, {f})",
        "np.einsum('ij,kj->ik', {m}, {m}, optimize=True)",
        "np.einsum('ij,ij->i', {m}, {m})",
        "np.polyval({f}, {f})",
    ],
    "shapes": [
        "{v}.reshape({shape})",
        "np.reshape({v}, {shape})",
        "npx.reshape({v}, {codes})",
        "{v}.T",
        "np.transpose({v}, {perm})",
        "{v}.transpose({perm})",
        "np.swapaxes({v}, {axis}, {axis})",
        "np.moveaxis({v}, {axis}, {axis})",
        "np.expand_dims({v}, {axis})",
        "np.squeeze({v})",
        "np.squeeze({v}, {axis})",
        "np.ravel({v})",
        "{v}.flatten()",
        "np.broadcast_to({v}, (2,) + {v}.shape)",
        "np.broadcast_arrays({v}, {w})",
        "np.concatenate([{v}, {v}], axis={axis})",
        "np.concatenate([{v}, {w}], axis={axis})",
        "np.concatenate([{v}, {v}], axis=None)",
        "np.stack([{v}, {v}], axis={axis})",
        "np.stack([{v}, {w}])",
        "np.vstack([{v}, {v}])",
        "np.hstack([{v}, {v}])",
        "np.dstack([{v}, {v}])",
        "np.column_stack([{v}, {v}])",
        "np.split({v}, {p}, axis={axis})",
        "np.split({v}, ({p}, 2), axis={axis})",
        "np.array_split({v}, {p}, axis={axis})",
        "np.hsplit({v}, {p})",
        "np.vsplit({v}, {p})",
        "np.append({v}, {v}, axis={axis})",
        "np.append({v}, {w})",
        "np.tile({v}, {p})",
        "np.tile({v}, ({p}, 2))",
        "np.repeat({v}, {p}, axis={axis})",
        "np.repeat({v}, {p})",
        "np.roll({v}, {n}, axis={axis})",
        "np.roll({v}, {n})",
        "np.flip({v}, {axis})",
        "np.flip({v})",
        "np.fliplr({m})",
        "np.flipud({v})",
        "np.rot90({m}, {n})",
        "np.pad({f}, (({p}, 0),) * {f}.ndim, mode='constant')",
        "np.pad({m}, ((1, 1), (0, {p})), mode={pad})",
        "np.insert({v}, {n}, {s})",
        "np.insert({v}, {n}, {s}, axis={axis})",
        "np.insert({v}, slice(0, {p}), {s}, axis={axis})",
        "np.delete({v}, {p}, axis={axis})",
        "np.delete({v}, slice(0, {p}), axis={axis})",
        "np.resize({v}, {shape})",
        "np.atleast_2d({v})",
        "np.atleast_3d({v})",
        "np.tril({m}, {n})",
        "np.diag({v}, {n})",
        "np.diagflat({v}, {n})",
        "np.diagonal({m}, {n})",
        "np.meshgrid({v}.ravel(), {v}.ravel())",
        "{v}.copy()",
        "np.shape({v})",
        "len({v})",
        "{v}.tolist()",
        "{v}.size",
        "npx.batch_flatten({m})",
        "npx.reshape_like({v}, {v}.reshape({shape}))",
    ],
    "search": [
        "np.sort({v}, axis={axis})",
        "np.sort({v}, axis=None)",
        "np.argsort({v}, axis={axis})",
        "np.unique({v})",
        "np.unique({v}, return_index=True, return_inverse=True, return_counts=True)",
        "np.nonzero({v})",
        "npx.nonzero({v})",
        "np.where({v})",
        "np.flatnonzero({v})",
        "np.unravel_index({c}, (4, 6))",
        "npx.topk({f}, k={p}, axis={axis}, ret_typ={ret})",
        "npx.pick({m}, np.array([0] * {m}.shape[0]), axis=1)",
        "npx.one_hot({c}, {p})",
        "npx.one_hot({c}, 4, on_value=2.5, off_value=-1, dtype={dt})",
        "npx.gather_nd({m}, np.array([[0], [1]], dtype='int64'))",
        "np.searchsorted(np.sort({f}.ravel()), {f})",
        "np.isin({v}, {v})",
    ],
    "creation": [
        "np.zeros({v}.shape, dtype={dt})",
        "np.ones({p}, dtype={dt})",
        "np.full({v}.shape, {s}, dtype={dt})",
        "np.full({v}.shape, {s})",
        "np.full_like({v}, {s})",
        "np.full_like({v}, {s}, dtype={dt})",
        "np.zeros_like({v}, dtype={dt})",
        "np.ones_like({v})",
        "np.arange({p})",
        "np.arange({n}, 3, 0.5)",
        "np.arange(5, 0, -2, dtype={dt})",
        "np.linspace({n}, {p}, 4, endpoint={bool})",
        "np.linspace(0, 9, 4, dtype={dt})",
        "np.logspace(0, {p}, 3, base=2)",
        "np.eye({p}, {p}, {n}, dtype={dt})",
        "np.identity({p})",
        "np.indices(({p}, 2))",
        "np.array({v})",
        "np.array({v}, dtype={dt})",
        "np.array([{v}, {v}])",
        "np.array({v}.tolist())",
        "np.hanning({p})",
        "npx.arange_like({v}, axis={axis})",
        "npx.arange_like({v}, start=1.5, step=2)",
        "npx.shape_array({v})",
        "np.random.uniform(size={v}.shape, dtype='float64').shape",
        "np.random.normal({v}, 1).shape",
        "np.random.randint(0, 5, size={p}).dtype.name",
        "np.random.choice(5, ({p}, 2)).shape",
        "np.random.gamma(2.0, size=({p}, 2)).shape",
        "np.random.exponential(1.0, {v}.shape).dtype.name",
        "np.random.multinomial(5, [0.5, 0.5], {p}).shape",
        "npx.random.bernoulli(0.5, size=({p},), dtype={dt}).dtype.name",
    ],
    "linalg": [
        "np.linalg.norm({f})",
        "np.linalg.norm({f}, ord={order}, axis={axis}, keepdims={bool})",
        "np.linalg.norm({m}, ord={matrix_order})",
        "np.linalg.inv({spd})",
        "np.linalg.det({spd})",
        "np.linalg.slogdet({spd})",
        "np.linalg.cholesky({spd})",
        "np.linalg.solve({spd}, np.ones(3))",
        "np.linalg.solve({spd}, np.ones((3, 2)))",
        "np.linalg.eigvalsh({spd})",
        "np.linalg.eigvals({spd})",
        "np.linalg.svd({spd})[1]",
        "np.linalg.pinv({spd})",
        "np.linalg.lstsq({spd}, np.ones(3), rcond=None)[0]",
        "np.linalg.tensorinv({spd}, ind=1)",
        "np.linalg.tensorsolve({spd}, np.ones(3))",
        "np.linalg.matrix_rank({spd})",
        "np.linalg.matrix_power({spd}, 2)",
        "np.linalg.multi_dot([{spd}, {spd}])",
        "np.linalg.cond({spd})",
    ],
    "npx": [
        "npx.softmax({f}, axis={axis})",
        "npx.log_softmax({f}, axis={axis})",
        "npx.softmax({f}, axis=-1, temperature={p})",
        "npx.softmax({f}, axis=-1, length=np.array([1] * {f}.shape[0], dtype='int32'), use_length=True)",
        "npx.relu({v})",
        "npx.sigmoid({v})",
        "npx.activation({f}, act_type={act})",
        "npx.leaky_relu({f}, act_type={leaky}, slope=0.3)",
        "npx.erf({v})",
        "npx.erfinv({f} / 4)",
        "npx.gamma(abs({f}) + 0.5)",
        "npx.gammaln(abs({f}) + 0.5)",
        "npx.smooth_l1({f}, scalar=1.5)",
        "npx.layer_norm({m}, np.ones({m}.shape[-1]), np.zeros({m}.shape[-1]), axis=-1, eps=1e-3)",
        "npx.batch_norm({m}, *[data(i, {m}.shape[1], lo=0.5) for i in range(4)], use_global_stats={bool})",
        "npx.fully_connected({f}, data(1, 4, {f}[:1].size), data(2, 4), num_hidden=4)",
        "npx.fully_connected({f}, data(1, 4, {f}.shape[-1]), no_bias=True, num_hidden=4, flatten=False)",
        "npx.convolution(data({p}, 2, 4, 5, 5), data(1, 2, 4, 3, 3), data(2, 2), kernel=(3, 3), num_filter=2, "
        "pad=(1, 1), stride=({p}, 1))",
        "npx.convolution(data({p}, 2, 4, 6), data(1, 4, 2, 3), kernel=(3,), num_filter=4, num_group=2, "
        "no_bias=True, dilate=({p},))",
        "npx.deconvolution(data({p}, 1, 2, 4, 4), data(1, 2, 3, 3, 3), kernel=(3, 3), num_filter=3, stride=({p}, {p}))",
        "npx.pooling(data({p}, 1, 2, 5, 5), kernel=(2, 3), pool_type={pool}, stride=({p}, 1), "
        "pooling_convention={convention})",
        "npx.pooling(data({p}, 1, 2, 5, 5), kernel=(3, 3), pool_type={pool}, pad=(1, 1), count_include_pad={bool})",
        "npx.pooling(data({p}, 1, 2, 5, 5), pool_type={pool}, global_pool=True)",
        "npx.embedding({c}, data(1, 6, 3), input_dim=6, output_dim=3)",
        "npx.sequence_mask({m}, np.array([1] * {m}.shape[1]), use_sequence_length=True, value=-1)",
        "npx.sequence_mask({m}, np.array([1] * {m}.shape[0]), True, axis=1)",
        "npx.batch_dot(data(1, 2, 3, 4), data(2, 2, 4, {p}))",
        "npx.batch_dot(data(1, 2, 3, 4), data(2, 2, {p}, 4), transpose_b=True)",
        "npx.cast({v}, {dt})",
        "npx.dropout({f}, p=0.5, mode='training')",
        "npx.rnn(data(1, 3, 2, 2), data(2, 36), data(3, 1, 2, 2), mode='gru', state_size=2, num_layers=1)",
        "npx.slice({m}, begin=(0, 1), end=(2, None))",
        "npx.constraint_check({v} > -100, 'm')",
        "npx.roi_pooling(data(1, 1, 2, 6, 6), np.array([[0, 0, 0, 3, 3]]), pooled_size=(2, {p}), spatial_scale=1.0)",
        "npx.multibox_prior(data(1, 1, 2, 3, 3), sizes=(0.5, 0.3), ratios=(1, {p}))",
    ],
    "gradients": [
        "grads(lambda x: {expression}, {f})",
        "grads(lambda x: {expression}, {f})",
        "grads(lambda x: {expression}, {f}, req='add', times=2)",
        "grads(lambda x, y: {expression} * y, {f}, {w})",
        "grads(lambda x, y: np.{smooth_binary}(x, y), abs({f}) + 1, abs({w}) + 1)",
        "grads(lambda x, y: x @ y.T, {m}, {m})",
        "grads(lambda x, y: np.einsum('ij,kj->ik', x, y), {m}, {m})",
        "grads(lambda x: np.where(x > 0, x * 2, x), {f})",
        "grads(lambda x: np.concatenate([x, x * x], axis={axis}), {f})",
        "grads(lambda x: np.split(x, 1, axis={axis})[0] * 3, {f})",
        "grads(lambda x: x.reshape(-1)[::2], {f})",
        "grads(lambda x: np.linalg.inv(x), {spd})",
        "grads(lambda x: np.linalg.det(x), {spd})",
        "grads(lambda x: np.linalg.cholesky(x), {spd})",
        "grads(lambda x: npx.pick(x, np.array([0] * {m}.shape[0])), {m})",
        "grads(lambda x: np.max(x, axis={axis}), {f})",
        "grads(lambda x: np.cumsum(x, axis={axis}), {f})",
        "grads(lambda x: np.roll(x, 1) * x, {f})",
        "grads(lambda x: np.clip(x, -1, 1), {f})",
        "second(lambda x: np.{smooth}(x), {f})",
        "second(lambda x: x * x * x, {f})",
        "second(lambda x: x ** 3, {f})",
    ],
}
# Where MXNet is known to be wrong if there are no elements: what it divides by or reads, which may end its process.
WRONG_WITHOUT_ELEMENTS = re.compile(
    r"mean|std|var\(|prod|average|percentile|quantile|take|np\.array\(\[v|softmax|topk|norm|pad|tensordot|~|\]\] = "
)
WRITES = [
    "{v}[{place}] = {s}",
    "{v}[{place}] = {s}",
    "{v}[{place}] = {w}.copy()",
    "{v}[{place}] = {v}[{place}] * 2",
    "{v}[{v} > {s}] = {s}",
    "{v}[:] = {w}",
    "{v}[...] = {s}",
    "{v} {in_place} {s}",
    "{v} {in_place} {w}",
]
EXPRESSIONS = [
    "np.{smooth}({})",
    "{} * {}",
    "{} + 1.5",
    "{} / 2",
    "2 - {}",
    "npx.softmax({}, axis=-1)",
    "npx.log_softmax({}, axis=-1)",
    "npx.sigmoid({})",
    "npx.relu({})",
    "({}).sum(axis=-1, keepdims=True) + {}",
    "({}).mean() * {}",
    "({} ** 2)",
    "np.abs({})",
    "np.maximum({}, 0.5)",
    "np.sqrt(np.abs({}) + 1)",
    "np.log(np.abs({}) + 1)",
    "np.flip({}, -1)",
    "({}).T.T",
    "np.where({} > 0, {}, {} * 0.5)",
    "({})[..., ::-1]",
]
CHOICES = {
    "operator": OPERATORS,
    "binary": BINARY,
    "unary": UNARY,
    "reduced": REDUCED,
    "smooth": SMOOTH,
    "smooth_binary": "add subtract multiply divide power hypot arctan2 maximum minimum".split(),
    "in_place": "+= -= *= /= %= &= |= ^=".split(),
    "s": SCALARS,
    "n": ["-2", "-1", "0", "1", "2", "3"],
    "p": ["1", "2", "3"],
    "q": ["0", "25", "50", "90", "100"],
    "bool": ["True", "False"],
    "dt": [repr(dtype) for dtype in sorted(set(DTYPES))],
    "mode": ["'clip'", "'wrap'", "'clip'"],
    "interpolation": ["'linear'", "'lower'", "'higher'", "'midpoint'", "'nearest'"],
    "einsum": ["'ij,jk->ik'", "'ij,jk'", "'ij,jk->ki'", "'ij,jk->'", "'ij,jk->j'"],
    "pad": ["'constant'", "'edge'", "'reflect'", "'symmetric'", "'maximum'", "'minimum'"],
    "codes": ["(-1,)", "(-2, -1)", "(-4,)", "(-1, 1)", "(-5, -4)", "(-6, 1, -1, -4)", "(-2, -2, -1)"],
    "ret": ["'value'", "'indices'", "'both'", "'mask'"],
    "order": ["None", "1", "2", "3", "onp.inf", "0.5"],
    "matrix_order": ["'fro'", "'nuc'", "1", "-1", "2", "onp.inf", "None"],
    "act": ["'relu'", "'sigmoid'", "'tanh'", "'softrelu'", "'softsign'"],
    "leaky": ["'leaky'", "'elu'", "'selu'", "'gelu'"],
    "pool": ["'max'", "'avg'", "'sum'"],
    "convention": ["'valid'", "'full'"],
}


class Writer:
    """Writes one program."""

    def __init__(self, rng):
        self.rng, self.lines = rng, []
        self.space = {"np": onp, "onp": onp, "data": lambda seed, *shape, **_: onp.ones(shape, "float32")}

    def names(self, suits=lambda array: True):
        return [name for name, each in self.space.items() if isinstance(each, onp.ndarray) and suits(each)]

    def declare(self):
        """An array that is written out."""
        shape, dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
        size = int(onp.prod(shape))
        numbers = [
            self.rng.choice([0, 1, 1, 2, 3, -1, -2, 4, 5]) + self.rng.choice([0, 0, 0.5, 0.25]) for _ in range(size)
        ]
        if dtype in ("uint8", "bool"):
            numbers = [abs(number) for number in numbers]
        if not dtype.startswith("float"):
            numbers = [int(number) for number in numbers]
        if dtype == "bool":
            numbers = [number % 2 for number in numbers]
        values = onp.array(numbers).reshape(shape).tolist()
        made = f"np.array({values!r}, dtype={dtype!r})"
        if 0 in shape:
            made += f".reshape({shape!r})" if len(shape) > 1 else ""
        self.add(f"v{len(self.lines)} = {made}")

    def add(self, line):
        """Add a statement; False if it is not wanted, or NumPy refuses it and it was not kept."""
        used = [self.space[name] for name in set(re.findall(r"\bv\d+\b", line)) if self.space.get(name) is not None]
        if any(not each.size for each in used) and WRONG_WITHOUT_ELEMENTS.search(line):
            return False
        target = re.match(r"\w+", line).group()
        old = self.space.get(target)
        before = None if old is None else old.copy()
        try:
            with warnings.catch_warnings(), onp.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                exec(line, self.space)
        except Exception:
            if before is not None:
                old[...] = before
            if not any(each in line for each in ("npx.", "grads(", "second(")) and self.rng.random() > 0.1:
                return False
        value = self.space.get(target)
        if isinstance(value, onp.generic) or (isinstance(value, onp.ndarray) and not value.flags.writeable):
            value = self.space[target] = onp.array(value)
        if isinstance(value, onp.ndarray) and (value.size > 60 or value.ndim > 4 or value.dtype.kind not in "fiub"):
            self.space[target] = None
        self.lines.append(line)
        return True

    def write(self, template, target=True):
        """Add a statement made from a template."""
        for _ in range(20):
            text = self.filled(template)
            if text and self.add(f"v{len(self.lines)} = {text}" if target else text):
                return

    def filled(self, template):
        chosen = {}

        def fill(match):
            kind = match.group(1)
            if kind in CHOICES:
                return self.rng.choice(CHOICES[kind])
            found = getattr(self, "a_" + kind)(chosen)
            if found is None:
                raise LookupError
            return found

        try:
            return re.sub(r"\{(\w+)\}", fill, template)
        except LookupError:
            return None

    # What stands for a placeholder: a variable, which the next ones may refer to, or text about it.

    def pick(self, chosen, kind, suits):
        if kind not in chosen:
            names = self.names(suits)
            if not names:
                return None
            chosen[kind] = self.rng.choice(names)
            chosen.setdefault("subject", chosen[kind])
        return chosen[kind]

    def a_v(self, chosen):
        return self.pick(chosen, "v", lambda array: True)

    def a_f(self, chosen):
        return self.pick(chosen, "f", lambda array: array.dtype.kind == "f" and array.dtype != onp.float16)

    def a_b(self, chosen):
        return self.pick(chosen, "b", lambda array: array.dtype == bool)

    def a_c(self, chosen):
        counts = self.rng.choices(range(6), k=self.rng.randint(1, 4))
        return f"np.array({counts}, dtype={self.rng.choice(['int32', 'int64'])!r})"

    def a_m(self, chosen):
        return self.pick(chosen, "m", lambda array: array.ndim == 2 and array.dtype in (onp.float32, onp.float64))

    def a_spd(self, chosen):
        if "spd" not in chosen:
            chosen["spd"] = f"(data({self.rng.randint(0, 9)}, 3, 3) / 8 + np.eye(3) * 2)"
            chosen["spd"] = f"({chosen['spd']} @ {chosen['spd']}.T)"
        return chosen["spd"]

    def subject(self, chosen):
        return self.space[chosen["subject"]] if "subject" in chosen else onp.ones((2, 2))

    def a_w(self, chosen):
        """A variable that broadcasts with the first one."""
        first = self.subject(chosen)

        def suits(array):
            try:
                return onp.broadcast_shapes(first.shape, array.shape) is not None
            except ValueError:
                return False

        names = self.names(suits)
        same = [name for name in names if self.space[name].dtype == first.dtype]
        return self.rng.choice(same if self.rng.random() < 0.6 else names)

    def a_like(self, chosen):
        return f"np.zeros({self.subject(chosen).shape}, dtype={self.subject(chosen).dtype.name!r})"

    def a_axis(self, chosen):
        ndim = self.subject(chosen).ndim
        return str(self.rng.randint(-ndim, max(ndim - 1, 0)))

    def a_axes(self, chosen):
        ndim = self.subject(chosen).ndim
        axes = self.rng.sample(range(ndim), self.rng.randint(0, ndim))
        axes = tuple(axis - ndim if self.rng.random() < 0.3 else axis for axis in axes)
        return str(self.rng.choice([None, axes, axes[0] if axes else None]))

    def a_perm(self, chosen):
        ndim = self.subject(chosen).ndim
        return str(self.rng.choice([None, tuple(self.rng.sample(range(ndim), ndim))]))

    def a_shape(self, chosen):
        size = self.subject(chosen).size
        shape = []
        while size > 1 and len(shape) < 3:
            length = self.rng.choice([n for n in range(1, size + 1) if size % n == 0])
            shape.append(length)
            size //= length
        shape.append(size)
        if self.rng.random() < 0.5:
            shape[self.rng.randrange(len(shape))] = -1
        return str(tuple(shape))

    def a_idx(self, chosen):
        indices = self.rng.choices(range(-4, 6), k=self.rng.randint(1, 3))
        return f"np.array({indices}, dtype={self.rng.choice(['int32', 'int64', 'float32'])!r})"

    def a_key(self, chosen):
        if "key" not in chosen:
            chosen["key"] = self.key(self.subject(chosen).shape)
        return chosen["key"]

    def a_place(self, chosen):
        """A key to write to: MXNet takes negative numbers in and beside index arrays for positions outside."""
        if "place" not in chosen:
            chosen["place"] = self.key(self.subject(chosen).shape, negative=False)
        return chosen["place"]

    def key(self, shape, negative=True):
        items, advanced, count = [], self.rng.random() < 0.4, self.rng.randint(1, 3)
        for length in shape[: self.rng.randint(0, len(shape))]:
            if self.rng.random() < 0.1:
                items.append("None")
            items.append(self.item(length, advanced, count, negative))
        if self.rng.random() < 0.15:
            items.append("...")
        return ", ".join(items) or self.rng.choice(["()", "...", "None", "0", ":"])

    def item(self, length, advanced, count, negative):
        chance = self.rng.random()
        if advanced and chance < 0.5 and length:
            if negative:
                indices = [self.rng.randrange(-length, length) for _ in range(count)]
            else:  # each once: which of several values stays at a position is not defined
                indices = self.rng.sample(range(length), min(count, length))
            return self.rng.choice([str(indices), f"np.array({indices}, dtype='int64')", f"np.array({indices})"])
        if chance < 0.7:
            bounds = ["", *map(str, range(-length - 1, length + 2))]
            start, stop = self.rng.choice(bounds), self.rng.choice(bounds)
            return f"{start}:{stop}" + self.rng.choice(["", "", ":1", ":2", ":-1", ":-2"])
        return str(self.rng.randint(-length if negative or not advanced else 0, max(length - 1, 0)))

    def a_expression(self, chosen):
        text = "x"
        for _ in range(self.rng.randint(1, 3)):
            outer = self.rng.choice(EXPRESSIONS).replace("{smooth}", self.rng.choice(SMOOTH))
            text = f"({outer.replace('{}', text)})"
        return text


def program(seed):
    """The statements of one program: two or three arrays, then some of one or two families."""
    writer = Writer(random.Random(seed))
    for _ in range(writer.rng.randint(2, 4)):
        writer.declare()
    families = writer.rng.sample(sorted(TEMPLATES), 3)
    for _ in range(writer.rng.randint(4, 9)):
        if writer.rng.random() < 0.2:
            writer.write(writer.rng.choice(WRITES), target=False)
        else:
            writer.write(writer.rng.choice(TEMPLATES[writer.rng.choice(families)]))
    return writer.lines


def programs(count, seed):
    """Programs in NumPy mode."""
    return [program(seed * 1_000_000 + i) for i in range(count)]
