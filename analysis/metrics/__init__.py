"""The metrics, one file a family. Each declares name, unit, better direction and definition.

To add one: a function and its declaration in a family's METRICS, a row in `analysis/METRICS.md`,
and a test with a hand-worked example.
"""

from __future__ import annotations

from analysis.metrics import delivery, interruption, latency, load, playback, signal, speech
from analysis.metrics.base import (
    Better,
    Cohort,
    Declared,
    PointData,
    PointMetric,
    PointValue,
    RequestMetric,
    ValueStatus,
)

__all__ = [
    "Better",
    "Cohort",
    "Declared",
    "PointData",
    "PointMetric",
    "PointValue",
    "RequestMetric",
    "ValueStatus",
    "registry",
    "request_metrics",
]

_FAMILIES = (latency, playback, delivery, signal, load, interruption, speech)


def registry() -> dict[str, Declared]:
    """Every metric by name, in the order in which reports list them."""
    return {metric.name: metric for family in _FAMILIES for metric in family.METRICS}


def request_metrics() -> tuple[RequestMetric, ...]:
    """Those that are computed per request."""
    return tuple(m for m in registry().values() if isinstance(m, RequestMetric))
