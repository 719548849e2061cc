"""Train on two workers by all-reduce, then on one, and compare: the accuracy, the speed, the weights."""

import pathlib
import subprocess
import sys
import tempfile

import neomx as mx

SCRIPT = pathlib.Path(__file__).resolve().parent / "distributed_digits.py"


def train(workers, save, epochs):
    """Train the same network on so many workers; its weights."""
    print(f"\n{workers} worker(s):", flush=True)
    command = [sys.executable, "-m", "neomx", "run", "-n", str(workers)]
    subprocess.run([*command, str(SCRIPT), "--save", str(save), "--epochs", str(epochs)], check=True)
    return mx.nd.load(str(save))


def main(epochs=5):
    with tempfile.TemporaryDirectory() as directory:
        two, one = (train(workers, pathlib.Path(directory) / f"{workers}.params", epochs) for workers in (2, 1))
    difference = max((two[name] - one[name]).abs().max().asscalar() for name in one)
    largest = max(array.abs().max().asscalar() for array in one.values())
    print(f"\nThe weights of two workers and of one differ by {difference:.1g} at most; the largest is {largest:.2g}")
    return difference


if __name__ == "__main__":
    main()
