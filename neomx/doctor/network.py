"""Network interfaces with their addresses, and the address that a job on several hosts would use."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence

from ..base import MXNetError
from ..comm.wire import is_loopback, split_address
from ..comm.world import address_towards
from .finding import Finding, text_of

_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40  # bits of ifa_flags, the same on Linux and macOS
_ELSEWHERE = "198.51.100.1"  # an address reserved for documentation: only its route is looked up


@dataclasses.dataclass
class Interface:
    """A network interface."""

    name: str
    up: bool
    loopback: bool
    addresses: list[str]
    mtu: int | None = None
    megabits: int | None = None  # link speed, if the driver reports it

    def __str__(self) -> str:
        speed = f", {self.megabits} Mbit/s" if self.megabits else ""
        state = "" if self.up else ", down"
        return f"{self.name} ({' '.join(self.addresses) or 'no address'}{speed}{state})"


def check(environ: Mapping[str, str], hosts: Sequence[str]) -> Iterator[Finding]:
    """Yield the interfaces, the host's own name, and the address for jobs with each of the hosts."""
    found = interfaces()
    values = {"interfaces": [dataclasses.asdict(interface) for interface in found]}
    outside = [interface for interface in found if interface.up and not interface.loopback and interface.addresses]
    said = "; ".join(map(str, found)) or "none"
    if outside:
        yield Finding("network.interfaces", "ok", said, values=values)
    else:
        remedy = "Jobs on this machine work. For jobs on several machines connect it to a network"
        yield Finding("network.interfaces", "warn", f"only loopback is up: {said}", remedy, values)
    yield _own_name()
    yield from _address(environ, found, hosts)


def _own_name() -> Finding:
    name = socket.gethostname()
    try:
        addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        said = f"this host's name {name!r} does not resolve: {error}"
        remedy = f"Add it to /etc/hosts: programs that use torch.distributed themselves look up {name!r}"
        return Finding("network.host_name", "warn", said, remedy, {"name": name, "addresses": []})
    said = f"this host's name {name!r} resolves to {', '.join(addresses)}"
    return Finding("network.host_name", "ok", said, values={"name": name, "addresses": addresses})


def _address(environ: Mapping[str, str], found: list[Interface], hosts: Sequence[str]) -> Iterator[Finding]:
    """Report the address that this process would listen on, as neomx.comm.world chooses it."""
    fixed, wanted = environ.get("NEOMX_HOST", ""), environ.get("GLOO_SOCKET_IFNAME", "")
    if wanted and wanted not in [interface.name for interface in found]:
        said = f"GLOO_SOCKET_IFNAME={wanted} is not an interface of this machine"
        names = ", ".join(interface.name for interface in found)
        yield Finding("network.job", "problem", said, f"Unset it, or choose one of {names}", {"interface": wanted})
        return
    for towards in hosts or [_rendezvous(environ)]:
        try:
            address = fixed or address_towards(towards or _ELSEWHERE)
        except MXNetError as error:
            remedy = "Check the host's name, /etc/hosts and the routes (ip route)"
            yield Finding("network.job", "problem" if towards else "warn", str(error), remedy, {"towards": towards})
            continue
        owner = next((interface for interface in found if address in interface.addresses), None)
        values = {"towards": towards, "address": address, "interface": owner.name if owner else None}
        values["gloo_interface"] = wanted or values["interface"]
        said = f"a job with {towards or 'other hosts'} would use {address}"
        said += f" on {owner.name}" if owner else ""
        said += " (from NEOMX_HOST)" if fixed else ""
        said += f"; gloo uses {wanted} (from GLOO_SOCKET_IFNAME)" if wanted else ""
        if owner is None and not is_loopback(address):
            remedy = "Set NEOMX_HOST to an address of this machine, or unset it"
            yield Finding("network.job", "problem", f"{said}, which is not an address of this machine", remedy, values)
        else:
            yield Finding("network.job", "ok", said, values=values)


def _rendezvous(environ: Mapping[str, str]) -> str:
    """Return the host of the job's rendezvous from the launcher's variables; empty without them."""
    if "NEOMX_STORE" in environ:
        return split_address(environ["NEOMX_STORE"])[0]
    return environ.get("MASTER_ADDR") or environ.get("DMLC_PS_ROOT_URI") or ""


# ---- interfaces, by getifaddrs ----


class _Entry(ctypes.Structure):
    """The fields of struct ifaddrs that are the same on Linux and macOS."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interfaces() -> list[Interface]:
    """Return all interfaces in the system's order, with their IPv4 and IPv6 addresses."""
    library = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    found: dict[str, Interface] = {}
    try:
        entry = first
        while entry:
            one = entry.contents
            name = one.name.decode()
            working = bool(one.flags & _UP and one.flags & _RUNNING)
            interface = found.setdefault(name, Interface(name, working, bool(one.flags & _LOOPBACK), []))
            if one.address and (address := _address_at(one.address)):
                interface.addresses.append(address)
            entry = one.next
    finally:
        library.freeifaddrs(first)
    for interface in found.values():
        interface.mtu = _number(os.path.join("/sys/class/net", interface.name, "mtu"))
        interface.megabits = _number(os.path.join("/sys/class/net", interface.name, "speed"))
    return list(found.values())


def _address_at(place: int) -> str | None:
    """Return the address in a struct sockaddr; None if it is neither IPv4 nor IPv6."""
    head = ctypes.string_at(place, 2)
    family = head[1] if sys.platform == "darwin" else int.from_bytes(head, sys.byteorder)
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, ctypes.string_at(place + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, ctypes.string_at(place + 8, 16))
    return None


def _number(path: str) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdigit() and int(text) > 0 else None
