"""A small HTTP/1.1 server that does exactly what a script says, well or badly.

It speaks bytes, not HTTP objects, so that it can lie about lengths, stop in the middle, reset the
connection or write a header one byte at a time. It runs in a thread of its own, on loopback, and
waits no longer than the script does.

    with ScriptedServer(ok(b"abc")) as server:
        ...  # server.base_url, server.requests, server.sends
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

__all__ = [
    "Close",
    "Reply",
    "Request",
    "Reset",
    "ScriptedServer",
    "SendLog",
    "Step",
    "Wait",
    "WaitForClose",
    "Write",
    "chunk",
    "chunked",
    "head",
    "ok",
    "paced",
    "refusal",
]


@dataclass(frozen=True, slots=True)
class Write:
    """Write these bytes at once, as one send."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so long."""

    ms: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection in order (FIN)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection (RST)."""


@dataclass(frozen=True, slots=True)
class WaitForClose:
    """Keep still until the client has gone away, at most `limit_ms`."""

    limit_ms: float = 5000


Step = Write | Wait | Close | Reset | WaitForClose
Reply = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in. `connection` counts connections from 0."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    at_ns: int

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its case."""
        wanted = name.lower()
        return next((v for k, v in self.headers if k.lower() == wanted), None)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class SendLog:
    """One write: the `time.perf_counter_ns` just before and just after it, and how much."""

    request: int
    before_ns: int
    after_ns: int
    num_bytes: int


Script = Callable[[Request], Reply]


@dataclass(slots=True)
class _State:
    requests: list[Request] = field(default_factory=list)
    sends: list[SendLog] = field(default_factory=list)
    num_connections: int = 0
    num_open: int = 0
    faults: list[BaseException] = field(default_factory=list)


class ScriptedServer:
    """Serves a script on a free loopback port while the `with` block lasts.

    Args:
        script: one reply for every request, a list of replies in order (the last one repeats), or
            a function from request to reply.
        port: 0 picks a free one.
    """

    def __init__(
        self, script: Reply | Sequence[Reply] | Script, *, port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self._script = _as_function(script)
        self._host = host
        self.port = port
        self._state = _State()
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-server", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: list[socket.socket] = []
        self._failure: BaseException | None = None

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://{self._host}:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in order of arrival."""
        return list(self._state.requests)

    @property
    def sends(self) -> list[SendLog]:
        """Every write so far."""
        return list(self._state.sends)

    @property
    def num_connections(self) -> int:
        """Connections accepted so far."""
        return self._state.num_connections

    @property
    def num_open(self) -> int:
        """Connections open now."""
        return self._state.num_open

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(5), "the scripted server did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)
        assert not self._thread.is_alive(), "the scripted server did not stop"
        if fault is None and self._state.faults:
            raise self._state.faults[0]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as fault:
            self._failure = fault
        finally:
            self._is_up.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listener = socket.create_server((self._host, self.port), backlog=1024)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._loop.add_reader(listener, self._accept, listener)
        self._is_up.set()
        await self._stop.wait()
        self._loop.remove_reader(listener)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A conversation that was cancelled before its first step could not close its own.
        for connection in self._connections:
            connection.close()
        listener.close()

    def _accept(self, listener: socket.socket) -> None:
        # By callback: an accept that is awaited can be cancelled with a connection in its hands.
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.append(connection)
        number = self._state.num_connections
        self._state.num_connections += 1
        task = self._loop.create_task(self._converse(connection, number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, connection: socket.socket, number: int) -> None:
        self._state.num_open += 1
        reader = _Reader(self._loop, connection)
        try:
            while (request := await reader.request(number)) is not None:
                self._state.requests.append(request)
                index = len(self._state.requests) - 1
                if not await self._play(connection, reader, self._script(request), index):
                    return
        except (ConnectionError, OSError):
            pass  # the client went away, as clients may
        except Exception as fault:
            self._state.faults.append(fault)
        finally:
            self._state.num_open -= 1
            with contextlib.suppress(OSError):
                connection.close()

    async def _play(
        self, connection: socket.socket, reader: _Reader, reply: Reply, index: int
    ) -> bool:
        """Carry out the steps; False: the connection is to be closed."""
        for step in reply:
            match step:
                case Write(data=data):
                    before_ns = time.perf_counter_ns()
                    await self._loop.sock_sendall(connection, data)
                    after_ns = time.perf_counter_ns()
                    self._state.sends.append(SendLog(index, before_ns, after_ns, len(data)))
                case Wait(ms=ms):
                    await asyncio.sleep(ms / 1000)
                case WaitForClose(limit_ms=limit_ms):
                    await reader.wait_for_close(limit_ms)
                    return False
                case Reset():
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return False
                case Close():
                    return False
        return True


class _Reader:
    """Cuts requests out of a connection; understands Content-Length and chunked bodies."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._connection = connection
        self._buffer = b""

    async def request(self, number: int) -> Request | None:
        """The next request, or None once the client has closed."""
        while b"\r\n\r\n" not in self._buffer:
            if not await self._more():
                return None
        at_ns = time.perf_counter_ns()
        raw, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = tuple((name.strip(), value.strip()) for name, _, value in pairs)
        length = next((int(v) for k, v in headers if k.lower() == "content-length"), 0)
        is_chunked = any(k.lower() == "transfer-encoding" for k, _ in headers)
        body = await self._chunked_body() if is_chunked else await self._take(length)
        return Request(method, path, headers, body, number, at_ns)

    async def wait_for_close(self, limit_ms: float) -> None:
        async def drain() -> None:
            while await self._more():
                pass

        with contextlib.suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(drain(), limit_ms / 1000)

    async def _chunked_body(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._buffer:
                if not await self._more():
                    raise ConnectionResetError
            size_line, _, self._buffer = self._buffer.partition(b"\r\n")
            piece = await self._take(int(size_line.partition(b";")[0], 16) + 2)
            if len(piece) == 2:
                return body
            body += piece[:-2]

    async def _take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            if not await self._more():
                raise ConnectionResetError
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    async def _more(self) -> bool:
        data = await self._loop.sock_recv(self._connection, 65_536)
        self._buffer += data
        return bool(data)


def head(status: int = 200, /, *, reason: str = "Said", **headers: object) -> bytes:
    """A response head. Underscores in names become dashes: `content_type="audio/pcm"`."""
    lines = [f"HTTP/1.1 {status} {reason}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One transfer chunk; empty data makes the last one."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def ok(
    body: bytes = b"", /, *, status: int = 200, content_type: str = "audio/pcm", **headers: object
) -> Reply:
    """A whole reply with a Content-Length, in one write."""
    top = head(status, content_type=content_type, content_length=len(body), **headers)
    return (Write(top + body),)


def chunked(
    pieces: Iterable[bytes],
    /,
    *,
    status: int = 200,
    content_type: str = "audio/pcm",
    is_complete: bool = True,
    **headers: object,
) -> Reply:
    """A chunked reply, one write a piece; if not complete, closed instead of ended."""
    top = head(status, content_type=content_type, transfer_encoding="chunked", **headers)
    steps: list[Step] = [Write(top), *(Write(chunk(piece)) for piece in pieces)]
    return (*steps, Write(chunk(b"")) if is_complete else Close())


def paced(
    pieces: Iterable[tuple[float, bytes]],
    /,
    *,
    content_type: str = "audio/pcm",
    is_complete: bool = True,
    **headers: object,
) -> Reply:
    """A chunked reply whose pieces come after waits: `[(ms before it, bytes), ...]`."""
    top = head(200, content_type=content_type, transfer_encoding="chunked", **headers)
    steps: list[Step] = [Write(top)]
    for ms, piece in pieces:
        steps += [Wait(ms), Write(chunk(piece))]
    return (*steps, Write(chunk(b"")) if is_complete else Close())


def refusal(*, retry_after_s: int = 1, message: str = "busy") -> Reply:
    """429 with Retry-After and OpenAI's kind of error body."""
    body = json.dumps({"error": {"message": message, "type": "overloaded"}}).encode()
    return ok(body, status=429, content_type="application/json", retry_after=retry_after_s)


def _as_function(script: Reply | Sequence[Reply] | Script) -> Script:
    if callable(script):
        return script
    listed = tuple(script)
    if not listed or isinstance(listed[0], Step):
        return lambda _request: listed  # type: ignore[return-value]
    replies = iter(listed)
    last: list[Reply] = []

    def following(_request: Request) -> Reply:
        reply = next(replies, None)
        if reply is not None:
            last[:] = [reply]  # type: ignore[list-item]
        return last[0]

    return following
