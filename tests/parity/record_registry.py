"""Keep what MXNet 1.9.1 says of its own ops: names, aliases, argument names, types and defaults."""

import ctypes
import json
import pathlib

from mxnet.base import _LIB, c_str, check_call, mx_uint, py_str

OURS_NOT = (
    "_backward",
    "_broadcast_backward",
    "_sg_",
    "_FusedOp",
    "_CachedOp",
    "_contrib_quantized",
    "_contrib_tvm",
)


def main():
    size, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(size), ctypes.byref(names)))
    groups = {}
    for name in sorted(py_str(names[i]) for i in range(size.value)):
        handle = ctypes.c_void_p()
        check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
        if not name.startswith(OURS_NOT):
            groups.setdefault(handle.value, []).append(name)
    registry = {}
    for handle, aliases in groups.items():
        name, text, count = ctypes.c_char_p(), ctypes.c_char_p(), mx_uint()
        lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
        variadic, returns = ctypes.c_char_p(), ctypes.c_char_p()
        check_call(
            _LIB.MXSymbolGetAtomicSymbolInfo(
                ctypes.c_void_p(handle),
                ctypes.byref(name),
                ctypes.byref(text),
                ctypes.byref(count),
                *[ctypes.byref(each) for each in lists],
                ctypes.byref(variadic),
                ctypes.byref(returns),
            )
        )
        args = [[py_str(lists[0][i]), py_str(lists[1][i])] for i in range(count.value)]
        own = py_str(name.value)
        registry[own if own in aliases else aliases[0]] = {
            "aliases": aliases,
            "args": args,
            "variadic": py_str(variadic.value),
        }
    path = pathlib.Path(__file__).resolve().parent / "recorded" / "registry.json"
    path.write_text(json.dumps(registry, indent=0, sort_keys=True) + "\n")
    print("%d ops, %d names" % (len(registry), sum(len(r["aliases"]) for r in registry.values())))


if __name__ == "__main__":
    main()
