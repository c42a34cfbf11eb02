"""What a truth server did, as it happened: every send between two readings of the clock.

All times are CLOCK_MONOTONIC in ns. Positions count per connection and never restart. There are
two kinds: `plain` positions are bytes of the protocol, `wire` positions are bytes handed to the
kernel. They are the same unless TLS lies between; then `seals` say which record holds which bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from harness.errors import RunFolderError

__all__ = [
    "LoggedItem",
    "LoggedRequest",
    "LoggedSeal",
    "LoggedSend",
    "TruthLog",
    "parse_log",
    "read_log",
]

SCHEMA_VERSION = 1


class LoggedRequest(NamedTuple):
    """One request as it came in. `number` counts from 1; `received_ns`: read whole."""

    number: int
    connection: int
    script: str
    transport: str
    received_ns: int


class LoggedItem(NamedTuple):
    """One logical part of a reply and where its bytes lie.

    `body_at` is the plain position of its first body byte. Where `ready_at` is None payload begins
    there, byte for byte; else the item is a message, of no use before the byte at `ready_at` is
    there. `payload_offset` counts within the reply's payload.
    """

    request: int
    kind: str
    plain_start: int
    plain_end: int
    body_at: int
    ready_at: int | None
    payload_offset: int
    num_payload: int


class LoggedSeal(NamedTuple):
    """Plain bytes that share one TLS record; none of them can be read before its last byte."""

    connection: int
    plain_start: int
    plain_end: int
    wire_end: int


class LoggedSend(NamedTuple):
    """One system call. `num_held` bytes were left in the kernel, not yet on their way."""

    connection: int
    wire_start: int
    wire_end: int
    before_ns: int
    after_ns: int
    num_held: int


@dataclass(slots=True)
class TruthLog:
    """Everything one server did, in order. `is_sealed`: over TLS."""

    is_sealed: bool = False
    requests: list[LoggedRequest] = field(default_factory=list)
    items: list[LoggedItem] = field(default_factory=list)
    seals: list[LoggedSeal] = field(default_factory=list)
    sends: list[LoggedSend] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """As JSON: rows in the order of the fields."""
        return orjson.dumps(
            {
                "schema": SCHEMA_VERSION,
                "is_sealed": self.is_sealed,
                **{name: [list(row) for row in getattr(self, name)] for name in _ROWS},
            }
        )

    def write(self, path: Path) -> None:
        """Write it to a file.

        Raises:
            RunFolderError: the disk did not take it.
        """
        try:
            path.write_bytes(self.to_bytes())
        except OSError as fault:
            raise RunFolderError(
                f"{path}: the truth log cannot be written: {fault.strerror}"
            ) from None


_ROWS: dict[str, Any] = {
    "requests": LoggedRequest,
    "items": LoggedItem,
    "seals": LoggedSeal,
    "sends": LoggedSend,
}


def read_log(path: Path) -> TruthLog:
    """Read what a server wrote when it stopped.

    Raises:
        RunFolderError: there is no such file, or it is not a log of this version.
    """
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise RunFolderError(f"{path}: the truth log cannot be read: {fault.strerror}") from None
    return parse_log(content, where=str(path))


def parse_log(content: bytes, *, where: str) -> TruthLog:
    """Read a log, from a file or from a server that is still running.

    Raises:
        RunFolderError: it is not a log of this version.
    """
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError as fault:
        raise RunFolderError(f"{where}: is no truth log: {fault}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA_VERSION:
        raise RunFolderError(f"{where}: is not a truth log of schema {SCHEMA_VERSION}")
    rows = {name: [row(*values) for values in data[name]] for name, row in _ROWS.items()}
    return TruthLog(is_sealed=data["is_sealed"], **rows)
