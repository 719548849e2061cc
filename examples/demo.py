"""Train a LeNet on one worker and on two, compare accuracy, speed and weights, and then kill a worker."""

import os
import pathlib
import subprocess
import sys
import tempfile

import cores
import distributed_digits

import neomx as mx

NEXT = """
What to try next:
# a parameter server that updates the weights at every push
{neomx} run -n 2 -s 1 examples/distributed_digits.py --kvstore dist_async --batch 200 --rate 0.05
# a GPT-2 whose layers are split over two workers
{neomx} run --layout tensor=2 examples/layouts.py
# a script written for MXNet and Horovod
{neomx} run -n 2 examples/horovod_mnist.py"""


def train(workers, epochs):
    """Train on this many new worker processes; return the result of worker 0."""
    print(f"\n{workers} worker(s), one thread each", flush=True)
    return mx.dist.launch(distributed_digits.main, n=workers, args=(epochs,))[0]


def survive(epochs, weights):
    """Train on two workers, of which one is killed in the middle; return the largest difference to other weights."""
    print("\n2 workers, of which one is killed after 20 steps", flush=True)
    script = pathlib.Path(__file__).with_name("elastic_digits.py")
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/digits.params"
        command = [sys.executable, "-m", "neomx", "run", "-n", "2", "--elastic", "--restarts", "0", script]
        subprocess.run([*command, "--epochs", str(epochs), "--save", path], check=True)
        net = distributed_digits.lenet()
        net.load_parameters(path)
    return largest_difference([array.data() for array in net.collect_params().values()], weights)


def largest_difference(weights, others):
    return max((a - b).abs().max().asscalar() for a, b in zip(weights, others, strict=True))


def main(epochs=6):
    os.environ["OMP_NUM_THREADS"] = "1"  # so that one worker does not use the cores of two
    busy = cores.busy()
    (accuracy, speed, weights), (accuracy_2, speed_2, weights_2) = (train(workers, epochs) for workers in (1, 2))
    difference = largest_difference(weights, weights_2)
    largest = max(array.abs().max().asscalar() for array in weights)

    print(f"\n{'':12}{'accuracy':>10}{'samples/s':>12}{'speed-up':>10}")
    print(f"{'1 worker':12}{accuracy:10.3f}{speed:12,.0f}")
    print(f"{'2 workers':12}{accuracy_2:10.3f}{speed_2:12,.0f}{speed_2 / speed:10.2f}")
    print(f"\nThe largest difference between their weights is {difference:.1g}; the largest weight is {largest:.2g}.")
    print(f"Before the start, {busy:.1f} of {os.cpu_count()} cores were busy", end="")
    print("." if cores.count() - busy > 1.8 else ": with two idle cores the speed-up is higher.")
    killed = survive(epochs, weights_2)
    print(f"\nThe job went on. The largest difference between its weights and those above is {killed:.1g}.")
    print(NEXT.format(neomx=f"{os.path.relpath(sys.executable)} -m neomx"))
    return max(difference, killed)


if __name__ == "__main__":
    main()
