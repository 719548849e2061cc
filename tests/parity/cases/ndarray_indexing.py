"""x[key] and x[key] = value, for every kind of key."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def numbers(mx, *shape, dtype="float32"):
    return mx.nd.array(np.arange(np.prod(shape)).reshape(shape), dtype=dtype)


def keys(mx):
    """{text: key} for an array of shape (3, 4, 5)."""
    nd = mx.nd
    return {
        "2": 2,
        "-1": -1,
        "3": 3,
        "-4": -4,
        "np.int64(1)": np.int64(1),
        "True": True,
        ":": slice(None),
        "1:": slice(1, None),
        ":-1": slice(None, -1),
        "1:1": slice(1, 1),
        "0:9": slice(0, 9),
        "::2": slice(None, None, 2),
        "::-1": slice(None, None, -1),
        "2:0:-1": slice(2, 0, -1),
        "-9:2": slice(-9, 2),
        "...": Ellipsis,
        "None": None,
        "()": (),
        "1,2": (1, 2),
        "1,2,3": (1, 2, 3),
        "1,2,3,0": (1, 2, 3, 0),
        "1,9": (1, 9),
        "1:3,2": (slice(1, 3), 2),
        "1,1:3": (1, slice(1, 3)),
        "1:2,1:3": (slice(1, 2), slice(1, 3)),
        ":,1:3": (slice(None), slice(1, 3)),
        ":,::2,::-1": (slice(None), slice(None, None, 2), slice(None, None, -1)),
        "...,1": (Ellipsis, 1),
        "1,...,2": (1, Ellipsis, 2),
        "...,None": (Ellipsis, None),
        "None,1": (None, 1),
        ":,None,2": (slice(None), None, 2),
        "...,...": (Ellipsis, Ellipsis),
        "[0,2]": [0, 2],
        "[0,-1,0]": [0, -1, 0],
        "[0,3]": [0, 3],
        "[[0,1],[2,0]]": [[0, 1], [2, 0]],
        "[True,False,True]": [True, False, True],
        "np[0,2]": np.array([0, 2]),
        "np int8[-1]": np.array([-1], dtype="int8"),
        "nd[0,2]": nd.array([0, 2]),
        "nd int32[[0],[2]]": nd.array([[0], [2]], dtype="int32"),
        "nd[-1]": nd.array([-1]),
        "[0,2],1": ([0, 2], 1),
        "1,[0,2]": (1, [0, 2]),
        "[0,2],[1,3]": ([0, 2], [1, 3]),
        "[0,2],:,[1,3]": ([0, 2], slice(None), [1, 3]),
        ":,[1,3],[0,2]": (slice(None), [1, 3], [0, 2]),
        "[[0],[2]],[1,3]": ([[0], [2]], [1, 3]),
        "[0,2],1:3": ([0, 2], slice(1, 3)),
        "1:,[0,1]": (slice(1, None), [0, 1]),
        "::-1,[0,1]": (slice(None, None, -1), [0, 1]),
        "[0,1],...,[2,3]": ([0, 1], Ellipsis, [2, 3]),
        "1,:,[0,1]": (1, slice(None), [0, 1]),
        "[0,2],1,[3,4]": ([0, 2], 1, [3, 4]),
        "None,[0,2]": (None, [0, 2]),
        "nd,nd": (nd.array([0, 2]), nd.array([1, 3])),
        "np,:,nd": (np.array([0, 2]), slice(None), nd.array([1, 3])),
        "[0,2],[1,2,3]": ([0, 2], [1, 2, 3]),
        "1.5": 1.5,
        "'a'": "a",
    }


# Written to or differentiated, these make MXNet change foreign memory; x[True] reads one row but writes all.
UNSAFE = ("True", "[0,3]", "[0,-1,0]", "np int8[-1]", "nd[-1]")


def safe_keys(mx):
    return {text: key for text, key in keys(mx).items() if text not in UNSAFE}


@program
def get(mx):
    x = numbers(mx, 3, 4, 5)
    return {text: outcome(lambda key=key: x[key].asnumpy()) for text, key in keys(mx).items()}


def written(mx, key, value, dtype="float32"):
    x = numbers(mx, 3, 4, 5, dtype=dtype)
    x[key] = value
    return x.asnumpy()


@program
def set_number(mx):
    return {text: outcome(lambda key=key: written(mx, key, -1)) for text, key in safe_keys(mx).items()}


@program
def set_array(mx):
    """A value of the very shape of what the key selects, then one that broadcasts to it."""
    results = {}
    x = np.arange(60).reshape(3, 4, 5)
    for text, key in safe_keys(mx).items():
        items = [
            item.asnumpy().astype(int) if hasattr(item, "asnumpy") else item
            for item in (key if isinstance(key, tuple) else (key,))
        ]
        try:
            shape = x[tuple(items)].shape
        except IndexError:
            continue
        value = mx.nd.array(-1 - np.arange(np.prod(shape)).reshape(shape)) if shape else mx.nd.array([-1])
        results[text] = outcome(lambda key=key, value=value: written(mx, key, value))
        results["last of " + text] = outcome(lambda key=key, value=value: written(mx, key, value[-1:]))
    return results


@program
def set_kinds_of_value(mx):
    values = {
        "int": 7,
        "float": 2.7,
        "bool": True,
        "np float64": np.float64(2.5),
        "np int32": np.int32(3),
        "list": [1, 2, 3, 4, 5],
        "tuple": (1, 2, 3, 4, 5),
        "nested list": [[1], [2], [3], [4]],
        "np row": np.arange(5),
        "np f64": np.arange(20, dtype="float64").reshape(4, 5) / 3,
        "np 0-d": np.array(3.5),
        "nd row": mx.nd.array([1, 2, 3, 4, 5]),
        "nd one": mx.nd.array([2.5]),
        "nd int": mx.nd.array([1, 2, 3, 4, 5], dtype="int32"),
        "nd column": mx.nd.array([[1.7], [2], [3], [4]]),
        "more dimensions": np.ones((1, 1, 4, 5)),
        "wrong": mx.nd.array([1, 2, 3]),
        "wrong np": np.ones(3),
        "string": "a",
    }
    results = {}
    for text, value in values.items():
        for name, key in {
            "1": 1,
            "1:2": slice(1, 2),
            ":": slice(None),
            "[1]": [1],
            "::2": slice(None, None, 2),
        }.items():
            results[text + " " + name] = outcome(lambda key=key, value=value: written(mx, key, value))
        results[text + " int32"] = outcome(lambda value=value: written(mx, 0, value, "int32"))
        results[text + " uint8"] = outcome(lambda value=value: written(mx, [0, 1], value, "uint8"))
    return results


@program
def one_dimension(mx):
    x = numbers(mx, 6)
    tried = {
        "2": 2,
        "-1": -1,
        "6": 6,
        "1:3": slice(1, 3),
        "::-2": slice(None, None, -2),
        "[1,1]": [1, 1],
        "...": Ellipsis,
        "None": None,
        "2,None": (2, None),
        "0,0": (0, 0),
    }
    results = {text: outcome(lambda key=key: x[key].asnumpy()) for text, key in tried.items()}
    for text, key in tried.items():

        def write(key=key):
            y = numbers(mx, 6)
            y[key] = -1
            return y.asnumpy()

        results["set " + text] = outcome(write)
    return results


@program
def dtypes(mx):
    results = []
    for dtype in ("float16", "float64", "uint8", "int8", "int32", "int64"):
        x = numbers(mx, 3, 4, dtype=dtype)
        results += [x[1], x[:, 1:3], x[::-1], x[[0, 2]], x[mx.nd.array([0, 1]), mx.nd.array([2, 3])]]
        x[:, 1] = 9
        results.append(x)
    return results


@program
def views_write_through(mx):
    """1 where writing to x[key] changes x."""
    results = {}
    for text, key in safe_keys(mx).items():
        x = numbers(mx, 3, 4, 5)
        try:
            view = x[key]
        except Exception:
            continue
        if not view.size:
            continue
        view[:] = -1
        results[text] = float((x.asnumpy() == -1).any())
    return results


@program
def writes_seen_by_views(mx):
    x = numbers(mx, 3, 4)
    row, rows, column = x[1], x[1:3], x[:, 1]
    x[:] = -1
    part = rows[0]
    part[2] = 5
    return [row, rows, column, part, x]


@program
def iteration_and_length(mx):
    x = numbers(mx, 3, 4)
    return [len(x)] + list(x) + [type(x[0, 0]).__name__, x[0, 1].asscalar(), x[0, 0].shape[0]]


@program
def in_place_on_parts(mx):
    x = numbers(mx, 3, 4)
    x[1] += 10
    x[:, 2] *= 2
    x[0:2] -= 1
    x[::2, 1] /= 4
    x[[0, 2]] += 100
    x[1, 1] = x[0, 0]
    x[2] = x[0] + x[1]
    return [x]


def gradient_of(mx, key):
    x = numbers(mx, 3, 4, 5)
    x.attach_grad()
    with mx.autograd.record():
        y = x[key] * 2
        z = (y * y).reshape((-1,))
    z.backward()
    return x.grad.asnumpy()


@program
def gradients(mx):
    return {text: outcome(lambda key=key: gradient_of(mx, key)) for text, key in safe_keys(mx).items() if text != "1:1"}


@program
def gradient_of_two_parts(mx):
    x = numbers(mx, 4, 3)
    x.attach_grad()
    with mx.autograd.record():
        y = x[0:2] * x[2:4] + x[1]
        y = y[0] + y[:, 1:2].reshape((-1,))[1]
    y.backward()
    return [y, x.grad]


@program
def writes_while_recording(mx):
    x = numbers(mx, 3, 4)
    x.attach_grad()

    def write_variable():
        with mx.autograd.record():
            x[0] = 1

    def write_result():
        with mx.autograd.record():
            y = x * 2
            y[0] = 1

    def write_free():
        z = numbers(mx, 3, 4)
        with mx.autograd.record():
            z[0] = 1
        return z

    def write_outside():
        with mx.autograd.record():
            y = x * 2
        y[0] = 100
        x[1] = 50
        return y

    return [outcome(write_variable), outcome(write_result), outcome(write_free), outcome(write_outside), x[1]]


@program
def boolean_arrays(mx):
    x = numbers(mx, 3, 4)
    mask = x > 5
    return [
        outcome(lambda: x[np.array([True, False, True])].asnumpy()),
        outcome(lambda: x[mask].asnumpy().shape),
        outcome(lambda: x[mask.asnumpy().astype(bool)].asnumpy().shape),
    ]
