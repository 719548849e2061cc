"""TLS between processes of a job. Only certificates in the job's file are trusted."""

from __future__ import annotations

import functools
import socket
import ssl

from .errors import SettingsDiffer, WireError

SAME_TLS = "Pass the same --tls-file to all nodes, or to none"


@functools.cache
def certificates(tls: str) -> list[bytes]:
    """Return the certificates of a PEM file. The first is that of this process."""
    with open(tls) as file:
        blocks = file.read().split("-----BEGIN CERTIFICATE-----")[1:]
    end = "-----END CERTIFICATE-----"
    found = [ssl.PEM_cert_to_DER_cert(f"-----BEGIN CERTIFICATE-----{block.partition(end)[0]}{end}") for block in blocks]
    if not found:
        raise WireError(f"{tls}: the file contains no certificate")
    return found


def check_pem(path: str) -> None:
    """Raise WireError unless a file can be used for TLS: a key and its certificate, in PEM."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    for what, mark in (("private key", "PRIVATE KEY-----"), ("certificate", "-----BEGIN CERTIFICATE-----")):
        if mark not in text:
            raise WireError(
                f"the file has no {what}; expected key and certificate in one file: cat key.pem cert.pem > job.pem"
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise WireError(
            f"its key does not belong to its first certificate, or one of them is damaged ({error.reason or error})"
        ) from error


def _no_password() -> str:
    raise WireError("its private key is encrypted; remove the password: openssl pkey -in key.pem -out plain.pem")


@functools.cache
def _called_context(tls: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls)
    context.num_tickets = 0  # sessions are never resumed
    return context


def wrap(sock: socket.socket, tls: str) -> ssl.SSLSocket:
    """Wrap the socket of the called side in TLS, without the handshake."""
    return _called_context(tls).wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def wrap_caller(sock: socket.socket, tls: str, address: str) -> ssl.SSLSocket:
    """Connect with TLS to a holder of one of the file's certificates.

    Other certificates of their authority are refused.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # stricter: the certificate itself is compared
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(tls)
    try:
        wrapped = context.wrap_socket(sock)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise ConnectionResetError(f"{address} closed the connection during the TLS handshake") from error
    except ssl.SSLCertVerificationError as error:
        raise SettingsDiffer(f"{address} has a certificate that is not in {tls}: {error}. {SAME_TLS}") from error
    except ssl.SSLError as error:
        raise SettingsDiffer(f"{address} does not use TLS ({error.reason or error}). {SAME_TLS}") from error
    if wrapped.getpeercert(binary_form=True) not in certificates(tls):
        wrapped.close()
        raise SettingsDiffer(f"{address} has a certificate that is not in {tls}: it is not a host of this job")
    return wrapped
