"""How a parity case is written, and how it is run: the same code under real MXNet, which records, and under neomx.

A case is a line: `case("Pooling", f(2, 3, 8, 8), kernel=(2, 2), pool_type="max")`. Its inputs come from its own text,
so they are the same everywhere and do not change when other cases do. This file needs numpy alone.
"""

import zlib

import numpy as np

from .tolerance import PROGRAM

CASES = {}  # family -> {id: Case or Program}; the families are the modules in cases/


class Array:
    """An input to be: random floats, random integers, or given values."""

    def __init__(self, kind, shape, dtype, lo, hi, values=None):
        self.kind, self.shape, self.dtype, self.lo, self.hi, self.values = kind, shape, dtype, lo, hi, values

    def make(self, rng):
        if self.kind == "const":
            return np.array(self.values, dtype=self.dtype)
        if self.kind == "int":
            return rng.randint(self.lo, self.hi, size=self.shape).astype(self.dtype)
        return rng.uniform(self.lo, self.hi, size=self.shape).astype(self.dtype)

    def __repr__(self):
        text = "x".join(map(str, self.shape))
        text += {"float": "", "int": "i"}.get(
            self.kind, "=" + np.array(self.values).tolist().__repr__().replace(" ", "")
        )
        text += "" if self.dtype == "float32" else ":" + self.dtype
        return text + ("" if (self.lo, self.hi) in ((-1, 1), (0, 5)) else "[%g,%g]" % (self.lo, self.hi))


def f(*shape, lo=-1, hi=1, dtype="float32"):
    """Random floats in [lo, hi)."""
    return Array("float", shape, dtype, lo, hi)


def ints(*shape, lo=0, hi=5, dtype="float32"):
    """Random integers in [lo, hi), float32 unless told, as MXNet's indices are."""
    return Array("int", shape, dtype, lo, hi)


def const(values, dtype="float32"):
    """These values."""
    return Array("const", np.array(values).shape, dtype, 0, 5, values)


class Call:
    """One call: its inputs, and how closely results are compared."""

    def __init__(self, op, inputs, attrs, train, grad, factor, off):
        self.op, self.inputs, self.attrs = op, inputs, attrs
        self.train, self.grad, self.factor, self.off = train, grad, factor, off
        words = [repr(i) for i in inputs] + ["%s=%r" % item for item in attrs.items()]
        self.id = "%s(%s)" % (op, ", ".join(words)) + ("" if train else "@predict")

    def arrays(self):
        rng = np.random.RandomState(zlib.crc32(self.id.encode()))
        return [i.make(rng) for i in self.inputs]

    def tolerance(self):
        """The arguments of tolerance.check for its results."""
        arrays = self.arrays()
        dtypes = [str(a.dtype) for a in arrays] + [str(self.attrs.get("dtype"))]
        terms = max([a.size for a in arrays] + [1])
        return dict(dtypes=dtypes, terms=terms, factor=self.factor, off=self.off)

    def differentiates(self, i, value):
        if value.dtype.kind != "f" or not self.grad:
            return False
        return self.grad is True or i in self.grad


class Case(Call):
    """One call of one op: its outputs, its gradients, and what it changed in place."""

    def call(self, mx, arrays):
        """The outputs for these arrays."""
        outputs = find_op(mx, self.op)(*arrays, **self.attrs)
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    def run(self, mx):
        """{name: numpy array} of what the call gave."""
        values = self.arrays()
        arrays = [mx.nd.array(v, dtype=v.dtype) for v in values]
        for i, (array, value) in enumerate(zip(arrays, values)):
            if self.differentiates(i, value):
                array.attach_grad()
        with mx.autograd.record(train_mode=self.train):
            outputs = self.call(mx, arrays)
        results = {"out%d" % i: o.asnumpy() for i, o in enumerate(outputs)}
        if self.grad:
            rng = np.random.RandomState(zlib.crc32(self.id.encode()) ^ 1)
            heads = [(o, rng.uniform(-1, 1, size=o.shape)) for o in outputs]
            heads = [(o, mx.nd.array(g, dtype=o.dtype)) for o, g in heads if np.dtype(o.dtype).kind == "f"]
            mx.autograd.backward([o for o, _ in heads], [g for _, g in heads])
            for i, (array, value) in enumerate(zip(arrays, values)):
                if self.differentiates(i, value):
                    results["grad%d" % i] = array.grad.asnumpy()
        for i, (array, value) in enumerate(zip(arrays, values)):
            if not np.array_equal(array.asnumpy(), value, equal_nan=True):
                results["after%d" % i] = array.asnumpy()
        return results


class NpCase(Call):
    """One call of a function of `mx.np` or `mx.npx`, named by its path: "np.linalg.norm", "npx.softmax".

    An `Array` may stand anywhere among the arguments, in lists and keywords too; other arguments are passed as they
    are. Gradients are those of all float arrays. Results keep their dtypes and shapes; tuples are flattened.
    """

    def __init__(self, path, args, attrs, train, grad, factor, off):
        self.args, self.kwargs = args, attrs
        inputs = []
        _each_array((args, attrs), inputs.append)
        super().__init__(path, inputs, attrs, train, grad, factor, off)
        words = [repr(a) for a in args] + ["%s=%r" % item for item in attrs.items()]
        self.id = "%s(%s)" % (path, ", ".join(words)) + ("" if train else "@predict")

    def call(self, mx, arrays):
        """The outputs for these arrays."""
        given = iter(arrays)
        args, kwargs = _each_array((self.args, self.kwargs), lambda _: next(given))
        function = mx
        for name in self.op.split("."):
            function = getattr(function, name)
        outputs = []
        _flatten(function(*args, **kwargs), outputs)
        return outputs

    def run(self, mx):
        mx.npx.set_np()
        try:
            return self.run_in_np_mode(mx)
        finally:
            mx.npx.reset_np()

    def run_in_np_mode(self, mx):
        values = self.arrays()
        arrays = [mx.np.array(v, dtype=v.dtype) for v in values]
        differentiated = [i for i, v in enumerate(values) if self.differentiates(i, v)]
        for i in differentiated:
            arrays[i].attach_grad()
        with mx.autograd.record(train_mode=self.train):
            outputs = self.call(mx, arrays)
        results = {"out%d" % i: plain(o) for i, o in enumerate(outputs)}
        rng = np.random.RandomState(zlib.crc32(self.id.encode()) ^ 1)
        heads = [o for o in outputs if hasattr(o, "asnumpy") and np.dtype(o.dtype).kind == "f"]
        if differentiated and heads:
            grads = [mx.np.array(rng.uniform(-1, 1, size=o.shape), dtype=o.dtype) for o in heads]
            mx.autograd.backward(heads, grads)
            results.update({"grad%d" % i: arrays[i].grad.asnumpy() for i in differentiated})
        for i, (array, value) in enumerate(zip(arrays, values)):
            if not np.array_equal(array.asnumpy(), value):
                results["after%d" % i] = array.asnumpy()
        return results


def _each_array(value, replace):
    """`value` with `replace(array)` for every Array in it, in order."""
    if isinstance(value, Array):
        return replace(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_each_array(item, replace) for item in value])
    if isinstance(value, dict):
        return {key: _each_array(item, replace) for key, item in value.items()}
    return value


def _flatten(value, into):
    if isinstance(value, (list, tuple)):
        for item in value:
            _flatten(item, into)
    else:
        into.append(value)


class Program:
    """A small program of MXNet's users: what it returns."""

    factor, off, dtypes = 1, 0, ("float32",)

    def __init__(self, function):
        self.function, self.id = function, function.__name__

    def run(self, mx):
        returned = self.function(mx)
        items = returned.items() if isinstance(returned, dict) else enumerate(returned)
        return {str(k): plain(v) for k, v in items}

    def tolerance(self):
        """The arguments of tolerance.check for its results."""
        return dict(dtypes=self.dtypes, terms=PROGRAM, factor=self.factor, off=self.off)


def plain(value):
    """A result as numpy can store it."""
    if hasattr(value, "asnumpy"):
        return value.asnumpy()
    if isinstance(value, np.ndarray):
        return value
    return np.array(value if isinstance(value, (bool, int, float)) else str(value))


def find_op(mx, name):
    for prefix in ("_contrib_", "_linalg_", "_image_", "_sparse_"):
        if name.startswith(prefix):
            module = getattr(mx.nd, prefix.strip("_"))
            if hasattr(module, name[len(prefix) :]):
                return getattr(module, name[len(prefix) :])
    return getattr(mx.nd._internal if name.startswith("_") else mx.nd, name)


def family(name):
    """The dictionary that a cases module fills; call it with `__name__`."""
    cases = CASES.setdefault(name.rpartition(".")[2], {})

    def add(item):
        assert item.id not in cases, "two cases are the same: " + item.id
        cases[item.id] = item

    def case(op, *inputs, _train=True, _grad=True, _factor=1, _off=0, **attrs):
        """One call. `_grad`: True, False, or the positions of the inputs that get gradients.

        `_factor` and `_off` widen the tolerance, with the reason beside them: see tolerance.py.
        """
        add(Case(op, inputs, attrs, _train, _grad, _factor, _off))

    def np_case(path, *args, _train=True, _grad=True, _factor=1, _off=0, **attrs):
        """One call of `mx.<path>` in NumPy mode; arguments as for `case`, see NpCase."""
        add(NpCase(path, args, attrs, _train, _grad, _factor, _off))

    case.np = np_case

    def program(function):
        """Decorates `def name(mx): ... return [results]`."""
        add(Program(function))
        return function

    def np_program(function):
        """Decorates a program that runs after `npx.set_np()`."""

        def run(mx):
            mx.npx.set_np()
            try:
                return function(mx)
            finally:
                mx.npx.reset_np()

        run.__name__ = function.__name__
        add(Program(run))
        return function

    program.np = np_program
    return case, program


def outcome(call):
    """What a call gives, or the kind of error it raises."""
    try:
        return call()
    except Exception as error:
        return "raises " + (
            "MXNetError"
            if type(error).__name__.endswith("Error") and isinstance(error, RuntimeError)
            else type(error).__name__
        )


def settled(call):
    """The arrays that a call gives, when they are computed: MXNet raises some errors only then."""
    outputs = []
    _flatten(call(), outputs)
    return str([plain(output).tolist() for output in outputs])
