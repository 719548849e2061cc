"""Authentication tags for the frames of a connection, with keys that only its two ends know."""

from __future__ import annotations

import functools
import hashlib
import hmac
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any, Protocol

TAG = 16  # bytes of a tag


class Mac(Protocol):
    """Computes a tag of data passed in pieces."""

    def update(self, data: Any, /) -> None:
        """Add data."""

    def digest(self) -> bytes:
        """Return the tag."""


class Gmac:
    """A Mac with AES-GCM, without encryption. It is the fastest on CPUs with AES instructions."""

    def __init__(self, key: bytes, number: bytes):
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # launchers do not need it

        self._cipher = Cipher(algorithms.AES(key), modes.GCM(number.rjust(12, b"\0"))).encryptor()
        self.update = self._cipher.authenticate_additional_data

    def digest(self) -> bytes:
        """Return the tag."""
        self._cipher.finalize()
        return bytes(self._cipher.tag)


def new_hmac(key: bytes, number: bytes) -> Mac:
    """A Mac that needs only the standard library."""
    return hmac.new(key, number, "sha256")


@functools.cache
def has_gmac() -> bool:
    """Whether Gmac is available."""
    return importlib.util.find_spec("cryptography") is not None


class Direction:
    """Authenticates one direction of a connection. Frames are numbered, and each number is used once."""

    def __init__(self, key: bytes, payloads: Callable[[bytes, bytes], Mac] | None):
        self._key, self._payload_key = (hmac.digest(key, part, "sha256") for part in (b"frame", b"payload"))
        self._payloads = payloads
        self._numbers = itertools.count()
        self._number = b""

    def tag(self, head: bytes | bytearray, said: bytes | bytearray) -> bytes:
        """Return the tag of the next frame's header and JSON."""
        self._number = next(self._numbers).to_bytes(8, "big")
        return hashlib.blake2b(b"".join((self._number, head, said)), key=self._key, digest_size=TAG).digest()

    def payload(self) -> Mac | None:
        """Return the Mac for the payload of that frame, or None with TLS, which authenticates payloads itself."""
        return None if self._payloads is None else self._payloads(self._payload_key, self._number)
