"""One codec's packets become samples: a thin, bounded shell around PyAV.

The library is imported here alone, late, so that everything else works without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import Any

import numpy as np

from analysis.errors import AudioDecodeError, UnsupportedAudioError
from analysis.pcm import FloatArray, SampleSink
from analysis.stream import DurationBasis, StreamFacts
from engines.installing import install_command

__all__ = [
    "NO_DECODER",
    "UNTRIMMED",
    "CodecSink",
    "PacketDecoder",
    "decoder_version",
    "load_av",
    "samples_of",
]

# How notes begin, so that they can be counted.
UNTRIMMED = "untrimmed: "
NO_DECODER = "compressed audio needs a decoder"
# A few bytes can ask for a great many samples (silence costs nothing). 100 million are an hour of
# speech at 24 kHz and 400 MB: more than a reply holds, less than would hurt.
_MAX_VALUES = 100_000_000


def load_av() -> Any:
    """The decoder library.

    Raises:
        UnsupportedAudioError: not installed; says how to install it.
    """
    try:
        import av
    except ImportError:
        raise UnsupportedAudioError(
            f"{NO_DECODER} that is not installed: {install_command('codecs')}, or ask the engine"
            " for pcm or wav"
        ) from None
    return av


def decoder_version() -> str | None:
    """Of the installed decoder library; None where there is none. Does not load it."""
    try:
        return metadata.version("av")
    except metadata.PackageNotFoundError:
        return None


class CodecSink:
    """Takes decoded frames, drops priming, keeps their layout constant and their number bounded.

    Counts are PCM frames of the current piece: of one stream, or of one of several that follow
    each other in the same reply.
    """

    __slots__ = ("_sink", "_skip", "channels", "num_decoded", "num_kept", "sample_rate_hz")

    def __init__(self, sink: SampleSink) -> None:
        self._sink = sink
        self._skip = 0
        self.sample_rate_hz: int | None = None
        self.channels: int | None = None
        self.num_decoded = 0
        self.num_kept = 0

    def begin_piece(self, *, num_priming: int = 0) -> None:
        """What follows is a stream of its own whose first `num_priming` PCM frames are no audio."""
        self._skip = num_priming
        self.num_decoded = self.num_kept = 0

    def append(self, frames: FloatArray, sample_rate_hz: int) -> None:
        """Add `frames` ([n, channels]).

        Raises:
            AudioDecodeError: rate or channels change on the way, or there are too many.
        """
        found = (sample_rate_hz, frames.shape[1])
        known = (self.sample_rate_hz, self.channels)
        if known != (None, None) and found != known:
            raise AudioDecodeError(
                f"the audio changes to {found[0]} Hz x {found[1]} on the way, it began with"
                f" {known[0]} Hz x {known[1]}"
            )
        self.sample_rate_hz, self.channels = found
        self.num_decoded += len(frames)
        dropped = min(self._skip, len(frames))
        self._skip -= dropped
        if (self._sink.num_frames + len(frames)) * found[1] > _MAX_VALUES:
            raise AudioDecodeError(
                f"more than {_MAX_VALUES:,} samples decoded, expected one spoken reply; stopped"
            )
        self.num_kept += len(frames) - dropped
        self._sink.append(frames[dropped:])

    def facts(
        self, notes: Iterable[str], *, basis: DurationBasis, dangling_bytes: int = 0
    ) -> StreamFacts:
        """What is known of the stream: its shape from the samples, the rest from its codec."""
        return StreamFacts(
            sample_rate_hz=self.sample_rate_hz,
            channels=self.channels,
            encoding=None,
            dangling_bytes=dangling_bytes,
            notes=tuple(notes),
            basis=basis,
        )

    def drop_last(self, num_frames: int) -> None:
        """Take back the last PCM frames of this piece, as many of them as were kept."""
        dropped = min(num_frames, self.num_kept)
        self.num_kept -= dropped
        self._sink.retract(dropped)


class PacketDecoder:
    """Decodes packets of one codec, in order.

    A packet that the decoder refuses is counted and left out, as a player does; whether so much is
    refused that nothing can be trusted is asked once, at the end.
    """

    __slots__ = ("_av", "_codec", "_context", "_sink", "num_decoded", "num_refused")

    def __init__(self, codec: str, sink: CodecSink) -> None:
        """
        Raises:
            UnsupportedAudioError: the library, or this codec in it, is missing.
        """
        self._av = load_av()
        self._codec = codec
        self._sink = sink
        self._context = self._open(None)
        self.num_decoded = 0
        self.num_refused = 0

    def restart(self, extradata: bytes | None = None) -> None:
        """Forget all state: the next packet begins a stream of its own."""
        self._context = self._open(extradata)

    def push(self, packet: bytes) -> None:
        """Decode one packet into the sink."""
        try:
            # The only call into the decoder: what it raises is its verdict on the bytes.
            decoded = self._context.decode(self._av.Packet(packet))
        except self._av.FFmpegError:
            self.num_refused += 1
            return
        self.num_decoded += 1
        for frame in decoded:
            self._sink.append(samples_of(frame), frame.sample_rate)

    def notes(self, what: str) -> tuple[str, ...]:
        """A word about refused packets, where there were any."""
        if not self.num_refused:
            return ()
        total = self.num_refused + self.num_decoded
        return (f"{self.num_refused} of {total} {what} do not decode and were left out",)

    def check(self, what: str) -> None:
        """
        Raises:
            AudioDecodeError: the decoder refused more packets than it took.
        """
        if self.num_refused > self.num_decoded:
            raise AudioDecodeError(
                f"{self.num_refused} of {self.num_refused + self.num_decoded} {what} do not decode;"
                " the stream is damaged or of another kind"
            )

    def _open(self, extradata: bytes | None) -> Any:
        try:
            context = self._av.CodecContext.create(self._codec, "r")
        except (self._av.FFmpegError, ValueError) as fault:
            raise UnsupportedAudioError(
                f"the installed decoder library has no {self._codec!r} ({fault});"
                " ask the engine for pcm or wav"
            ) from None
        # One thread: several would hold packets back, and samples would count to later chunks.
        context.thread_count = 1
        if extradata is not None:
            context.extradata = extradata
        return context


def samples_of(frame: Any) -> FloatArray:
    """One decoded frame as float32 in [-1, 1], [n, channels]."""
    values: np.ndarray[Any, np.dtype[Any]] = frame.to_ndarray()
    channels = len(frame.layout.channels)
    flat = values.T if frame.format.is_planar else values.reshape(-1, channels)
    if flat.dtype.kind == "i":
        return (flat / float(1 << (8 * flat.dtype.itemsize - 1))).astype(np.float32)
    return np.ascontiguousarray(flat, dtype=np.float32)
