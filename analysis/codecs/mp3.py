"""MP3 frame by frame, without the silence that encoder and decoder put in front.

An encoder delays its input, and so does a decoder. How much is written only in an information
frame ("Xing" or "Info" with a LAME extension), which is itself no audio. Where it is there, the
delay is trimmed and the length is exact; where it is not, as in most live streams, nothing is
trimmed and a note says so.

Source: ISO/IEC 11172-3 and 13818-3 (frame header); the LAME project's tag specification.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.codecs.framing import FrameHeader, FrameScanner
from analysis.codecs.packets import UNTRIMMED, CodecSink, PacketDecoder
from analysis.errors import AudioDecodeError
from analysis.pcm import SampleSink
from analysis.stream import DurationBasis, StreamFacts
from engines.base import Buffer

__all__ = ["DECODER_DELAY", "InfoFrame", "Mp3Stream", "parse_header", "parse_info"]

# A layer III decoder's filter bank gives its first sample so many samples late.
DECODER_DELAY = 529

_HEADER_BYTES = 4
_LAYER_3 = 1
_MPEG_1, _MPEG_2, _MPEG_25 = 3, 2, 0
_RATES_HZ = {
    _MPEG_1: (44_100, 48_000, 32_000),
    _MPEG_2: (22_050, 24_000, 16_000),
    _MPEG_25: (11_025, 12_000, 8_000),
}
_KBPS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBPS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MONO = 3
# Offsets inside the tag, from its four letters.
_HAS_FRAMES, _HAS_BYTES, _HAS_TOC, _HAS_QUALITY = 1, 2, 4, 8
_TOC_BYTES = 100
_DELAYS_AT = 21  # from the encoder's name on
_UNTRIMMED_NOTE = UNTRIMMED + (
    "no information frame states the encoder's delay, so it is part of the audio, with"
    " the decoder's own (1105 samples together for LAME's usual 576)"
)


@dataclass(frozen=True, slots=True)
class InfoFrame:
    """What an information frame says. None: it does not.

    num_frames: audio frames that follow. delay, padding: samples that the encoder put before and
    behind the audio.
    """

    num_frames: int | None
    delay: int | None
    padding: int | None


class Mp3Stream:
    """An MP3 byte stream fed in pieces of any size; several files in a row are read as one."""

    __slots__ = ("_decoder", "_info", "_num_frames", "_piece", "_scanner", "_sink", "_trim_notes")

    def __init__(self, sink: SampleSink) -> None:
        self._sink = CodecSink(sink)
        self._decoder = PacketDecoder("mp3float", self._sink)
        self._scanner = FrameScanner(parse_header, header_bytes=_HEADER_BYTES)
        self._info: InfoFrame | None = None
        self._num_frames = 0  # audio frames of this piece
        self._piece = 0
        self._trim_notes: list[str] = []

    def push(self, data: Buffer) -> None:
        """Decode every frame that `data` completes; errors as `SampleStream.push`."""
        for frame in self._scanner.push(data):
            info = parse_info(frame)
            if info is not None:
                self._begin_piece(info)
                continue
            if not self._piece:
                self._begin_piece(None)
            self._num_frames += 1
            self._decoder.push(frame)

    def finish(self) -> None:
        """Trim the end, and refuse what was no MP3 after all.

        Raises:
            AudioDecodeError: no frames, or mostly bytes that are none.
        """
        self._scanner.finish()
        self._end_piece()
        scanner = self._scanner
        if scanner.num_foreign and not (self._decoder.num_decoded or self._decoder.num_refused):
            raise AudioDecodeError(
                f"MP3: found {scanner.first_foreign!r}, expected MPEG layer III frames;"
                " no frame in the whole stream"
            )
        self._decoder.check("MP3 frames")

    def facts(self) -> StreamFacts:
        """See `SampleStream.facts`."""
        notes = [*self._trim_notes, *self._decoder.notes("MP3 frames")]
        if self._scanner.num_foreign:
            notes.append(f"{self._scanner.num_foreign} bytes are no MP3 frames")
        return self._sink.facts(
            notes, basis=DurationBasis.FRAME, dangling_bytes=self._scanner.num_pending
        )

    def _begin_piece(self, info: InfoFrame | None) -> None:
        self._end_piece()
        self._piece += 1
        if self._piece > 1:
            self._decoder.restart()
        self._info = info
        self._num_frames = 0
        is_known = info is not None and info.delay is not None
        if not is_known:
            self._note(_UNTRIMMED_NOTE)
        self._sink.begin_piece(
            num_priming=info.delay + DECODER_DELAY if info and info.delay is not None else 0
        )

    def _end_piece(self) -> None:
        """Take back the encoder's padding, where all frames that it was said of are here."""
        info = self._info
        if info is None or info.delay is None or info.padding is None or info.num_frames is None:
            return
        if self._num_frames == info.num_frames:
            num_valid = self._sink.num_decoded - info.delay - info.padding
            self._sink.drop_last(max(self._sink.num_kept - max(num_valid, 0), 0))
        else:
            self._note(
                f"the information frame speaks of {info.num_frames} frames, {self._num_frames}"
                " came; the end is untrimmed"
            )

    def _note(self, text: str) -> None:
        if text not in self._trim_notes:
            self._trim_notes.append(text)


def parse_header(head: bytes) -> FrameHeader | None:
    """The header of a layer III frame (4 bytes), or None. Free-format frames are not known."""
    word = int.from_bytes(head, "big")
    version, layer = word >> 19 & 3, word >> 17 & 3
    bitrate, rate = word >> 12 & 15, word >> 10 & 3
    if word >> 21 != 0x7FF or version not in _RATES_HZ or layer != _LAYER_3:
        return None
    if bitrate in (0, 15) or rate == 3:
        return None
    rate_hz = _RATES_HZ[version][rate]
    kbps = (_KBPS_1 if version == _MPEG_1 else _KBPS_2)[bitrate]
    scale = 144_000 if version == _MPEG_1 else 72_000
    return FrameHeader(scale * kbps // rate_hz + (word >> 9 & 1), (version, rate_hz))


def parse_info(frame: bytes) -> InfoFrame | None:
    """What a frame says if it is an information frame; None for an audio frame."""
    is_mpeg_1 = frame[1] >> 3 & 3 == _MPEG_1
    is_mono = frame[3] >> 6 == _MONO
    side_bytes = (17 if is_mono else 32) if is_mpeg_1 else (9 if is_mono else 17)
    checksum_bytes = 0 if frame[1] & 1 else 2
    for at in (_HEADER_BYTES + side_bytes, _HEADER_BYTES + side_bytes + checksum_bytes):
        if frame[at : at + 4] in (b"Xing", b"Info"):
            return _parse_tag(frame[at:])
    return None


def _parse_tag(tag: bytes) -> InfoFrame:
    flags = int.from_bytes(tag[4:8], "big")
    at = 8
    num_frames = int.from_bytes(tag[8:12], "big") if flags & _HAS_FRAMES else None
    for flag, size in (
        (_HAS_FRAMES, 4),
        (_HAS_BYTES, 4),
        (_HAS_TOC, _TOC_BYTES),
        (_HAS_QUALITY, 4),
    ):
        at += size if flags & flag else 0
    delays = tag[at + _DELAYS_AT : at + _DELAYS_AT + 3]
    packed = int.from_bytes(delays, "big")
    if len(delays) < 3 or not packed:
        return InfoFrame(num_frames, None, None)  # no LAME extension, or one that says nothing
    return InfoFrame(num_frames, packed >> 12, packed & 0xFFF)
