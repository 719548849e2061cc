"""Attacks on a port that expects TLS and a proof of the secret."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess

from launching import LIMIT


def make_certificate(folder, name="job"):
    """Write a PEM file with a new key and its certificate."""
    path = str(folder / f"{name}.pem")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *curve, "-subj", f"/CN={name}", "-keyout", path, "-out", path + ".crt"]
    subprocess.run(command, check=True, capture_output=True)
    with open(path, "a") as file, open(path + ".crt") as certificate:
        file.write(certificate.read())
    return path


def client_hello():
    """Return the first bytes of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="neomx").do_handshake()
    return outgoing.read()


def dial(place):
    return socket.create_connection(place, timeout=LIMIT)


def handshake(place, certificate=None):
    """Connect as a TLS client that accepts every certificate, and presents one if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context.wrap_socket(dial(place))


def plain_greeting(place, other):
    sock = dial(place)
    sock.sendall(b"NEOMX/2\n" + os.urandom(65))
    return sock


def noise_instead_of_a_handshake(place, other):
    sock = dial(place)
    sock.sendall(b"\x16\x03\x01" + os.urandom(600))
    return sock


def half_a_handshake(place, other):
    sock, hello = dial(place), client_hello()
    sock.sendall(hello[: len(hello) // 2])
    return sock


def a_handshake_without_its_end(place, other):
    sock = dial(place)
    sock.sendall(client_hello())
    return sock


def silence(place, other):
    return dial(place)


def silence_after_the_handshake(place, other):
    return handshake(place)


def noise_after_the_handshake(place, other):
    sock = handshake(place)
    sock.sendall(os.urandom(4096))
    return sock


def a_foreign_certificate_and_no_secret(place, other):
    sock = handshake(place, other)
    sock.sendall(b"NEOMX/2\n" + os.urandom(65))
    return sock


def half_a_proof(place, other):
    sock = handshake(place)
    sock.sendall(b"NEOMX/2\n" + os.urandom(30))
    return sock


CLOSED_AT_ONCE = [
    plain_greeting,
    noise_instead_of_a_handshake,
    noise_after_the_handshake,
    a_foreign_certificate_and_no_secret,
]
LEFT_OPEN = [half_a_handshake, a_handshake_without_its_end, silence, silence_after_the_handshake, half_a_proof]


def attack(place, other, times=6):
    """Run all attacks several times; return the sockets that may still be open."""
    held = []
    for _ in range(times):
        for act in CLOSED_AT_ONCE + LEFT_OPEN:
            with contextlib.suppress(OSError):  # the listener may close it early
                held.append(act(place, other))
    return held
