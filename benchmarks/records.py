"""Measure the images per second of ImageRecordIter, compared with MXNet with the same number of threads.

    python benchmarks/records.py --oracle .venv-oracle/bin/python

The data is 500 generated JPEGs of 256x256 to 400x300 pixels, cropped to 224x224 and normalized, as for ImageNet. One
process per engine and number of threads runs epochs in turns, so that noise on the machine affects both equally.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import record

SIZES = ((256, 256), (300, 400), (280, 340))
CHILD = """
import sys, time
engine, path, threads = sys.argv[1:]
if engine == "mxnet":
    import mxnet as mx
else:
    import neomx as mx
    import torch
    torch.set_num_threads(1)
iterator = mx.io.ImageRecordIter(
    path_imgrec=path, data_shape=(3, 224, 224), batch_size=50, preprocess_threads=int(threads), verbose=False,
    rand_crop=True, rand_mirror=True, mean_r=123.68, mean_g=116.78, mean_b=103.94, std_r=58.4, std_g=57.1, std_b=57.4)
print("ready", flush=True)
for line in sys.stdin:
    start, count = time.perf_counter(), 0
    iterator.reset()  # within the time: it begins to decode ahead
    for batch in iterator:
        batch.data[0].wait_to_read()
        count += batch.data[0].shape[0]
    print(count / (time.perf_counter() - start), flush=True)
"""


def make_records(path: str, count: int) -> None:
    """Write images with the detail and the size of photographs."""
    import numpy as np

    from neomx.formats import picture
    from neomx.recordio import IRHeader, MXRecordIO, pack_img

    numbers, records = np.random.default_rng(0), MXRecordIO(path, "w")
    for i in range(count):
        height, width = SIZES[i % len(SIZES)]
        coarse = numbers.integers(0, 256, (height // 6, width // 6, 3), dtype=np.uint8)
        smooth = picture.resize(coarse, width, height, 2).astype(np.int16)
        pixels = np.clip(smooth + numbers.integers(-8, 9, smooth.shape), 0, 255).astype(np.uint8)
        records.write(pack_img(IRHeader(0, float(i), i, 0), pixels, quality=90))
    records.close()


class Reader:
    """A process that runs an epoch on request."""

    def __init__(self, python: str, engine: str, path: str, threads: int):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
        }
        self.child = subprocess.Popen(
            [python, "-c", CHILD, engine, path, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()

    def _answer(self) -> str:
        assert self.child.stdout
        line = self.child.stdout.readline().strip()
        if not line:
            sys.exit("a reader ended; its error is above")
        return line

    def epoch(self) -> float:
        """Return the images per second over one epoch."""
        assert self.child.stdin
        self.child.stdin.write("go\n")
        self.child.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """Stop the process."""
        assert self.child.stdin
        self.child.stdin.close()
        self.child.wait(30)


def race(oracle: str, path: str, threads: int, rounds: int) -> record.Row:
    """Print both speeds, and return them."""
    ours, theirs = Reader(sys.executable, "neomx", path, threads), Reader(oracle, "mxnet", path, threads)
    for reader in (ours, theirs):
        reader.epoch()
    speeds: dict[Reader, list[float]] = {ours: [], theirs: []}
    for i in range(rounds):
        order = (ours, theirs) if i % 2 == 0 else (theirs, ours)
        for reader in order:
            speeds[reader].append(reader.epoch())
    for reader in (ours, theirs):
        reader.close()
    name = f"{threads} thread{'s' * (threads > 1)}"
    row = record.row("ImageRecordIter", name, "pictures/s", speeds[ours], speeds[theirs], against="MXNet")
    print(f"{name:9}  {row.ours:8.0f}  {row.theirs:8.0f}  {row.ratio:8.2f}", flush=True)
    return row


def main() -> int:
    """Compare with one and with two threads; return 1 if MXNet is faster in either."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", required=True, help="path of a Python with mxnet==1.9.1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pictures", type=int, default=500)
    record.add_option(parser)
    options = parser.parse_args()
    result = record.begin("records")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "pictures.rec")
        make_records(path, options.pictures)
        print("pictures/s     neomx     mxnet     ratio")
        rows = [result.add(race(options.oracle, path, threads, options.rounds)) for threads in (1, 2)]
    result.save(options.json)
    return 0 if all(row.ratio >= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
