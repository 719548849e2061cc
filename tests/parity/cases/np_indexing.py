"""x[key] and x[key] = value of mx.np arrays: values, gradients, shared memory and errors."""

import numpy as np

from ..spec import family, outcome, settled

case, program = family(__name__)

SHAPE = (2, 3, 4)
# Keys on which MXNet and numpy agree: texts, because each engine makes arrays of its own.
KEYS = """
0; -1; 1, 2; 1, 2, 3; (); ...; None; :; 0:1; 1:; ::-1; :, 1; :, ::2; :, ::-2, 1; ..., 0; 0, ...; 0, ..., 1; :, None
None, 0, None; None, ..., None; 0:1, 1:3; 1:1; True; False
i64([0, 1, 0]); i64([-1, 0]); f32([0, 1]); i32([[0, 1], [1, 1]]); u8([1]); onp.array([1, 0]); [0, 1]; [[0, 1], [1, 0]]
[]; range(2); (0, 1),; i64(1)
0, :, [0, 1]; [0, 1], :, [0, 1]; :, [0, 1], [0, 1]; [0], [0, 1], [0, 1]; 0, [0, 1]; [0, 1], 0; :, 0, [1, 2]
[0, 1], 1:2; [0, 1], None, [0, 1]; None, [0, 1], [0, 1]; [0, 1], ..., [0, 1]
::-1, [0, 1]; [[0], [1]], [0, 1]; :, [0, 1, 2], ..., [0, 1, 2]
i64([[0], [1]]), onp.array([0, 1]); [], []
mask(2); mask(2, 3); mask(2, 3, 4); 1, mask(3); mask(2), 1; mask(2), mask(3); mask(2), :, mask(4)
:, mask(3); :, mask(3, 4); none(2, 3, 4)
onp.array([True, False]); onp.arange(6).reshape(2, 3) > 2; [True, False]
""".replace(";", "\n").split("\n")
WRITES = """
0; 1, 2; (); ...; :; 0:1; ::-1; :, ::-2; :, 1; ..., 0; None, 0; 0:0
[0, 1]; [0, 1], [0, 1]; [0, 1], 1:3; :, [0, 2]; i64([1, 0]); i64(1); [1, 1]; 0, :, [0, 1]
[0, 1], :, [0, 1]; :, 0, [0, 1]; []
mask(2); mask(2, 3); mask(2, 3, 4); :, mask(3); :, mask(3, 4); 1, mask(3); True; False
""".replace(";", "\n").split("\n")


class Getter:
    """Gives the key of `x[key]`."""

    def __getitem__(self, key):
        return key


def key_of(mx, text):
    def typed(dtype):
        return lambda values: mx.np.array(values, dtype=dtype)

    def mask(*shape):
        return mx.np.array(np.arange(np.prod(shape)).reshape(shape) % 3 > 0, dtype="bool")

    names = dict(
        of=Getter(),
        onp=np,
        i32=typed("int32"),
        i64=typed("int64"),
        f32=typed("float32"),
        u8=typed("uint8"),
        mask=mask,
        none=lambda *shape: mx.np.zeros(shape, dtype="bool"),
    )
    return eval("of[%s]" % text, names)


def numbers(mx, dtype="float32"):
    return mx.np.array(np.arange(24).reshape(SHAPE), dtype=dtype)


def in_np_mode(function):
    def run(mx):
        mx.npx.set_np()
        try:
            return function(mx)
        finally:
            mx.npx.reset_np()

    run.__name__ = function.__name__
    return program(run)


@in_np_mode
def read(mx):
    return {text.strip(): numbers(mx)[key_of(mx, text)] for text in KEYS if text.strip()}


@in_np_mode
def read_other_dtypes(mx):
    results = {}
    for dtype in ("float64", "float16", "int32", "int64", "uint8", "bool"):
        for text in ("0", "1, 2, 3", ":, 1", "[0, 1], 0", "mask(2, 3)"):
            results[dtype + " " + text] = numbers(mx, dtype)[key_of(mx, text)]
    return results


@in_np_mode
def gradients_of_reading(mx):
    results = {}
    for text in filter(str.strip, KEYS):
        if "-1, 0" in text:
            continue  # MXNet writes the gradient of a negative index out of its array
        key = key_of(mx, text)
        x = numbers(mx)
        x.attach_grad()
        with mx.autograd.record():
            y = x[key]
        if y.size:
            y.backward(mx.np.array(np.arange(1, y.size + 1).reshape(y.shape), dtype="float32"))
            results[text.strip()] = x.grad
    return results


@in_np_mode
def which_results_share_memory(mx):
    results = {}
    for text in filter(str.strip, KEYS):
        x = numbers(mx)
        part = x[key_of(mx, text)]
        part[()] = 77
        results[text.strip()] = bool((x.asnumpy() == 77).any())
    return results


@in_np_mode
def write_a_number(mx):
    results = {}
    for text in filter(str.strip, WRITES):
        x = numbers(mx)
        x[key_of(mx, text)] = 99
        results[text.strip()] = x
    return results


@in_np_mode
def write_an_array(mx):
    results = {}
    for text in filter(str.strip, WRITES):
        key = key_of(mx, text)
        if isinstance(key, bool) or text.strip() == "[1, 1]":
            continue
        x = numbers(mx)
        part = x[key]
        x[key] = mx.np.array(np.arange(part.size).reshape(part.shape) + 100.0, dtype="float32")
        results[text.strip()] = x
        if "mask" in text:
            continue  # MXNet broadcasts to masks in some cases only
        x = numbers(mx)
        x[key] = mx.np.array(np.arange(part.shape[-1]) + 100.0, dtype="float32") if part.ndim else mx.np.array([100.0])
        results[text.strip() + " broadcast"] = x
    return results


@in_np_mode
def write_numpy_arrays_and_lists(mx):
    results = []
    for key, value in (
        (0, np.arange(4)),
        (slice(None), np.arange(12).reshape(3, 4)),
        ((0, 1), [1, 2, 3, 4]),
        (([0, 1], [0, 1]), np.arange(8).reshape(2, 4)),
        ((0, 0, 0), [5]),
        (0, np.float64(2.5)),
        (1, np.array(2.5)),
        (0, None),
        (0, True),
    ):
        x = numbers(mx)
        x[key] = value
        results.append(x)
    return results


@in_np_mode
def write_values_of_other_dtypes(mx):
    results = []
    for dtype in ("float16", "float64", "int32", "int64", "uint8"):
        for value in (1.7, 0, 3, True, mx.np.array([1.7, 0.0, 3.0, 4.0]), np.array([1.7, 0.0, 3.0, 4.0])):
            x = numbers(mx, dtype)
            x[0, 1] = value
            results.append(x)
    return results


@in_np_mode
def keys_and_values_that_are_refused(mx):
    x = numbers(mx)

    def set_item(key, value):
        numbers(mx)[key] = value

    keys = [
        2,
        -3,
        (0, 3),
        (0, 0, 0, 0),
        (..., ...),
        [0, 7],
        np.array([0, 7]),
        np.array([True, False, True]),
        1.0,
        "a",
        {},
    ]
    keys += [slice(1.5, 2), slice(None, None, 0), mx.np.array([0, 7], dtype="int64")]
    results = [str(outcome(lambda: settled(lambda: x[key]))) for key in keys]  # noqa: B023
    results += [str(outcome(lambda: set_item(key, 1))) for key in keys[:5] + keys[8:13]]  # noqa: B023
    for value in (mx.nd.ones(4), "a", np.array(["a"]), 1j):
        results.append(str(outcome(lambda: set_item(0, value))))  # noqa: B023
    scalar = mx.np.array(5.0)
    results += [str(outcome(lambda: scalar[key])) for key in (0, slice(None))]  # noqa: B023
    return results
