"""FLAC as a whole: samples are exact, but none is counted before the reply has ended.

Source: RFC 9639.
"""

from __future__ import annotations

import io
from typing import Any

from analysis.codecs.packets import CodecSink, load_av, samples_of
from analysis.errors import AudioDecodeError
from analysis.pcm import SampleSink
from analysis.stream import DurationBasis, StreamFacts
from engines.base import Buffer

__all__ = ["FlacStream"]

_MAGIC = b"fLaC"


class FlacStream:
    """A FLAC byte stream; kept until its end, then decoded at once."""

    __slots__ = ("_av", "_notes", "_payload", "_sink")

    def __init__(self, sink: SampleSink) -> None:
        self._av = load_av()
        self._sink = CodecSink(sink)
        self._payload = bytearray()
        self._notes: list[str] = []

    def push(self, data: Buffer) -> None:
        """Keep `data`.

        Raises:
            AudioDecodeError: the stream does not begin as a FLAC does.
        """
        self._payload += data
        head = bytes(self._payload[: len(_MAGIC)])
        if not _MAGIC.startswith(head):
            raise AudioDecodeError(f"FLAC: found {head!r}, expected {_MAGIC!r}")

    def finish(self) -> None:
        """Decode all of it.

        Raises:
            AudioDecodeError: not one frame decodes.
        """
        if not self._payload:
            return
        try:
            self._decode()
        except EOFError:
            # How the library says that there was no room for a frame behind the metadata.
            self._notes.append("the FLAC ends before its first frame")
        except self._av.FFmpegError as fault:
            if not self._sink.num_kept:
                raise AudioDecodeError(f"FLAC: cannot be decoded: {fault}") from None
            self._notes.append(f"the FLAC breaks off or is damaged: {fault}")

    def facts(self) -> StreamFacts:
        """See `SampleStream.facts`."""
        return self._sink.facts(self._notes, basis=DurationBasis.WHOLE)

    def _decode(self) -> None:
        # The format is named: nothing about the bytes may choose another reader.
        with self._av.open(io.BytesIO(self._payload), format="flac") as container:
            streams: Any = container.streams.audio
            if not streams:
                raise AudioDecodeError("FLAC: holds no audio stream")
            streams[0].thread_count = 1
            for frame in container.decode(streams[0]):
                self._sink.append(samples_of(frame), frame.sample_rate)
