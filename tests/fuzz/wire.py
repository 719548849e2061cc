"""A seeded fuzzer of the wire: greetings, frames, and requests to the store and a server.

`python tests/fuzz/wire.py --cases 100000 --seed 1 --seconds 600`. A case fails if it raises an exception other than
MXNetError, hangs, uses too much memory, or if the listener no longer answers an honest client. Each case depends only
on (seed, target, number): `--target store --first 17 --cases 1` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import json
import logging
import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from neomx.base import MXNetError
from neomx.comm import wire
from neomx.comm.server import Replica, Service
from neomx.comm.server import messages as m
from neomx.comm.store import StoreClient, StoreServer
from neomx.comm.wire.frames import HEADER
from neomx.comm.wire.greeting import Greeting
from neomx.kvstore.server import OptimizerRule

SECRET = b"s" * 32
HANG = 120.0  # timeout of a case, in seconds
MEMORY = 1 << 29  # bytes by which this process may grow
CHECK = 200  # cases between two checks of memory and of honest clients
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 7, 255, 1 << 31, 1 << 63, 1 << 70, -(1 << 63), 0.5, 1e308, float("nan")),
    *(float("inf"), "", "k", "\x00", "worker 0", "a" * 300, [], [0], [[]], [0, 0], {}, {"k": [0]}, [None] * 9),
]
ASKS: list[dict[str, Any]] = [
    {"do": "set", "key": "a"},
    {"do": "get", "key": "a", "timeout": 0},
    {"do": "add", "key": "n", "amount": 1},
    {"do": "swap", "key": "c", "expected": ""},
    {"do": "wait", "keys": ["a"], "timeout": 0},
    {"do": "check", "keys": ["a"]},
    {"do": "delete", "key": "a"},
    {"do": "count"},
    {"do": "join", "name": "worker 1", "host": "h", "pid": 1},
    {"do": "beat", "name": "worker 1", "running": ["worker 0"]},
    {"do": "leave", "name": "worker 1"},
    {"do": "roster"},
    {"do": "gone", "name": "worker 1", "why": "x"},
]
DECLARED = {"keys": [["k", [4, 3], "float32", [[0, 0, 12]], 0, False]]}
TOLD: list[tuple[int, Any, bytes]] = [
    (m.DECLARE, DECLARED, bytes(48)),
    (m.ATTACH, {"chunk": 0, "name": "1/2/" + "0" * 32, "reads": False}, b""),
    (m.PUSH, {"k": [0], "c": 1}, bytes(48)),
    (m.COMMIT, {"k": [0], "s": {"lr": 0.1, "lr_mult": [["k", 1.0]]}}, b""),
    (m.PULL, {"k": [0]}, b""),
    (m.PUSH_ROWS, {"k": [0], "rows": 1, "c": 1}, bytes(20)),
    (m.PULL_ROWS, {"k": [0]}, bytes(8)),
    (m.PUSH_CODED, {"k": [0], "c": 1, "codec": {"type": "2bit", "threshold": 0.5}}, bytes(4)),
    (m.OPTIMIZER, {"generation": 1}, b"\x80\x04."),
    (m.STATES, {}, b""),
    (m.RESTORE, {"generation": 1}, b"\x80\x04."),
    (m.BYE, None, b""),
]


# ---- the mutator ----


def bent(rng: random.Random, data: bytes) -> bytes:
    """Change bytes in a few positions."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        act = rng.randrange(6)
        if act == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif act == 1:
            out[at:at] = rng.randbytes(rng.randint(1, 9))
        elif act == 2:
            del out[at : at + rng.randint(1, 9)]
        elif act == 3:
            out[at : at + 8] = rng.choice([0, 1, 1 << 22, 1 << 31, 1 << 60, (1 << 64) - 1]).to_bytes(8, "little")
        elif act == 4:
            del out[at:]
        else:
            out[at:at] = out[: rng.randint(1, 40)]
    return bytes(out)


def odd(rng: random.Random, value: Any) -> Any:
    """Change a JSON value somewhere."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        value = copy.copy(value)
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if rng.random() < 0.1:
            del value[key]
        else:
            value[key] = odd(rng, value[key])
        return value
    return rng.choice(ODD)


def maybe(rng: random.Random, value: Any) -> Any:
    return odd(rng, value) if rng.random() < 0.7 else value


# ---- targets ----


def tcp() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        caller = socket.create_connection(listening.getsockname())
        return caller, listening.accept()[0]


def secured() -> tuple[wire.Connection, wire.Connection]:
    """Return both ends of a connection after its greeting."""
    greeting = Greeting(b"\0" * 33, b"\0" * 33, b"", "fuzz")
    ends = [wire.Connection(sock) for sock in socket.socketpair()]
    ends[0].secure(*greeting.directions(SECRET))
    ends[1].secure(*reversed(greeting.directions(SECRET)))
    return ends[0], ends[1]


def end(connection: wire.Connection) -> None:
    """Stop sending."""
    connection._sock.shutdown(socket.SHUT_WR)


def greet_called(rng: random.Random) -> None:
    """The caller's side of the greeting without the secret, then random data."""
    caller, called = tcp()
    with caller:
        caller.sendall(bent(rng, b"NEOMX/2\n\1" + rng.randbytes(64) + rng.randbytes(rng.choice([0, 36, 200]))))
        caller.shutdown(socket.SHUT_WR)
        wire.accept(called, SECRET, timeout=5.0, service="fuzz").close()


class Answers:
    """A listener that sends anything to a caller."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = wire.join_address(*self._listening.getsockname()[:2])
        self.said = b""
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            sock, _ = self._listening.accept()
            with sock, contextlib.suppress(OSError):
                sock.sendall(self.said)
                sock.shutdown(socket.SHUT_WR)
                sock.recv(4096)


class Wire:
    """The targets, and their state between cases."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.store = StoreServer("127.0.0.1", 0, SECRET).start()
        self.honest = StoreClient(self.store.address, SECRET)
        self.service = self.new_service()
        self.targets: dict[str, Callable[[random.Random], None]] = {
            "called": greet_called,
            "caller": self.greet_caller,
            "listener": self.knock,
            "frame": self.frame,
            "store": self.ask,
            "server": self.tell,
        }

    def new_service(self) -> Service:
        return Service(Replica(0, 1, 2, 0.01, OptimizerRule), {"node": 0, "host": "h"})

    def greet_caller(self, rng: random.Random) -> None:
        """A caller connects to a process that does not belong to the job."""
        self.answers.said = bent(rng, b"NEOMX/2\n\1" + rng.randbytes(32) + rng.randbytes(rng.choice([0, 32, 100])))
        wire.connect(self.answers.address, SECRET, {}, timeout=0.0, service="fuzz").close()

    def knock(self, rng: random.Random) -> None:
        """Send bytes to a listener that serves others too."""
        said = bent(rng, b"NEOMX/2\n\1" + rng.randbytes(64))
        with contextlib.suppress(OSError), socket.create_connection(wire.split_address(self.store.address)) as sock:
            sock.sendall(said)

    def frame(self, rng: random.Random) -> None:
        """Send a frame that was changed in transit, or that a holder of the keys made up."""
        sender, receiver = secured()
        with contextlib.closing(sender), contextlib.closing(receiver):
            words = bent(rng, json.dumps(maybe(rng, DECLARED)).encode()) if rng.random() < 0.8 else b"[" * 30000
            size = rng.choice([0, 5, 1 << 20, 1 << 40])
            head = HEADER.pack(b"NMX2", rng.randrange(256), len(words), size)
            data = head + sender._out.tag(head, words) + words + bytes(min(size, 100))
            sender.write([memoryview(bent(rng, data) if rng.random() < 0.5 else data)])
            end(sender)
            receiver.receive(timeout=HANG)

    def ask(self, rng: random.Random) -> None:
        """Send a request that a member might make to the store."""
        caller, called = secured()
        called.peer = maybe(rng, {"name": "worker 1", "token": "t"})
        called.peer = called.peer if isinstance(called.peer, dict) else {}
        with contextlib.closing(caller), contextlib.closing(called):
            for _ in range(rng.randint(1, 4)):
                ask = maybe(rng, rng.choice(ASKS))
                if isinstance(ask, dict) and isinstance(ask.get("timeout"), (int, float)):
                    ask["timeout"] = min(ask["timeout"], 0)  # otherwise a member may wait for long
                caller.send(rng.choice([1, 1, 1, 9]), ask, rng.randbytes(rng.choice([0, 0, 40])))
            end(caller)
            self.store._talk(called)

    def tell(self, rng: random.Random) -> None:
        """Send a message that a worker might send to a server."""
        if rng.random() < 0.01:
            self.service.close()
            self.service = self.new_service()
        caller, called = secured()
        hello = {"name": "x", "rank": 0, "space": 0, "staleness": 0, "node": 9, "host": "far"}
        called.peer = hello if rng.random() < 0.9 else odd(rng, hello)
        called.peer = called.peer if isinstance(called.peer, dict) else {}
        with contextlib.closing(caller), contextlib.closing(called):
            caller.send(*TOLD[0])
            for _ in range(rng.randint(1, 3)):
                kind, meta, payload = rng.choice(TOLD)
                caller.send(kind, maybe(rng, meta), bent(rng, payload) if rng.random() < 0.3 else payload)
            end(caller)
            self.service.handle(called)

    def serves(self) -> bool:
        """Whether the store still answers an honest client, including on a new connection."""
        key = f"honest/{time.monotonic_ns()}"
        with contextlib.closing(StoreClient(self.store.address, SECRET, timeout=30.0)) as client:
            client.set(key, b"1")
            return self.honest.get(key) == b"1" and client.delete_key(key)


class Faults(logging.Handler):
    """Collects exceptions that were caught and logged as internal errors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(logging.Formatter().format(record))


def run(cases: int, seed: int, seconds: float, only: str = "", first: int = 0) -> dict[str, int]:
    """Run cases of the targets in turn, up to a number or a time. Return how many of each were run."""
    log, faults = logging.getLogger("neomx"), Faults()
    log.addHandler(faults)
    log.propagate, before = False, log.propagate
    torch.set_num_threads(1)
    fuzzed = Wire()
    names = [only] if only else list(fuzzed.targets)
    done = dict.fromkeys(names, 0)
    limit, size = time.monotonic() + seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    foreign: list[BaseException] = []
    hook, threading.excepthook = threading.excepthook, lambda args: foreign.append(args.exc_value)
    try:
        for case in range(first, first + cases):
            if time.monotonic() > limit:
                break
            name = names[case % len(names)]
            faulthandler.dump_traceback_later(HANG, exit=True)
            where = f"--target {name} --seed {seed} --first {case}"
            try:
                with contextlib.suppress(MXNetError):
                    fuzzed.targets[name](random.Random(f"{seed}/{name}/{case}"))
            except Exception as error:
                raise AssertionError(f"{where}: {error!r}") from error
            done[name] += 1
            if (case + 1) % CHECK == 0 or case + 1 == first + cases:
                assert not faults.seen, f"{where} or up to {CHECK} cases before it: {faults.seen[0]}"
                assert not foreign, f"{where} or up to {CHECK} cases before it: {foreign[0]!r}"
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - size
                assert grown < MEMORY, f"{where}: this process has grown by {grown} bytes"
                assert fuzzed.serves(), f"{where}: the store no longer answers an honest client"
    finally:
        faulthandler.cancel_dump_traceback_later()
        threading.excepthook = hook
        log.removeHandler(faults)
        log.propagate = before
        fuzzed.honest.close()
        fuzzed.store.close()
        fuzzed.service.close()
        fuzzed.answers._listening.close()
    return done


def main(argv: list[str] | None = None) -> int:
    """Run the fuzzer. Return 0 if no case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--target", default="", help="run only this target")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    args = parser.parse_args(argv)
    began = time.monotonic()
    try:
        done = run(args.cases, args.seed, args.seconds, args.target, args.first)
    except AssertionError as error:
        print(f"wire: {error}", file=sys.stderr)
        return 1
    print(f"wire: {sum(done.values())} cases in {time.monotonic() - began:.0f} s, seed {args.seed}: {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
