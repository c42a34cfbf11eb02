"""Pass, fail or inconclusive: each for its reason, and never pass for lack of evidence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from analysis.errors import RulesError
from analysis.evidence import load_evidence
from analysis.gate import RuleVerdict, judge
from analysis.gate_rules import Requirements, Rule, Scope, bundled_gates, load_gate
from analysis.gate_words import gate_json, gate_junit, gate_markdown, gate_text
from engines.outcomes import TransportOutcome
from tests.builders.gates import lost, one_rule, rules_of, verdict_of
from tests.builders.sweeps import Reply, gamma_engine, sweep

README = Path(__file__).resolve().parents[2] / "analysis" / "README.md"


def chapter() -> str:
    """What the README says about gates."""
    return README.read_text(encoding="utf-8").split("## To add a gate")[1].split("\n## ")[0]


# -- absolute -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(60, RuleVerdict.PASS), (20, RuleVerdict.FAIL), (38.5, RuleVerdict.INCONCLUSIVE)],
)
def test_percentile_is_judged_by_the_share_of_requests_beyond(tmp_path, steady, limit, verdict):
    """p95 of about 38 ms: none is above 60, nearly all are above 20, and about 5 % above 38.5."""
    found = judge(steady, one_rule(tmp_path, f"metric: audible_ttfa, statistic: p95, max: {limit}"))
    (result,) = [r for r in found.results if "audible" in r.rule]

    assert verdict is result.verdict is found.verdict
    assert 240 == result.n == result.beyond.n
    assert (result.beyond.lo > 0.05, result.beyond.hi <= 0.05) == (
        verdict is RuleVerdict.FAIL,
        verdict is RuleVerdict.PASS,
    )


def test_inconclusive_says_how_many_requests_would_tell(tmp_path, steady):
    """More than there were."""
    found = judge(steady, one_rule(tmp_path, "metric: audible_ttfa, statistic: p95, max: 38.5"))
    (result,) = [r for r in found.results if "audible" in r.rule]

    assert result.needed_n > result.n
    assert f"about {result.needed_n:,} requests" in gate_text(found)


def test_too_few_requests_are_inconclusive_with_the_least_number(tmp_path, short):
    """40 of one seed: p95 needs 72 for an interval."""
    found = judge(short, one_rule(tmp_path, "metric: audible_ttfa, statistic: p95, max: 500"))

    assert (RuleVerdict.INCONCLUSIVE, 3) == (found.verdict, found.exit_code)
    assert {72} == {r.needed_n for r in found.results if "audible" in r.rule}


def test_value_alone_may_be_asked_for(tmp_path, short):
    """`evidence: value` needs no interval."""
    rule = "metric: audible_ttfa, statistic: p95, max: 500, evidence: value"

    assert RuleVerdict.PASS is judge(short, one_rule(tmp_path, rule)).verdict


def test_percentile_that_is_not_reached_fails(tmp_path):
    """One in five timed out; no limit is high enough."""
    run = load_evidence(sweep(tmp_path, {"tts": lost(5)}, seeds=(1, 2, 3)))
    found = judge(
        run,
        rules_of(
            tmp_path,
            """
            require: {load: any}
            rules: [{metric: audible_ttfa, statistic: p95, max: 1000000}]
            """,
        ),
    )

    assert RuleVerdict.FAIL is verdict_of(found, "audible")
    assert "not reached" in gate_text(found)


def test_zero_failures_of_few_requests_do_not_prove_one_percent(tmp_path, short):
    """0 of 40 is compatible with 8 %: inconclusive; by value alone it passes."""
    by_interval = judge(short, one_rule(tmp_path, "metric: failure_rate, max: 0.01"))
    by_value = judge(short, one_rule(tmp_path, "metric: failure_rate, max: 0.01, evidence: value"))

    assert RuleVerdict.INCONCLUSIVE is verdict_of(by_interval, "failure_rate")
    assert RuleVerdict.PASS is verdict_of(by_value, "failure_rate")


def test_lower_limit_is_judged_the_other_way_round(tmp_path, steady):
    """At least 99 % of replies must play without a gap."""
    met = "metric: pass_rate_0ms, min: 0.9, evidence: value"
    missed = "metric: start_delay_for_1_percent, min: 50, evidence: value"

    assert RuleVerdict.PASS is judge(steady, one_rule(tmp_path, met)).verdict
    assert RuleVerdict.FAIL is judge(steady, one_rule(tmp_path, missed)).verdict


def test_share_is_judged_over_the_requests_of_all_seeds(tmp_path):
    """2 x 60 without a gap show more than 95 % that pass at once; 60 of one seed do not."""
    rules = one_rule(tmp_path, "metric: pass_rate_0ms, min: 0.95")
    one, two = (
        judge(load_evidence(sweep(tmp_path, {"a": gamma_engine()}, seeds=seeds, name=name)), rules)
        for seeds, name in (((1,), "one"), ((1, 2), "two"))
    )
    (inconclusive,) = (each for each in one.results if "pass_rate" in each.rule)

    assert RuleVerdict.PASS is verdict_of(two, "pass_rate")
    assert RuleVerdict.INCONCLUSIVE is inconclusive.verdict
    assert 72 == inconclusive.needed_n


def test_few_requests_can_fail_a_percentile(tmp_path):
    """41 of an engine that takes 30 ms against a limit of 31: far too many are above."""
    run = load_evidence(sweep(tmp_path, {"tts": gamma_engine(num_requests=41)}))
    found = judge(run, one_rule(tmp_path, "metric: audible_ttfa, statistic: p95, max: 31"))
    (result,) = [r for r in found.results if "audible" in r.rule]

    assert RuleVerdict.FAIL is result.verdict
    assert f"({result.beyond.num_hits} of 41) of requests above 31 ms" in gate_text(found)


def test_lower_limit_of_a_percentile_counts_what_is_below(tmp_path, steady):
    """Every second request plays less than 30 ms after dispatch; half of them may, 5 % may not."""
    met = "metric: audible_ttfa, statistic: p50, min: 20"
    missed = "metric: audible_ttfa, statistic: p50, min: 40"

    assert RuleVerdict.PASS is judge(steady, one_rule(tmp_path, met)).verdict
    assert RuleVerdict.FAIL is judge(steady, one_rule(tmp_path, missed)).verdict


# -- unmeasured is never good ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        "metric: wer, max: 0.1",
        "metric: wer, max: 0.1, evidence: value",
        "metric: clipped_share, statistic: p95, max: 0.1",
        "metric: clipped_share, statistic: p95, max: 0.1, evidence: value",
        "metric: connect_time, statistic: p50, max: 5",
        "metric: final_text_to_audible, statistic: p95, max: 500",
        "metric: bad_clip_share, max: 0.5, evidence: value",
    ],
)
def test_figure_that_was_not_measured_does_not_pass(tmp_path, steady, rule):
    """Zero heard clips, no waveform, no cold connection, no incremental text."""
    found = judge(steady, one_rule(tmp_path, rule))

    assert RuleVerdict.INCONCLUSIVE is found.verdict
    assert "not measured" in gate_text(found)


def test_skipping_is_not_passing(tmp_path, steady):
    """A gate whose only rule was skipped has judged validity and load, and says what it skipped."""
    found = judge(steady, one_rule(tmp_path, "metric: wer, max: 0.1, if_unmeasured: skip"))

    assert RuleVerdict.SKIPPED is verdict_of(found, "wer")
    assert "skipped" in gate_text(found)


def test_underruns_of_replies_in_one_chunk_are_not_measured(tmp_path):
    """Nothing could run dry, so nothing is shown to be smooth."""

    def whole(rate, seed):
        return [Reply(30.0, outcome=TransportOutcome.OK)] * 2

    folder = sweep(tmp_path, {"tts": whole})
    run = load_evidence(folder)
    run.points[0].cohort["num_underruns"] = float("nan")
    found = judge(run, one_rule(tmp_path, "metric: underrun_rate, max: 1, evidence: value"))

    assert RuleVerdict.INCONCLUSIVE is verdict_of(found, "underrun")


# -- validity and load ----------------------------------------------------------------------------


def test_invalid_run_cannot_pass_and_cannot_fail(tmp_path, steady):
    """Its figures say nothing, however good or bad they are."""
    for point in steady.points:
        assert point.summary["validity"]["verdict"] == "valid"
    folder = sweep(tmp_path, {"tts": gamma_engine(num_requests=20)})
    run = load_evidence(folder)
    run.points[0].summary["validity"]["verdict"] = "invalid"
    for limit in (1, 1000):
        rule = f"metric: audible_ttfa, statistic: p50, max: {limit}, evidence: value"
        found = judge(run, one_rule(tmp_path, rule))

        assert (RuleVerdict.INCONCLUSIVE, 3) == (found.verdict, found.exit_code)


def test_suspect_run_passes_only_where_the_gate_allows_it(tmp_path):
    """The client recorded nothing about itself."""
    run = load_evidence(sweep(tmp_path, {"tts": gamma_engine(num_requests=20)}, selfcheck={}))
    rule = "rules: [{metric: audible_ttfa, statistic: p50, max: 500, evidence: value}]\n"

    assert RuleVerdict.PASS is judge(run, rules_of(tmp_path, rule)).verdict
    strict = "require: {verdict: valid}\n" + rule
    assert RuleVerdict.INCONCLUSIVE is judge(run, rules_of(tmp_path, strict)).verdict


def test_overloaded_point_fails_although_its_figures_are_good(tmp_path):
    """One in ten timed out: the load was not sustained."""
    run = load_evidence(sweep(tmp_path, {"tts": lost(10)}))
    rule = "metric: audible_ttfa, statistic: p50, max: 500, evidence: value"
    found = judge(run, one_rule(tmp_path, rule))

    assert RuleVerdict.FAIL is found.verdict
    assert "overloaded" in gate_text(found)


# -- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("metric: audible_tfa, statistic: p95, max: 1", "did you mean 'audible_ttfa'"),
        ("metric: audible_ttfa, max: 1", "needs a statistic"),
        ("metric: underrun_rate, statistic: p95, max: 1", "has no statistic"),
        ("metric: audible_ttfa, statistic: p95", "exactly one of"),
        ("metric: audible_ttfa, statistic: p95, max: 1, max_increase: 1", "exactly one of"),
        ("metric: audible_ttfa, statistic: p90, max: 1", "p90"),
        ("metric: audible_ttfa, statistic: p95, max: .nan", "max"),
        ("metric: audible_ttfa, statistic: p95, max: fast", "max"),
        ("metric: audible_ttfa, statistic: p95, maximum: 1", "maximum: unknown key"),
        ("metric: wer, max_increase: 0", "cannot be held against a base"),
        ("metric: audible_ttfa, statistic: p95, max_increase: -1", "max_increase"),
        ("metric: failure_rate, max: 1, must_detect: 0.1", "is for rules against a base"),
        ("metric: failure_rate, max_increase: 0, must_detect_percent: 5", "say must_detect"),
        (
            "metric: ttfp, statistic: p50, max_increase: 0, must_detect: 1, must_detect_percent: 1",
            "not both",
        ),
    ],
)
def test_wrong_rule_is_one_line(tmp_path, rule, words):
    """File, key, what was found."""
    with pytest.raises(RulesError, match=r"rules\.yaml") as raised:
        one_rule(tmp_path, rule)

    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "schema: 2\nname: x\nrules: []", "schema: 1\nname: x\nrules: []"]
)
def test_file_that_is_no_gate_is_refused(tmp_path, text):
    """Empty, a list, another schema, no rules."""
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(RulesError, match=r"rules\.yaml"):
        load_gate(path)


def test_unknown_gate_lists_the_known(tmp_path):
    """With the nearest word."""
    with pytest.raises(RulesError, match="did you mean 'voice-agent'"):
        load_gate("voice-agnet")


@pytest.mark.parametrize("name", bundled_gates())
def test_bundled_gates_are_readable_and_described(name):
    """Every rule has a line."""
    gate = load_gate(name)

    assert name == gate.name
    assert gate.description
    assert all(rule.describe() for rule in gate.rules)


def test_three_gates_come_with_the_package():
    """As README names them."""
    assert ("no-regression", "strict-50ms", "voice-agent") == bundled_gates()


def test_gate_that_matches_no_point_is_a_mistake(tmp_path, steady):
    """A wrong engine name must not pass everything."""
    rules = rules_of(
        tmp_path,
        """
        scope: {engine: tss}
        rules: [{metric: audible_ttfa, statistic: p50, max: 500}]
        """,
    )
    with pytest.raises(RulesError, match=r"no point .* it has tts"):
        judge(steady, rules)


def test_example_of_the_readme_is_a_gate(tmp_path):
    """As printed."""
    (example,) = re.findall(r"```yaml\n(.*?)```", chapter(), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example)

    assert 5 == len(load_gate(tmp_path / "mine.yaml").rules)


@pytest.mark.parametrize(
    "key", [*Rule.model_fields, *Scope.model_fields, *Requirements.model_fields]
)
def test_every_key_of_a_rule_is_documented(key):
    """Where the README of the package says how to add a gate."""
    assert f"`{key}" in chapter()


# -- as told --------------------------------------------------------------------------------------


def test_answer_is_told_alike_in_every_form(tmp_path, steady):
    """One rule met, one missed, one not measured."""
    rules = rules_of(
        tmp_path,
        """
        rules:
          - {metric: audible_ttfa, statistic: p50, max: 500}
          - {metric: audible_ttfa, statistic: p95, max: 1}
          - {metric: wer, max: 0.1, if_unmeasured: skip}
        """,
    )
    found = judge(steady, rules)
    suite = ElementTree.fromstring(gate_junit(found))

    assert ("5", "1", "0", "1") == tuple(
        suite.get(key) for key in ("tests", "failures", "errors", "skipped")
    )
    stored = json.loads(json.dumps(gate_json(found), allow_nan=False))
    assert ("fail", 1) == (stored["verdict"], stored["exit_code"])
    assert gate_text(found).startswith("gate test: FAIL (3 pass, 1 FAIL, 1 skipped)")
    assert "## Gate test: FAIL" in gate_markdown(found)
    assert "ms" == stored["results"][2]["unit"]
    assert 5 == gate_markdown(found).count("| tts |")


def test_figures_have_units_and_no_powers_of_ten(tmp_path, steady):
    """12,345,678 ms are written out, and a share is a percentage."""
    rules = rules_of(
        tmp_path,
        """
        rules:
          - {metric: audible_ttfa, statistic: p50, min: 12345678}
          - {metric: failure_rate, max: 0.00001}
        """,
    )
    text = gate_text(judge(steady, rules))

    assert "p50 audible_ttfa at least 12350000 ms: " in text
    assert "failure_rate at most 0.001 %: 0 % [0 %, 1.5 %] against 0.001 %, n = 240" in text
