"""A small server in a thread that serves one connection after another."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["ThreadedServer"]


class ThreadedServer(ABC):
    """Listens on loopback while the block lasts; a client that goes away is no failure."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    @abstractmethod
    def serve(self, sock: socket.socket) -> None:
        """Hold one conversation; closing the connection belongs to it."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(5)
            try:
                self.serve(sock)
            except OSError:
                pass
