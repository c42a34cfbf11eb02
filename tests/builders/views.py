"""Requests as the metrics see them, from timed pieces of sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.metrics import RequestMetric, registry
from analysis.stamps import StampRule
from analysis.view import AnalysisContext, AnalysisSettings, RequestView, view_request
from engines.base import AudioFormat
from harness.records import ChunkEvent, StampSource
from tests.builders.audio import pcm16, pcm_format
from tests.builders.runs import chunks_of, record

__all__ = ["KERNEL", "delivered", "measure", "view"]

KERNEL = StampRule(StampSource.KERNEL, 0)


def delivered(pieces: Sequence[tuple[float, np.ndarray]]) -> tuple[list[ChunkEvent], bytes]:
    """Chunks and payload of (milliseconds, float samples) pieces, as 16-bit samples."""
    encoded = [(at_ms, pcm16(samples)) for at_ms, samples in pieces]
    chunks = chunks_of([(at_ms, len(data)) for at_ms, data in encoded])
    return chunks, b"".join(data for _, data in encoded)


def view(
    pieces: Sequence[tuple[float, np.ndarray]] = (),
    *,
    payload: bytes | None = None,
    chunks: Sequence[ChunkEvent] | None = None,
    audio_format: AudioFormat | None = None,
    settings: AnalysisSettings | None = None,
    is_incremental: bool = False,
    **fields: Any,
) -> RequestView:
    """A request dispatched at 0 whose pieces of sound came at these times.

    `payload` and `chunks` replace what follows from `pieces`; `fields` are the record's.
    """
    made_chunks, made_payload = delivered(pieces)
    fmt = audio_format or pcm_format()
    built = record(
        chunks=made_chunks if chunks is None else chunks,
        **{"format": fmt, "expected_format": fmt, **fields},
    )
    context = AnalysisContext(
        settings=settings or AnalysisSettings(), stamps=KERNEL, is_incremental=is_incremental
    )
    return view_request(built, made_payload if payload is None else payload, context)


def measure(name: str, of: RequestView) -> float | None:
    """One metric of one request."""
    metric = registry()[name]
    assert isinstance(metric, RequestMetric)
    return metric.compute(of)
