"""What the top of the page answers, and when it does not claim an answer."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from analysis.report.build import build_model
from analysis.report.decisions import misses, target_rate
from analysis.report.model import Tone
from analysis.report.settings import ReportSettings, Slo

EASY = Slo(audible_ttfa_p95_ms=10_000, underrun_rate=1.0, failure_rate=1.0, wer=100.0)


@pytest.fixture
def metrics(loaded):
    """A copy of metrics.json that a test may change."""
    return copy.deepcopy(dict(loaded.metrics))


def decisions(metrics, **settings):
    """The decisions by the first word of their question."""
    model = build_model(metrics, None, ReportSettings(**settings))
    return {decision.question.split()[0]: decision for decision in model.decisions}


def points_of(metrics, engine):
    """The points of one engine in metrics.json."""
    return [point for point in metrics["points"] if point["engine"] == engine]


def test_target_is_the_highest_rate_that_every_engine_sustained(metrics):
    """An overloaded engine pulls the target down for all."""
    points_of(metrics, "sentence")[2]["load"] = "overloaded"
    engines = build_model(metrics, None, ReportSettings()).engines

    assert 1.0 == target_rate(engines, ReportSettings())


def test_chosen_target_rate_wins(loaded):
    """The nearest measured rate stands in for one that was not measured."""
    assert 1.0 == target_rate(loaded.model.engines, ReportSettings(target_rate_rps=1.2))


def test_lowest_rate_is_the_target_where_none_was_sustained(metrics):
    """There is always an answer for some rate."""
    for point in metrics["points"]:
        point["load"] = "overloaded"
    engines = build_model(metrics, None, ReportSettings()).engines

    assert 0.5 == target_rate(engines, ReportSettings())


def test_verdicts_are_counted_and_reasons_given_once(metrics):
    """Six suspect points with one reason are one line."""
    trust = decisions(metrics)["Can"]

    assert ["3 suspect", "3 suspect"] == [finding.cell.text for finding in trust.findings]
    assert any("(6 points)" in text for text in trust.details)


def test_invalid_point_is_a_problem(metrics):
    """It colours the whole answer."""
    metrics["points"][0]["validity"] = {"verdict": "invalid", "reasons": []}

    assert Tone.BAD is decisions(metrics)["Can"].tone


def test_capacity_at_the_highest_rate_is_only_a_lower_bound(metrics):
    """The limit was not found, and the words say so."""
    finding = decisions(metrics, slo=EASY)["Highest"].findings[0]

    assert ("at least 2/s", Tone.GOOD) == (finding.cell.text, finding.cell.tone)


def test_capacity_names_what_the_next_rate_misses(metrics):
    """A limit without its reason is no use."""
    points_of(metrics, "stream")[2]["load"] = "overloaded"
    finding = decisions(metrics, slo=EASY)["Highest"].findings[0]

    assert ("1/s", "at 2/s: overloaded") == (finding.cell.text, finding.cell.note)


def test_unreached_percentile_misses_every_objective(loaded):
    """However generous the limit."""
    point = next(
        point for point in loaded.model.points if point.metrics["audible_ttfa"].p95.value is None
    )

    assert any("not reached" in text for text in misses(point, EASY, None))


def test_word_error_rate_counts_only_where_somebody_listened(loaded):
    """Unmeasured is neither good nor bad."""
    point = loaded.model.points[0]
    strict = dataclasses.replace(EASY, wer=0.05)

    assert ((), ("WER 20 %",)) == (misses(point, strict, None), misses(point, strict, 0.2))


def test_zero_of_a_handful_is_no_proof_of_smooth_playback(metrics):
    """0 of 24 leaves an interval up to 14 %: no green light for a limit of 1 %."""
    finding = decisions(metrics)["Does"].findings[1]

    assert ("0 % of replies stutter", Tone.NONE) == (finding.cell.text, finding.cell.tone)


def test_replies_in_one_chunk_have_no_answer_about_gaps(metrics):
    """Not applicable is not smooth."""
    for point in points_of(metrics, "sentence"):
        found = point["metrics"]["underrun_rate"]
        found["n"], found["value"] = 0, dict.fromkeys(("value", "lo", "hi")) | {"status": "no_data"}
    finding = decisions(metrics)["Does"].findings[1]

    assert "not applicable" == finding.cell.text


def test_missing_word_error_rate_says_why(metrics):
    """Null with a reason."""
    metrics["engines"][0]["wer"] = {
        "value": None,
        "n": 0,
        "status": "not_measured",
        "reason": "nobody listened",
    }
    finding = decisions(metrics)["Is"].findings[0]

    assert ("not measured", "nobody listened") == (finding.cell.text, finding.cell.note)


def test_cost_is_price_over_characters_of_an_hour(loaded):
    """2 USD an hour at 10 characters a second: 55.56 USD for a million."""
    settings = ReportSettings(price_per_hour=2.0)
    speeds = {point.point_id: 10.0 for point in loaded.model.points}
    model = build_model(loaded.metrics, None, settings, characters_per_s=speeds)
    cost = model.decisions[-1]

    assert ["55.56 USD per million characters"] * 2 == [f.cell.text for f in cost.findings]
    assert "2 USD an hour" in cost.note


def test_without_a_price_there_is_no_cost(loaded):
    """Nobody's price is guessed."""
    assert [] == [d for d in loaded.model.decisions if "cost" in d.question]


def test_worst_seed_answers_for_a_rate(metrics):
    """An average of percentiles is no percentile."""
    worse = copy.deepcopy(points_of(metrics, "stream")[2])
    worse |= {"seed": 2, "point_id": "stream-r2-s2"}
    worse["metrics"]["audible_ttfa"]["p95"] = {
        "value": 900.0, "lo": None, "hi": None, "status": "no_interval",
    }  # fmt: skip
    metrics["points"].append(worse)
    finding = decisions(metrics, target_rate_rps=2.0)["How"].findings[0]

    assert "p95 900 ms" == finding.cell.text
