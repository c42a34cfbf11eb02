"""A WebSocket server that plays one side of a canned conversation, on the websockets library."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

__all__ = ["Line", "TalkingServer"]


@dataclass(frozen=True, slots=True)
class Line:
    """What the server says (None: nothing), and how many messages it then waits for."""

    says: str | bytes | None
    hears: int = 0


class TalkingServer:
    """Plays the lines to every session; `heard` collects what clients said, as JSON."""

    def __init__(
        self, lines: Sequence[Line], *, subprotocols: Sequence[str] = (), code: int = 1000
    ) -> None:
        self.heard: list[Mapping[str, Any]] = []
        self.paths: list[str] = []
        self._lines = lines
        self._code = code
        self._server: Server = serve(
            self._talk,
            "127.0.0.1",
            0,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            compression=None,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def base_url(self) -> str:
        """`ws://127.0.0.1:port`."""
        return f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join(5)

    def _talk(self, session: ServerConnection) -> None:
        assert session.request is not None
        self.paths.append(session.request.path)
        try:
            for line in self._lines:
                if line.says is not None:
                    session.send(line.says)
                for _ in range(line.hears):
                    self.heard.append(json.loads(session.recv()))
        except ConnectionClosed:
            return
        session.close(self._code)
