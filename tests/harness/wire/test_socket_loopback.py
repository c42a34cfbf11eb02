"""Stamps and errors of a non-blocking socket, on loopback."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable

import pytest

from harness.clock import RunClock
from harness.loop import run
from harness.wire.connection import Address, Stamp
from harness.wire.socket import ReadStats, SocketOptions, StampedSocket
from harness.wire.stamping import StampAnchor, kernel_stamps_work
from tests.builders.wire import Received


def _options(clock: RunClock, *, is_kernel_stamped: bool = True) -> SocketOptions:
    loop = asyncio.get_running_loop()
    return SocketOptions(
        loop, clock, lambda: None, lambda *_: None, ReadStats(), is_kernel_stamped, 30.0
    )


@pytest.mark.parametrize("runner", [run, asyncio.run], ids=["default loop", "asyncio"])
def test_reset_behind_the_last_bytes_is_heard_of(runner: Callable):
    """Bytes and reset are there before the loop looks: first the bytes, then the error."""

    async def receive() -> Received:
        received = Received()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stream = StampedSocket(_options(RunClock()), received)
            stream.connect(Address(socket.AF_INET, listener.getsockname()))
            await received.until(lambda: bool(received.phases))
            peer, _ = listener.accept()
            # On the loop's own thread, so that it sees both at once.
            peer.send(b"last words")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
            peer.close()
            await received.until(lambda: bool(received.errors))
            stream.close()
        return received

    received = runner(receive())

    assert [b"last words"] == received.data
    assert [errno.ECONNRESET] == [error.errno for error in received.errors]


@pytest.mark.parametrize("is_kernel_stamped", [True, False])
@pytest.mark.parametrize("runner", [run, asyncio.run], ids=["default loop", "asyncio"])
def test_arrival_lies_in_the_senders_bracket(is_kernel_stamped: bool, runner: Callable):
    """The kernel's stamp falls between just before and just after the send; ours comes after."""
    clock = RunClock()
    for _ in range(20):
        clock.sample()

    async def main() -> tuple[list[tuple[int, int]], list[Stamp]]:
        anchor, received, brackets = StampAnchor(), Received(), []
        with socket.create_server(("127.0.0.1", 0)) as server:
            stream = StampedSocket(_options(clock, is_kernel_stamped=is_kernel_stamped), received)
            stream.connect(Address(socket.AF_INET, server.getsockname()))
            await received.until(lambda: bool(received.phases))
            peer, _ = server.accept()
            for count in range(1, 21):
                before_ns = clock.now_ns()
                peer.send(b"x" * 100)
                brackets.append((before_ns, clock.now_ns()))
                await received.until(lambda count=count: len(received.data) == count)
            peer.close()
            stream.close()
        anchor.close()
        return brackets, received.stamps

    brackets, stamps = runner(main())
    error_ns = clock.uncertainty_ns
    for (before_ns, after_ns), stamp in zip(brackets, stamps, strict=True):
        assert stamp.floor_ns <= stamp.arrival_ns <= stamp.read_ns
        assert before_ns - error_ns <= stamp.arrival_ns
        if is_kernel_stamped and stamp.is_exact:
            assert stamp.arrival_ns <= after_ns + error_ns
        else:
            assert stamp.arrival_ns == stamp.read_ns
    # The kernel switches stamping on in its own time: the first reads may come without.
    assert (10 if is_kernel_stamped else 0) <= sum(stamp.is_exact for stamp in stamps)


def test_merged_sends_share_the_stamp_of_the_last():
    """Three sends while nobody reads come as one read; its floor reaches back before the first."""
    clock = RunClock()

    async def main() -> tuple[int, int, Stamp, bytes]:
        anchor, received = StampAnchor(), Received()
        with socket.create_server(("127.0.0.1", 0)) as server:
            stream = StampedSocket(_options(clock), received)
            stream.connect(Address(socket.AF_INET, server.getsockname()))
            await received.until(lambda: bool(received.phases))
            peer, _ = server.accept()
            first_ns = clock.now_ns()
            peer.send(b"a" * 100)
            peer.send(b"b" * 100)
            last_ns = clock.now_ns()
            peer.send(b"c" * 100)
            await received.until(lambda: bool(received.data))
            peer.close()
            stream.close()
        anchor.close()
        return first_ns, last_ns, received.stamps[0], received.data[0]

    first_ns, last_ns, stamp, data = run(main())

    assert 300 == len(data)
    assert stamp.arrival_ns >= last_ns - clock.uncertainty_ns
    assert stamp.floor_ns <= first_ns


def test_refused_connection_is_an_error_not_an_exception():
    """It comes back through the receiver."""

    async def main() -> list[OSError]:
        received = Received()
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
        stream = StampedSocket(_options(RunClock()), received)
        stream.connect(Address(socket.AF_INET, address))
        await received.until(lambda: bool(received.errors))
        stream.close()
        return received.errors

    assert [errno.ECONNREFUSED] == [error.errno for error in run(main())]


def test_running_out_of_descriptors_is_an_error_not_an_exception():
    """Also when the socket cannot even be made."""

    def no_more(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> list[OSError]:
        received = Received()
        loop = asyncio.get_running_loop()
        options = SocketOptions(
            loop, RunClock(), lambda: None, lambda *_: None, ReadStats(), make_socket=no_more
        )
        stream = StampedSocket(options, received)
        stream.connect(Address(socket.AF_INET, ("127.0.0.1", 1)))
        await received.until(lambda: bool(received.errors))
        stream.close()
        return received.errors

    assert [errno.EMFILE] == [error.errno for error in run(main())]


@pytest.mark.skipif(not hasattr(socket, "CMSG_SPACE"), reason="no ancillary data on this system")
def test_this_system_is_asked_whether_it_stamps():
    """`earwitness check` tells; on Linux loopback it does."""
    assert kernel_stamps_work() is True
