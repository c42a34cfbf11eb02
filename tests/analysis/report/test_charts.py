"""What each picture shows, checked against the tables it came from."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from analysis.report import charts
from analysis.report.charts import (
    decompose,
    ecdf_chart,
    in_flight_chart,
    pass_chart,
    percentile_chart,
    slack_chart,
    ttfa_over_time_chart,
)
from analysis.report.curves import curve, read_percentile
from analysis.report.svg import Band, Dots, Line, Missing, Point


def marks(chart, kind):
    """The marks of one kind."""
    return [mark for mark in chart.marks if isinstance(mark, kind)]


def engine(loaded, name):
    """One engine of the report."""
    return next(each for each in loaded.model.engines if each.name == name)


def test_curve_has_a_point_for_every_reached_rate(loaded):
    """And a cross for every other one: together all rates, none twice."""
    for each in loaded.model.engines:
        found = curve(each, read_percentile("audible_ttfa", 95))

        assert sorted([*(point.x for point in found.points), *found.missing]) == list(each.rates)


def test_value_over_all_seeds_is_the_one_that_is_drawn(loaded):
    """The pooled figure of the rate, as at the top of the page."""
    each = engine(loaded, "stream")
    [pooled, *_] = each.pooled
    found = curve(each, read_percentile("audible_ttfa", 95))

    assert pooled.metrics["audible_ttfa"].p95.value == found.points[0].y


def test_no_line_is_drawn_across_a_rate_that_was_not_reached(loaded):
    """Reached at 0.5/s and 2/s, not at 1/s: two pieces, named once, and a cross between them."""
    each = engine(loaded, "stream")
    read = lambda point: Point(point.rate_rps, math.inf if point.rate_rps == 1.0 else 5.0)  # noqa: E731
    found = curve(each, read)

    assert ([[0.5], [2.0]], (1.0,)) == (
        [[point.x for point in segment] for segment in found.segments],
        found.missing,
    )


def test_broken_line_is_named_once(loaded):
    """Or a legend would list one engine twice."""
    pooled = engine(loaded, "stream").pooled
    view = pooled[1].metrics["audible_ttfa"]
    lost = {"value": None, "lo": None, "hi": None, "status": "not_reached"}
    view = dataclasses.replace(view, raw={**view.raw, "p50": lost})
    broken = dataclasses.replace(pooled[1], metrics={**pooled[1].metrics, "audible_ttfa": view})
    each = dataclasses.replace(engine(loaded, "stream"), pooled=(pooled[0], broken, pooled[2]))
    chart = percentile_chart([each], 50, is_log=False)

    assert ["stream", ""] == [line.label for line in marks(chart, Line)]


def test_engine_with_one_chunk_after_the_first_is_drawn_with_its_range(loaded):
    """A line of one point is invisible; its marker is not."""
    chunks = loaded.tables.chunks
    ours = chunks["request_id"].str.startswith("stream")
    tables = dataclasses.replace(loaded.tables, chunks=chunks[ours & (chunks["seq"] <= 1)])
    [line] = marks(slack_chart([engine(loaded, "stream")], tables, 1.0), Line)

    assert (1, True) == (len(line.points), line.has_markers)
    assert line.points[0].lo <= line.points[0].y <= line.points[0].hi


def test_ecdf_of_a_point_with_failures_ends_below_100_percent(loaded):
    """Arrivals that never had sound are in the denominator."""
    chart = ecdf_chart(engine(loaded, "sentence"), loaded.tables)
    first = marks(chart, Line)[0]
    cohort = loaded.tables.cohort("sentence-r0.5-s1")
    num_ok = int((cohort["outcome"] == "ok").sum())

    assert num_ok < 24
    assert pytest.approx(100 * num_ok / 24) == first.points[-1].y


def test_parts_of_the_wait_add_up_to_its_mean(loaded):
    """Means of parts are parts of the mean."""
    parts = decompose(loaded.model, loaded.tables)
    heard = loaded.tables.cohort("stream-r1-s1")["audible_ttfa"].dropna()

    assert pytest.approx(float(heard.mean())) == sum(parts.stack.parts[1])


def test_passing_share_grows_to_100_percent(loaded):
    """A long enough start delay plays everything."""
    chart = pass_chart(loaded.model.engines, loaded.tables, 0.5)

    for line in marks(chart, Line):
        heights = [point.y for point in line.points]
        assert heights == sorted(heights)
        assert 100 == heights[-1]


def test_slack_band_encloses_its_median(loaded):
    """5 % and 95 % around the middle, per place in the reply."""
    chart = slack_chart(loaded.model.engines, loaded.tables, 1.0)
    band, line = marks(chart, Band)[0], marks(chart, Line)[0]

    assert all(p.lo <= m.y <= p.hi for p, m in zip(band.points, line.points, strict=True))


def test_slack_is_that_of_measured_requests_alone(loaded):
    """However late the chunks of a warm-up were."""
    requests, chunks = loaded.tables.requests, loaded.tables.chunks
    warm = chunks["request_id"].isin(requests[requests["phase"] == "warmup"]["request_id"])
    late = chunks.assign(slack_ns=chunks["slack_ns"].mask(warm, -(10**12)))
    tables = dataclasses.replace(loaded.tables, chunks=late)

    assert warm.any()
    assert slack_chart(loaded.model.engines, loaded.tables, 1.0) == slack_chart(
        loaded.model.engines, tables, 1.0
    )


def test_first_chunk_has_no_slack(loaded):
    """It starts the clock that the others are late against."""
    chart = slack_chart(loaded.model.engines, loaded.tables, 1.0)

    assert all(point.x >= 1 for line in marks(chart, Line) for point in line.points)


def test_in_flight_never_below_zero_and_arrivals_are_all_there(loaded):
    """24 arrivals as dots."""
    point = loaded.model.points[0]
    chart = in_flight_chart(point, loaded.tables, 0)
    [line], [dots] = marks(chart, Line), marks(chart, Dots)

    assert min(step.y for step in line.points) >= 0
    assert 24 == len(dots.points)


def test_every_request_over_time_is_a_dot_or_a_triangle(loaded):
    """Failures are drawn, at the top."""
    for point in loaded.model.points:
        chart = ttfa_over_time_chart(point, loaded.tables, 0)
        [dots], [missing] = marks(chart, Dots), marks(chart, Missing)

        assert point.n == len(dots.points) + len(missing.xs)


def test_logarithmic_curve_has_the_same_points(loaded):
    """Only the axis changes."""
    linear, log = (
        percentile_chart(loaded.model.engines, 50, is_log=is_log) for is_log in (False, True)
    )

    assert linear.marks == log.marks
    assert (False, True) == (linear.y.is_log, log.y.is_log)


def test_large_points_are_thinned_and_say_so(loaded, monkeypatch):
    """More dots than can be told apart are left out, and the words give both numbers."""
    monkeypatch.setattr(charts, "_MAX_DOTS", 10)
    chart = ttfa_over_time_chart(loaded.model.points[0], loaded.tables, 0)

    assert 10 == len(marks(chart, Dots)[0].points)
    assert "10 of 24 drawn" in chart.description


def test_numbers_of_charts_are_finite(loaded):
    """A NaN coordinate would break the whole picture."""
    charts = [
        percentile_chart(loaded.model.engines, 95, is_log=False),
        pass_chart(loaded.model.engines, loaded.tables, 2.0),
        slack_chart(loaded.model.engines, loaded.tables, 2.0),
    ]
    values = [p.y for c in charts for m in marks(c, Line) for p in m.points]

    assert np.isfinite(values).all()
