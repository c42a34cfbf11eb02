"""How many codec frames the next chunk has."""

from __future__ import annotations

import bisect
from collections.abc import Callable

from reference_engine.config import AdaptiveChunks, Buckets, Chunks, FixedChunks

__all__ = ["ChunkRule", "chunk_rule"]

# (chunk index, codec frames of the chunk before, slack ns, frame step ns, codec step ns) -> frames
ChunkRule = Callable[[int, int, int, int, int], int]


def chunk_rule(chunks: Chunks, buckets: Buckets) -> ChunkRule:
    """The rule of a profile, as a pure function.

    Its arguments: how many chunks of the request had sound before; codec frames of the last of
    them; time until its listener runs dry (ns; 0 before first sound); reserves of one frame step
    and one codec call (ns).
    """
    if isinstance(chunks, FixedChunks):
        return _fixed(chunks)
    return _adaptive(chunks, buckets.codec_frames)


def _fixed(chunks: FixedChunks) -> ChunkRule:
    ramp, last = chunks.ramp, len(chunks.ramp) - 1

    def rule(index: int, before: int, slack_ns: int, frame_ns: int, codec_ns: int) -> int:
        del before, slack_ns, frame_ns, codec_ns
        return ramp[min(index, last)]

    return rule


def _adaptive(chunks: AdaptiveChunks, sizes: tuple[int, ...]) -> ChunkRule:
    share, growth = chunks.slack_share, chunks.growth
    limit = chunks.max_frames

    def rule(index: int, before: int, slack_ns: int, frame_ns: int, codec_ns: int) -> int:
        if index == 0:
            return chunks.first
        affordable = int((slack_ns * share - codec_ns) // max(frame_ns, 1))
        frames = min(affordable, int(before * growth), limit)
        # Whole buckets only: the codec would pad the rest and take as long.
        at = bisect.bisect_right(sizes, frames)
        return sizes[at - 1] if at else sizes[0]

    return rule
