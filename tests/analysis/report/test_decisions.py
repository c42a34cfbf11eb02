"""What the top of the page answers, and when it does not claim an answer."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from analysis.capacity import Capacity, CapacityStatus, CurvePoint, read_capacity
from analysis.cost import Pricing
from analysis.report.build import build_model
from analysis.report.decisions import target_rate
from analysis.report.model import Tone
from analysis.report.settings import ReportSettings
from analysis.slo import Slo


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

    assert [("every engine", "3 suspect")] == [(f.who, f.cell.text) for f in trust.findings]
    assert any("(6 points)" in text for text in trust.details)


def test_invalid_point_is_a_problem(metrics):
    """It colours the whole answer."""
    metrics["points"][0]["validity"] = {"verdict": "invalid", "reasons": []}

    assert Tone.BAD is decisions(metrics)["Can"].tone


def capacity(**fields):
    """An answer about one engine: met at 1/s, missed at 2/s."""
    point = CurvePoint(2.0, 1, 0, 0, 0.0, (), ("underrun rate 0.4",), 0, None, 40.0, 2.0)
    met = dataclasses.replace(point, rate_rps=1.0, num_met=1, fitted=1.0, misses=())
    values = {
        "engine": "one", "objective": "p95 below something", "status": CapacityStatus.ENCLOSED,
        "lo_rps": 1.0, "hi_rps": 2.0, "best_rps": 1.0, "listeners": None, "curve": (met, point),
    }  # fmt: skip
    return Capacity(**{**values, **fields})


def capacity_card(metrics, found, **settings):
    """The answer about capacity."""
    model = build_model(metrics, None, ReportSettings(**settings), capacities=[found])
    return next(d for d in model.decisions if d.question.startswith("Highest"))


def test_capacity_is_an_interval_with_what_the_next_rate_missed(metrics):
    """Met at 1/s; 2/s is outside, and why."""
    card = capacity_card(metrics, capacity())

    assert ("1/s, below 2/s", "at 2/s: underrun rate 0.4", Tone.GOOD) == (
        card.findings[0].cell.text,
        card.findings[0].cell.note,
        card.tone,
    )
    assert "Objective: p95 below something." == card.note


@pytest.mark.parametrize(
    ("fields", "text", "tone"),
    [
        ({"hi_rps": None, "lo_rps": 2.0}, "at least 2/s", Tone.GOOD),
        ({"lo_rps": None}, "below 2/s", Tone.BAD),
        ({"lo_rps": None, "hi_rps": None}, "no rate that was measured", Tone.BAD),
        ({"status": CapacityStatus.NO_DATA}, "not measured", Tone.NONE),
    ],
)
def test_open_ends_of_a_capacity_stay_open(metrics, fields, text, tone):
    """A bound that was not found is not invented."""
    card = capacity_card(metrics, capacity(**fields))

    assert (text, tone) == (card.findings[0].cell.text, card.tone)


def test_report_of_a_run_says_what_the_capacity_command_says(loaded):
    """One objective, one answer."""
    card = next(d for d in loaded.model.decisions if d.question.startswith("Highest"))
    found = read_capacity(loaded.evidence, Slo())

    assert [each.engine for each in found] == [finding.who for finding in card.findings]
    assert [each.lo_rps for each in found] == [finding.cell.value for finding in card.findings]


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


def test_cost_is_that_of_the_rate_inside_the_objective(metrics):
    """2 USD an hour, 1 request/s of 40 characters: 13.89 USD for a million."""
    settings = ReportSettings(pricing=Pricing(per_hour=2.0))
    model = build_model(metrics, None, settings, capacities=[capacity()])
    finding = model.decisions[-1].findings[0]

    assert "13.89 USD per million characters" == finding.cell.text
    assert "2 USD per replica and hour" in finding.cell.note


def test_no_rate_inside_the_objective_has_no_cost(metrics):
    """A price for speech that nobody should ship is no price."""
    settings = ReportSettings(pricing=Pricing(per_hour=2.0))
    model = build_model(metrics, None, settings, capacities=[capacity(lo_rps=None)])

    assert "not measured" == model.decisions[-1].findings[0].cell.text


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
