"""One accepted connection: bytes in, bytes out, and a clock reading on both sides of every send."""

from __future__ import annotations

import fcntl
import socket
import ssl
import struct
import time
from collections import deque
from typing import Protocol

from harness.truth.log import LoggedSeal, LoggedSend, TruthLog

__all__ = ["Connection"]

_READ_BYTES = 64 * 1024
# One TLS record holds no more plain bytes than this.
_MAX_RECORD_BYTES = 16 * 1024
# <linux/sockios.h>: bytes in the send queue that were not sent yet (the peer's window is full).
_SIOCOUTQNSD = 0x894B
_INT = struct.Struct("@i")


class _Channel(Protocol):
    """What lies between plain bytes and the socket."""

    def unwrap(self, data: bytes) -> bytes:
        """Plain bytes out of wire bytes."""
        ...

    def wrap(self, data: bytes) -> list[bytes]:
        """Wire bytes of plain ones, one piece a record."""
        ...

    def pending(self) -> bytes:
        """Wire bytes that the channel itself wants to send (a handshake)."""
        ...


class _Plain:
    """Nothing lies between."""

    def unwrap(self, data: bytes) -> bytes:
        return data

    def wrap(self, data: bytes) -> list[bytes]:
        return [data]

    def pending(self) -> bytes:
        return b""


class _Tls:
    """TLS over memory buffers, so that one send is one system call of known content."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False

    def unwrap(self, data: bytes) -> bytes:
        self._incoming.write(data)
        plain = bytearray()
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while piece := self._tls.read(_READ_BYTES):
                plain += piece
        except ssl.SSLWantReadError:
            pass  # all that came is used
        return bytes(plain)

    def wrap(self, data: bytes) -> list[bytes]:
        self._tls.write(data)
        return [self._outgoing.read()]

    def pending(self) -> bytes:
        return self._outgoing.read()


class Connection:
    """A socket whose sends are logged.

    `plain_end` and `wire_end` are the positions behind the last byte written so far; `received_ns`
    is when the last bytes were read.
    """

    def __init__(
        self,
        sock: socket.socket,
        number: int,
        *,
        log: TruthLog,
        context: ssl.SSLContext | None,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = number
        self.fd = sock.fileno()
        self.plain_end = 0
        self.wire_end = 0
        self.inbox = bytearray()
        self.received_ns = 0
        self.is_closed = False
        self._sock = sock
        self._log = log
        self._is_sealed = context is not None
        self._channel: _Channel = _Plain() if context is None else _Tls(context)
        self._unsent: deque[memoryview] = deque()

    @property
    def has_unsent(self) -> bool:
        """Whether the kernel would not take everything yet."""
        return bool(self._unsent)

    def receive(self) -> bool:
        """Read what is there into `inbox`; False once the peer has gone."""
        try:
            data = self._sock.recv(_READ_BYTES)
            self.received_ns = time.monotonic_ns()
            if not data:
                return False
            self.inbox += self._channel.unwrap(data)
        except BlockingIOError:
            return True
        except (OSError, ssl.SSLError):
            return False
        handshake = self._channel.pending()
        if handshake:
            self._queue(handshake)
        return True

    def write(self, data: bytes) -> None:
        """Write plain bytes in one send; none make no send."""
        if not data:
            return
        wire = bytearray()
        for start in range(0, len(data), _MAX_RECORD_BYTES):
            piece = data[start : start + _MAX_RECORD_BYTES]
            wire += b"".join(self._channel.wrap(piece))
            if self._is_sealed:
                plain_end = self.plain_end + len(piece)
                wire_end = self._queued_end + len(wire)
                self._log.seals.append(LoggedSeal(self.number, self.plain_end, plain_end, wire_end))
            self.plain_end += len(piece)
        self._queue(bytes(wire))

    def flush(self) -> None:
        """Go on with what the kernel would not take."""
        while self._unsent and not self.is_closed:
            view = self._unsent[0]
            num_sent = self._send(view)
            if num_sent == len(view):
                self._unsent.popleft()
            else:
                if num_sent:
                    self._unsent[0] = view[num_sent:]
                return

    def close(self, *, is_broken: bool = False) -> None:
        """Close in order, or break the connection."""
        if self.is_closed:
            return
        self.is_closed = True
        if is_broken:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
        self._sock.close()

    @property
    def _queued_end(self) -> int:
        return self.wire_end + sum(len(view) for view in self._unsent)

    def _queue(self, data: bytes) -> None:
        self._unsent.append(memoryview(data))
        if len(self._unsent) == 1:
            self.flush()

    def _send(self, view: memoryview) -> int:
        """One system call; 0 where the kernel's buffer is full or the peer is gone."""
        before_ns = time.monotonic_ns()
        try:
            num_sent = self._sock.send(view)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return 0
        after_ns = time.monotonic_ns()
        start, self.wire_end = self.wire_end, self.wire_end + num_sent
        self._log.sends.append(
            LoggedSend(self.number, start, self.wire_end, before_ns, after_ns, self._num_held())
        )
        return num_sent

    def _num_held(self) -> int:
        """Bytes the kernel keeps back: they arrive later than the send returned."""
        held: int = _INT.unpack(fcntl.ioctl(self.fd, _SIOCOUTQNSD, bytes(_INT.size)))[0]
        return held
