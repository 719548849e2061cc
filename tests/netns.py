"""Two simulated machines: network namespaces connected by a veth link, optionally with a limited rate.

Each machine has its own addresses, loopback, host name and /dev/shm, so that only the link connects the two. Creating
them needs root; `why_not()` returns what is missing.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import tempfile

# Sets a machine's host name, hosts file and shared memory, then runs the program in the same process.
BOOT = 'hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs tmpfs /dev/shm && shift 2 && exec "$@"'

COUNT = itertools.count()


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20).stdout


def why_not() -> str | None:
    """Return why namespaces cannot be created here, or None if they can."""
    try:
        with TwoMachines() as machines:
            subprocess.run(machines.command(0, ["true"]), check=True, capture_output=True, text=True, timeout=20)
    except FileNotFoundError as error:
        return f"two machines need the program {error.filename}"
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be created here (needs root): {error.stderr.strip()}"
    return None


class TwoMachines:
    """Machines 0 and 1. A context manager that creates them on entry and removes them on exit."""

    addresses = ("10.77.0.1", "10.77.0.2")

    def __init__(self, rate: str | None = None):
        self.rate = rate  # for example "1gbit", in each direction
        pair = f"neomx-{os.getpid()}-{next(COUNT)}"
        self.names = (f"{pair}a", f"{pair}b")
        self.hosts = pathlib.Path(tempfile.gettempdir(), f"{pair}.hosts")

    def __enter__(self) -> TwoMachines:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        lines = [f"{address} {name}" for address, name in zip(self.addresses, self.names, strict=True)]
        self.hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        for name in self.names:
            ip("netns", "add", name)
        first, second = self.names
        ip("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
        for name, address in zip(self.names, self.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
            if self.rate:
                limit = ["tbf", "rate", self.rate, "burst", "256kb", "latency", "20ms"]
                subprocess.run(
                    ["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *limit],
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=20,
                )

    def __exit__(self, *error: object) -> None:
        for name in self.names:  # also removes the link
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)
        self.hosts.unlink(missing_ok=True)

    def command(self, machine: int, program: list[str]) -> list[str]:
        """Return the command that runs a program on a machine. The process id is that of the program."""
        name = self.names[machine]
        enter = ["ip", "netns", "exec", name, "unshare", "--uts", "--ipc", "--mount", "sh", "-c", BOOT, "sh"]
        return [*enter, name, str(self.hosts), *program]

    def sent(self, machine: int) -> int:
        """Return the bytes that a machine has sent over the link so far."""
        enter = ["ip", "netns", "exec", self.names[machine], "cat", "/sys/class/net/eth0/statistics/tx_bytes"]
        return int(subprocess.run(enter, check=True, capture_output=True, text=True, timeout=20).stdout)

    def processes(self, machine: int) -> list[int]:
        """Return the ids of the processes that run on a machine."""
        return [int(word) for word in ip("netns", "pids", self.names[machine]).split()]
