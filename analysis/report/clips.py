"""Which clips go into the page, and their bytes: the worst of every point, and some plain ones."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pandas as pd

from analysis.errors import AnalysisError
from analysis.reply import decode_reply
from analysis.report.settings import ReportSettings
from analysis.report.tables import RunTables, numbers
from harness.records import RequestRecord
from harness.store import StoredRun

__all__ = ["Clip", "ClipSet", "choose_clips", "collect_clips"]


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip as FLAC in base64: lossless, so what is heard is what came."""

    flac: str
    sample_rate_hz: int


@dataclass(frozen=True, slots=True)
class ClipSet:
    """Clips by request id, and how many more were wanted than the budget holds."""

    clips: Mapping[str, Clip]
    num_wanted: int
    num_left_out: int


def choose_clips(tables: RunTables, settings: ReportSettings) -> list[str]:
    """Request ids in the order in which the budget is spent: worst first, across all points.

    Of every point the worst by audible TTFA (never heard is worse than late), and the ones in the
    middle. Only requests with a recorded payload can be among them.
    """
    by_point = [list(_of_point(tables.cohort(point.point_id), settings)) for point in tables.points]
    ranks = zip_longest(*by_point)
    return [each for rank in ranks for each in rank if each is not None]


def _of_point(cohort: pd.DataFrame, settings: ReportSettings) -> Iterator[str]:
    recorded = cohort[cohort["audio_file"].notna() & (cohort["audio_bytes"] > 0)]
    badness = np.nan_to_num(numbers(recorded["audible_ttfa"]), nan=np.inf)
    stalls = np.nan_to_num(numbers(recorded["stall_total"]), nan=0.0)
    ids = recorded["request_id"].to_numpy()
    # The reply with the longest stall leads: it may have started in time and still be the worst.
    order = np.lexsort((-stalls, -badness))
    by_stall = np.argsort(-stalls, kind="stable")
    worst: list[int] = []
    for late, stalled in zip(order, by_stall, strict=True):
        worst += [int(late)] + ([int(stalled)] if stalls[stalled] > 0 else [])
    worst = list(dict.fromkeys(worst))[: settings.num_worst_clips]
    yield from ids[worst]
    finite = [int(i) for i in order[::-1] if np.isfinite(badness[i])]
    middle = max(0, len(finite) // 2 - settings.num_median_clips // 2)
    chosen = finite[middle : middle + settings.num_median_clips]
    yield from (ids[i] for i in chosen if i not in worst)


def collect_clips(run: StoredRun, wanted: Sequence[str], settings: ReportSettings) -> ClipSet:
    """Encode clips in order until the budget is spent. One that cannot be decoded is left out."""
    encoded: dict[str, Clip] = {}
    for record, payload in run.iter_records(only=wanted):
        if clip := _encode(record, payload):
            encoded[record.request_id] = clip
    found: dict[str, Clip] = {}
    spent = 0
    for request_id in (each for each in wanted if each in encoded):
        size = len(encoded[request_id].flac)
        if spent + size <= settings.audio_budget_bytes:
            found[request_id] = encoded[request_id]
            spent += size
    return ClipSet(found, len(encoded), len(encoded) - len(found))


def _encode(record: RequestRecord, payload: bytes | None) -> Clip | None:
    import soundfile

    try:
        audio = decode_reply(record, payload).audio
    except AnalysisError:
        return None
    if audio is None or audio.sample_rate_hz is None or not len(audio.samples):
        return None
    buffer = io.BytesIO()
    samples = np.clip(np.nan_to_num(audio.samples), -1.0, 1.0)
    soundfile.write(buffer, samples, audio.sample_rate_hz, format="FLAC", subtype="PCM_16")
    return Clip(base64.b64encode(buffer.getvalue()).decode(), audio.sample_rate_hz)
