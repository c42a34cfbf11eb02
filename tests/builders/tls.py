"""Certificates made for one test, and a small TLS server whose conversation is a function."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme

from tests.builders.threaded import ThreadedServer

__all__ = ["Certificates", "TlsServer", "answer", "read_request"]

Conversation = Callable[[ssl.SSLSocket], None]


@dataclass(frozen=True, slots=True)
class Certificates:
    """A CA, and files of it for a client."""

    ca: trustme.CA
    ca_file: str
    client_file: str

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """A fresh CA with one client certificate (key in the same file)."""
        ca = trustme.CA()
        ca.cert_pem.write_to_path(folder / "ca.pem")
        ca.issue_cert("client@test").private_key_and_cert_chain_pem.write_to_path(
            folder / "client.pem"
        )
        return cls(ca, str(folder / "ca.pem"), str(folder / "client.pem"))

    def server(
        self, *names: str, needs_client: bool = False, not_after: datetime | None = None
    ) -> ssl.SSLContext:
        """A server's side, for these names (default: the loopback address and localhost)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        used = names or ("127.0.0.1", "localhost")
        self.ca.issue_cert(*used, not_after=not_after).configure_cert(context)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if needs_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context


class TlsServer(ThreadedServer):
    """Accepts connections one after another and holds the conversation on each."""

    def __init__(self, context: ssl.SSLContext, converse: Conversation) -> None:
        super().__init__()
        self._context = context
        self._converse = converse
        self.alpn: list[str | None] = []
        self.server_names: list[str | None] = []
        context.sni_callback = lambda _sock, name, _context: self.server_names.append(name)

    @property
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def serve(self, sock: socket.socket) -> None:
        spare = sock.dup()
        try:
            connection = self._context.wrap_socket(sock, server_side=True)
        except OSError:
            _hear_out(spare)
            return
        finally:
            spare.close()
        with connection:
            self.alpn.append(connection.selected_alpn_protocol())
            self._converse(connection)


def _hear_out(sock: socket.socket) -> None:
    """Let the client read our alert: closing with its bytes unread would reset the connection."""
    sock.settimeout(2)
    try:
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass
    except OSError:
        pass


def read_request(connection: ssl.SSLSocket) -> bytes:
    """Head and body of one request; empty when the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
    while len(body) < sum(lengths):
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def answer(reply: bytes) -> Conversation:
    """Every request on a connection gets this reply."""

    def converse(connection: ssl.SSLSocket) -> None:
        while read_request(connection):
            connection.sendall(reply)

    return converse
