"""A WebSocket server in a thread whose conversation is a function, honest or not."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.utils import accept_key

from engines.base import (
    Action,
    Audio,
    Capabilities,
    Closed,
    Done,
    Event,
    Exchange,
    Fail,
    Headers,
    Message,
    Send,
    SpeechRequest,
    TextDue,
    WebSocketTarget,
)
from engines.outcomes import TransportOutcome
from harness.wire.http_message import Origin
from harness.wire.resolve import Resolver
from harness.wire.websocket import WebSocketConnection, WebSocketOptions
from tests.builders.servers import head
from tests.builders.threaded import ThreadedServer
from tests.builders.wire import FakeStream, FakeTime, Heard

__all__ = ["FakeSession", "Peer", "WsAdapter", "WsExchange", "WsServer"]


class Peer:
    """The server's end of one session."""

    def __init__(self, sock: socket.socket, *, answers_pings: bool = True) -> None:
        self.sock = sock
        self.protocol = ServerProtocol()
        self.answers_pings = answers_pings
        self.request: Request | None = None
        self.brackets: list[tuple[int, int]] = []
        self._events: list[object] = []

    def accept(self, *, status: int | None = None, body: str = "", **headers: str) -> None:
        """Answer the handshake: with a session, or with a status."""
        self.request = self._next_event()  # type: ignore[assignment]
        assert self.request is not None
        if status is None:
            response = self.protocol.accept(self.request)
        else:
            response = self.protocol.reject(status, body)
        for name, value in headers.items():
            response.headers[name.replace("_", "-")] = value
        self.protocol.send_response(response)
        self.flush()

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                before_ns = time.perf_counter_ns()
                self.sock.sendall(data)
                self.brackets.append((before_ns, time.perf_counter_ns()))

    def text(self, data: str, *, fin: bool = True) -> None:
        self.protocol.send_text(data.encode(), fin)
        self.flush()

    def binary(self, data: bytes) -> None:
        self.protocol.send_binary(data)
        self.flush()

    def frame(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> None:
        """Any frame, checked by nobody."""
        before_ns = time.perf_counter_ns()
        self.sock.sendall(Frame(opcode, data, fin).serialize(mask=False))
        self.brackets.append((before_ns, time.perf_counter_ns()))

    def close(self, code: int = 1000, reason: str = "") -> None:
        self.protocol.send_close(code, reason)
        self.flush()

    def messages(self) -> Iterator[Frame]:
        """What the client sends, until it is gone."""
        while (event := self._next_event()) is not None:
            if isinstance(event, Frame):
                yield event

    def _next_event(self) -> object | None:
        while not self._events:
            data = self.sock.recv(65_536)
            if not data:
                return None
            self.protocol.receive_data(data)
            self._events += self.protocol.events_received()
            if self.answers_pings:
                self.flush()
            else:
                self.protocol.data_to_send()
        return self._events.pop(0)


class WsServer(ThreadedServer):
    """Accepts sessions one after another and holds the conversation on each."""

    def __init__(self, converse: Callable[[Peer], None], *, answers_pings: bool = True) -> None:
        super().__init__()
        self._converse = converse
        self._answers_pings = answers_pings
        self.peers: list[Peer] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/say"

    def serve(self, sock: socket.socket) -> None:
        peer = Peer(sock, answers_pings=self._answers_pings)
        self.peers.append(peer)
        with sock:
            self._converse(peer)


class WsExchange:
    """Text out as messages; binary in is audio, `done` ends, a close before it truncates."""

    def __init__(self, text: str, target: WebSocketTarget, *, is_incremental: bool) -> None:
        self.text = text
        self.target = target
        self.is_incremental = is_incremental
        self.headers: Headers | None = None

    def start(self) -> list[Action]:
        if self.is_incremental:
            return [Send("begin")]
        return [Send(self.text, text_seq=0, ends_text=True)]

    def feed(self, event: Event) -> list[Action]:
        match event:
            case Headers():
                self.headers = event
                return []
            case TextDue(seq=seq, text=text, is_last=is_last):
                return [Send(text, text_seq=seq, ends_text=is_last)]
            case Message(data="done"):
                return [Done()]
            case Message(data=str()):
                return []
            case Message(data=data):
                return [Audio(data)]  # type: ignore[arg-type]
            case Closed(code=code, reason=reason):
                text = f"closed {code} {reason}".strip()
                return [Fail(TransportOutcome.TRUNCATED, "session", text)]
            case _:
                return []


class WsAdapter:
    """Opens `WsExchange`s at a URL."""

    name = "ws"
    capabilities = Capabilities(transport="websocket", formats=("s16le",))

    def __init__(self, url: str, **target: object) -> None:
        self.base_url = url
        self._target = WebSocketTarget(url, **target)  # type: ignore[arg-type]

    def open(self, request: SpeechRequest) -> Exchange:
        return WsExchange(request.text, self._target, is_incremental=request.is_incremental)


class FakeSession:
    """A WebSocket session on a fake stream, accepted, with its first text sent."""

    def __init__(
        self, *, max_message_bytes: int = 1 << 20, dead_peer_s: float | None = None
    ) -> None:
        self.time, self.heard = FakeTime(), Heard()
        self.running: set[WebSocketConnection] = set()
        self.streams: list[FakeStream] = []
        target = WebSocketTarget("ws://127.0.0.1/say", max_message_bytes=max_message_bytes)
        self.connection = WebSocketConnection(
            target,
            WebSocketOptions(
                clock=self.time.clock,
                pacer=self.time.pacer,
                resolver=Resolver(None, is_cached=True),  # type: ignore[arg-type]
                make_stream=self._make_stream,
                user_agent="tool",
                dead_peer_s=dead_peer_s,
                running=self.running,
            ),
        )
        self.connection.open(self.heard)
        self.stream.accept()
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", self.stream.written)
        assert key is not None
        answer = accept_key(key[1].decode())
        top = head(101, upgrade="websocket", connection="Upgrade", sec_websocket_accept=answer)
        self.stream.deliver(top)
        self.connection.send(Send("text"), lambda _ns: None)

    def _make_stream(self, origin: Origin, receiver: object) -> FakeStream:
        self.streams.append(FakeStream(receiver, self.time.clock))  # type: ignore[arg-type]
        return self.streams[-1]

    @property
    def stream(self) -> FakeStream:
        return self.streams[-1]
