"""A run held against a base: what is a regression, what is none, and what nobody can tell."""

from __future__ import annotations

import math

import pytest

from analysis.errors import NotComparableError, RulesError
from analysis.evidence import load_evidence, write_baseline
from analysis.gate import RuleVerdict, judge
from analysis.gate_words import gate_text
from tests.builders.gates import lost, one_rule, rules_of, verdict_of
from tests.builders.sweeps import gamma_engine, sweep

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
