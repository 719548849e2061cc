"""Measure how busy the cores of this machine are, to judge whether a timing is meaningful."""

import os
import time


def count():
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def busy(seconds=1.0):
    """Return the average number of busy cores over this many seconds; without /proc, the load average."""
    try:
        before, began = _idle(), time.perf_counter()
        time.sleep(seconds)
        return max(0.0, os.cpu_count() - (_idle() - before) / (time.perf_counter() - began))
    except FileNotFoundError:
        return os.getloadavg()[0]


def _idle():
    """Return the total time that all cores have been idle or waiting for a disk, in seconds."""
    with open("/proc/stat") as file:
        return sum(map(int, file.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")
