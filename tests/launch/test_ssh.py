"""`neomx run --hosts` with a real ssh server on this machine, started with a configuration of its own."""

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess

import pytest
from launching import FAMILY, LIMIT, assert_gone, assert_they_go, family_of, launcher, until, write

SERVER = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(
    SERVER is None or shutil.which("ssh") is None, reason="needs ssh and sshd (Debian: apt-get install openssh-server)"
)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """Start sshd on a free port of 127.0.0.1, with its own keys, and return the command of a client that may log in."""
    place = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(key, check=True, timeout=LIMIT)
    shutil.copy(place / "user.pub", place / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    (place / "known").write_text(f"[127.0.0.1]:{port} {(place / 'host.pub').read_text()}")
    (place / "server").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nPidFile {place}/pid\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {place}/authorized\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    (place / "client").write_text(
        "Host alpha beta\n  HostName 127.0.0.1\n"
        f"Host *\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {place}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {place}/known\n  HostKeyAlias [127.0.0.1]:{port}\n  StrictHostKeyChecking yes\n"
        "  BatchMode yes\n  ConnectTimeout 15\n"
    )
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of Debian does not start without it
    with open(place / "log", "wb") as log:
        server = subprocess.Popen([SERVER, "-D", "-e", "-f", str(place / "server")], stderr=log)
    try:
        assert until(lambda: server.poll() is not None or _answers(port))
        assert server.poll() is None, (place / "log").read_text()
        yield f"ssh -F {place}/client"
    finally:
        server.terminate()
        server.wait(timeout=LIMIT)


def _answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            return sock.recv(4) == b"SSH-"
    except OSError:
        return False


@pytest.fixture
def script(tmp_path, sshd, monkeypatch):
    monkeypatch.setenv("NEOMX_SSH", sshd)
    return lambda text: write(tmp_path, text)


PLACE = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: (open(f"{sys.argv[1]}/told", "w").close(), os._exit(0)))
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NEOMX_NODE NEOMX_NODES TOKEN".split()
    print("place", *[os.environ[name] for name in names], *sys.argv[2:], os.getcwd(), flush=True)
    open(f"{sys.argv[1]}/worker-{os.environ['RANK']}", "w").close()
    if "wait" in sys.argv:
        while not os.path.exists(f"{sys.argv[1]}/end"):
            time.sleep(0.02)
    if sys.argv[2:] == ["fail"] and os.environ["RANK"] == "2":
        sys.exit("last words")
"""


def test_workers_run_on_both_hosts(script, tmp_path):
    options = ["--hosts", "127.0.0.1:2,localhost:1", "--env", "TOKEN=pass word", script(PLACE), tmp_path, "a b", "$x"]
    with launcher(*options) as process:
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    lines = out.splitlines()
    for rank, rest in enumerate(["0 3 0 2 0 2", "1 3 1 2 0 2", "2 3 0 1 1 2"]):
        assert f"{f'[{rank}] ' if rank else ''}place {rest} pass word a b $x {os.getcwd()}" in lines


def test_failure_gives_the_exit_code_and_last_words(script, tmp_path):
    options = ["--hosts", "127.0.0.1:2,localhost:1", "--env", "TOKEN=x", "--tls", script(PLACE), tmp_path, "fail"]
    with launcher(*options) as process:
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert err.count("failed first, with exit code 1: last words") == 1


@pytest.mark.parametrize("options", [[], ["--elastic"]], ids=["fixed", "elastic"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_on_any_host(script, tmp_path, signum, options):
    with launcher("--hosts", "127.0.0.1:1,localhost:1", *options, script(FAMILY), tmp_path) as process:
        pids = family_of(tmp_path, 2)
        process.send_signal(signum)
        process.communicate(timeout=LIMIT)
    assert_they_go(pids) if signum == signal.SIGKILL else assert_gone(pids)


def test_host_that_ssh_cannot_use_is_named_with_its_words(script, sshd, monkeypatch):
    monkeypatch.setenv("NEOMX_SSH", f"{sshd} -o HostKeyAlias=unknown")
    with launcher("--hosts", "127.0.0.1:1", "--elastic", script(PLACE)) as process:
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 255
    assert "nothing was started: the hosts have room for 0 of at least 1 workers; 127.0.0.1: its launcher ended" in err
    assert "Host key verification failed" in err


def test_elastic_job_goes_on_when_a_connection_is_lost(script, tmp_path):
    options = ["--hosts", "127.0.0.1:1,localhost:2", "--elastic", "--env", "TOKEN=x", script(PLACE), tmp_path, "wait"]
    with launcher(*options) as process:
        there = lambda *ranks: all((tmp_path / f"worker-{rank}").exists() for rank in ranks)  # noqa: E731
        assert until(lambda: there(0, 1, 2))
        os.kill(_client_of(process.pid, "localhost"), signal.SIGKILL)
        assert until(lambda: there(3, 4))
        (tmp_path / "end").touch()
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert "localhost is lost (" in err and "and with it workers 1, 2. 1 worker remains" in err
    assert not (tmp_path / "told").exists()  # SIGTERM would make all workers of a job with --checkpoint save and end


def _client_of(launcher_pid, host):
    """Return the ssh client that the launcher has started for a host."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = pathlib.Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
                command = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(parent) == launcher_pid and host.encode() in command:
                return int(name)
    raise AssertionError(f"no ssh client for {host}")
