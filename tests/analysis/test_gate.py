"""Pass, fail or inconclusive: each for its reason, and never pass for lack of evidence."""

from __future__ import annotations

import json
import math
import re
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from analysis.errors import NotComparableError, RulesError
from analysis.evidence import load_evidence, write_baseline
from analysis.gate import RuleVerdict, judge
from analysis.gate_rules import Requirements, Rule, Scope, bundled_gates, load_gate
from analysis.gate_words import gate_json, gate_junit, gate_markdown, gate_text
from engines.outcomes import TransportOutcome
from tests.builders.sweeps import Reply, gamma_engine, sweep

README = Path(__file__).resolve().parents[2] / "analysis" / "README.md"


def chapter() -> str:
    """What the README says about gates."""
    return README.read_text(encoding="utf-8").split("## To add a gate")[1].split("\n## ")[0]


def rules_of(tmp_path, text: str):
    path = tmp_path / "rules.yaml"
    path.write_text("schema: 1\nname: test\n" + textwrap.dedent(text))
    return load_gate(path)


def one_rule(tmp_path, rule: str):
    return rules_of(tmp_path, f"rules:\n  - {{{rule}}}\n")


def verdict_of(found, word: str) -> RuleVerdict:
    (verdict,) = {result.verdict for result in found.results if word in result.rule}
    return verdict


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """An engine of about 30 ms, three seeds of 80 requests."""
    folder = tmp_path_factory.mktemp("steady")
    return load_evidence(sweep(folder, {"tts": gamma_engine(num_requests=80)}, seeds=(1, 2, 3)))


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The same with 40 requests of one seed: too few for an interval of p95."""
    folder = tmp_path_factory.mktemp("short")
    return load_evidence(sweep(folder, {"tts": gamma_engine(num_requests=40)}))


def lost(share: int):
    def replies(rate, seed):
        made = gamma_engine(num_requests=60)(rate, seed)
        return [
            Reply(0, outcome=TransportOutcome.TIMEOUT) if i % share == 0 else reply
            for i, reply in enumerate(made)
        ]

    return replies


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


# -- against a base -------------------------------------------------------------------------------

NO_WORSE = "metric: audible_ttfa, statistic: p95, max_increase: 0"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Another draw of the steady engine."""
    folder = tmp_path_factory.mktemp("base")
    engine = gamma_engine(num_requests=80, salt=6)
    return load_evidence(sweep(folder, {"tts": engine}, seeds=(1, 2, 3)))


def test_same_engine_again_is_no_regression(tmp_path, steady, base):
    """Nothing is claimed below what the interval shows."""
    assert RuleVerdict.PASS is judge(steady, one_rule(tmp_path, NO_WORSE), base=base).verdict


def test_slower_engine_is_a_regression(tmp_path, base):
    """10 ms later, shown by the whole interval."""
    slow = gamma_engine(num_requests=80, shift_ms=10)
    run = load_evidence(sweep(tmp_path, {"tts": slow}, seeds=(1, 2, 3)))
    found = judge(run, one_rule(tmp_path, NO_WORSE), base=base)
    (result,) = [r for r in found.results if "audible" in r.rule]

    assert (RuleVerdict.FAIL, 1) == (found.verdict, found.exit_code)
    assert result.lo > 0
    allowed = "metric: audible_ttfa, statistic: p95, max_increase_percent: 60"
    assert RuleVerdict.PASS is judge(run, one_rule(tmp_path, allowed), base=base).verdict


def test_coarse_difference_is_not_called_none(tmp_path, short):
    """40 pairs cannot tell a change of 1 %."""
    rule = NO_WORSE + ", must_detect_percent: 1"
    folder = sweep(tmp_path, {"tts": gamma_engine(num_requests=40, salt=9)})
    found = judge(short, one_rule(tmp_path, rule), base=load_evidence(folder))
    (result,) = [r for r in found.results if "audible" in r.rule]

    assert RuleVerdict.INCONCLUSIVE is result.verdict
    assert result.needed_n > 40


def test_more_failures_than_the_base_are_a_regression(tmp_path, base):
    """One in five against none."""
    run = load_evidence(sweep(tmp_path, {"tts": lost(5)}, seeds=(1, 2, 3)))
    found = judge(run, one_rule(tmp_path, "metric: failure_rate, max_increase: 0"), base=base)

    assert RuleVerdict.FAIL is verdict_of(found, "failure_rate")


def gate_of(tmp_path, rule: str, engine, *, base, seeds=(1, 2, 3)):
    """The answer of one rule for an engine, and its result."""
    run = load_evidence(sweep(tmp_path, {"tts": engine}, seeds=seeds))
    rules = rules_of(tmp_path, f"require: {{load: any}}\nrules:\n  - {{{rule}}}\n")
    found = judge(run, rules, base=base)
    return found, found.results[-1]


def test_percentile_that_is_no_longer_reached_is_no_pass(tmp_path, base):
    """One in 21 fails now: p95 is finite or not by chance, and nobody may call that no worse."""
    rule = "metric: audible_ttfa, statistic: p95, max_increase_percent: 10, must_detect_percent: 50"
    found, result = gate_of(tmp_path, rule, lost(21), base=base)

    assert math.isinf(result.hi)
    assert RuleVerdict.INCONCLUSIVE is result.verdict
    assert "a regression of any size is not ruled out" in gate_text(found)


def test_base_that_does_not_reach_the_percentile_is_no_base(tmp_path):
    """Both fail one in five; nothing could be worse than that, so nothing is shown."""
    failing = load_evidence(sweep(tmp_path, {"tts": lost(5)}, seeds=(1, 2, 3)))
    (tmp_path / "again").mkdir()
    _, result = gate_of(tmp_path / "again", NO_WORSE, lost(5), base=failing)

    assert RuleVerdict.INCONCLUSIVE is result.verdict
    assert "the base does not reach" in result.reason


def test_few_more_failures_are_neither_a_regression_nor_none(tmp_path, base):
    """2 of 60 against none: up to 11 points are possible, and none are."""
    rule = "metric: failure_rate, max_increase: 0"
    found, result = gate_of(tmp_path, rule, lost(30), base=base, seeds=(1,))

    assert (RuleVerdict.INCONCLUSIVE, 60) == (result.verdict, result.n)
    assert result.lo < 0 < 0.1 < result.hi
    assert "percentage points is not ruled out" in gate_text(found)


def test_pass_says_which_regression_would_have_been_seen(tmp_path, steady, base):
    """With its size and its share of the base's figure."""
    found = judge(steady, one_rule(tmp_path, NO_WORSE), base=base)
    (result,) = [r for r in found.results if "audible" in r.rule]

    assert 0 < result.hi < 0.25 * result.base
    assert f"one of more than {result.hi:.4g} ms (" in gate_text(found)
    assert "is ruled out" in gate_text(found)


def test_run_against_itself_rules_out_any_regression(tmp_path, steady):
    """Not "one of more than 0 ms"."""
    found = judge(steady, one_rule(tmp_path, NO_WORSE), base=steady)

    assert "and any is ruled out" in gate_text(found)


def test_value_alone_may_be_asked_for_against_a_base(tmp_path, base):
    """40 requests have no interval of p95; 10 ms later is beyond 5 ms all the same."""
    rule = "metric: audible_ttfa, statistic: p95, max_increase: 5, evidence: value"
    slow = gamma_engine(num_requests=40, shift_ms=10)

    assert RuleVerdict.FAIL is gate_of(tmp_path, rule, slow, base=base, seeds=(1,))[1].verdict


def test_base_from_another_machine_is_inconclusive_unless_allowed(tmp_path, base):
    """Another processor may be the whole difference."""
    slow = gamma_engine(num_requests=80, shift_ms=10)
    run = load_evidence(sweep(tmp_path, {"tts": slow}, seeds=(1, 2, 3), machine={"cpu": "other"}))
    rules = one_rule(tmp_path, NO_WORSE)

    assert RuleVerdict.INCONCLUSIVE is judge(run, rules, base=base).verdict
    assert "another machine (cpu" in gate_text(judge(run, rules, base=base))
    assert RuleVerdict.FAIL is judge(run, rules, base=base, is_any_machine=True).verdict


def test_base_of_another_scenario_is_refused(tmp_path, base):
    """Other phases are another measurement."""
    run = load_evidence(
        sweep(tmp_path, {"tts": gamma_engine()}, scenario={"phases": {"measure_s": 9.0}})
    )
    with pytest.raises(NotComparableError, match="phases"):
        judge(run, one_rule(tmp_path, NO_WORSE), base=base)


def test_base_without_the_point_is_inconclusive(tmp_path, steady):
    """Other seeds."""
    other = load_evidence(sweep(tmp_path, {"tts": gamma_engine()}, seeds=(8,)))

    assert (
        RuleVerdict.INCONCLUSIVE is judge(steady, one_rule(tmp_path, NO_WORSE), base=other).verdict
    )


def test_regression_rule_without_a_base_is_a_mistake(tmp_path, steady):
    """The line says how to name one."""
    with pytest.raises(RulesError, match="--against"):
        judge(steady, one_rule(tmp_path, NO_WORSE))


def test_baseline_file_judges_as_the_run_it_came_from(tmp_path, steady, base):
    """Same verdict, same interval."""
    path = tmp_path / "base.json"
    write_baseline(base, path)
    rules = one_rule(tmp_path, NO_WORSE)
    from_file = judge(steady, rules, base=load_evidence(path))
    from_run = judge(steady, rules, base=base)

    assert [r.verdict for r in from_run.results] == [r.verdict for r in from_file.results]
    assert from_run.results[-1].lo == pytest.approx(from_file.results[-1].lo, abs=1e-3)


def test_baseline_is_never_overwritten(tmp_path, base):
    """It is the past."""
    path = tmp_path / "base.json"
    path.write_text("mine")
    from analysis.errors import RunDataError

    with pytest.raises(RunDataError, match="exists already"):
        write_baseline(base, path)
    assert "mine" == path.read_text()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"baseline": 3}', "not json", '{"baseline": {"kind": 1}}']
)
def test_file_that_is_no_baseline_is_refused(tmp_path, text):
    """In one line that says how to make one."""
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(RulesError, match="earwitness baseline"):
        load_evidence(path)


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
