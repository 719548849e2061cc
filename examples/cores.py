"""How busy the cores of this machine are, to know whether a measurement of speed means anything."""

import os
import time


def count():
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def busy(seconds=1.0):
    """How many cores programs use, on average over so many seconds; the load average where Linux's /proc is missing."""
    try:
        before, began = _idle(), time.perf_counter()
        time.sleep(seconds)
        return max(0.0, os.cpu_count() - (_idle() - before) / (time.perf_counter() - began))
    except FileNotFoundError:
        return os.getloadavg()[0]


def _idle():
    """The seconds that all cores together have been idle or waiting for a disk."""
    with open("/proc/stat") as file:
        return sum(map(int, file.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")
