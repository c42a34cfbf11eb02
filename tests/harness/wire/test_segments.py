"""Counting segments tells one delivery from several merged ones; in doubt it says so."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from harness.wire.segments import SegmentCounter


class Kernel:
    """Counts as the kernel does: what arrived so far, in bytes and in data segments."""

    def __init__(self) -> None:
        self.num_bytes = self.num_segments = 0
        self.asked = 0
        self.in_flight = 0  # counted as segments, not yet as bytes

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        self.asked += 1
        counts = struct.pack("=128xQ16xI", self.num_bytes, self.num_segments + self.in_flight)
        return counts[:size]


@dataclass
class Rig:
    kernel: Kernel = field(default_factory=Kernel)
    counter: SegmentCounter = field(init=False)

    def __post_init__(self) -> None:
        self.counter = SegmentCounter(self.kernel)  # type: ignore[arg-type]

    def read(self, *segments: int, is_drained: bool = True) -> None:
        """These segments arrived, and one read returned them all."""
        self.kernel.num_segments += len(segments)
        self.kernel.num_bytes += sum(segments)
        self.counter.note_read(sum(segments), is_drained=is_drained)


def test_read_of_one_segment_is_single():
    """The first on the connection."""
    rig = Rig()
    rig.read(100)

    assert rig.counter.is_single()


def test_read_of_two_segments_is_not():
    """Two sends, one read."""
    rig = Rig()
    rig.read(100, 40)

    assert not rig.counter.is_single()


def test_reads_that_nobody_asked_about_count_too():
    """Four single reads, and the question only at the last."""
    rig = Rig()
    for size in (10, 20, 30, 40):
        rig.read(size)

    assert rig.counter.is_single()
    assert 1 == rig.kernel.asked


def test_earlier_merger_that_nobody_asked_about_leaves_doubt_once():
    """It might have been this read; the next one is clear again."""
    rig = Rig()
    rig.read(10, 20)
    rig.read(30)
    assert not rig.counter.is_single()

    rig.read(40)
    assert rig.counter.is_single()


def test_same_read_gets_the_same_answer():
    """Several deliveries of one read ask one after the other."""
    rig = Rig()
    rig.read(10, 20)

    assert [False, False] == [rig.counter.is_single(), rig.counter.is_single()]


def test_bytes_that_came_since_the_read_leave_doubt():
    """The counts are of more than what was read."""
    rig = Rig()
    rig.read(10)
    rig.kernel.num_bytes += 5
    rig.kernel.num_segments += 1

    assert not rig.counter.is_single()


def test_read_that_left_bytes_behind_makes_counting_useless_until_the_next_base():
    """A segment may lie across two reads."""
    rig = Rig()
    rig.read(65_536, is_drained=False)
    rig.read(10)
    assert not rig.counter.is_single()

    rig.read(20)
    assert rig.counter.is_single()


def test_segment_counted_before_its_bytes_makes_no_base():
    """Else the count would be one too high, and the next merger would look like one segment."""
    rig = Rig()
    rig.read(10, 20)
    counts = iter([3, 2])
    rig.kernel.getsockopt = lambda *_: struct.pack("=128xQ16xI", 30, next(counts))  # type: ignore[method-assign]
    assert not rig.counter.is_single()

    del rig.kernel.getsockopt
    rig.read(30, 40)
    assert not rig.counter.is_single()


def test_system_without_the_counts_is_in_doubt():
    """An older kernel returns fewer bytes."""
    rig = Rig()
    rig.kernel.getsockopt = lambda *_: b"short"  # type: ignore[method-assign]
    rig.read(10)

    assert not rig.counter.is_single()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and a server on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, server:
            yield client, server


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="no TCP_INFO on this system")
def test_real_kernel_tells_one_send_from_three(pair: tuple[socket.socket, socket.socket]):
    """One send of 300 bytes, then three of 100 before anybody reads, then one again."""
    client, server = pair
    counter = SegmentCounter(client)
    answers = []
    for sizes in ((300,), (100, 100, 100), (300,)):
        for size in sizes:
            server.send(b"x" * size)
        counter.note_read(len(client.recv(65_536)), is_drained=True)
        answers.append(counter.is_single())

    assert [True, False, True] == answers
