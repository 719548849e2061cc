"""Damages bytes with a random generator, so that a seed and a number always give the same case."""

import json
import random
import struct

NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 1000, 65535, 65536, 2**29 - 1, 2**31 - 1, 2**31, 2**32 - 1, 4 * 10**9)
LARGE = (2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 10**30)
WORDS = (
    "",
    "i4,(2,",
    '["Load", {"param": 3}]',
    "9" * 4000,
    "None",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "()",
    "(",
    "(1,)",
    "(0, 0)",
    "[1,2",
    "True",
    "\ud800",
    "é",
    "a b",
    "'",
)


def number(rng: random.Random) -> int:
    """A number that is likely to cause errors."""
    value = rng.choice(NUMBERS if rng.random() < 0.7 else LARGE)
    return -value if rng.random() < 0.2 else value


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return bytes with one or several kinds of damage."""
    for _ in range(1 + int(rng.expovariate(0.7))):
        data = rng.choice(_BYTES)(rng, data, others)
    return data


def _flip(rng, data, others):
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng, data, others):
    """Overwrite a number, in a width that files use, mostly aligned and near the start."""
    form = rng.choice(("<B", "<H", "<I", "<I", "<Q", "<Q", ">I", ">H"))
    size = struct.calcsize(form)
    if len(data) < size:
        return data
    last = len(data) - size
    at = rng.randrange(min(last, 64) + 1) if rng.random() < 0.4 else rng.randrange(last + 1)
    if rng.random() < 0.8:
        at -= at % min(size, 4)
    return data[:at] + struct.pack(form, number(rng) % (1 << 8 * size)) + data[at + size :]


def _cut(rng, data, others):
    return data[: rng.randrange(len(data) + 1)]


def _delete(rng, data, others):
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 2, 4, 8, 64)) :]


def _insert(rng, data, others):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 64))) + data[at:]


def _repeat(rng, data, others):
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.choice((1, 4, 8, 16, 100))]
    return data[:at] + piece * rng.choice((2, 3, 10, 100)) + data[at + len(piece) :]


def _splice(rng, data, others):
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


_BYTES = (_flip, _flip, _overwrite, _overwrite, _overwrite, _cut, _delete, _insert, _repeat, _splice)


# ---- JSON ----


def mutated_json(rng: random.Random, text: bytes) -> bytes:
    """Return a JSON document with changed values, or with parts removed, moved and repeated."""
    root = json.loads(text)
    for _ in range(1 + int(rng.expovariate(0.7))):
        places = list(_places(root))
        if not places:
            break
        holder, key = rng.choice(places)
        action = rng.random()
        if action < 0.6:
            holder[key] = _value(rng, holder[key])
        elif action < 0.75:
            source, at = rng.choice(places)
            holder[key] = json.loads(json.dumps(source[at]))  # a copy, so that the document does not contain itself
        elif action < 0.85:
            del holder[key]
        elif isinstance(holder, list):
            holder[key:key] = [json.loads(json.dumps(holder[key]))] * rng.choice((1, 2, 20))
        else:
            holder[rng.choice((*WORDS, "name", "op", "num_args", "axis", "shape", "ctx", "_memory"))] = holder[key]
    return json.dumps(root).encode()


def _places(value):
    stack = [value]
    while stack:
        each = stack.pop()
        keys = range(len(each)) if isinstance(each, list) else list(each)
        for key in keys:
            yield each, key
            if isinstance(each[key], (list, dict)):
                stack.append(each[key])


def _value(rng, old):
    if isinstance(old, str):
        action = rng.random()
        if action < 0.4:
            return str(number(rng))
        if action < 0.5:
            return f"({', '.join(str(number(rng)) for _ in range(rng.randrange(5)))})"
        if action < 0.6 and old:
            at = rng.randrange(len(old))
            return old[:at] + rng.choice("()[],-+.e0L9' \n") + old[at + 1 :]
        return rng.choice(WORDS)
    if type(old) is int and rng.random() < 0.8:
        return old + rng.choice((-2, -1, 1, 2)) if rng.random() < 0.4 else number(rng)
    return rng.choice((None, True, 0, -1, 1.5, 1e300, "", "1", [], {}, [0], [[0, 0, 0]], {"a": "b"}, 10**30))


# ---- pickles ----

_OPCODES = (
    *(b"N", b"\x88", b"\x89", b"K\x00", b"K\x01", b"J\xff\xff\xff\xff", b"}", b"]", b")", b"(", b"t", b"l", b"d", b"u"),
    *(
        b"e",
        b"s",
        b"a",
        b"\x85",
        b"\x86",
        b"\x87",
        b"\x94",
        b"h\x00",
        b"h\x01",
        b"h\x02",
        b"h\x05",
        b"q\x00",
        b"R",
        b"b",
    ),
    *(b"\x81", b"\x93", b".", b"0", b"2", b"G@\x00\x00\x00\x00\x00\x00\x00", b"\x8a\x04\xff\xff\xff\x7f", b"C\x02ab"),
    *(b"X\x01\x00\x00\x00a", b"\x8c\x06latin1", b"cbuiltins\nbytearray\n", b"c_codecs\nencode\n", b"cos\nsystem\n"),
    *(b"cmxnet.optimizer.optimizer\nSGD\n", b"cmxnet.ndarray.ndarray\nNDArray\n", b"\x86\x94", b"h\x00h\x00\x86\x94"),
)


def mutated_pickle(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return a pickle with inserted instructions, sometimes many."""
    for _ in range(1 + int(rng.expovariate(0.5))):
        at = rng.randrange(2, max(3, len(data)))
        piece = b"".join(rng.choice(_OPCODES) for _ in range(rng.choice((1, 1, 2, 4))))
        data = data[:at] + piece * rng.choice((1, 1, 1, 2, 30, 300)) + data[at + rng.choice((0, 0, 1, len(piece))) :]
    return data if rng.random() < 0.7 else mutated(rng, data, others)


# ---- text ----


def mutated_text(rng: random.Random, data: bytes, separators: bytes) -> bytes:
    """Return text with words replaced or split."""
    for _ in range(1 + int(rng.expovariate(0.7))):
        ends = [0, *(i for i, byte in enumerate(data) if byte in separators), len(data)]
        at = rng.randrange(len(ends) - 1)
        word = rng.choice((str(number(rng)), rng.choice(WORDS), "1.5", "1:2", "-1:1", "9" * 5000, "\x00", "qid:1"))
        data = data[: ends[at] + 1] + word.encode(errors="replace") + data[ends[at + 1] :]
    return data
