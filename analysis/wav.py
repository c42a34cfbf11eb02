"""WAV as servers really stream it, walked byte by byte.

Streaming servers do not know the length when they write the header, so its sizes are often 0,
0xFFFFFFFF, or some large invented number; chunks such as LIST or fact may stand before the data;
and some servers repeat the whole header before every piece. None of that may become a sample.

What ends the data, in order:
- a complete second header inside it (not where sizes are declared exact): a new piece begins;
- its declared size, where that is believable: then chunks may follow, another header, or, where
  the size was wrong, more data;
- the end of the stream.
"""

from __future__ import annotations

import struct
from enum import Enum, auto

from analysis.errors import AudioDecodeError
from analysis.pcm import PcmEncoding, PcmLayout, PcmStream, SampleSink
from analysis.stream import DurationBasis, StreamFacts
from engines.base import Buffer

__all__ = ["WavStream"]

_RIFF_HEADER_BYTES = 12
_CHUNK_HEADER_BYTES = 8
_ID_BYTES = 4
# RIFF, size, WAVE, "fmt ", size and the 16 bytes that every fmt block has: enough to tell a
# header from samples that happen to spell RIFF.
_SIGNATURE_BYTES = 36
_MAX_FMT_BYTES = 4096
_MAX_OTHER_CHUNK_BYTES = 64 * 1024 * 1024
# Sizes from here on (nearly six hours of 24 kHz speech) are inventions of a streaming server:
# 0xFFFFFFFF and 2,000,000,000 have both been seen.
_UNBELIEVABLE_BYTES = 1_000_000_000
# Data is looked through in blocks, so that a stream of nothing but headers costs no more than one
# block for each.
_BLOCK_BYTES = 4096
_MAX_CHANNELS = 64
_MAX_RATE_HZ = 768_000

_TAG_PCM, _TAG_FLOAT, _TAG_ALAW, _TAG_MULAW, _TAG_EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_ENCODINGS = {
    (_TAG_PCM, 8): PcmEncoding.U8,
    (_TAG_PCM, 16): PcmEncoding.S16,
    (_TAG_PCM, 24): PcmEncoding.S24,
    (_TAG_PCM, 32): PcmEncoding.S32,
    (_TAG_FLOAT, 32): PcmEncoding.F32,
    (_TAG_FLOAT, 64): PcmEncoding.F64,
    (_TAG_ALAW, 8): PcmEncoding.ALAW,
    (_TAG_MULAW, 8): PcmEncoding.MULAW,
}
_TAG_NAMES = {2: "ADPCM", 0x11: "IMA ADPCM", 0x50: "MPEG", 0x55: "MP3", 0xFF: "AAC"}
# Chunks that are known to stand after the data. Anything else there is taken for more data.
_TRAILING_IDS = (
    b"RIFF", b"RF64", b"LIST", b"fact", b"fmt ", b"data", b"id3 ", b"ID3 ", b"bext", b"JUNK",
    b"junk", b"PAD ", b"cue ", b"smpl", b"inst", b"iXML", b"axml", b"_PMX", b"FLLR", b"PEAK",
    b"DISP", b"plst", b"acid", b"afsp", b"chna",
)  # fmt: skip


class _State(Enum):
    RIFF = auto()
    CHUNK = auto()
    FMT = auto()
    SKIP = auto()
    DATA = auto()
    AFTER_DATA = auto()
    IGNORE = auto()


class WavStream:
    """A WAV byte stream fed in pieces of any size.

    `layout` is None until the first fmt block is read. With `is_size_exact` the declared data size
    is the truth: nothing inside it is looked at, and what follows is never data.
    """

    __slots__ = (
        "_data_bytes",
        "_fmt_size",
        "_is_size_exact",
        "_num_seen",
        "_pcm",
        "_pending",
        "_remaining",
        "_sink",
        "_skip",
        "_state",
        "_tail",
        "dangling_bytes",
        "layout",
        "notes",
    )  # fmt: skip

    def __init__(self, sink: SampleSink, *, is_size_exact: bool = False) -> None:
        self._sink = sink
        self._is_size_exact = is_size_exact
        self._state = _State.RIFF
        self._pending = bytearray()
        self._num_seen = 0
        self._pcm: PcmStream | None = None
        self._fmt_size = 0
        self._skip = 0
        self._remaining: int | None = None  # of the data; None: open-ended
        self._data_bytes = 0  # of this piece's data so far
        self._tail = b""  # its last bytes: a second header may begin in them
        self.layout: PcmLayout | None = None
        self.dangling_bytes = 0
        self.notes: list[str] = []

    def push(self, data: Buffer) -> None:
        """Decode what `data` completes.

        Raises:
            AudioDecodeError: not a WAV, or one whose samples cannot be read.
        """
        self._pending += data
        self._num_seen += len(data)
        while self._step():
            pass

    def finish(self) -> None:
        """The stream is over: settle what is still open."""
        if self._state is _State.AFTER_DATA and self._pending:
            # Too short to be a chunk or a header; without a whole name it is no part of one either.
            is_named = self._remaining == 0 and len(self._pending) >= _ID_BYTES
            if self._is_size_exact or is_named:
                self._note(f"{len(self._pending)} bytes after the data")
            else:
                if self._remaining == 0:
                    self._note("more data than the header declared")
                self._push_data(bytes(self._pending))
            self._pending.clear()
        if self._state in (_State.RIFF, _State.CHUNK, _State.FMT) and self._pending:
            self._note("the stream ends inside a WAV header")
        self._close_piece()

    def facts(self) -> StreamFacts:
        """See `analysis.stream.SampleStream.facts`."""
        layout = self.layout
        return StreamFacts(
            sample_rate_hz=layout.sample_rate_hz if layout else None,
            channels=layout.channels if layout else None,
            encoding=layout.encoding.value if layout else None,
            dangling_bytes=self.dangling_bytes,
            notes=tuple(self.notes),
            basis=DurationBasis.EXACT,
        )

    # -- the walk ---------------------------------------------------------------------------------

    def _step(self) -> bool:
        """One step of the walk; False when it needs more bytes."""
        match self._state:
            case _State.RIFF:
                return self._read_riff()
            case _State.CHUNK:
                return self._read_chunk()
            case _State.FMT:
                return self._read_fmt()
            case _State.SKIP:
                return self._skip_bytes()
            case _State.DATA:
                return self._read_data()
            case _State.AFTER_DATA:
                return self._after_data()
            case _State.IGNORE:
                self._pending.clear()
                return False

    def _take(self, num_bytes: int) -> bytes:
        taken = bytes(self._pending[:num_bytes])
        del self._pending[:num_bytes]
        return taken

    @property
    def _position(self) -> int:
        return self._num_seen - len(self._pending)

    def _read_riff(self) -> bool:
        if len(self._pending) < _RIFF_HEADER_BYTES:
            if self._pending and not b"RIFF".startswith(self._pending[:4]):
                self._refuse_magic(bytes(self._pending[:4]))
            return False
        head = self._take(_RIFF_HEADER_BYTES)
        if head[:4] not in (b"RIFF", b"RF64") or head[8:] != b"WAVE":
            self._refuse_magic(head)
        self._state = _State.CHUNK
        return True

    def _refuse_magic(self, head: bytes) -> None:
        if head[:2] == b"RF" and len(head) < _RIFF_HEADER_BYTES:
            return
        raise AudioDecodeError(
            f"WAV: byte {self._position}: found {head[:4]!r}, expected a RIFF/WAVE header;"
            " if the server sends bare samples, its contract must say pcm"
        )

    def _read_chunk(self) -> bool:
        if len(self._pending) < _CHUNK_HEADER_BYTES:
            return False
        ident = bytes(self._pending[:4])
        (size,) = struct.unpack_from("<I", self._pending, 4)
        if not all(0x20 <= octet < 0x7F for octet in ident):
            raise AudioDecodeError(
                f"WAV: byte {self._position}: {ident!r} is not a chunk name; the header is damaged"
            )
        del self._pending[:_CHUNK_HEADER_BYTES]
        if ident == b"data":
            return self._begin_data(size)
        limit = _MAX_FMT_BYTES if ident == b"fmt " else _MAX_OTHER_CHUNK_BYTES
        if size > limit:
            raise AudioDecodeError(
                f"WAV: byte {self._position}: a {ident.decode()!r} chunk of {size} bytes is not"
                f" believable (limit {limit})"
            )
        self._skip = size + size % 2
        self._fmt_size = size
        self._state = _State.FMT if ident == b"fmt " else _State.SKIP
        return True

    def _read_fmt(self) -> bool:
        if len(self._pending) < self._skip:
            return False
        layout = _parse_fmt(self._take(self._skip)[: self._fmt_size])
        if self.layout is not None and layout != self.layout:
            raise AudioDecodeError(
                f"WAV: byte {self._position}: a later header says {_describe(layout)}, the first"
                f" said {_describe(self.layout)}"
            )
        if self.layout is None:
            self.layout = layout
            self._pcm = PcmStream(layout, self._sink)
        self._state = _State.CHUNK
        return True

    def _skip_bytes(self) -> bool:
        skipped = min(self._skip, len(self._pending))
        del self._pending[:skipped]
        self._skip -= skipped
        if self._skip:
            return False
        self._state = _State.CHUNK
        return True

    # -- data -------------------------------------------------------------------------------------

    def _begin_data(self, size: int) -> bool:
        if self._pcm is None:
            raise AudioDecodeError(f"WAV: byte {self._position}: data before any fmt chunk")
        self._data_bytes = 0
        self._tail = b""
        if size == 0 and not self._is_size_exact:
            # Either an open-ended stream or truly nothing: what follows tells.
            self._remaining = None
            self._state = _State.AFTER_DATA
            return True
        is_open = size >= _UNBELIEVABLE_BYTES and not self._is_size_exact
        self._remaining = None if is_open else size
        self._state = _State.DATA
        return True

    def _read_data(self) -> bool:
        if self._remaining == 0:
            self._state = _State.AFTER_DATA
            return True
        if not self._pending:
            return False
        limit = len(self._pending) if self._is_size_exact else _BLOCK_BYTES
        if self._remaining is not None:
            limit = min(limit, self._remaining)
        limit = min(limit, len(self._pending))
        header_at = None if self._is_size_exact else self._find_header(limit)
        if header_at is not None:
            self._begin_piece(header_at)
            return True
        if self._remaining is not None:
            self._remaining -= limit
        self._push_data(self._take(limit))
        return True

    def _push_raw(self, data: bytes) -> None:
        assert self._pcm is not None
        self._pcm.push(data)

    def _push_data(self, data: bytes) -> None:
        self._push_raw(data)
        self._data_bytes += len(data)
        self._tail = (self._tail + data)[-(_SIGNATURE_BYTES - 1) :]

    def _find_header(self, limit: int) -> int | None:
        """Where in the piece's data a second header begins, or None; looks at `limit` bytes."""
        seen = self._tail + self._pending[:limit]
        at = seen.find(b"RIFF")
        while at >= 0:
            if _is_header(seen[at : at + _SIGNATURE_BYTES]):
                return self._data_bytes - len(self._tail) + at
            at = seen.find(b"RIFF", at + 1)
        return None

    def _begin_piece(self, header_at: int) -> None:
        """A second header begins at `header_at` of this piece's data: take back what it gave."""
        assert self._pcm is not None
        frame = self._pcm.layout.bytes_per_frame
        if header_at >= self._data_bytes:
            self._push_raw(self._take(header_at - self._data_bytes))
        else:
            self._sink.retract(self._data_bytes // frame - header_at // frame)
            self._pending[:0] = self._tail[header_at - self._data_bytes :]
        self._pcm.drop_carry()
        self.dangling_bytes += header_at % frame
        self._state = _State.RIFF

    def _after_data(self) -> bool:
        """Declared data is over (or was declared empty): a chunk, a header, or more data?"""
        if self._data_bytes % 2 and self._pending[:1] == b"\0":
            del self._pending[:1]  # RIFF pads chunks to an even length
            self._data_bytes += 1
        if not self._pending:
            return False
        start = bytes(self._pending[:4])
        if any(ident.startswith(start) for ident in _TRAILING_IDS):
            if len(self._pending) < _RIFF_HEADER_BYTES:
                return False
            is_riff = start in (b"RIFF", b"RF64")
            if not is_riff or self._pending[8:12] == b"WAVE":
                self._close_piece()
                self._state = _State.RIFF if is_riff else _State.CHUNK
                return True
        if self._is_size_exact:
            self._note("bytes after the declared data were left out")
            self._state = _State.IGNORE
            return True
        if self._remaining == 0:
            self._note("more data than the header declared")
        self._remaining = None
        self._state = _State.DATA
        return True

    def _close_piece(self) -> None:
        if self._pcm is not None:
            self.dangling_bytes += self._pcm.drop_carry()

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _parse_fmt(block: bytes) -> PcmLayout:
    """The layout that a fmt block describes (16, 18 or 40 bytes and what follows).

    Raises:
        AudioDecodeError: too short, or samples of a kind that cannot be read.
    """
    if len(block) < 16:
        raise AudioDecodeError(f"WAV: a fmt block of {len(block)} bytes, expected at least 16")
    tag, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", block)
    if tag == _TAG_EXTENSIBLE and len(block) >= 26:
        (tag,) = struct.unpack_from("<H", block, 24)
    encoding = _ENCODINGS.get((tag, bits))
    if encoding is None:
        name = _TAG_NAMES.get(tag, "unknown")
        raise AudioDecodeError(
            f"WAV: samples of format tag 0x{tag:04X} ({name}) with {bits} bits cannot be read;"
            " expected PCM of 8, 16, 24 or 32 bits, float of 32 or 64, mu-law or A-law"
        )
    if not 1 <= channels <= _MAX_CHANNELS or not 1 <= rate_hz <= _MAX_RATE_HZ:
        raise AudioDecodeError(
            f"WAV: {channels} channels at {rate_hz} Hz is not believable; the header is damaged"
        )
    return PcmLayout(encoding, channels, rate_hz)


def _is_header(candidate: bytes) -> bool:
    """Whether bytes are the start of a complete, readable WAV header."""
    if len(candidate) < _SIGNATURE_BYTES or candidate[8:16] != b"WAVEfmt ":
        return False
    (fmt_size,) = struct.unpack_from("<I", candidate, 16)
    tag, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", candidate, 20)
    is_known = tag == _TAG_EXTENSIBLE or (tag, bits) in _ENCODINGS
    return (
        16 <= fmt_size <= _MAX_FMT_BYTES
        and is_known
        and 1 <= channels <= _MAX_CHANNELS
        and 1 <= rate_hz <= _MAX_RATE_HZ
    )


def _describe(layout: PcmLayout) -> str:
    return f"{layout.encoding} x {layout.channels} at {layout.sample_rate_hz} Hz"
