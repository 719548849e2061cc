"""Compare small ops of `mx.np` and `mx.nd` with the equivalent torch op, to measure the overhead of a call.

Arrays are 2x2. Ours and torch's run in turns, and the CPU time of this process is measured. If MXNet's result has its
own memory, torch's op is followed by a copy. The columns are medians over rounds: ours, torch's, and their difference.
The last column is the difference of the minimum times, which depends less on other load on the machine. The first lines
are the costs of Python itself: a call of an empty function, and an object with three slots.

python benchmarks/np_ops.py [--rounds 400] [--calls 100] [--only reshape]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import record
import torch

from neomx import nd, np, npx

Call = Callable[[], object]
SIZE = (2, 2)
t, u = torch.rand(SIZE), torch.rand(SIZE)
t_mask = t > u
x, y = np.array(t.numpy()), np.array(u.numpy())
mask = x > y
a, b = nd.array(t.numpy()), nd.array(u.numpy())


class Slots:
    """An object with as many attributes as an array."""

    __slots__ = ("data", "ctx", "grad")

    def __init__(self, data: object, ctx: object):
        self.data = data
        self.ctx = ctx
        self.grad = None


def nothing() -> None:
    """Do nothing."""


PYTHON: dict[str, tuple[Call, Call]] = {
    "an empty function": (nothing, lambda: None),
    "an object": (lambda: Slots(t, None), lambda: None),
}
NP: dict[str, tuple[Call, Call]] = {
    "x + y": (lambda: x + y, lambda: t + u),
    "x * 2.0": (lambda: x * 2.0, lambda: t * 2.0),
    "x > y": (lambda: x > y, lambda: t > u),
    "x += y": (lambda: x.__iadd__(y), lambda: t.add_(u)),
    "x[0]": (lambda: x[0], lambda: t[0]),
    "x[0, 1]": (lambda: x[0, 1], lambda: t[0, 1]),
    "x[:, 1]": (lambda: x[:, 1], lambda: t[:, 1].clone()),
    "x[0] = 1.0": (lambda: x.__setitem__(0, 1.0), lambda: t.__setitem__(0, 1.0)),
    "add": (lambda: np.add(x, y), lambda: torch.add(t, u)),
    "maximum": (lambda: np.maximum(x, y), lambda: torch.maximum(t, u)),
    "sin": (lambda: np.sin(x), lambda: torch.sin(t)),
    "exp": (lambda: np.exp(x), lambda: torch.exp(t)),
    "clip": (lambda: np.clip(x, 0.0, 1.0), lambda: torch.clamp(t, 0.0, 1.0)),
    "where": (lambda: np.where(mask, x, y), lambda: torch.where(t_mask, t, u)),
    "x.sum()": (lambda: x.sum(), lambda: t.sum()),
    "sum(axis=1)": (lambda: np.sum(x, axis=1), lambda: torch.sum(t, dim=1)),
    "x.mean()": (lambda: x.mean(), lambda: t.mean()),
    "x.max(axis=1)": (lambda: x.max(axis=1), lambda: t.amax(dim=1)),
    "x.argmax(axis=1)": (lambda: x.argmax(axis=1), lambda: t.argmax(dim=1)),
    "cumsum(axis=1)": (lambda: np.cumsum(x, axis=1), lambda: torch.cumsum(t, 1)),
    "dot": (lambda: np.dot(x, y), lambda: torch.mm(t, u)),
    "matmul": (lambda: np.matmul(x, y), lambda: torch.matmul(t, u)),
    "einsum": (lambda: np.einsum("ij,jk->ik", x, y), lambda: torch.einsum("ij,jk->ik", t, u)),
    "x.reshape(4)": (lambda: x.reshape(4), lambda: t.reshape(4).clone()),
    "reshape": (lambda: np.reshape(x, (4,)), lambda: t.reshape(4).clone()),
    "reshape(-1)": (lambda: np.reshape(x, -1), lambda: t.reshape(-1).clone()),
    "x.T": (lambda: x.T, lambda: t.t().contiguous()),
    "transpose": (lambda: np.transpose(x, (1, 0)), lambda: t.permute(1, 0).contiguous()),
    "expand_dims": (lambda: np.expand_dims(x, 0), lambda: t.unsqueeze(0).clone()),
    "squeeze": (lambda: np.squeeze(x), lambda: t.squeeze().clone()),
    "concatenate": (lambda: np.concatenate([x, y]), lambda: torch.cat([t, u])),
    "stack": (lambda: np.stack([x, y]), lambda: torch.stack([t, u])),
    "zeros": (lambda: np.zeros(SIZE), lambda: torch.zeros(SIZE)),
    "ones_like": (lambda: np.ones_like(x), lambda: torch.ones_like(t)),
    "astype": (lambda: x.astype("float16"), lambda: t.to(torch.float16)),
    "x.copy()": (lambda: x.copy(), lambda: t.clone()),
    "npx.relu": (lambda: npx.relu(x), lambda: torch.relu(t)),
    "npx.softmax": (lambda: npx.softmax(x), lambda: torch.softmax(t, -1)),
}
ND: dict[str, tuple[Call, Call]] = {
    "nd a + b": (lambda: a + b, lambda: t + u),
    "nd a * 2.0": (lambda: a * 2.0, lambda: t * 2.0),
    "nd a > b": (lambda: a > b, lambda: t > u),
    "nd a += b": (lambda: a.__iadd__(b), lambda: t.add_(u)),
    "nd a[0]": (lambda: a[0], lambda: t[0]),
    "nd sin": (lambda: nd.sin(a), lambda: torch.sin(t)),
    "nd sum(axis=1)": (lambda: nd.sum(a, axis=1), lambda: torch.sum(t, dim=1)),
    "nd dot": (lambda: nd.dot(a, b), lambda: torch.mm(t, u)),
    "nd a.reshape": (lambda: a.reshape((4,)), lambda: t.reshape(4)),
    "nd transpose": (lambda: nd.transpose(a), lambda: t.t().contiguous()),
    "nd expand_dims": (lambda: nd.expand_dims(a, axis=0), lambda: t.unsqueeze(0).clone()),
    "nd concat": (lambda: nd.concat(a, b, dim=0), lambda: torch.cat([t, u])),
    "nd zeros": (lambda: nd.zeros(SIZE), lambda: torch.zeros(SIZE)),
    "nd softmax": (lambda: nd.softmax(a), lambda: torch.softmax(t, -1)),
}


def microseconds(call: Call, calls: int) -> float:
    """Return the CPU time of one call, in microseconds."""
    start = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start) / calls / 1e3


def measure(rows: dict[str, tuple[Call, Call]], rounds: int, calls: int) -> dict[str, list[tuple[float, float]]]:
    """Return the microseconds per call, ours and torch's, in each round. All ops run in every round, to share noise."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for i in range(rounds):
        for name, (ours, theirs) in rows.items():
            if i % 2:
                mine, other = microseconds(ours, calls), microseconds(theirs, calls)
            else:
                other, mine = microseconds(theirs, calls), microseconds(ours, calls)
            found[name].append((mine, other))
    return found


def report(group: str, found: dict[str, list[tuple[float, float]]]) -> list[record.Row]:
    """Print a line for each op, and one for all; return them as rows."""
    rows = []
    for name, pairs in found.items():
        mine, others = zip(*pairs, strict=True)
        over, quiet = statistics.median(ours - theirs for ours, theirs in pairs), min(mine) - min(others)
        row = record.row(group, name, "us", mine, others, against="torch", over=over, quiet=quiet)
        rows.append(row)
        print(f"{name:20} {row.ours:7.2f} {row.theirs:7.2f} {over:7.2f} {quiet:7.2f}")
    quiets = [row.extra["quiet"] for row in rows]
    print(f"{'median and most':20} {'':7} {'':7} {statistics.median(quiets):7.2f} {max(quiets):7.2f}\n", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--calls", type=int, default=100, help="of each op in a round")
    parser.add_argument("--only", default="", help="only ops whose name contains this")
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("np_ops")
    torch.set_num_threads(1)
    print(f"{'us for a call':20} {'ours':>7} {'torch':>7} {'over':>7} {'quiet':>7}")
    for title, group, numpy_mode in (("Python", PYTHON, False), ("mx.np", NP, True), ("mx.nd", ND, False)):
        rows = {name: row for name, row in group.items() if args.only in name}
        (npx.set_np if numpy_mode else npx.reset_np)()
        measure(rows, 1, args.calls)  # warm up
        if rows:
            result.rows += report(title, measure(rows, args.rounds, args.calls))
    result.save(args.json)


if __name__ == "__main__":
    main()
