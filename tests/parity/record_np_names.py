"""Keep the names that MXNet 1.9.1 has in mx.np, mx.npx and their parts, with the parameters of functions."""

import inspect
import json
import pathlib
import types


def kind_of(value):
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return "callable" if callable(value) else "value"


def default_of(parameter):
    """A default as text: a class by its name, so that it does not tell where the class was defined."""
    if parameter.default is parameter.empty:
        return None
    return parameter.default.__name__ if isinstance(parameter.default, type) else repr(parameter.default)


def facts_of(value):
    """The kind of a member, whether NumPy provides it, and its parameters: [name, kind, default] or None if unknown."""
    facts = {"kind": kind_of(value), "numpy": str(getattr(value, "__module__", "")).split(".")[0] == "numpy"}
    if facts["kind"] == "callable":
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            return facts
        facts["parameters"] = [[p.name, p.kind.name, default_of(p)] for p in parameters]
    return facts


def names_of(owner):
    return {name: facts_of(getattr(owner, name)) for name in sorted(dir(owner)) if not name.startswith("_")}


def members_of(cls):
    members = {}
    for name in sorted(dir(cls)):
        if not name.startswith("_") or (name.startswith("__") and not hasattr(object, name)):
            members[name] = facts_of(inspect.getattr_static(cls, name))
    return members


def main():
    import mxnet as mx

    assert mx.__version__ == "1.9.1", mx.__version__
    mx.npx.set_np()
    spaces = {
        "np": mx.np,
        "np.random": mx.np.random,
        "np.linalg": mx.np.linalg,
        "npx": mx.npx,
        "npx.random": mx.npx.random,
        "npx.image": mx.npx.image,
    }
    recorded = {path: names_of(module) for path, module in spaces.items()}
    recorded["np.ndarray"] = members_of(mx.np.ndarray)
    recorded["sym.np._Symbol"] = members_of(mx.sym.np._Symbol)
    path = pathlib.Path(__file__).resolve().parent / "recorded" / "np_names.json"
    path.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")
    print({path: len(names) for path, names in recorded.items()})


if __name__ == "__main__":
    main()
