"""The append-only log: frames that prove themselves, so that a kill costs at most the last one.

Frame: magic `EWL1`, length of the body (uint32, little-endian), CRC-32 of kind and body (uint32),
kind (one byte), body. Each frame is one `write()`. There is no fsync: the kernel keeps what a
killed process has written. A damaged frame is skipped by looking for the next magic.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["Frame", "FrameKind", "LogScan", "append_frame", "encode_frame", "scan_log"]

_MAGIC = b"EWL1"
_HEAD = struct.Struct("<4sIIc")
# No record comes near this; a length beyond it is damage.
_MAX_BODY_BYTES = 1 << 30


class FrameKind(Enum):
    """What a frame holds."""

    HEAD = b"H"
    REQUEST = b"R"
    TELEMETRY = b"T"
    POINT = b"P"
    CLOSE = b"C"


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole frame as found in a log."""

    kind: FrameKind
    body: bytes
    body_start: int


@dataclass(slots=True)
class LogScan:
    """What a pass over one log met besides whole frames. Filled in while `frames` is consumed."""

    num_frames: int = 0
    num_damaged: int = 0
    num_torn_bytes: int = 0


def encode_frame(kind: FrameKind, body: bytes) -> bytes:
    """The bytes of one frame."""
    crc = zlib.crc32(body, zlib.crc32(kind.value))
    return _HEAD.pack(_MAGIC, len(body), crc, kind.value) + body


def append_frame(fd: int, frame: bytes) -> None:
    """Write one frame at the end; after a fault the log ends where it ended before.

    Raises:
        OSError: from the disk; nothing of the frame is left behind.
    """
    start = os.lseek(fd, 0, os.SEEK_END)
    try:
        written = os.write(fd, frame)
        # Short writes are what a disk does just before it says that it is full.
        while written < len(frame):
            written += os.write(fd, frame[written:])
    except OSError:
        os.ftruncate(fd, start)
        raise


def scan_log(path: Path, scan: LogScan) -> Iterator[Frame]:
    """Every whole frame of a log, in order; counts what is torn or damaged into `scan`.

    Raises:
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    position = 0
    while position < len(data):
        frame = _frame_at(data, position)
        if frame is not None:
            scan.num_frames += 1
            yield frame
            position += _HEAD.size + len(frame.body)
            continue
        following = _next_whole_frame(data, position + 1)
        if following is None:
            scan.num_torn_bytes += len(data) - position
            return
        scan.num_damaged += 1
        position = following


def _frame_at(data: bytes, position: int) -> Frame | None:
    if position + _HEAD.size > len(data):
        return None
    magic, length, crc, kind = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    if magic != _MAGIC or length > _MAX_BODY_BYTES or start + length > len(data):
        return None
    body = data[start : start + length]
    if zlib.crc32(body, zlib.crc32(kind)) != crc:
        return None
    try:
        return Frame(FrameKind(kind), body, start)
    except ValueError:
        return None


def _next_whole_frame(data: bytes, start: int) -> int | None:
    position = data.find(_MAGIC, start)
    while position >= 0:
        if _frame_at(data, position) is not None:
            return position
        position = data.find(_MAGIC, position + 1)
    return None
