"""Each case's op as a symbol: its graph and what is inferred of it, under real MXNet and under neomx."""

import warnings

import numpy as np


def find_function(mx, name):
    """The function of `mx.sym` for an op."""
    for prefix in ("_contrib_", "_linalg_", "_image_", "_sparse_"):
        module = getattr(mx.sym, prefix.strip("_"))
        if name.startswith(prefix) and hasattr(module, name[len(prefix) :]):
            return getattr(module, name[len(prefix) :])
    return getattr(mx.sym._internal if name.startswith("_") else mx.sym.op, name)


def facts(mx, case):
    """{what: result} of a case's symbol; None where MXNet refuses it."""
    function = find_function(mx, case.op)
    arrays = case.arrays()
    try:
        symbol = function(*[mx.sym.var("v%d" % i) for i in range(len(arrays))], name="n", **case.attrs)
    except Exception:
        return None
    states = symbol.list_auxiliary_states()
    shapes = {"v%d" % i: a.shape for i, a in enumerate(arrays) if "v%d" % i not in states}
    dtypes = {"v%d" % i: a.dtype.name for i, a in enumerate(arrays) if "v%d" % i not in states}
    found = {
        "json": symbol.tojson(),
        "arguments": symbol.list_arguments(),
        "states": states,
        "outputs": symbol.list_outputs(),
        "made inputs": attempt(lambda: function(name="n", **case.attrs).list_inputs()),
        "shapes": attempt(lambda: symbol.infer_shape(**shapes)),
        "dtypes": attempt(lambda: names_of(symbol.infer_type(**dtypes))),
    }
    if len(arrays) > 1:
        found["shapes from the first"] = attempt(lambda: symbol.infer_shape_partial(v0=arrays[0].shape))
        found["dtypes from the first"] = attempt(lambda: names_of(symbol.infer_type_partial(v0=dtypes["v0"])))
    return found


def attempt(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception:
            return "refused"


def names_of(dtypes):
    return [None if each is None else [None if t is None else np.dtype(t).name for t in each] for each in dtypes]
