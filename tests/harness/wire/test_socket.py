"""Stamps of a non-blocking socket that does as it is told."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable

import pytest

from harness.clock import FakeClock
from harness.wire.connection import Address, Stamp
from harness.wire.socket import READ_BYTES, SO_TIMESTAMPNS, ReadStats, SocketOptions, StampedSocket
from tests.builders.wire import Received, ms

# -- a socket that does as it is told --------------------------------------------------------------


class _ScriptedLoop:
    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self.soon: list[Callable[[], None]] = []

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int) -> None:
        self.writers.pop(fd, None)

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.soon.append(lambda: callback(*args))


class _ScriptedSocket:
    """Reads come from a list: (bytes, wall stamp or None), or an exception."""

    def __init__(self) -> None:
        self.reads: list[tuple[bytes, int | None] | OSError] = []
        self.sent = b""
        self.room = 1 << 30
        self.send_error: OSError | None = None
        self.is_closed = False
        self.options: dict[tuple[int, int], int] = {}
        # What happens while a system call lasts.
        self.on_call: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return 99

    def setblocking(self, value: bool) -> None: ...

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.options[level, name] = value

    def getsockopt(self, level: int, name: int, size: int = 0) -> int | bytes:
        return bytes(size) if size else 0

    def connect_ex(self, address: object) -> int:
        return errno.EINPROGRESS

    def close(self) -> None:
        self.is_closed = True

    def send(self, data: memoryview) -> int:
        self.on_call()
        if self.send_error is not None:
            raise self.send_error
        if not self.room:
            raise BlockingIOError
        num = min(self.room, len(data))
        self.room -= num
        self.sent += bytes(data[:num])
        return num

    def recvmsg(
        self, size: int, space: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        self.on_call()
        if not self.reads:
            raise BlockingIOError
        step = self.reads.pop(0)
        if isinstance(step, OSError):
            raise step
        data, wall_ns = step
        ancillary = []
        if wall_ns is not None:
            payload = struct.pack("@qq", *divmod(wall_ns, 1_000_000_000))
            ancillary = [(socket.SOL_SOCKET, SO_TIMESTAMPNS, payload)]
        return data, ancillary, 0, None


class Rig:
    """A stamped socket on a scripted one, connected at 1 ms."""

    def __init__(self, *, dead_peer_s: float | None = None) -> None:
        self.clock, self.loop, self.sock = FakeClock(), _ScriptedLoop(), _ScriptedSocket()
        self.stats, self.received, self.ticks = ReadStats(), Received(), []
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.polled_ns = 0
        options = SocketOptions(
            loop=self.loop,  # type: ignore[arg-type]
            clock=self.clock,
            tick=lambda: self.ticks.append(self.clock.now_ns()),
            at=lambda due_ns, callback: self.later.append((due_ns, callback)),
            stats=self.stats,
            dead_peer_s=dead_peer_s,
            make_socket=lambda *_: self.sock,  # type: ignore[arg-type, return-value]
            polled_ns=lambda: self.polled_ns,
        )
        self.stream = StampedSocket(options, self.received)
        self.clock.advance_ns(ms(1))
        self.stream.connect(Address(socket.AF_INET, ("127.0.0.1", 1)))
        self.loop.writers[99]()

    def wall_ns(self, at_ms: float) -> int:
        return self.clock.realtime_ns() - self.clock.now_ns() + ms(at_ms)

    def read(self, data: bytes, *, at_ms: float | None, now_ms: float) -> Stamp:
        self.clock.advance_ns(ms(now_ms) - self.clock.now_ns())
        self.sock.reads.append((data, None if at_ms is None else self.wall_ns(at_ms)))
        self.loop.readers[99]()
        return self.received.stamps[-1]


def test_arrival_is_the_kernels_and_read_is_ours():
    """A client that comes 5 ms late does not move the arrival."""
    assert Stamp(ms(10), ms(15), ms(1)) == Rig().read(b"abc", at_ms=10, now_ms=15)


def test_floor_is_the_last_moment_the_socket_was_drained():
    """A short read emptied it, so what comes next came after that."""
    rig = Rig()
    rig.read(b"abc", at_ms=10, now_ms=15)

    assert ms(15) == rig.read(b"def", at_ms=20, now_ms=30).floor_ns


def test_floor_is_the_moment_before_the_call_that_found_the_end():
    """What came while that call lasted came after it."""
    rig = Rig()
    rig.sock.on_call = lambda: rig.clock.advance_ns(ms(2))
    rig.read(b"abc", at_ms=10, now_ms=15)

    assert ms(15) == rig.read(b"def", at_ms=20, now_ms=30).floor_ns


def test_floor_is_no_earlier_than_the_loop_looked_everywhere():
    """Drained at 15, but the loop asked all sockets after 20 and this one was still empty."""
    rig = Rig()
    rig.read(b"abc", at_ms=10, now_ms=15)
    rig.polled_ns = ms(20)

    assert ms(20) == rig.read(b"def", at_ms=25, now_ms=30).floor_ns


def test_loop_that_looked_elsewhere_says_nothing_of_a_socket_with_bytes_left():
    """A full read stopped short of the end of the queue; what is left may be old."""
    rig = Rig()
    rig.sock.reads = [(b"x" * READ_BYTES, rig.wall_ns(5))] * 4
    rig.loop.readers[99]()
    rig.polled_ns = ms(20)

    assert ms(1) == rig.read(b"rest", at_ms=5, now_ms=30).floor_ns


def test_a_full_read_does_not_raise_the_floor():
    """There may be more of the same in the queue."""
    rig = Rig()
    rig.sock.reads = [(b"x" * READ_BYTES, rig.wall_ns(5)), (b"y", rig.wall_ns(6))]
    rig.clock.advance_ns(ms(9))
    rig.loop.readers[99]()

    assert [ms(1), ms(1)] == [stamp.floor_ns for stamp in rig.received.stamps]
    assert [False, True] == [stamp.is_exact for stamp in rig.received.stamps]
    assert 1 == rig.stats.num_full_reads


def test_nothing_there_raises_the_floor():
    """A wake-up that found the socket empty knows that it was empty."""
    rig = Rig()
    rig.clock.advance_ns(ms(7))
    rig.loop.readers[99]()

    assert ms(8) == rig.read(b"abc", at_ms=10, now_ms=11).floor_ns


def test_sending_a_request_raises_the_floor():
    """Its answer cannot be older than itself."""
    rig = Rig()
    rig.stream.mark_drained(ms(9))

    assert ms(9) == rig.read(b"abc", at_ms=10, now_ms=11).floor_ns


def test_an_earlier_send_does_not_lower_the_floor():
    """A second write of the same request says nothing new."""
    rig = Rig()
    rig.stream.mark_drained(ms(9))
    rig.stream.mark_drained(ms(4))

    assert ms(9) == rig.read(b"abc", at_ms=10, now_ms=11).floor_ns


def test_nothing_arrives_after_it_was_read():
    """A stamp beyond the read, without a step of the clock, is an error of the conversion."""
    assert Stamp(ms(15), ms(15), ms(1)) == Rig().read(b"abc", at_ms=15.5, now_ms=15)


def test_arrivals_never_go_back():
    """Stamps of two cores may be some microseconds out of order; a connection's are not."""
    rig = Rig()
    first = rig.read(b"a", at_ms=10, now_ms=11)
    second = rig.read(b"b", at_ms=9.999, now_ms=12)

    assert first.arrival_ns == second.arrival_ns
    assert 1 == rig.stats.num_clamped


def test_without_a_kernel_stamp_the_read_is_the_arrival():
    """And it is marked as one that is not exact, for whoever computes the uncertainty."""
    stamp = Rig().read(b"abc", at_ms=None, now_ms=15)

    assert Stamp(ms(15), ms(15), ms(1), is_exact=False) == stamp


def test_stamp_around_a_wall_clock_step_is_not_believed():
    """The wall clock jumped between the readings around this delivery: the user stamp counts."""
    rig = Rig()
    rig.clock.advance_ns(ms(9))
    rig.clock.set_wall_clock(ms(5000))
    stamp = rig.read(b"abc", at_ms=12, now_ms=15)

    assert Stamp(ms(15), ms(15), ms(1), is_exact=False) == stamp
    assert 1 == len(rig.clock.steps)


def test_stamps_after_the_step_are_kernel_stamps_again():
    """One interval is lost, not the run."""
    rig = Rig()
    rig.clock.set_wall_clock(ms(5000))
    rig.read(b"abc", at_ms=12, now_ms=15)

    assert ms(20) == rig.read(b"def", at_ms=20, now_ms=25).arrival_ns


def test_kernel_that_was_slow_to_queue_is_believed():
    """A stamp 3 ms before a moment at which the queue was empty, and no step: the floor yields."""
    rig = Rig()
    rig.read(b"a", at_ms=10, now_ms=15)

    assert Stamp(ms(12), ms(20), ms(12)) == rig.read(b"b", at_ms=12, now_ms=20)


def test_due_sends_go_before_the_read():
    """Every read callback first looks whether something is to be sent."""
    rig = Rig()
    rig.read(b"a", at_ms=10, now_ms=15)

    assert [ms(15)] == rig.ticks


def test_first_byte_of_a_write_is_stamped_before_its_call():
    """Also when the system takes it only later."""
    rig, sent = Rig(), []
    rig.sock.room = 0
    rig.stream.write(b"hello", sent.append)
    rig.clock.advance_ns(ms(4))
    rig.sock.room = 2
    rig.loop.writers[99]()
    rig.clock.advance_ns(ms(4))
    rig.sock.room = 100
    rig.loop.writers[99]()

    assert [ms(5)] == sent
    assert b"hello" == rig.sock.sent


def test_the_system_call_is_no_part_of_its_own_stamp():
    """However long it takes."""
    rig, sent = Rig(), []
    rig.sock.on_call = lambda: rig.clock.advance_ns(ms(3))
    rig.stream.write(b"hello", sent.append)

    assert [ms(1)] == sent


def test_small_writes_are_not_held_back():
    """The kernel would wait for an acknowledgement to fill its segment."""
    assert 1 == Rig().sock.options[socket.IPPROTO_TCP, socket.TCP_NODELAY]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="options of Linux")
def test_the_kernel_finds_a_dead_peer_within_the_limit():
    """Silence, then probes, then the end: together about as long as the user allows."""
    options = Rig(dead_peer_s=40).sock.options
    idle_s, interval_s, num_probes = (
        options[socket.IPPROTO_TCP, name]
        for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )

    assert 1 == options[socket.SOL_SOCKET, socket.SO_KEEPALIVE]
    assert 40 == idle_s + interval_s * num_probes
    assert 40_000 == options[socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT]


def test_a_write_in_parts_leaves_nothing_behind():
    """Neither bytes nor a callback that would wake the loop for ever."""
    rig = Rig()
    rig.sock.room = 2
    rig.stream.write(b"hello", None)
    rig.sock.room = 100
    rig.loop.writers[99]()

    assert not rig.stream.has_unsent
    assert {} == rig.loop.writers


def test_a_peer_that_closed_its_reading_side_may_have_said_why():
    """A write that fails because the peer is gone leaves the word to the read side."""
    rig = Rig()
    rig.sock.send_error = BrokenPipeError(errno.EPIPE, "")
    rig.stream.write(b"hello", None)
    for callback in rig.loop.soon:
        callback()
    rig.read(b"429", at_ms=10, now_ms=11)

    assert [] == rig.received.errors
    assert [b"429"] == rig.received.data


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.ETIMEDOUT])
def test_read_errors_are_reported_once_and_stop_reading(code: int):
    """No spinning on a dead socket."""
    rig = Rig()
    rig.sock.reads = [OSError(code, "")]
    rig.loop.readers[99]()

    assert [code] == [error.errno for error in rig.received.errors]
    assert {} == rig.loop.readers


def test_end_of_stream_stops_reading():
    """A closed peer would otherwise wake the loop for ever."""
    rig = Rig()
    rig.sock.reads = [(b"", None)]
    rig.loop.readers[99]()

    assert rig.received.is_eof
    assert {} == rig.loop.readers


def test_closed_socket_calls_nobody():
    """Not even for a connect that fails afterwards."""
    rig = Rig()
    rig.stream.close()
    for callback in rig.loop.soon:
        callback()

    assert rig.sock.is_closed
    assert ({}, {}) == (rig.loop.readers, rig.loop.writers)


def test_slow_reader_takes_small_pieces_and_rests():
    """1,000 bytes a second: 50 at once, then nothing for 50 ms."""
    rig = Rig()
    rig.stream.limit_reading(1000)
    rig.read(b"x" * 50, at_ms=10, now_ms=15)

    assert {} == rig.loop.readers
    due_ns, go_on = rig.later[0]
    assert ms(65) == due_ns
    go_on()
    assert 99 in rig.loop.readers
