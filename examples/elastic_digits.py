"""Train a LeNet on handwritten digits, and kill a worker in the middle: the other one goes on.

    neomx run -n 2 --elastic examples/elastic_digits.py

The weights are those of an undisturbed run, except for rounding.
"""

import argparse
import itertools
import os
import signal

import distributed_digits

from neomx.events import subscribe


def die_after(steps):
    """Kill this process after some training steps, as a power failure would."""
    numbers = itertools.count(1)
    subscribe(lambda *_: next(numbers) == steps and os.kill(os.getpid(), signal.SIGKILL), "step")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--save", help="write the weights to this .params file")
    options = parser.parse_args()
    if os.environ.get("RANK") == "1":
        die_after(steps=20)
    distributed_digits.main(**vars(options))
