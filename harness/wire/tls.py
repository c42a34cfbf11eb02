"""TLS over a stamped socket, through memory buffers, so that the kernel's stamps stay in reach.

The stamp of a read belongs to its last byte on the wire. Plain text that a read completed has that
stamp; it is its own only where the read ended with a whole TLS record.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from harness.clock import Clock
from harness.errors import ScenarioError
from harness.settings import TlsSettings
from harness.wire.boundary import RecordBoundary
from harness.wire.connection import (
    Address,
    ByteReceiver,
    ByteStream,
    OnSent,
    Stamp,
    StreamPhases,
)
from harness.wire.failures import TlsFailureError
from harness.wire.http_message import Origin

__all__ = ["TlsClient", "TlsStream"]

_ALPN = ("http/1.1",)
_READ_BYTES = 64 * 1024


class TlsClient:
    """Trust, identity and remembered sessions of one wire.

    A session is offered again to the same origin, as browsers and most servers' clients do; the
    record says of every handshake whether it was resumed.
    """

    def __init__(self, settings: TlsSettings) -> None:
        """Load certificates.

        Raises:
            ScenarioError: a file that cannot be read or is no certificate; one line.
        """
        self._settings = settings
        self._context = _make_context(settings)
        self._sessions: dict[Origin, ssl.SSLSession] = {}

    def make_stream(
        self,
        origin: Origin,
        receiver: ByteReceiver,
        *,
        clock: Clock,
        make_plain: Callable[[ByteReceiver], ByteStream],
    ) -> TlsStream:
        """A stream that shakes hands once connected."""
        server_name = self._settings.server_name or origin.host
        session = self._sessions.get(origin) if self._settings.is_resumed else None
        remember = partial(self._sessions.__setitem__, origin)
        stream = TlsStream(receiver, clock=clock, remember=remember)
        stream.attach(
            make_plain(stream),
            lambda incoming, outgoing: self._context.wrap_bio(
                incoming, outgoing, server_hostname=server_name, session=session
            ),
        )
        return stream


class TlsStream:
    """A `ByteStream` on top of another one, and its `ByteReceiver`."""

    __slots__ = (
        "_boundary", "_clock", "_connected_ns", "_has_plain_text", "_incoming", "_is_open",
        "_outgoing", "_plain", "_receiver", "_remember", "_tls", "_wrap",
    )  # fmt: skip

    def __init__(
        self,
        receiver: ByteReceiver,
        *,
        clock: Clock,
        remember: Callable[[ssl.SSLSession], None],
    ) -> None:
        self._receiver: ByteReceiver | None = receiver
        self._clock = clock
        self._remember = remember
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._boundary = RecordBoundary()
        self._plain: ByteStream | None = None
        self._tls: ssl.SSLObject | None = None
        self._wrap: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject] | None = None
        self._connected_ns = 0
        self._is_open = False
        self._has_plain_text = False

    def attach(
        self,
        plain: ByteStream,
        wrap: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
    ) -> None:
        """Say what lies below, and how a session is made."""
        self._plain, self._wrap = plain, wrap

    # -- from above --------------------------------------------------------------------------

    def connect(self, address: Address) -> None:
        """Connect below, then shake hands."""
        assert self._plain is not None
        self._plain.connect(address)

    def write(self, data: bytes, on_sent: OnSent | None = None) -> None:
        """Encrypt and write."""
        if self._tls is None or self._plain is None:
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._fail(_failure(error, "tls_record"))
            return
        self._plain.write(self._outgoing.read(), on_sent)

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait below."""
        return self._plain is not None and self._plain.has_unsent

    def mark_drained(self, now_ns: int) -> None:
        """Passed down."""
        if self._plain is not None:
            self._plain.mark_drained(now_ns)

    def limit_reading(self, bytes_per_s: int | None) -> None:
        """Passed down."""
        if self._plain is not None:
            self._plain.limit_reading(bytes_per_s)

    def close(self) -> None:
        """Say goodbye where hands were shaken, and close below."""
        self._receiver = None
        plain, self._plain = self._plain, None
        tls, self._tls = self._tls, None
        if plain is None:
            return
        if tls is not None and self._is_open:
            self._keep_session(tls)
            try:
                tls.unwrap()
            except ssl.SSLError:
                pass  # our goodbye is in the buffer; nobody waits for theirs
            plain.write(self._outgoing.read())
        plain.close()

    # -- from below --------------------------------------------------------------------------

    def on_connected(self, phases: StreamPhases) -> None:
        """Begin the handshake."""
        self._connected_ns = phases.connected_ns
        assert self._wrap is not None
        try:
            self._tls = self._wrap(self._incoming, self._outgoing)
        except (ssl.SSLError, ValueError) as error:
            self._fail(TlsFailureError("tls", str(error)))
            return
        self._shake()

    def on_bytes(self, data: bytes, stamp: Stamp) -> None:
        """One read from below: go on with the handshake, or decrypt what it completed."""
        if self._tls is None:
            return
        self._incoming.write(data)
        is_whole = self._boundary.feed(data)
        if not self._is_open and not self._shake():
            return
        pieces, is_eof, error = self._decrypt()
        if pieces and self._receiver is not None:
            plain = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            is_own = is_whole and not is_eof
            self._receiver.on_bytes(plain, stamp if is_own else stamp.merged())
        if error is not None:
            self._fail(error)
        elif is_eof and self._receiver is not None:
            self._receiver.on_eof(stamp)

    def on_eof(self, stamp: Stamp) -> None:
        """The peer closed without its goodbye: what came so far may be cut off."""
        where = "closed without a TLS goodbye" if self._is_open else "closed during the handshake"
        kind = "tls_cut_off" if self._is_open else "tls_handshake"
        self._report(TlsFailureError(kind, f"the peer {where}"), stamp)

    def on_error(self, error: OSError, stamp: Stamp) -> None:
        """Passed up; a break while shaking hands is a failed handshake."""
        if self._tls is not None and not self._is_open:
            text = f"the connection broke during the handshake: {error.strerror or error}"
            error = TlsFailureError("tls_handshake", text)
        self._report(error, stamp)

    # -- helpers -----------------------------------------------------------------------------

    def _shake(self) -> bool:
        """Go on with the handshake; True once it is done."""
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            kind = "tls_certificate" if isinstance(error, ssl.CertificateError) else "tls_handshake"
            self._fail(_failure(error, kind))
            return False
        self._flush()
        self._is_open = True
        if self._receiver is not None:
            self._receiver.on_connected(
                StreamPhases(
                    connected_ns=self._connected_ns,
                    tls_ns=self._clock.now_ns(),
                    tls_resumed=bool(self._tls.session_reused),
                )
            )
        return self._tls is not None

    def _decrypt(self) -> tuple[list[bytes], bool, TlsFailureError | None]:
        """Plain text of this read, whether the peer said goodbye, and what was wrong."""
        pieces: list[bytes] = []
        while self._tls is not None:
            try:
                piece = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                return pieces, True, None
            except ssl.SSLError as error:
                # With TLS 1.3 a server refuses our certificate only after our side is done.
                kind = "tls_record" if self._has_plain_text else "tls_handshake"
                return pieces, False, _failure(error, kind)
            if not piece:
                return pieces, True, None
            self._has_plain_text = True
            pieces.append(piece)
        self._flush()
        return pieces, False, None

    def _flush(self) -> None:
        if self._plain is not None and self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    def _keep_session(self, tls: ssl.SSLObject) -> None:
        # Tickets come after the handshake, so it is asked for at the end; and only where there was
        # no ticket that still worked, since each look at it copies certificates (0.3 ms).
        if not tls.session_reused:
            session = tls.session
            if session is not None:
                self._remember(session)

    def _fail(self, error: TlsFailureError) -> None:
        now_ns = self._clock.now_ns()
        self._report(error, Stamp(now_ns, now_ns, now_ns, is_exact=False))

    def _report(self, error: OSError, stamp: Stamp) -> None:
        receiver = self._receiver
        if receiver is not None:
            receiver.on_error(error, stamp)


def _failure(error: ssl.SSLError, kind: str) -> TlsFailureError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailureError(kind, f"certificate not accepted: {error.verify_message}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return TlsFailureError(kind, f"TLS: {reason}")


def _make_context(settings: TlsSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise _bad_file("ca_file", settings.ca_file, error) from None
    context.set_alpn_protocols(list(_ALPN))
    if not settings.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.client_cert_file is not None:
        try:
            context.load_cert_chain(
                settings.client_cert_file, settings.client_key_file, password=_no_password
            )
        except (OSError, ssl.SSLError, ValueError) as error:
            raise _bad_file("cert_file", settings.client_cert_file, error) from None
    return context


def _no_password() -> str:
    """Called for an encrypted key: there is nobody to ask in the middle of a run."""
    raise ValueError("the key is encrypted; give it without a password")


def _bad_file(key: str, path: str | None, error: Exception) -> ScenarioError:
    found = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ScenarioError(f"connections.tls.{key}: {path}: {found}; expected a readable PEM file")
