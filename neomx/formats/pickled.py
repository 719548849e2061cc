"""Read the data in a pickle without running any of its code, and write such data. Classes are only represented by name.

Numbers, strings, bytes, tuples, lists and dicts are returned as such, objects as `Instance`. `pickletools` splits the
bytes into instructions. The few instructions that occur in MXNet's files are interpreted here; others are refused.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..base import MXNetError


@dataclass(frozen=True)
class Name:
    """The name of a class or function in a pickle."""

    module: str
    name: str


@dataclass(eq=False)
class Instance:
    """The description of an object in a pickle: its constructor, the arguments, and the state."""

    maker: Name
    arguments: tuple[Any, ...]
    state: Any = None


_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "STRING", "SHORT_BINSTRING", "BINSTRING"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MOST_DEPTH = 100
_GROWTH, _SPARE = 4, 10_000  # the limit of bytes and items in a pickle of n bytes: _GROWTH * n + _SPARE
_Key = (str, bytes, int, float, type(None))


def read(data: bytes) -> Any:
    """Return the value in a pickle. Time and memory are proportional to its length, even if its parts are shared."""
    most = _GROWTH * len(data) + _SPARE
    machine, position = _Machine(most), 0
    try:
        for opcode, argument, at in pickletools.genops(data):
            position = at or 0
            if opcode.name == "STOP":
                break
            machine.follow(opcode.name, argument)
        if machine.marks or len(machine.stack) != 1:
            raise ValueError(f"it ends with {len(machine.stack)} values, expected one")
        _check_size(machine.stack[0], most)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise MXNetError(f"not a readable pickle: at byte {position}: {error!s:.200}") from error
    except MXNetError as error:
        raise MXNetError(f"not a readable pickle: at byte {position}: {error}") from None
    return machine.stack[0]


def _check_size(value: Any, most: int) -> None:
    """Refuse a value that contains itself, and one that is small only because its parts are shared many times."""
    sizes: dict[int, int] = {}  # by id: the total number of items in a container; 0 while it is being counted
    stack: list[tuple[Any, bool]] = [(value, False)]
    depth = 0
    while stack:
        each, counted = stack.pop()
        parts = _parts(each)
        if parts is None:
            continue
        if counted:
            depth -= 1
            sizes[id(each)] = 1 + sum(sizes.get(id(part), 1) for part in parts)
            if sizes[id(each)] > most:
                raise ValueError(f"it repeats shared parts so often that it would have more than {most} items")
        elif sizes.get(id(each)) == 0:
            raise ValueError("it has an object that contains itself")
        elif id(each) not in sizes:
            depth += 1
            if depth > _MOST_DEPTH:
                raise ValueError(f"it is nested more than {_MOST_DEPTH} levels deep")
            sizes[id(each)] = 0
            stack.append((each, True))
            stack.extend((part, False) for part in parts)


def _parts(value: Any) -> Iterable[Any] | None:
    """Return the items of a container; None if the value is not a container."""
    if isinstance(value, (tuple, list)):
        return value
    if isinstance(value, dict):
        return value.values()
    return (value.arguments, value.state) if isinstance(value, Instance) else None


class _Machine:
    def __init__(self, most: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []  # the length of the stack at each mark
        self.memo: dict[int, Any] = {}
        self.most = most

    def follow(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            self.stack.append(tuple(self.take(_TUPLES[name])))
        elif name not in ("PROTO", "FRAME"):
            step = getattr(self, "do_" + name.lower(), None)
            if step is None:
                raise MXNetError(f"refused the pickle instruction {name}: the pickle may contain more than data")
            step(argument)

    def take(self, count: int) -> list[Any]:
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise IndexError("it takes more values from the stack than there are")
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def take_to_mark(self) -> list[Any]:
        if not self.marks:
            raise IndexError("it takes all values up to a mark, but there is no mark")
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def do_mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def do_memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def do_put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    do_binput = do_long_binput = do_put

    def do_get(self, key: int) -> None:
        self.stack.append(self.memo[key])

    do_binget = do_long_binget = do_get

    def do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.take_to_mark()))

    def do_list(self, _: Any) -> None:
        self.stack.append(self.take_to_mark())

    def do_dict(self, _: Any) -> None:
        items = self.take_to_mark()
        self.stack.append(_paired(items))

    def do_append(self, _: Any) -> None:
        (item,) = self.take(1)
        self.target(list).append(item)

    def do_appends(self, _: Any) -> None:
        items = self.take_to_mark()
        self.target(list).extend(items)

    def do_setitem(self, _: Any) -> None:
        items = self.take(2)
        self.target(dict).update(_paired(items))

    def do_setitems(self, _: Any) -> None:
        items = self.take_to_mark()
        self.target(dict).update(_paired(items))

    def target(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise TypeError(f"it adds items to a {type(self.stack[-1]).__name__}, expected a {kind.__name__}")
        return self.stack[-1]

    def do_global(self, names: str) -> None:
        self.stack.append(Name(*names.split(" ")))

    def do_stack_global(self, _: Any) -> None:
        module, name = self.take(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("the name of a class is not a string")
        self.stack.append(Name(module, name))

    def do_reduce(self, _: Any) -> None:
        maker, arguments = self.take(2)
        made = _made(maker, arguments)
        if isinstance(made, (bytes, bytearray)):
            self.most -= len(made)
            if self.most < 0:
                raise ValueError("it repeats the same bytes too often")
        self.stack.append(made)

    do_newobj = do_reduce

    def do_build(self, _: Any) -> None:
        (state,) = self.take(1)
        self.target(Instance).state = state


def _paired(items: list[Any]) -> dict[Any, Any]:
    """Convert alternating keys and values to a dict."""
    return dict(zip(map(plain_key, items[::2]), items[1::2], strict=True))


def plain_key(key: Any) -> Any:
    """Return the key if it has a plain type; hash collisions could make other types arbitrarily slow."""
    for part in key if type(key) is tuple and len(key) <= 2 else (key,):
        if not isinstance(part, _Key) or (type(part) is int and part.bit_length() > 64):
            raise TypeError(f"this {type(key).__name__} cannot be a key")
    return key


def _made(maker: Any, arguments: Any) -> Any:
    """Return the Instance that a constructor makes; bytes, in their two encodings, are returned as bytes."""
    if not isinstance(maker, Name) or not isinstance(arguments, tuple):
        raise TypeError("it constructs an object from a value that is not a class")
    if maker.name == "bytearray" and maker.module in ("builtins", "__builtin__"):
        return bytearray(arguments[0] if isinstance(arguments[0], bytes) else arguments[0].encode("latin-1"))
    if maker == Name("_codecs", "encode") and arguments[1:] == ("latin1",):
        return arguments[0].encode("latin-1")
    return Instance(maker, arguments)


def write(value: Any) -> bytes:
    """Return a pickle of a value that `read` returned."""
    return b"\x80\x04" + b"".join(_written(value)) + b"."


def _written(value: Any) -> Iterator[bytes]:
    if value is None or isinstance(value, bool):
        yield {None: b"N", True: b"\x88", False: b"\x89"}[value]
    elif isinstance(value, int):
        yield b"\x8a" + _counted("B", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    elif isinstance(value, float):
        yield b"G" + struct.pack(">d", value)
    elif isinstance(value, str):
        yield b"X" + _counted("<I", value.encode())
    elif isinstance(value, bytes):
        yield b"\x8e" + _counted("<Q", value)
    elif isinstance(value, bytearray):
        yield from _written(Instance(Name("builtins", "bytearray"), (bytes(value),)))
    elif isinstance(value, Instance):
        yield f"c{value.maker.module}\n{value.maker.name}\n".encode()
        yield from (*_written(value.arguments), b"R")
        if value.state is not None:
            yield from (*_written(value.state), b"b")
    else:
        yield from _written_group(value)


def _written_group(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        begin, items, end = b"}(", [each for pair in value.items() for each in pair], b"u"
    elif isinstance(value, (tuple, list)):
        begin, items, end = b"(", list(value), b"t" if isinstance(value, tuple) else b"l"
    else:
        raise MXNetError(f"cannot write an object of type {type(value).__name__} to a pickle for MXNet: {value!r:.80}")
    yield begin
    for each in items:
        yield from _written(each)
    yield end


def _counted(form: str, data: bytes) -> bytes:
    return struct.pack(form, len(data)) + data
