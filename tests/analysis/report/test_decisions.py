"""What the top of the page answers, and when it does not claim an answer."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from analysis.capacity import Capacity, CapacityStatus, CurvePoint, read_capacity
from analysis.cost import Pricing
from analysis.percentiles import nearest_rank
from analysis.report import load_report
from analysis.report.build import build_model
from analysis.report.decisions import reason_words
from analysis.report.model import Tone
from analysis.report.settings import ReportSettings
from analysis.report.target import choose_target
from analysis.slo import Slo
from tests.builders.reports import STREAM, report_run


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


def rates_of(metrics, engine):
    """The same over seeds: what the answers are read from."""
    return [each for each in metrics["rates"] if each["engine"] == engine]


def value_of(each, name, **fields):
    """One number of a rate, to change."""
    found = each["metrics"][name]
    found["value"] = {"lo": None, "hi": None, "status": "ok", **fields}
    return found


def make_good(metrics, engine):
    """Nothing of an engine fails or stutters, at any rate."""
    for each in rates_of(metrics, engine):
        value_of(each, "failure_rate", value=0.0, lo=0.0, hi=0.1)
        value_of(each, "underrun_rate", value=0.0, lo=0.0, hi=0.1)
        each["metrics"]["audible_ttfa"]["p95"] = {
            "value": 200.0, "lo": None, "hi": None, "status": "no_interval",
        }  # fmt: skip


def target(metrics, **settings):
    """The rate that the answers are for, and why."""
    chosen = ReportSettings(**{"slo": Slo(wer=9.0), **settings})
    return choose_target(build_model(metrics, None, chosen).engines, chosen)


def test_target_is_the_highest_rate_at_which_every_engine_meets_the_objective(metrics):
    """Both meet it everywhere, but one is overloaded at 2/s."""
    make_good(metrics, "stream")
    make_good(metrics, "sentence")
    points_of(metrics, "sentence")[2]["load"] = "overloaded"
    found = target(metrics)

    assert 1.0 == found.rate_rps
    assert "the highest rate that meets the objective for every engine" in found.why


def test_rate_at_which_most_replies_stutter_is_not_the_target(metrics):
    """98 % of the replies at 2/s stutter: sustained, and nothing to be proud of."""
    make_good(metrics, "stream")
    make_good(metrics, "sentence")
    value_of(rates_of(metrics, "stream")[2], "underrun_rate", value=0.98)

    assert 2.0 == target(metrics, slo=Slo(wer=9.0, underrun_rate=1.0)).rate_rps
    assert 1.0 == target(metrics).rate_rps


def test_where_no_rate_meets_the_objective_it_is_said(metrics):
    """Some of the requests fail, some of the replies stutter, at each rate."""
    found = target(metrics, slo=Slo())

    assert (0.5, "No rate that was measured meets the objective; 0.5/s is the lowest.") == (
        found.rate_rps,
        found.why,
    )


def test_chosen_target_rate_wins(metrics):
    """The nearest measured rate stands in for one that was not measured, and says so."""
    found = target(metrics, target_rate_rps=1.2)

    assert (1.0, "1/s is the measured rate nearest 1.2/s.") == (found.rate_rps, found.why)


def test_lowest_rate_is_the_target_where_none_was_sustained(metrics):
    """There is always an answer for some rate."""
    for point in metrics["points"]:
        point["load"] = "overloaded"

    assert 0.5 == target(metrics).rate_rps


def test_verdicts_are_counted_and_reasons_given_once(metrics):
    """Six suspect points with one reason are one line."""
    trust = decisions(metrics)["Can"]

    assert [("every engine", "3 suspect")] == [(f.who, f.cell.text) for f in trust.findings]
    assert any("(6 points)" in text for text in trust.details)


@pytest.mark.parametrize(
    ("code", "values", "limit", "text"),
    [
        ("loop_stall_ms", (56.76,), 20.0, "loop stall: 56.76 ms (limit 20 ms) – of the 1st"),
        (
            "undecided_share",
            (0.5, 0.0123),
            0.01,
            "undecided share: 1.2 % to 50 % (limit 1 %) – of the 1st",
        ),
        ("wall_clock_step_ms", (2.0, -3.0), 1.0,
         "wall clock step: -3 ms to 2 ms (limit 1 ms) – of the 2nd"),
        ("shared_cores", ("127.0.0.1",) * 2, "another machine",
         "shared cores: 127.0.0.1 (expected another machine) – of the 1st"),
        ("incomplete", (10,), 24, "incomplete: 10 (at least 24) – of the 1st"),
    ],
)  # fmt: skip
def test_reason_has_its_unit_and_the_remedy_of_the_worst_point(code, values, limit, text):
    """A bare 56.76 could be anything."""
    reasons = [
        {"code": code, "value": value, "limit": limit, "remedy": f"of the {place}"}
        for value, place in zip(values, ("1st", "2nd"), strict=False)
    ]

    assert text == reason_words(reasons)


def test_limits_that_depend_on_the_rate_are_both_told():
    """31 ms is suspect where requests are 500 ms apart; 24 ms is invalid where they are 200."""
    found = [(31.0, 12.5), (24.0, 20.0)]
    reasons = [
        {"code": "dispatch_lag_p99_ms", "value": value, "limit": limit, "remedy": ""}
        for value, limit in found
    ]

    assert "dispatch lag p99: 24 ms to 31 ms (limit 12.5 ms to 20 ms)" == reason_words(reasons)


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
    for each in rates_of(metrics, "sentence"):
        found = each["metrics"]["underrun_rate"]
        found["n"], found["value"] = 0, dict.fromkeys(("value", "lo", "hi")) | {"status": "no_data"}
    finding = decisions(metrics)["Does"].findings[1]

    assert "not applicable" == finding.cell.text


def test_replies_that_all_failed_are_not_said_to_have_come_in_one_chunk(metrics):
    """Nobody knows how they would have come."""
    for each in rates_of(metrics, "sentence"):
        found = each["metrics"]["underrun_rate"]
        found["n"], found["value"] = 0, dict.fromkeys(("value", "lo", "hi")) | {"status": "no_data"}
        value_of(each, "failure_rate", value=1.0)
    cell = decisions(metrics)["Does"].findings[1].cell

    assert ("not measured", "no reply was heard at this rate") == (cell.text, cell.note)


@pytest.mark.parametrize(
    ("value", "hi", "tone"),
    [(0.02, 0.08, Tone.GOOD), (0.0, 0.41, Tone.NONE), (0.2, 0.3, Tone.BAD), (0.0, None, Tone.NONE)],
)
def test_word_error_rate_is_good_only_where_its_interval_is(metrics, value, hi, tone):
    """7 clips without an error leave 41 % possible: no green light for a limit of 10 %."""
    metrics["engines"][0]["wer"] = {**metrics["engines"][0]["wer"], "value": value, "lo": 0.0,
                                    "hi": hi, "n": 7}  # fmt: skip

    assert tone is decisions(metrics)["Is"].findings[0].cell.tone


def test_missing_word_error_rate_says_why(metrics):
    """Null with a reason."""
    metrics["engines"][0]["wer"] = {
        "value": None,
        "n": 0,
        "status": "not_measured",
        "reason": "nobody listened",
    }
    finding = decisions(metrics)["Is"].findings[0]

    assert ("not measured", "nobody listened; add --wer") == (
        finding.cell.text,
        finding.cell.note,
    )


def test_cost_is_that_of_the_rate_inside_the_objective(metrics):
    """2 USD an hour, 1 request/s of 40 characters: 13.89 USD for a million."""
    settings = ReportSettings(pricing=Pricing(per_hour=2.0))
    model = build_model(metrics, None, settings, capacities=[capacity()])
    finding = model.decisions[-1].findings[0]

    assert "13.89 USD per million characters" == finding.cell.text
    assert "2 USD per replica and hour" in finding.cell.note


def test_cost_is_of_the_requests_that_were_sent_not_of_the_name_of_the_rate(metrics):
    """1.25 requests/s were sent at the rate called 1/s: 13.89 / 1.25 = 11.11 USD."""
    found = capacity()
    met = dataclasses.replace(found.curve[0], achieved_rps=1.25)
    settings = ReportSettings(pricing=Pricing(per_hour=2.0))
    model = build_model(metrics, None, settings, capacities=[capacity(curve=(met, found.curve[1]))])
    cell = model.decisions[-1].findings[0].cell

    assert "11.11 USD per million characters" == cell.text
    assert "1.25 requests/s" in cell.note


def test_no_rate_inside_the_objective_has_no_cost(metrics):
    """A price for speech that nobody should ship is no price."""
    settings = ReportSettings(pricing=Pricing(per_hour=2.0))
    model = build_model(metrics, None, settings, capacities=[capacity(lo_rps=None)])

    assert "not measured" == model.decisions[-1].findings[0].cell.text


def test_without_a_price_there_is_no_cost(loaded):
    """Nobody's price is guessed."""
    assert [] == [d for d in loaded.model.decisions if "cost" in d.question]


def test_answer_is_over_the_requests_of_all_seeds(tmp_path):
    """Two seeds of 24: one figure of 48 requests, and it says over how many seeds."""
    folder = report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,), seeds=(1, 2))
    report = load_report(folder)
    wait = next(d for d in report.model.decisions if d.question.startswith("How long"))
    cohort = report.tables.requests[report.tables.requests["phase"] == "measure"]
    values = np.sort(cohort["audible_ttfa"].to_numpy())

    assert values[nearest_rank(48, 95) - 1] == pytest.approx(wait.findings[0].cell.value)
    assert "n = 48 over 2 seeds" in wait.findings[0].cell.note


def test_leading_silence_is_stated_with_the_wait_it_is_part_of(loaded):
    """40 ms of it in every reply."""
    wait = next(d for d in loaded.model.decisions if d.question.startswith("How long"))

    assert "of which 40.12 ms leading silence (median)" in wait.findings[0].cell.note


def test_length_of_the_gaps_stands_beside_their_share(loaded):
    """How often, and how long."""
    gaps = next(d for d in loaded.model.decisions if d.question.startswith("Does it play"))

    assert "median of their longest gaps" in gaps.findings[0].cell.note


def test_failures_are_a_card_of_their_own_with_what_was_said(metrics):
    """As a percentage of requests, with the server's words and how often it said them."""
    card = decisions(metrics)["Do"]
    num = sum(p["outcomes"]["http_error"] for p in points_of(metrics, "sentence"))

    assert Tone.GOOD is card.findings[0].cell.tone
    assert "none of 72 requests failed" == card.findings[0].cell.text
    assert f"({num} of 72) failed" in card.findings[1].cell.text
    assert Tone.BAD is card.findings[1].cell.tone
    assert card.details[0].startswith(f"sentence: {num} × http error: server said")


def test_fast_engine_that_drops_requests_is_not_green(metrics):
    """p95 of 200 ms within the objective, 5 % of the requests failed."""
    make_good(metrics, "stream")
    for each in rates_of(metrics, "stream"):
        value_of(each, "failure_rate", value=0.05)

    assert Tone.WARN is decisions(metrics)["How"].findings[0].cell.tone


def test_outcomes_out_of_order_are_not_hidden_by_the_highest_rate(metrics):
    """1/s missed the objective and 2/s met it: the interval alone would not tell."""
    low, high = capacity().curve[1], capacity().curve[0]
    curve = (dataclasses.replace(low, rate_rps=1.0), dataclasses.replace(high, rate_rps=2.0))
    found = capacity(lo_rps=None, hi_rps=None, curve=curve)
    finding = capacity_card(metrics, found).findings[0]

    assert "not in order: 1/s (underrun rate 0.4) missed it, yet 2/s met it" in finding.cell.note


def test_offered_rate_is_shown_where_the_plan_held_another(metrics):
    """4.58/s offered at the rate called 4/s."""
    for each in rates_of(metrics, "stream"):
        each["planned_rps"] = 1.145 * each["rate_rps"]
    note = decisions(metrics)["How"].findings[0].cell.note

    assert "0.573/s offered" in note
