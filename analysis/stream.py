"""What every byte stream of audio offers, whatever is inside: samples in order, and plain facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engines.base import Buffer

__all__ = ["DurationBasis", "SampleStream", "StreamFacts"]


class DurationBasis(StrEnum):
    """How exactly samples can be attributed to the chunk that carried them."""

    EXACT = "exact"  # bytes map to samples
    FRAME = "frame"  # a codec's frame gives its samples when its last byte is here
    PAGE = "page"  # a container's page gives its samples when its last byte is here
    WHOLE = "whole"  # only the end of the reply gives samples: timing is that of the whole


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What a stream has learnt about itself; None where it never said.

    encoding: of uncompressed samples, as in `analysis.pcm.PcmEncoding`; None for a codec.
    dangling_bytes: bytes at the end that never became a sample because others were missing.
    notes: what was odd about the bytes, for people.
    """

    sample_rate_hz: int | None
    channels: int | None
    encoding: str | None
    dangling_bytes: int
    notes: tuple[str, ...]
    basis: DurationBasis


class SampleStream(Protocol):
    """Bytes in, samples into the sink that it was made with; one life, `push`* then `finish`."""

    def push(self, data: Buffer) -> None:
        """Decode what `data` completes.

        Raises:
            AudioDecodeError: the bytes are not what the format says.
        """
        ...

    def finish(self) -> None:
        """The stream is over: settle what is still open. Raises as `push`."""
        ...

    def facts(self) -> StreamFacts:
        """What is known by now."""
        ...
