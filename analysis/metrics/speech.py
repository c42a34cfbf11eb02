"""Is it speech, and the right words: what the recogniser found, as metrics of a point.

Nobody listened, or nothing could be scored: the value is null, never 0.
"""

from __future__ import annotations

from functools import partial

from analysis.metrics.base import Better, PointData, PointMetric, PointValue, ValueStatus

__all__ = ["METRICS"]


def wer(data: PointData) -> PointValue:
    found = data.wer
    if found is None or found.get("value") is None:
        return _nothing(data)
    return _value(data, found["value"], found.get("lo"), found.get("hi"))


def wer_raw(data: PointData) -> PointValue:
    raw = None if data.wer is None else data.wer.get("raw")
    if raw is None or raw.get("value") is None:
        return _nothing(data)
    return _value(data, raw["value"], raw.get("lo"), raw.get("hi"))


def _named(key: str, data: PointData) -> PointValue:
    found = None if data.wer is None else data.wer.get(key)
    return _nothing(data) if found is None else _value(data, found, None, None)


def _value(data: PointData, value: float, lo: float | None, hi: float | None) -> PointValue:
    assert data.wer is not None
    num_heard = int(data.wer["n"])
    status = ValueStatus.NO_INTERVAL if lo is None or hi is None else ValueStatus.OK
    return PointValue(value, lo, hi, num_heard, len(data.cohort) - num_heard, status)


def _nothing(data: PointData) -> PointValue:
    return PointValue(None, None, None, 0, len(data.cohort), ValueStatus.NO_DATA)


METRICS = (
    PointMetric(
        "wer",
        "share",
        Better.LOWER,
        "Word error rate: all edits over all reference words of the clips that were heard, after"
        " normalisation; an empty transcript is all deletions",
        wer,
    ),
    PointMetric("wer_raw", "share", Better.LOWER, "Word error rate before normalisation", wer_raw),
    *(
        PointMetric(name, "share", Better.LOWER, definition, partial(_named, key))
        for name, key, definition in (
            ("wer_mean_of_clips", "mean_of_clips", "Mean of the word error rates of single clips"),
            ("bad_clip_share", "bad_clip_share", "Share of heard clips with a WER above 0.5"),
            (
                "tail_deletion_share",
                "tail_deletion_share",
                "Share of heard clips whose last words are missing: cut-off endings",
            ),
            ("loop_share", "loop_share", "Share of heard clips in which words repeat in a loop"),
        )
    ),
)
