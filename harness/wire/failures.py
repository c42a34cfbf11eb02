"""What an error of the system means for a request: one outcome and one word."""

from __future__ import annotations

import errno
import os
import socket
import ssl

from engines.outcomes import TransportOutcome
from harness.wire.connection import WireFailure

__all__ = ["TlsFailureError", "connect_failure", "read_failure"]

# Running out of something on our own side is our failure, never the server's.
_OWN_LIMITS = {
    errno.EMFILE: ("out_of_descriptors", "raise the open-file limit (ulimit -n) or lower the load"),
    errno.ENFILE: ("out_of_descriptors", "the whole system is out of file descriptors"),
    errno.EADDRNOTAVAIL: ("out_of_ports", "no local port is free; use connections.mode: warm"),
    errno.ENOBUFS: ("out_of_buffers", "the system has no socket buffers left"),
    errno.ENOMEM: ("out_of_memory", "the system has no memory left"),
    errno.EACCES: ("not_permitted", "this system forbids the connection"),
    errno.EPERM: ("not_permitted", "this system forbids the connection"),
}
_DEAD = (errno.ETIMEDOUT,)


class TlsFailureError(OSError):
    """A TLS handshake or record that failed; `kind` is one word."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _describe(error: OSError) -> str:
    if isinstance(error, ssl.SSLError | socket.gaierror) or error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} ({errno.errorcode.get(error.errno, error.errno)})"


def _own_limit(error: OSError) -> WireFailure | None:
    # A gaierror's number is of another list, in which small numbers mean other things.
    if isinstance(error, socket.gaierror) or error.errno not in _OWN_LIMITS:
        return None
    kind, remedy = _OWN_LIMITS[error.errno]
    return WireFailure(TransportOutcome.CLIENT_ERROR, kind, f"{_describe(error)}: {remedy}")


def connect_failure(error: OSError, where: str) -> WireFailure:
    """Why no connection came about; `where` names host and port."""
    own = _own_limit(error)
    if own is not None:
        return own
    if isinstance(error, TlsFailureError):
        kind = error.kind
    elif isinstance(error, socket.gaierror):
        kind = "dns"
    elif error.errno == errno.ECONNREFUSED:
        kind = "connection_refused"
    elif error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        kind = "unreachable"
    elif error.errno in _DEAD:
        kind = "no_answer"
    else:
        kind = "connect"
    return WireFailure(
        TransportOutcome.CONNECT_ERROR, kind, f"cannot connect to {where}: {_describe(error)}"
    )


def read_failure(error: OSError, where: str) -> WireFailure:
    """Why a connection that was open died; `where` is how far the response had come."""
    own = _own_limit(error)
    if own is not None:
        return own
    if error.errno in _DEAD:
        return WireFailure(
            TransportOutcome.DEAD_PEER, "no_answer", f"the peer stopped answering {where}"
        )
    if isinstance(error, TlsFailureError):
        if error.kind == "tls_handshake":
            return WireFailure(TransportOutcome.CONNECT_ERROR, error.kind, str(error))
        kind = error.kind
    elif error.errno == errno.ECONNRESET:
        kind = "reset"
    else:
        kind = "read"
    return WireFailure(
        TransportOutcome.TRUNCATED,
        kind,
        f"connection broken {where}: {_describe(error)}",
        is_final=False,
    )
