"""The hosts of an elastic job, from a script of the user."""

import pytest
from launching import alive, assert_gone, until

from neomx.launch import discovery
from neomx.launch.discovery import Discovery
from neomx.launch.errors import ConfigurationError


@pytest.fixture
def script(tmp_path):
    def write(text, interpreter="/bin/sh"):
        path = tmp_path / "hosts.sh"
        path.write_text(f"#!{interpreter}\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_lines_are_hosts_and_numbers_of_workers(script):
    found = Discovery(script("echo '# all'; echo; echo alpha:4; echo 'me@beta:2 # spot'; echo '[::1]:3'; echo gamma"))
    found.first()
    assert found.hosts == {"alpha": 4, "me@beta": 2, "[::1]": 3, "gamma": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo trouble >&2; exit 3", "failed with exit code 3: trouble"),
        ("kill -9 $$", "failed with signal SIGKILL"),
        ("echo two words", "printed 'two words': expected lines host:workers, such as alpha:4"),
        ("echo alpha:0", "printed 'alpha:0'"),
        ("echo alpha:x", "printed 'alpha:x'"),
        ("echo -- -oProxyCommand=evil:4", "printed '-- -oProxyCommand=evil:4'"),
        ("printf '%s\\n' -oProxyCommand=evil", "printed '-oProxyCommand=evil'"),
        ("printf '\\033[2J'", "printed '\\\\x1b[2J'"),
        ("echo alpha:1; echo alpha:2", "printed the host alpha twice"),
        ("yes", "printed more than 1048576 bytes"),
        ("yes >&2", "printed more than 1048576 bytes"),
    ],
)
def test_invalid_script_is_one_clear_error_before_the_start(script, text, says):
    path = script(text)
    with pytest.raises(ConfigurationError) as error:
        Discovery(path).first()
    assert str(error.value).startswith(f"--hosts-from {path} {says}")
    assert str(error.value).endswith("; nothing was started") and "\n" not in str(error.value)


def test_script_that_cannot_be_started_is_an_error(script):
    with pytest.raises(ConfigurationError, match="cannot be started: No such file or directory; nothing was started"):
        Discovery(script("", "/nowhere/sh")).first()


def test_script_that_hangs_is_ended_with_its_children(script, tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "LIMIT", 1.0)
    path = script(f"echo alpha; echo $$ > {tmp_path}/pid1; sleep 3600 & echo $! > {tmp_path}/pid2; wait")
    with pytest.raises(ConfigurationError, match="did not end within 1 s; nothing was started"):
        Discovery(path).first()
    pids = [int((tmp_path / name).read_text()) for name in ("pid1", "pid2")]
    until(lambda: not any(map(alive, pids)))
    assert_gone(pids)


def test_last_valid_list_stays_in_use_and_a_problem_is_told_once(script, tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "EVERY", 0.0)
    path = script(f"cat {tmp_path}/list && touch {tmp_path}/read")

    def told_until(condition):
        told = []
        until(lambda: [told.append(problem) for problem in [found.poll()] if problem] and False or condition())
        return told

    (tmp_path / "list").write_text("alpha:4\n")
    found = Discovery(path)
    found.first()
    (tmp_path / "list").write_text("alpha:4\nnonsense!\n")
    runs = iter(range(3))

    def three_runs():
        if (tmp_path / "read").exists():
            (tmp_path / "read").unlink()
            return next(runs, None) is None
        return False

    told = told_until(three_runs)
    assert told == [
        f"--hosts-from {path} printed 'nonsense!': expected lines host:workers, such as alpha:4; the last valid list "
        "stays in use"
    ]
    assert found.hosts == {"alpha": 4}
    (tmp_path / "list").write_text("beta:2\n")
    assert told_until(lambda: found.hosts == {"beta": 2}) == []
    found.close()
