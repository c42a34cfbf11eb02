"""A non-blocking TCP socket whose reads carry the kernel's receive stamps.

Facts that decide the shape (measured, see harness/README.md, "How stamps are made"):
- the kernel's stamp does not move when the client is late, so it is the arrival;
- Linux merges queued segments and keeps the stamp of the last byte. Reading in small pieces would
  only hide that, so reads are large, and whoever parses knows that several deliveries of one read
  share one stamp, exact for the last of them;
- a read that came back short emptied the queue, which bounds how early the next bytes can be.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from harness.clock import Clock
from harness.wire.connection import Address, ByteReceiver, OnSent, Stamp, StreamPhases
from harness.wire.segments import SegmentCounter

__all__ = ["SO_TIMESTAMPNS", "ReadStats", "SocketOptions", "StampedSocket"]

# <asm-generic/socket.h>; Python 3.11's socket module does not name it.
SO_TIMESTAMPNS = 35
READ_BYTES = 64 * 1024
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
_NS = 1_000_000_000
# Reads of one socket before the loop looks at the others.
_MAX_READS_PER_WAKE = 4
# The stamp is made before the segment is queued, so it may lie before a moment at which the queue
# was seen empty, by as long as the kernel took. A larger step back makes us look at the clocks.
_SUSPECT_NS = 1_000_000
_KEEPALIVE_PROBES = 3
# A slow reader takes what its line carries in a twentieth of a second at once.
_SLOW_READS_PER_S = 20
_PEER_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN)


@dataclass(slots=True)
class ReadStats:
    """Counts over all sockets of one wire, for the self-check."""

    num_reads: int = 0
    num_bytes: int = 0
    num_kernel_stamps: int = 0
    num_user_stamps: int = 0
    num_full_reads: int = 0
    num_clamped: int = 0
    on_self_delay: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """How every socket of one wire is set up.

    `tick` runs before each read, so that due sends come first; `at` calls back at a moment.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    tick: Callable[[], None]
    at: Callable[[int, Callable[[], None]], object]
    stats: ReadStats
    is_kernel_stamped: bool = True
    dead_peer_s: float | None = None
    make_socket: Callable[[int, int], socket.socket] = socket.socket
    polled_ns: Callable[[], int] = int


class StampedSocket:
    """One TCP connection on `add_reader` and `recvmsg`. See `ByteStream`."""

    __slots__ = (
        "_connected_ns", "_fd", "_floor_ns", "_is_drained", "_is_writing", "_last_arrival_ns",
        "_options", "_read_bytes", "_read_rate", "_receiver", "_segments", "_sock", "_unsent",
        "_watched_ns",
    )  # fmt: skip

    def __init__(self, options: SocketOptions, receiver: ByteReceiver) -> None:
        self._options = options
        self._receiver: ByteReceiver | None = receiver
        self._sock: socket.socket | None = None
        self._fd = -1
        self._floor_ns = 0
        self._connected_ns = 0
        self._last_arrival_ns = 0
        self._is_writing = False
        self._is_drained = True
        self._watched_ns = 0
        self._read_bytes = READ_BYTES
        self._read_rate: int | None = None
        self._segments: SegmentCounter | None = None
        self._unsent: deque[tuple[memoryview, OnSent | None]] = deque()

    # -- opening and closing -----------------------------------------------------------------

    def connect(self, address: Address) -> None:
        """Begin to connect; the system's refusal comes back through `on_error`, never raised."""
        self._floor_ns = self._last_arrival_ns = self._options.clock.now_ns()
        loop = self._options.loop
        try:
            self._sock = self._options.make_socket(address.family, socket.SOCK_STREAM)
            self._fd = self._sock.fileno()
            self._set_up(self._sock)
            code = self._sock.connect_ex(address.sockaddr)
        except OSError as error:
            loop.call_soon(self._report_error, error)
            return
        if code in (0, errno.EINPROGRESS, errno.EINTR):
            self._is_writing = True
            loop.add_writer(self._fd, self._on_connect_done)
        else:
            loop.call_soon(self._report_error, OSError(code, errno.errorcode.get(code, "")))

    def _set_up(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._options.is_kernel_stamped:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self._segments = SegmentCounter(sock)
        if self._options.dead_peer_s is not None:
            _watch_peer(sock, self._options.dead_peer_s)

    def _on_connect_done(self) -> None:
        sock, receiver = self._sock, self._receiver
        if sock is None or receiver is None:
            return
        self._stop_writing()
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._report_error(OSError(code, errno.errorcode.get(code, "")))
            return
        self._connected_ns = self._watched_ns = self._options.clock.now_ns()
        self._options.loop.add_reader(self._fd, self._on_readable)
        receiver.on_connected(StreamPhases(self._connected_ns))

    def close(self) -> None:
        """Give the descriptor back; no more calls to the receiver."""
        self._receiver = None
        self._unsent.clear()
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._stop_writing()
        self._options.loop.remove_reader(self._fd)
        sock.close()

    # -- writing -----------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """Whether bytes are still waiting to be written."""
        return bool(self._unsent)

    def write(self, data: bytes, on_sent: OnSent | None = None) -> None:
        """Write now as far as the system takes it, and the rest when it does."""
        self._unsent.append((memoryview(data), on_sent))
        if len(self._unsent) == 1:
            self._flush()

    def mark_drained(self, now_ns: int) -> None:
        """Raise the floor: the answer to a request cannot arrive before it is sent."""
        self._floor_ns = max(self._floor_ns, now_ns)

    def _flush(self) -> None:
        sock = self._sock
        while self._unsent and sock is not None:
            view, on_sent = self._unsent[0]
            before_ns = self._options.clock.now_ns()
            try:
                num_sent = sock.send(view)
            except (BlockingIOError, InterruptedError):
                num_sent = 0
            except OSError as error:
                self._on_write_error(error, on_sent, before_ns)
                return
            if num_sent and on_sent is not None:
                on_sent(before_ns)
                on_sent = None
            if num_sent < len(view):
                if self._sock is not None:
                    self._unsent[0] = (view[num_sent:], on_sent)
                    self._start_writing()
                return
            if self._unsent:  # `on_sent` may have closed us
                self._unsent.popleft()
        self._stop_writing()

    def _on_write_error(self, error: OSError, on_sent: OnSent | None, before_ns: int) -> None:
        self._stop_writing()
        self._unsent.clear()
        if on_sent is not None:
            on_sent(before_ns)  # it was tried; the stamp is when
        if error.errno not in _PEER_GONE:
            self._options.loop.call_soon(self._report_error, error)
        # Otherwise the peer is gone, but may have said why: the read side tells.

    def _start_writing(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._options.loop.add_writer(self._fd, self._flush)

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._options.loop.remove_writer(self._fd)

    # -- reading -----------------------------------------------------------------------------

    def limit_reading(self, bytes_per_s: int | None) -> None:
        """Read no faster than this, in small pieces; None: as fast as bytes come."""
        self._read_rate = bytes_per_s
        self._read_bytes = READ_BYTES
        if bytes_per_s is not None and self._sock is not None:
            self._read_bytes = max(1, min(READ_BYTES, bytes_per_s // _SLOW_READS_PER_S))
            # The server is to feel it: a small window, not a kernel that reads ahead for us.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max(2048, bytes_per_s // 4))

    def _rest(self, num_bytes: int) -> None:
        """Stop reading for as long as these bytes take on the thin line."""
        assert self._read_rate is not None
        self._options.loop.remove_reader(self._fd)
        pause_ns = num_bytes * _NS // self._read_rate
        self._options.at(self._options.clock.now_ns() + pause_ns, self._read_on)

    def _read_on(self) -> None:
        if self._sock is not None:
            self._watched_ns = self._options.clock.now_ns()
            self._options.loop.add_reader(self._fd, self._on_readable)

    def _on_readable(self) -> None:
        try:
            self._read()
        except Exception:
            # A fault of ours. The bytes are still there, so the loop would call again for ever.
            if self._sock is not None:
                self._options.loop.remove_reader(self._fd)
            raise

    def _read(self) -> None:
        self._options.tick()
        now_ns, stats = self._options.clock.now_ns, self._options.stats
        polled_ns = self._options.polled_ns()
        if self._is_drained and polled_ns > max(self._floor_ns, self._watched_ns):
            self._floor_ns = polled_ns
        for _ in range(_MAX_READS_PER_WAKE):
            sock, receiver = self._sock, self._receiver
            if sock is None or receiver is None:
                return
            before_ns = now_ns()
            try:
                data, ancillary, _, _ = sock.recvmsg(self._read_bytes, _ANCILLARY_BYTES)
            except (BlockingIOError, InterruptedError):
                self._floor_ns = before_ns
                self._is_drained = True
                return
            except OSError as error:
                self._report_error(error)
                return
            read_ns = now_ns()
            if not data:
                self._options.loop.remove_reader(self._fd)
                receiver.on_eof(self._user_stamp(read_ns))
                return
            stats.num_reads += 1
            stats.num_bytes += len(data)
            is_drained = self._is_drained = len(data) < self._read_bytes
            if self._segments is not None:
                self._segments.note_read(len(data), is_drained=is_drained)
            stamp = self._stamp(ancillary, read_ns)
            if not is_drained:
                stamp = stamp.merged()  # the stamp may be of bytes that are still in the queue
            # Before the receiver runs, which may send the next request and raise the floor itself.
            if is_drained:
                self._floor_ns = before_ns
            else:
                stats.num_full_reads += 1
            receiver.on_bytes(data, stamp)
            if self._read_rate is not None and self._sock is not None:
                self._rest(len(data))
                return
            if is_drained:
                self._look_for_break()
                return
        # Not by the next wake-up: see `_look_for_break`.
        self._options.loop.call_soon(self._on_readable)

    def _look_for_break(self) -> None:
        """Ask whether the connection broke behind the bytes just read.

        libuv reports a broken socket once and then stops watching it. Where the reset was there
        together with the last bytes, that one call has just been spent on the bytes, and without
        asking nobody would ever hear of the reset.
        """
        if self._sock is not None:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._report_error(OSError(code, os.strerror(code)))

    def _stamp(self, ancillary: list[tuple[int, int, bytes]], read_ns: int) -> Stamp:
        stats = self._options.stats
        arrival_ns = self._kernel_arrival_ns(ancillary, read_ns)
        if arrival_ns is None:
            stats.num_user_stamps += 1
            return self._user_stamp(read_ns)
        stats.num_kernel_stamps += 1
        if arrival_ns < self._last_arrival_ns:
            stats.num_clamped += 1
            arrival_ns = self._last_arrival_ns
        arrival_ns = min(arrival_ns, read_ns)
        self._last_arrival_ns = arrival_ns
        if stats.on_self_delay is not None:
            stats.on_self_delay(read_ns - arrival_ns)
        is_single = None if self._segments is None else self._segments.is_single
        return Stamp(arrival_ns, read_ns, min(self._floor_ns, arrival_ns), is_single=is_single)

    def _kernel_arrival_ns(
        self, ancillary: list[tuple[int, int, bytes]], read_ns: int
    ) -> int | None:
        """The kernel's stamp on the run clock; None where there is none that can be believed."""
        clock = self._options.clock
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack(payload[: _TIMESPEC.size])
                realtime_ns = seconds * _NS + nanoseconds
                break
        else:
            return None
        arrival_ns = clock.from_realtime_ns(realtime_ns)
        if arrival_ns is None:
            return None
        if arrival_ns > read_ns or arrival_ns < self._floor_ns - _SUSPECT_NS:
            # Either the kernel was slow to queue it, or somebody set the wall clock: look.
            clock.sample()
            arrival_ns = clock.from_realtime_ns(realtime_ns)
        if arrival_ns is None or clock.is_void(self._floor_ns, read_ns):
            return None
        return arrival_ns

    def _user_stamp(self, read_ns: int) -> Stamp:
        self._last_arrival_ns = read_ns
        return Stamp(read_ns, read_ns, min(self._floor_ns, read_ns), is_exact=False)

    def _report_error(self, error: OSError) -> None:
        if self._sock is not None:
            self._stop_writing()
            self._options.loop.remove_reader(self._fd)
        receiver = self._receiver
        if receiver is not None:
            receiver.on_error(error, self._user_stamp(self._options.clock.now_ns()))


def _watch_peer(sock: socket.socket, dead_peer_s: float) -> None:
    """Have the kernel probe a silent peer, so that a dead one is found within about that time."""
    interval_s = max(1, round(dead_peer_s / (_KEEPALIVE_PROBES + 1)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", interval_s),
        ("TCP_KEEPINTVL", interval_s),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", round(dead_peer_s * 1000)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
