"""Opus in Ogg, page by page: a page's packets are decoded when its last byte is here.

The header says how many samples a decoder gives too early (pre-skip), and the last page how many
too late (its granule position): both are trimmed. Opus decodes at 48 kHz whatever went in.

Source: RFC 7845.
"""

from __future__ import annotations

from analysis.codecs.ogg import OggPage, OggScanner, PacketJoiner, PageFlag
from analysis.codecs.packets import CodecSink, PacketDecoder
from analysis.errors import AudioDecodeError
from analysis.pcm import SampleSink
from analysis.stream import DurationBasis, StreamFacts
from engines.base import Buffer

__all__ = ["OggOpusStream"]

_MAGIC = b"OpusHead"
_MIN_HEAD_BYTES = 19
_NUM_HEADER_PACKETS = 2
_OPEN_END = "the stream has no last page; its end is untrimmed"


class OggOpusStream:
    """An Ogg Opus byte stream; several streams in a row (one a sentence) are read as one."""

    __slots__ = (
        "_decoder",
        "_has_ended",
        "_joiner",
        "_last_position",
        "_num_packets",
        "_scanner",
        "_serial",
        "_sink",
    )

    def __init__(self, sink: SampleSink) -> None:
        self._sink = CodecSink(sink)
        self._decoder = PacketDecoder("opus", self._sink)
        self._scanner = OggScanner()
        self._joiner = PacketJoiner()
        self._serial: int | None = None
        self._num_packets = 0  # of this stream, headers included
        self._last_position = 0
        self._has_ended = False

    def push(self, data: Buffer) -> None:
        """Decode every page that `data` completes.

        Raises:
            AudioDecodeError: an Ogg of another codec, or a damaged one.
        """
        for page in self._scanner.push(data):
            self._take(page)

    def finish(self) -> None:
        """Refuse what was no Ogg after all.

        Raises:
            AudioDecodeError: no pages, or mostly packets that do not decode.
        """
        if self._serial is None and self._scanner.num_foreign:
            raise AudioDecodeError(
                f"Ogg Opus: found {self._scanner.first_foreign!r}, expected an Ogg page;"
                " no page in the whole stream"
            )
        self._decoder.check("Opus packets")

    def facts(self) -> StreamFacts:
        """See `SampleStream.facts`."""
        notes = [*self._decoder.notes("Opus packets")]
        if self._scanner.num_foreign:
            notes.append(f"{self._scanner.num_foreign} bytes between Ogg pages")
        if self._decoder.num_decoded and not self._has_ended:
            notes.append(_OPEN_END)
        return self._sink.facts(
            notes, basis=DurationBasis.PAGE, dangling_bytes=self._scanner.num_pending
        )

    def _take(self, page: OggPage) -> None:
        if page.flags & PageFlag.FIRST:
            self._serial = page.serial
            self._joiner = PacketJoiner()
            self._num_packets = 0
            self._last_position = 0
            self._has_ended = False
        elif page.serial != self._serial:
            return  # a stream beside ours
        before = self._sink.num_decoded
        for packet in self._joiner.push(page):
            self._num_packets += 1
            if self._num_packets == 1:
                self._begin_stream(packet)
                before = 0
            elif self._num_packets > _NUM_HEADER_PACKETS:
                self._decoder.push(packet)
        self._settle(page, self._sink.num_decoded - before)

    def _begin_stream(self, head: bytes) -> None:
        if not head.startswith(_MAGIC) or len(head) < _MIN_HEAD_BYTES:
            raise AudioDecodeError(
                f"Ogg Opus: the stream begins with {head[:8]!r}, expected {_MAGIC!r}"
            )
        self._sink.begin_piece(num_priming=int.from_bytes(head[10:12], "little"))
        # The pre-skip is hidden from the decoder: some versions would drop it as well, unasked.
        self._decoder.restart(extradata=head[:10] + b"\0\0" + head[12:])

    def _settle(self, page: OggPage, num_decoded: int) -> None:
        """Note how far the stream has got; the last page may end inside its last packet."""
        if page.position is None or self._num_packets <= _NUM_HEADER_PACKETS:
            return
        if page.flags & PageFlag.LAST:
            self._has_ended = True
            num_meant = max(page.position - self._last_position, 0)
            self._sink.drop_last(max(num_decoded - num_meant, 0))
        self._last_position = page.position
