"""TLS over the stamped wire: trust, identity, phases, stamps."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.clock import FakeClock, RunClock
from harness.errors import ScenarioError
from harness.records import RequestRecord
from harness.settings import ConnectionMode, ConnectionSettings, TlsSettings, WireSettings
from harness.wire.connection import ByteReceiver
from harness.wire.http_message import Origin
from harness.wire.tls import TlsClient
from tests.builders.servers import chunk, head, ok
from tests.builders.tls import Certificates, TlsServer, answer, read_request
from tests.builders.wire import FakeStream, PlainAdapter, Received, every, run_load, say

REPLY = ok(b"abcd")[0].data
CHUNKED = head(200, content_type="audio/pcm", transfer_encoding="chunked")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


def _say(server: TlsServer, *, url: str | None = None, **tls: Any) -> RequestRecord:
    settings = WireSettings(tls=TlsSettings(**tls))
    return say(url or server.base_url, settings=settings).record


def _ending(record: RequestRecord) -> tuple[str, str | None]:
    return record.transport_outcome.value, record.error_kind


def test_reply_over_tls_is_ok_with_its_phases(certificates: Certificates):
    """TCP, then TLS, then the request; a first handshake is not a resumed one."""
    with TlsServer(certificates.server(), answer(REPLY)) as server:
        record = _say(server, ca_file=certificates.ca_file)

    assert ("ok", None) == _ending(record)
    assert record.dispatched_ns < record.connected_ns < record.tls_ns <= record.sent_ns
    assert record.tls_resumed is False
    assert ["http/1.1"] == server.alpn


def test_unknown_authority_is_refused(certificates: Certificates):
    """Before anything is sent."""
    with TlsServer(certificates.server(), answer(REPLY)) as server:
        record = _say(server)

    assert ("connect_error", "tls_certificate") == _ending(record)
    assert "certificate not accepted" in record.error_text
    assert record.sent_ns is None


def test_certificate_of_another_name_is_refused(certificates: Certificates):
    """Trust in the authority is not enough."""
    with TlsServer(certificates.server("tts.example"), answer(REPLY)) as server:
        record = _say(server, ca_file=certificates.ca_file)

    assert ("connect_error", "tls_certificate") == _ending(record)


def test_server_name_can_be_given(certificates: Certificates):
    """For a server reached by address: it is asked for and checked by its name."""
    with TlsServer(certificates.server("tts.example"), answer(REPLY)) as server:
        record = _say(server, ca_file=certificates.ca_file, server_name="tts.example")

    assert ("ok", None) == _ending(record)
    assert ["tts.example"] == server.server_names


def test_expired_certificate_is_refused(certificates: Certificates):
    """By its date."""
    expired = certificates.server(not_after=datetime(2020, 1, 1, tzinfo=UTC))
    with TlsServer(expired, answer(REPLY)) as server:
        record = _say(server, ca_file=certificates.ca_file)

    assert ("connect_error", "tls_certificate") == _ending(record)
    assert "expired" in record.error_text


def test_checking_can_be_switched_off(certificates: Certificates):
    """Only by saying so."""
    with TlsServer(certificates.server("other"), answer(REPLY)) as server:
        record = _say(server, is_verified=False)

    assert ("ok", None) == _ending(record)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_server_may_ask_for_a_client_certificate(
    certificates: Certificates, version: ssl.TLSVersion
):
    """Without one: no connection; TLS 1.3 says so only after our side is up."""
    context = certificates.server(needs_client=True)
    context.minimum_version = context.maximum_version = version
    with TlsServer(context, answer(REPLY)) as server:
        without = _say(server, ca_file=certificates.ca_file)
        with_one = _say(
            server, ca_file=certificates.ca_file, client_cert_file=certificates.client_file
        )

    assert ("connect_error", "tls_handshake") == _ending(without)
    assert ("ok", None) == _ending(with_one)


def test_server_that_speaks_no_tls():
    """https against an http port: its 400 is no handshake."""

    def refuse(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(head(400, content_length=0))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        record = say(f"https://127.0.0.1:{listener.getsockname()[1]}").record
        thread.join()

    assert ("connect_error", "tls_handshake") == _ending(record)
    assert "wrong version number" in record.error_text


def test_resumed_handshakes_are_told_apart(certificates: Certificates):
    """Cold connections to the same server: full, then resumed."""
    cold = WireSettings(
        connections=ConnectionSettings(mode=ConnectionMode.COLD),
        tls=TlsSettings(ca_file=certificates.ca_file),
    )
    with TlsServer(certificates.server(), answer(REPLY)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(40, 3), wire=cold)

    assert ["ok"] * 3 == ran.outcomes
    assert [False, True, True] == [record.tls_resumed for record in ran.records]


def test_resuming_can_be_switched_off(certificates: Certificates):
    """For who wants every handshake whole."""
    cold = WireSettings(
        connections=ConnectionSettings(mode=ConnectionMode.COLD),
        tls=TlsSettings(ca_file=certificates.ca_file, is_resumed=False),
    )
    with TlsServer(certificates.server(), answer(REPLY)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(40, 2), wire=cold)

    assert [False, False] == [record.tls_resumed for record in ran.records]


def test_warm_pool_shakes_hands_before_the_first_request(certificates: Certificates):
    """No request pays for it."""
    warm = WireSettings(
        connections=ConnectionSettings(pool=1), tls=TlsSettings(ca_file=certificates.ca_file)
    )
    with TlsServer(certificates.server(), answer(REPLY)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(20, 3), wire=warm)

    assert [(True, None)] * 3 == [(r.connection_reused, r.tls_ns) for r in ran.records]


def test_arrivals_over_tls_lie_in_the_senders_bracket(certificates: Certificates):
    """The kernel's stamp survives decryption."""
    brackets: list[tuple[int, int]] = []

    def converse(connection: ssl.SSLSocket) -> None:
        read_request(connection)
        connection.sendall(CHUNKED)
        for _ in range(20):
            time.sleep(0.003)
            before_ns = time.perf_counter_ns()
            connection.sendall(chunk(bytes(960)))
            brackets.append((before_ns, time.perf_counter_ns()))
        time.sleep(0.003)
        connection.sendall(chunk(b""))

    clock = RunClock()
    settings = WireSettings(tls=TlsSettings(ca_file=certificates.ca_file))
    with TlsServer(certificates.server(), converse) as server:
        record = say(server.base_url, settings=settings, clock=clock).record
    inside = [
        clock.from_monotonic_ns(before) - clock.uncertainty_ns
        <= piece.arrival_ns
        <= clock.from_monotonic_ns(after) + clock.uncertainty_ns
        for (before, after), piece in zip(brackets, record.chunks, strict=True)
        if piece.is_exact
    ]

    assert 20 == len(record.chunks)
    assert len(inside) >= 10
    assert all(inside)


@pytest.mark.parametrize(("says_goodbye", "outcome"), [(True, "ok"), (False, "truncated")])
def test_body_without_length_needs_the_goodbye(
    certificates: Certificates, says_goodbye: bool, outcome: str
):
    """Without it anybody on the way could have cut the reply short."""

    def converse(connection: ssl.SSLSocket) -> None:
        read_request(connection)
        connection.sendall(head(200, content_type="audio/pcm") + bytes(400))
        if says_goodbye:
            connection.unwrap()

    with TlsServer(certificates.server(), converse) as server:
        record = _say(server, ca_file=certificates.ca_file)

    assert outcome == record.transport_outcome.value
    assert 400 == record.audio_bytes


@pytest.mark.parametrize(
    ("key", "named"), [("ca_file", "ca_file"), ("client_cert_file", "cert_file")]
)
@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_certificate_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, key: str, named: str, content: bytes | None
):
    """Missing, or not PEM."""
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScenarioError, match=rf"connections\.tls\.{named}: .*file\.pem: ") as found:
        say("https://127.0.0.1:1", settings=WireSettings(tls=TlsSettings(**{key: str(path)})))

    assert "\n" not in str(found.value)


class _Session:
    """A TLS stream on a fake one, its hands shaken with a server in memory."""

    def __init__(self, context: ssl.SSLContext, ca_file: str) -> None:
        self.heard, self.clock = Received(), FakeClock()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.stream = TlsClient(TlsSettings(ca_file=ca_file)).make_stream(
            Origin("https", "127.0.0.1", 443),
            self.heard,
            clock=self.clock,
            make_plain=self._make_plain,
        )
        self.plain.accept()
        for _ in range(3):
            self._to_server()
            with contextlib.suppress(ssl.SSLWantReadError):
                self.server.do_handshake()
            self.plain.deliver(self.outgoing.read())
        assert self.heard.phases

    def _make_plain(self, above: ByteReceiver) -> FakeStream:
        self.plain = FakeStream(above, self.clock)
        return self.plain

    def _to_server(self) -> None:
        self.incoming.write(self.plain.written)
        self.plain.written = b""

    def record(self, data: bytes) -> bytes:
        """One record as the server writes it."""
        self.server.write(data)
        return self.outgoing.read()

    def goodbye(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.server.unwrap()
        return self.outgoing.read()

    def server_reads(self) -> bytes:
        """What came from the client; empty for its goodbye."""
        self._to_server()
        return self.server.read()


def test_plain_text_owns_the_stamp_if_the_read_ended_with_its_record(certificates: Certificates):
    """Not with part of the next one behind it, nor with a goodbye."""
    session = _Session(certificates.server(), certificates.ca_file)
    first, second, third, last = (session.record(b"abcd") for _ in range(4))
    session.plain.deliver(first)
    session.plain.deliver(second + third[:7])
    session.plain.deliver(third[7:])
    session.plain.deliver(last + session.goodbye())

    assert [b"abcd"] * 4 == session.heard.data
    assert [True, False, True, False] == [seen.is_exact for seen in session.heard.stamps]
    assert session.heard.is_eof


def test_closing_says_goodbye(certificates: Certificates):
    """A server that is told does not have to guess whether it was cut off."""
    session = _Session(certificates.server(), certificates.ca_file)
    session.stream.close()

    assert session.plain.is_closed
    assert b"" == session.server_reads()
