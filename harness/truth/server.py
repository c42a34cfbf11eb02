"""The truth server: plays scripts on time from a loop of its own, in a process of its own.

It shares nothing with the client it is there to check but the kernel: its own event loop, its own
request parser, its own framing, its own log. When it is late, the log says so; truth is what was
sent, never what was planned.
"""

from __future__ import annotations

import heapq
import select
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.timerfd import TimerFd
from harness.truth.connection import Connection
from harness.truth.log import LoggedRequest, TruthLog
from harness.truth.player import Player, prepare
from harness.truth.protocol import Answer, Ask, Protocol, ShowLog
from harness.truth.script import Script

__all__ = ["TruthServer"]

_NS_PER_MS = 1_000_000
_READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


@dataclass(slots=True)
class _Peer:
    """A connection, who reads its requests, and the reply in progress."""

    connection: Connection
    protocol: Protocol
    player: Player | None = None
    is_watched_for_room: bool = False


class TruthServer:
    """Serves scripts on a listening socket until one of `stop_fds` becomes readable.

    Args:
        listener: bound and listening; closed at the end.
        scripts: by name.
        log: where sends go.
        context: serves TLS where given.
        accept_delay_ms: a slow accept: every new connection is left waiting that long.
    """

    def __init__(
        self,
        listener: socket.socket,
        scripts: Mapping[str, Script],
        *,
        log: TruthLog,
        context: ssl.SSLContext | None = None,
        accept_delay_ms: float = 0.0,
    ) -> None:
        self._listener = listener
        self._prepared = prepare(scripts)
        self._log = log
        log.is_sealed = context is not None
        self._context = context
        self._accept_delay_ns = round(accept_delay_ms * _NS_PER_MS)
        self._peers: dict[int, _Peer] = {}
        self._num_connections = 0
        # at_ns, turn, descriptor: of a peer's next step, or of the listener.
        self._due: list[tuple[int, int, int]] = []
        self._turn = 0
        self._armed_ns = 0
        self._epoll = select.epoll()
        self._timer = TimerFd()

    def run(self, stop_fds: Sequence[int]) -> None:
        """Serve; everything is closed when it returns."""
        stops = set(stop_fds)
        self._listener.setblocking(False)
        watched = (self._listener.fileno(), self._timer.fd, *stop_fds)
        for fd in watched:
            self._epoll.register(fd, _READABLE)
        try:
            while not stops & self._turn_once():
                pass
        finally:
            for peer in self._peers.values():
                peer.connection.close()
            self._timer.close()
            self._epoll.close()
            self._listener.close()

    def _turn_once(self) -> set[int]:
        """Wait for something to happen and deal with it; the descriptors it happened on."""
        if self._due and self._due[0][0] != self._armed_ns:
            self._armed_ns = self._due[0][0]
            self._timer.arm(self._armed_ns)
        happened = self._epoll.poll()
        listener_fd = self._listener.fileno()
        for fd, mask in happened:
            if fd == self._timer.fd:
                self._timer.acknowledge()
                self._armed_ns = 0
            elif fd == listener_fd:
                self._on_knock()
            elif fd in self._peers:
                self._on_event(self._peers[fd], mask)
            self._run_due()
        return {fd for fd, _ in happened}

    # -- time --------------------------------------------------------------------------------

    def _at(self, at_ns: int, fd: int) -> None:
        self._turn += 1
        heapq.heappush(self._due, (at_ns, self._turn, fd))

    def _run_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, _, fd = heapq.heappop(self._due)
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._peers:
                self._step(self._peers[fd])

    def _step(self, peer: _Peer) -> None:
        player = peer.player
        due_ns = None if player is None else player.next_due_ns
        if player is None or due_ns is None:
            return
        if due_ns > time.monotonic_ns():
            self._at(due_ns, peer.connection.fd)  # left over from an earlier owner of this number
            return
        player.step()
        self._after_write(peer)
        if peer.connection.is_closed:
            return
        due_ns = player.next_due_ns
        if due_ns is not None:
            self._at(due_ns, peer.connection.fd)
        else:
            peer.player = None
            self._read_requests(peer)

    # -- connections -------------------------------------------------------------------------

    def _on_knock(self) -> None:
        if self._accept_delay_ns:
            # Deaf until then, so that the knocking does not keep the loop awake.
            self._epoll.modify(self._listener.fileno(), 0)
            self._at(time.monotonic_ns() + self._accept_delay_ns, self._listener.fileno())
        else:
            self._accept()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except OSError:
                break  # out of descriptors, or gone before it was taken: the client sees it
            self._num_connections += 1
            connection = Connection(
                sock, self._num_connections, log=self._log, context=self._context
            )
            self._peers[connection.fd] = _Peer(connection, Protocol(self._prepared.keys()))
            self._epoll.register(connection.fd, _READABLE)
        if self._accept_delay_ns:
            self._epoll.modify(self._listener.fileno(), _READABLE)

    def _on_event(self, peer: _Peer, mask: int) -> None:
        connection = peer.connection
        if mask & select.EPOLLOUT:
            connection.flush()
            self._after_write(peer)
        if mask & _READABLE and not connection.is_closed:
            if connection.receive():
                self._after_write(peer)
                self._read_requests(peer)
            else:
                connection.close()
        if connection.is_closed:
            self._forget(peer)

    def _read_requests(self, peer: _Peer) -> None:
        """Start the next reply, if one is asked for and none is in progress."""
        connection = peer.connection
        while peer.player is None and not connection.is_closed:
            asked = peer.protocol.take(connection.inbox)
            if asked is None:
                return
            if isinstance(asked, ShowLog):
                asked = asked.answer(self._log.to_bytes())
            if isinstance(asked, Answer):
                connection.write(asked.data)
                if asked.is_last:
                    connection.close()
                self._after_write(peer)
            else:
                self._begin(peer, asked)

    def _begin(self, peer: _Peer, asked: Ask) -> None:
        log, connection = self._log, peer.connection
        received_ns, number = connection.received_ns, len(log.requests) + 1
        log.requests.append(
            LoggedRequest(number, connection.number, asked.script, asked.framing.name, received_ns)
        )
        peer.player = Player(
            self._prepared[asked.script],
            connection,
            framing=asked.framing,
            number=number,
            received_ns=received_ns,
            log=log,
        )
        due_ns = peer.player.next_due_ns
        if due_ns is not None:
            self._at(due_ns, connection.fd)

    def _after_write(self, peer: _Peer) -> None:
        """Watch for room while there is something left to write; drop what was closed."""
        connection = peer.connection
        if connection.is_closed:
            self._forget(peer)
        elif connection.has_unsent != peer.is_watched_for_room:
            peer.is_watched_for_room = connection.has_unsent
            room = select.EPOLLOUT if connection.has_unsent else 0
            self._epoll.modify(connection.fd, _READABLE | room)

    def _forget(self, peer: _Peer) -> None:
        # Closing took the descriptor out of the epoll set already.
        if self._peers.get(peer.connection.fd) is peer:
            del self._peers[peer.connection.fd]
