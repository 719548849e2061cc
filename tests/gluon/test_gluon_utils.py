"""gluon.utils: downloads from a local server, and gradient clipping."""

import hashlib
import http.server
import os
import threading

import numpy as np
import pytest

import neomx as mx
from neomx.gluon import utils

CONTENT = os.urandom(300_000)
SHA1 = hashlib.sha1(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT. /breaks stops in the middle twice, with ranges; /restarts too, without; /gone does not exist."""

    def do_GET(self):
        kind, server = self.path.strip("/"), self.server
        server.requests.append((kind, self.headers.get("Range")))
        tries = sum(name == kind for name, _ in server.requests)
        start = 0
        if kind == "gone" or (kind == "busy" and tries == 1):
            self.send_error(404 if kind == "gone" else 503)
            return
        if kind == "breaks" and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        end = start + 100_000 if kind in ("breaks", "restarts") and tries < 3 else len(CONTENT)
        self.wfile.write(CONTENT[start:end])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_download_is_complete_and_happens_once(server, tmp_path, capsys):
    name = utils.download(f"{server.url}/file.bin", str(tmp_path), sha1_hash=SHA1)
    assert name == str(tmp_path / "file.bin") and (tmp_path / "file.bin").read_bytes() == CONTENT
    utils.download(f"{server.url}/file.bin", str(tmp_path), sha1_hash=SHA1)
    assert len(server.requests) == 1
    utils.download(f"{server.url}/file.bin", str(tmp_path), overwrite=True)
    (tmp_path / "file.bin").write_bytes(b"other")
    utils.download(f"{server.url}/file.bin", str(tmp_path), sha1_hash=SHA1)
    assert len(server.requests) == 3 and utils.check_sha1(name, SHA1)
    deep = tmp_path / "new" / "folder" / "name"
    assert utils.download(f"{server.url}/file.bin", str(deep)) == str(deep)
    assert "Downloading" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["breaks", "restarts"])
def test_download_resumes_after_broken_connection(server, tmp_path, kind):
    utils.download(f"{server.url}/{kind}", str(tmp_path / "f"), sha1_hash=SHA1)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [
        None,
        "bytes=100000-",
        "bytes=200000-" if kind == "breaks" else "bytes=100000-",
    ]


def test_busy_server_is_retried_but_missing_file_is_not(server, tmp_path):
    utils.download(f"{server.url}/busy", str(tmp_path / "f"))
    with pytest.raises(mx.MXNetError, match=rf"cannot download {server.url}/gone: .*404"):
        utils.download(f"{server.url}/gone", str(tmp_path / "g"))
    assert [kind for kind, _ in server.requests] == ["busy", "busy", "gone"]
    assert os.listdir(tmp_path) == ["f"]


def test_invalid_download_is_removed(server, tmp_path):
    with pytest.raises(mx.MXNetError, match="SHA-1"):
        utils.download(f"{server.url}/file.bin", str(tmp_path / "f"), sha1_hash="0" * 40)
    with pytest.raises(mx.MXNetError, match="cannot download"):
        utils.download(f"{server.url}/breaks", str(tmp_path / "f"), retries=0)
    with pytest.raises(mx.MXNetError, match="cannot download"):
        utils.download("http://127.0.0.1:9/x", str(tmp_path / "f"), retries=1)
    assert os.listdir(tmp_path) == []


def test_clipping_non_finite_gradients_warns():
    with pytest.warns(UserWarning, match="nan or inf"):
        assert np.isnan(utils.clip_global_norm([mx.nd.array([3.0, np.nan])], 1.0))
    arrays = [mx.nd.array([3.0, 0.0]), mx.nd.array([4.0], dtype="float16")]
    assert utils.clip_global_norm(arrays, 1.0) == 5.0
    assert np.allclose(arrays[1].asnumpy(), 0.8, rtol=1e-3)


def test_clipping_row_sparse_gradients():
    sparse = mx.nd.sparse.row_sparse_array(([[3.0, 4.0]], [1]), shape=(3, 2))
    assert utils.clip_global_norm([sparse], 1.0) == 5.0
    assert np.allclose(sparse.asnumpy()[1], [0.6, 0.8])
