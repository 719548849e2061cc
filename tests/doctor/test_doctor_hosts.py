"""`neomx doctor HOST:PORT` and `--listen`: reasons of failed connections, authentication, and limits for callers."""

import contextlib
import errno
import socket
import threading

import pytest
from doctoring import by_name
from launching import LIMIT

from neomx.base import MXNetError
from neomx.comm import wire
from neomx.comm.store import StoreServer
from neomx.doctor import hosts, measure

SECRET = "0123456789abcdef"  # pragma: allowlist secret
KEY = SECRET.encode()
WITH_SECRET = {"NEOMX_SECRET": SECRET}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Time limits that a busy machine does not reach, and small messages."""
    monkeypatch.setattr(measure, "CALL_SECONDS", LIMIT)
    monkeypatch.setattr(hosts, "GREETING_SECONDS", LIMIT)
    monkeypatch.setattr(measure, "_PIECES", (1 << 16, 1 << 18, 1 << 20))


@contextlib.contextmanager
def serving(key=KEY):
    """Run a listener of `neomx doctor` on loopback; yield its port and its output."""
    said = []
    listening = wire.listen()
    port = listening.getsockname()[1]
    stop = measure.serve(listening, key, said.append)
    try:
        yield port, said
    finally:
        stop()


@contextlib.contextmanager
def saying(words):
    """Run a listener other than neomx, which sends some bytes to each caller and then nothing."""
    listening = wire.listen()
    callers = []

    def run():
        with contextlib.suppress(OSError):
            while True:
                caller = listening.accept()[0]
                callers.append(caller)
                caller.sendall(words)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        wire.shut(listening)
        thread.join()
        for caller in callers:
            caller.close()


def look(port, environ=WITH_SECRET, host="127.0.0.1"):
    return by_name(hosts.check(host, port, environ, None))


# ---- connecting ----


@pytest.mark.parametrize(
    "text, pair",
    [
        ("node1", ("node1", 29400)), ("node1:7", ("node1", 7)), ("::1", ("::1", 29400)), ("[::1]:7", ("::1", 7)),
        ("[::1]", ("::1", 29400)), ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)  # fmt: skip
def test_host_and_port_are_parsed(text, pair):
    assert hosts.parse(text) == pair


@pytest.mark.parametrize("text", ["", "a:b", "a:70000", ":5"])
def test_invalid_host_is_rejected(text):
    with pytest.raises(ValueError):
        hosts.parse(text)


def test_unresolvable_name_is_a_problem(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    found = look(1, host="nosuch")
    assert list(found) == ["host.resolve"] and found["host.resolve"].status == "problem"


def test_refused_connection_is_a_problem():
    with contextlib.closing(wire.listen()) as listening:
        port = listening.getsockname()[1]
    found = look(port)["host.connect"]
    assert (found.status, found.values["reason"]) == ("problem", "refused")
    assert f"--listen 127.0.0.1:{port}" in found.remedy


@pytest.mark.parametrize(
    "error, reason, words",
    [
        (TimeoutError("timed out"), "timeout", "firewall"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "unreachable", "ip route"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "unreachable", "ip route"),
        (PermissionError(errno.EPERM, "Operation not permitted"), "forbidden", "on this machine"),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), "error", "network"),
    ],
)
def test_reasons_of_failed_connections_are_distinguished(monkeypatch, error, reason, words):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    found = look(1)["host.connect"]
    assert (found.status, found.values["reason"]) == ("problem", reason)
    assert words in found.remedy


def test_all_addresses_of_a_host_are_tried(monkeypatch):
    asked = socket.getaddrinfo
    with serving() as (port, _):
        both = asked("127.0.0.2", None, type=socket.SOCK_STREAM) + asked("127.0.0.1", None, type=socket.SOCK_STREAM)
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *a, **k: both if host == "two" else asked(host, *a, **k)
        )
        found = look(port, host="two")
    assert found["host.resolve"].values["addresses"] == ["127.0.0.2", "127.0.0.1"]
    assert found["host.connect"].values["address"] == "127.0.0.1"


# ---- measurement ----


def test_latency_and_bandwidth_are_measured():
    with serving() as (port, said):
        found = look(port)
    assert list(found) == ["host.resolve", "host.connect", "host.versions", "host.latency", "host.bandwidth"]
    assert found["host.versions"].status == "ok" and found["host.versions"].values["name"] == socket.gethostname()
    assert found["host.latency"].values["seconds"] > 0
    speed = found["host.bandwidth"].values
    assert speed["sent"] > 0 and speed["received"] > 0 and speed["largest"] >= 1 << 16
    assert any("measuring with" in line for line in said)


def test_loopback_uses_the_secret_of_the_user(tmp_path, monkeypatch):
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with serving(measure.key_for(environ, None, one_host=True)) as (port, _):
        assert "host.bandwidth" in look(port, environ)


def test_other_hosts_need_a_secret(tmp_path):
    assert measure.key_for({}, None, one_host=False) is None
    path = tmp_path / "secret"
    path.write_text(SECRET)
    assert measure.key_for(WITH_SECRET | {"NEOMX_SECRET": "y" * 16}, str(path), one_host=False) == KEY
    with pytest.raises(MXNetError, match="at least 16 bytes"):
        measure.key_for({"NEOMX_SECRET": SECRET[:15]}, None, one_host=True)


def test_measurement_without_a_secret_is_skipped(monkeypatch):
    monkeypatch.setattr(wire, "is_loopback", lambda host: False)
    with serving() as (port, _):
        found = look(port, {})
    assert found["host.connect"].status == "ok"
    assert found["host.greeting"].status == "warn" and "NEOMX_SECRET" in found["host.greeting"].remedy


def test_wrong_secret_is_a_problem():
    with serving() as (port, said):
        found = look(port, {"NEOMX_SECRET": "y" * 16})
    assert found["host.greeting"].status == "problem" and "secret" in found["host.greeting"].finding
    assert any("secret" in line for line in said)


def test_store_of_a_job_is_recognized():
    store = StoreServer("127.0.0.1", 0, KEY).start()
    try:
        found = look(wire.split_address(store.address)[1])
        assert found["host.greeting"].status == "ok" and "accepts the secret" in found["host.greeting"].finding
        assert store.roster() == {}
    finally:
        store.close()


def test_other_program_is_described_by_its_first_bytes():
    with saying(b"SSH-2.0-OpenSSH_9.6 and more words than a greeting has") as port:
        found = look(port)["host.greeting"]
    assert found.status == "warn" and "SSH-2.0" in found.finding


def test_silent_program_becomes_a_finding(monkeypatch):
    monkeypatch.setattr(hosts, "GREETING_SECONDS", 0.3)
    with saying(b"") as port:
        found = look(port)["host.greeting"]
    assert found.status == "warn" and "not measured" in found.finding


def test_slow_network_is_a_warning_with_a_remedy():
    slow = measure.Measured(0.05, 1e6, 2e7, 1 << 16, "far", {"neomx": "0.0.1", "torch": None, "numpy": None})
    found = by_name(hosts._measured("far:1", {"host": "far", "port": 1}, slow))
    assert {finding.status for finding in found.values()} == {"warn"}
    assert "8 Mbit/s" not in found["host.bandwidth"].remedy and "100 s" in found["host.bandwidth"].finding
    assert "neomx 0.0.1" in found["host.versions"].finding


# ---- limits for callers ----


@contextlib.contextmanager
def calling(port):
    connection = wire.connect(f"127.0.0.1:{port}", KEY, {"name": "caller"}, service=measure.SERVICE)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize(
    "kind, meta",
    [(3, {"bytes": 1 << 40}), (3, {"bytes": -1}), (3, {"bytes": "all"}), (3, None), (3, [1]), (9, None), (4, None)],
)
def test_invalid_requests_close_the_connection(kind, meta):
    with serving() as (port, said):
        with calling(port) as connection:
            connection.send(kind, meta)
            with pytest.raises(wire.Closed):
                connection.receive(timeout=LIMIT)
        with calling(port) as connection:  # other callers are still served
            connection.send(1)
            assert connection.receive(timeout=LIMIT).meta["name"] == socket.gethostname()
    assert any("caller" in line for line in said)


def test_bytes_of_a_caller_are_limited(monkeypatch):
    monkeypatch.setattr(measure, "_TOTAL", 100_000)
    with serving() as (port, _), calling(port) as connection:
        connection.send(2, None, bytes(90_000))
        connection.receive(timeout=LIMIT)
        connection.send(3, {"bytes": 20_000})
        with pytest.raises(wire.Closed):
            connection.receive(timeout=LIMIT)


def test_seconds_of_a_caller_are_limited(monkeypatch):
    monkeypatch.setattr(measure, "CALL_SECONDS", 0.3)
    with serving() as (port, _), calling(port) as connection, pytest.raises(wire.Closed):
        connection.receive(timeout=LIMIT)  # no request: the listener disconnects


def test_second_caller_gets_a_busy_error():
    with serving() as (port, _), calling(port) as connection:
        connection.send(1)
        connection.receive(timeout=LIMIT)
        found = look(port)["host.greeting"]
    assert found.status == "warn" and "another caller" in found.finding


def test_text_of_a_listener_is_safe_to_print(monkeypatch):
    monkeypatch.setattr(measure, "versions", lambda: {"neomx": "\x1b[31m1", "torch": 7, "other": "x"})
    with serving() as (port, _):
        measured = measure.measure(f"127.0.0.1:{port}", KEY, LIMIT)
    assert measured.versions == {"neomx": "\\x1b[31m1", "torch": None}
