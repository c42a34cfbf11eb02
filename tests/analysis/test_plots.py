"""Static figures: which are drawn, and that they are the same each time."""

from __future__ import annotations

import dataclasses
import re

import pytest

from analysis.errors import RunDataError
from analysis.plots import _ceiling, write_figures
from analysis.report import load_report
from analysis.report.svg import Point
from harness.records import RunKind
from tests.builders.reports import SENTENCE, STREAM, heard_run, report_run


@pytest.fixture(scope="module")
def svg_of(tmp_path_factory):
    """Figures of a run with everything, as SVG text by name."""
    folder = tmp_path_factory.mktemp("plots")
    report = load_report(heard_run(folder))
    paths = write_figures(report.model, folder / "figures", formats=("svg",))
    return {path.stem: path.read_text() for path in paths}


def test_run_with_everything_gets_every_figure(svg_of):
    """Latency, underruns, words, failures."""
    assert {"latency", "underruns", "wer", "failures"} == set(svg_of)


def test_both_engines_are_in_one_latency_plot(svg_of):
    """p50 and p95 of each, in words in the legend."""
    texts = set(re.findall(r">([^<>]+)</text>", svg_of["latency"]))

    assert {"stream", "sentence", "p50", "p95"} <= texts


def test_figure_says_what_it_rests_on(svg_of):
    """n, intervals, start rule, verdict."""
    for name in ("n = 24 a rate", "95 % intervals", "start rule immediate", "suspect"):
        assert name in svg_of["latency"].replace("\n", " ")


def test_word_error_figure_counts_clips_not_requests(svg_of):
    """Its n is what was heard."""
    assert "n = 24 a rate" not in svg_of["wer"]


def test_figure_that_has_no_data_is_not_drawn(tmp_path):
    """Nobody listened and nothing failed: no empty panels."""
    report = load_report(report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,)))
    paths = write_figures(report.model, tmp_path / "f", formats=("svg",))

    assert {"latency", "underruns"} == {path.stem for path in paths}


def test_unreached_percentile_is_drawn_as_such(tmp_path):
    """With its word in the legend."""
    report = load_report(report_run(tmp_path, engines={"one": SENTENCE}, rates=(0.5, 1.0)))
    [path] = [
        p for p in write_figures(report.model, tmp_path, formats=("svg",)) if p.stem == "latency"
    ]

    assert "not reached" in path.read_text()


def test_engine_that_reached_nothing_is_still_named(tmp_path):
    """Its triangles at the top belong to somebody."""
    shapes = {"one": STREAM, "dead": dataclasses.replace(STREAM, fail_share=1.0)}
    report = load_report(report_run(tmp_path, engines=shapes, rates=(1.0,), num_requests=6))
    [path] = [
        p for p in write_figures(report.model, tmp_path, formats=("svg",)) if p.stem == "latency"
    ]

    assert ">dead</text>" in path.read_text()


def test_simulated_figures_carry_a_watermark(tmp_path):
    """Never drawn as if measured."""
    folder = report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,), kind=RunKind.SIMULATED)
    paths = write_figures(load_report(folder).model, tmp_path / "f", formats=("svg",))

    assert all("SIMULATED" in path.read_text() for path in paths)


def test_the_same_run_gives_the_same_file(tmp_path):
    """No date and no random id inside."""
    report = load_report(report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,)))
    first, again = (
        write_figures(report.model, tmp_path / name, formats=("svg",))[0].read_bytes()
        for name in ("a", "b")
    )

    assert first == again


def test_folder_that_cannot_be_made_is_one_line(tmp_path):
    """A file is in the way."""
    report = load_report(report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,)))
    (tmp_path / "figures").write_text("in the way")

    with pytest.raises(RunDataError, match="cannot be written"):
        write_figures(report.model, tmp_path / "figures", formats=("svg",))


def test_one_wide_interval_does_not_flatten_the_curves():
    """The axis ends near the values; an interval beyond twice the highest is cut at its top."""
    points = [Point(1.0, 200.0, lo=150.0, hi=4650.0), Point(2.0, 400.0, lo=380.0, hi=500.0)]

    assert _ceiling(points) == 500.0


def test_intervals_of_ordinary_width_are_drawn_whole():
    """Up to twice the highest value the axis makes room."""
    assert _ceiling([Point(1.0, 400.0, lo=300.0, hi=790.0)]) == 790.0
