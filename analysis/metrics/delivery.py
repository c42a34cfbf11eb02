"""How bytes were handed over: in how many chunks, how bunched.

None of these has a better direction: a gap statistic improves when chunks are held back and sent
in a burst, so it may explain a latency but never stand for one.
"""

from __future__ import annotations

import numpy as np

from analysis.metrics.base import Better, RequestMetric
from analysis.view import RequestView

__all__ = ["COALESCED_GAP_MS", "METRICS"]

# Two chunks closer than this were held back together somewhere on the way.
COALESCED_GAP_MS = 1.0


def num_chunks(view: RequestView) -> float | None:
    return float(len(view.record.chunks)) if view.record.chunks else None


def bytes_per_read(view: RequestView) -> float | None:
    chunks = view.record.chunks
    if not chunks:
        return None
    num_reads = len({chunk.read_ns for chunk in chunks})
    return sum(chunk.num_bytes for chunk in chunks) / num_reads


def gap_median(view: RequestView) -> float | None:
    gaps = _gaps_ms(view)
    # The lower of two middle values, as everywhere: a value that occurred.
    return None if len(gaps) == 0 else float(np.sort(gaps)[(len(gaps) - 1) // 2])


def coalesced_share(view: RequestView) -> float | None:
    gaps = _gaps_ms(view)
    return None if len(gaps) == 0 else float((gaps < COALESCED_GAP_MS).mean())


def _gaps_ms(view: RequestView) -> np.ndarray:
    return np.diff(np.array([chunk.arrival_ns for chunk in view.record.chunks])) / 1e6


METRICS = (
    RequestMetric(
        "num_chunks", "count", Better.NEITHER, "Deliveries of payload bytes, per reply", num_chunks
    ),
    RequestMetric(
        "bytes_per_read",
        "bytes",
        Better.NEITHER,
        "Payload bytes per read of the socket; large values beside short gaps mean bunching",
        bytes_per_read,
    ),
    RequestMetric(
        "gap_median", "ms", Better.NEITHER, "Median gap between chunks of a reply", gap_median
    ),
    RequestMetric(
        "coalesced_share",
        "share",
        Better.NEITHER,
        "Share of gaps between chunks below 1 ms: chunks that were held back and came together",
        coalesced_share,
    ),
)
