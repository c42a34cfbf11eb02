"""AAC in ADTS frames. ADTS has no field for the encoder's delay, so nothing is ever trimmed.

Source: ISO/IEC 14496-3, Annex 1.A (ADTS).
"""

from __future__ import annotations

from analysis.codecs.framing import FrameHeader, FrameScanner
from analysis.codecs.packets import UNTRIMMED, CodecSink, PacketDecoder
from analysis.errors import AudioDecodeError
from analysis.pcm import SampleSink
from analysis.stream import DurationBasis, StreamFacts
from engines.base import Buffer

__all__ = ["AdtsStream", "parse_header"]

_HEADER_BYTES = 7
_NUM_RATES = 13
_UNTRIMMED_NOTE = UNTRIMMED + (
    "ADTS does not state the encoder's delay, so it is part of the audio (1024 samples"
    " for some encoders, 2112 for others)"
)


class AdtsStream:
    """An ADTS byte stream fed in pieces of any size."""

    __slots__ = ("_decoder", "_scanner", "_sink")

    def __init__(self, sink: SampleSink) -> None:
        self._sink = CodecSink(sink)
        self._decoder = PacketDecoder("aac", self._sink)
        self._scanner = FrameScanner(parse_header, header_bytes=_HEADER_BYTES)

    def push(self, data: Buffer) -> None:
        """Decode every frame that `data` completes; errors as `SampleStream.push`."""
        for frame in self._scanner.push(data):
            self._decoder.push(frame)

    def finish(self) -> None:
        """Refuse what was no ADTS after all.

        Raises:
            AudioDecodeError: no frames, or mostly ones that do not decode.
        """
        self._scanner.finish()
        if self._scanner.num_foreign and not (
            self._decoder.num_decoded or self._decoder.num_refused
        ):
            raise AudioDecodeError(
                f"AAC: found {self._scanner.first_foreign!r}, expected ADTS frames;"
                " no frame in the whole stream"
            )
        self._decoder.check("AAC frames")

    def facts(self) -> StreamFacts:
        """See `SampleStream.facts`."""
        notes = [_UNTRIMMED_NOTE] if self._decoder.num_decoded else []
        notes += self._decoder.notes("AAC frames")
        if self._scanner.num_foreign:
            notes.append(f"{self._scanner.num_foreign} bytes are no AAC frames")
        return self._sink.facts(
            notes, basis=DurationBasis.FRAME, dangling_bytes=self._scanner.num_pending
        )


def parse_header(head: bytes) -> FrameHeader | None:
    """The fixed and variable header of an ADTS frame (7 bytes), or None."""
    word = int.from_bytes(head, "big")
    profile, rate_index = word >> 38 & 3, word >> 34 & 15
    num_bytes = word >> 13 & 0x1FFF
    if word >> 44 != 0xFFF or word >> 41 & 3 or rate_index >= _NUM_RATES:
        return None
    if num_bytes < _HEADER_BYTES:
        return None
    return FrameHeader(num_bytes, (profile, rate_index, word >> 30 & 7))
