"""What the recogniser found, as metrics; nobody listened is null."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.metrics import PointMetric, registry
from analysis.speech import wer_not_measured
from tests.builders.cohorts import point_of

HEARD = {
    "value": 0.05,
    "lo": 0.02,
    "hi": 0.09,
    "n": 12,
    "raw": {"value": 0.2, "lo": 0.1, "hi": 0.3},
    "mean_of_clips": 0.06,
    "bad_clip_share": 1 / 12,
    "tail_deletion_share": 0.25,
    "loop_share": 0.0,
}
VALUES = {
    "wer": 0.05,
    "wer_raw": 0.2,
    "wer_mean_of_clips": 0.06,
    "bad_clip_share": 1 / 12,
    "tail_deletion_share": 0.25,
    "loop_share": 0.0,
}


def of_point(name: str, wer):
    metric = registry()[name]
    assert isinstance(metric, PointMetric)
    return metric.compute(replace(point_of(20), wer=wer))


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_figures_of_the_recogniser_become_metrics(name, value):
    """12 of 20 replies were heard."""
    found = of_point(name, HEARD)

    assert (value, 12, 8) == (found.value, found.n, found.missing)


def test_interval_is_passed_on():
    """By bootstrap over clips."""
    assert (0.02, 0.09) == (of_point("wer", HEARD).lo, of_point("wer", HEARD).hi)


@pytest.mark.parametrize("wer", [None, wer_not_measured("no weights")])
@pytest.mark.parametrize("name", VALUES)
def test_nobody_listened_is_null(name, wer):
    """Zero scored clips are not zero errors."""
    found = of_point(name, wer)

    assert (None, 0, 20) == (found.value, found.n, found.missing)
