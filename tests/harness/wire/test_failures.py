"""System errors as outcomes."""

from __future__ import annotations

import errno
import socket

import pytest

from harness.wire.failures import TlsFailureError, connect_failure, read_failure


@pytest.mark.parametrize(
    ("error", "outcome", "kind"),
    [
        (OSError(errno.ECONNREFUSED, ""), "connect_error", "connection_refused"),
        (OSError(errno.EHOSTUNREACH, ""), "connect_error", "unreachable"),
        (OSError(errno.ETIMEDOUT, ""), "connect_error", "no_answer"),
        (OSError(errno.ECONNRESET, ""), "connect_error", "connect"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "connect_error", "dns"),
        (TlsFailureError("tls_certificate", "expired"), "connect_error", "tls_certificate"),
        (OSError(errno.EMFILE, ""), "client_error", "out_of_descriptors"),
        (OSError(errno.ENFILE, ""), "client_error", "out_of_descriptors"),
        (OSError(errno.EADDRNOTAVAIL, ""), "client_error", "out_of_ports"),
        (OSError(errno.ENOBUFS, ""), "client_error", "out_of_buffers"),
    ],
)
def test_failing_to_connect(error: OSError, outcome: str, kind: str):
    """The server's fault and our own limits are told apart, and the place is named."""
    failure = connect_failure(error, "tts.example:8000")

    assert (outcome, kind) == (failure.outcome.value, failure.kind)
    assert failure.is_final
    assert outcome == "client_error" or "tts.example:8000" in failure.text


@pytest.mark.parametrize(
    ("error", "outcome", "kind", "is_final"),
    [
        (OSError(errno.ECONNRESET, ""), "truncated", "reset", False),
        (OSError(errno.ETIMEDOUT, ""), "dead_peer", "no_answer", True),
        (OSError(errno.ENOBUFS, ""), "client_error", "out_of_buffers", True),
        (TlsFailureError("tls_record", "bad"), "truncated", "tls_record", False),
    ],
)
def test_losing_a_connection(error: OSError, outcome: str, kind: str, is_final: bool):
    """A peer that stopped answering is not one that hung up."""
    failure = read_failure(error, "inside the response body")

    assert (outcome, kind, is_final) == (failure.outcome.value, failure.kind, failure.is_final)


def test_no_message_is_a_bare_number():
    """People get words."""
    assert (
        "Connection refused (ECONNREFUSED)"
        in connect_failure(OSError(errno.ECONNREFUSED, "x"), "h:1").text
    )
