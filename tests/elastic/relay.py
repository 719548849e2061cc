"""A relay between a worker and the job's store that a test can cut and heal, as a network would."""

import contextlib
import socket
import threading


class Relay:
    """Passes bytes on between its own address and another one, unless it is cut."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._to = host, int(port)
        self._passes = threading.Event()
        self._passes.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Pass nothing on. Connections stay open."""
        self._passes.clear()

    def heal(self):
        """Pass everything on, also what was sent in the meantime."""
        self._passes.set()

    def close(self):
        """Accept no more connections."""
        self._listening.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection(self._to)
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self._passes.wait()
                target.sendall(content)
            self._passes.wait()
            target.shutdown(socket.SHUT_WR)
