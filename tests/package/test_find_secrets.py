"""`make secrets` finds secrets of each kind. They are assembled here, so that it does not find them in this file."""

import pathlib
import subprocess
import sys

import pytest

from scripts import find_secrets

PATH = pathlib.Path(find_secrets.__file__)
SECRETS = {
    "an assignment": "pass" + "word = 'correct horse'",
    "a random string": "x = '" + "9fK2mQ7xTz4LpWc8" + "RbV1nHd6YsJ3gAe5'",
    "a hexadecimal key": f"x = '{bytes(range(0, 240, 15)).hex()}'",
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "a cloud's key": "AKIA" + "IOSFODNN7EXAMPLK",
    "a forge's token": "gh" + "p_" + "a1B2c3D4e5F6g7H8i9" * 2,
    "a password in an address": "https://someone:" + "hunter2@example.com",
    "a token that is a whole line": "AKC" + "p5e2gMx8TqLz",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_file_with_a_secret_is_suspect(secret, tmp_path):
    path = tmp_path / "settings.py"
    clean = '"""Settings."""\n\nNAME = "a name"\n'
    path.write_text(clean)
    assert not find_secrets.is_suspect(str(path))
    path.write_text(f"{clean}{secret}\n{clean}")
    assert find_secrets.is_suspect(str(path))


def test_secret_is_reported_with_its_line(tmp_path):
    (tmp_path / "clean.py").write_text('NAME = "a name"\n')
    (tmp_path / "settings.py").write_text(f'NAME = "a name"\n{SECRETS["an assignment"]}\n')
    (tmp_path / "settings.toml").write_text("pass" + 'word = "correct horse"\n')
    (tmp_path / "sums.py").write_text(f'SUM = "{bytes(range(0, 240, 12)).hex()}"\n')  # as long as a SHA-1
    (tmp_path / "allowed.py").write_text(f"{SECRETS['an assignment']}  # pragma: allowlist secret\n")
    names = sorted(path.name for path in tmp_path.iterdir())
    ended = subprocess.run([sys.executable, PATH, *names], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert [line.split()[-1] for line in ended.stdout.splitlines() if "Location" in line] == [
        "settings.py:2",
        "settings.toml:1",
    ]
    clean = [name for name in names if not name.startswith("settings")]
    assert subprocess.run([sys.executable, PATH, *clean], cwd=tmp_path, capture_output=True).returncode == 0
