"""Comparisons: paired, corrected, decomposed, refused where they would mislead."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analysis.compare import Comparison, Finding, compare, contenders_of
from analysis.compare_words import (
    comparison_json,
    comparison_markdown,
    interval_words,
    pairs_of,
    sentence,
    summary,
    verdict_words,
)
from analysis.errors import NotComparableError
from engines.outcomes import TransportOutcome
from harness.records import RunKind
from tests.builders.sweeps import Reply, gamma_engine, sweep


def compared(*paths, **options):
    return compare(contenders_of(paths), **options)


def one_rate(*paths, **options):
    (rate,) = compared(*paths, **options).rates
    return rate


def finding(rate, metric: str, statistic: str):
    return next(d for d in rate.differences if (d.metric, d.statistic) == (metric, statistic))


def test_faster_engine_of_one_run_is_named_with_its_lead(tmp_path):
    """20 ms sooner, over three seeds of 60 requests."""
    folder = sweep(
        tmp_path,
        {"slow": gamma_engine(mean_ms=60, salt=1), "fast": gamma_engine(mean_ms=40, salt=2)},
        seeds=(1, 2, 3),
    )
    rate = one_rate(folder)
    p95 = finding(rate, "audible_ttfa", "p95")

    assert Finding.BETTER is p95.finding
    assert -20 == pytest.approx(p95.difference.value, abs=8)
    assert (180, 3) == (p95.difference.num_pairs, p95.difference.num_seeds)
    assert sentence(rate).startswith("At 2/s fast is heard sooner")


def test_engine_against_itself_shows_no_difference(tmp_path):
    """Two draws of the same engine."""
    folder = sweep(
        tmp_path, {"a": gamma_engine(salt=1), "b": gamma_engine(salt=2)}, seeds=(1, 2, 3)
    )
    rate = one_rate(folder)

    assert {Finding.NOT_SHOWN} == {
        d.finding for d in rate.differences if d.metric == "audible_ttfa"
    }
    assert "no difference in audible TTFA is shown" in sentence(rate)


def test_identical_replies_differ_by_exactly_nothing(tmp_path):
    """The interval is a point."""
    folder = sweep(tmp_path, {"a": gamma_engine(), "b": gamma_engine()})
    p50 = finding(one_rate(folder), "audible_ttfa", "p50").difference

    assert (0, 0, 0) == (p50.value, p50.lo, p50.hi)


def test_trimmed_silence_is_told_from_speed(tmp_path):
    """Same first chunk; one starts with 200 ms of silence, the other with none."""
    folder = sweep(
        tmp_path,
        {"plain": gamma_engine(silence_ms=200.0), "trimmed": gamma_engine(silence_ms=0.0)},
    )
    rate = one_rate(folder)
    parts = rate.decomposition

    assert (0, -200, 0) == (
        pytest.approx(parts.first_playable_ms), pytest.approx(parts.leading_silence_ms),
        pytest.approx(parts.stalls_ms),
    )  # fmt: skip
    assert parts.total_ms == pytest.approx(-200)
    assert "-200.0 ms from leading silence (trimming)" in sentence(rate)


def test_parts_add_up_to_the_whole(tmp_path):
    """First playable, silence and stalls are the audible TTFA."""
    folder = sweep(
        tmp_path,
        {"a": gamma_engine(silence_ms=40.0, salt=1), "b": gamma_engine(silence_ms=90.0, salt=2)},
    )
    run = contenders_of([folder])[0].run
    means = [run.at(engine, 2.0)[0].values("audible_ttfa").values.mean() for engine in ("a", "b")]

    assert means[1] - means[0] == pytest.approx(one_rate(folder).decomposition.total_ms)


def test_share_of_nothing_is_not_sure_to_stay_nothing(tmp_path):
    """Nobody failed on either side, and still the difference has a width."""
    folder = sweep(tmp_path, {"a": gamma_engine(), "b": gamma_engine(salt=3)}, seeds=(1, 2, 3))
    found = finding(one_rate(folder), "failure_rate", "share")

    assert 0 == found.difference.value
    assert found.difference.lo < 0 < found.difference.hi


def test_failures_make_an_engine_worse_not_absent(tmp_path):
    """One in ten times out: its p95 is not reached, which is worse by any amount."""

    def failing(rate, seed):
        good = gamma_engine()(rate, seed)
        lost = TransportOutcome.TIMEOUT
        return [Reply(0, outcome=lost) if i % 10 == 0 else r for i, r in enumerate(good)]

    rate = one_rate(sweep(tmp_path, {"good": gamma_engine(), "failing": failing}, seeds=(1, 2, 3)))
    p95 = finding(rate, "audible_ttfa", "p95")

    (stored,) = comparison_json(Comparison((), (), (rate,)))["rates"]
    second = next(d["second"] for d in stored["differences"] if d["statistic"] == "p95")

    assert (Finding.WORSE, "not_reached") == (p95.finding, second["status"])
    assert Finding.WORSE is finding(rate, "failure_rate", "share").finding
    assert "good is heard sooner" in sentence(rate)


def test_both_not_reached_is_no_difference(tmp_path):
    """Infinity minus infinity is not a number and never printed as one."""

    def dead(rate, seed):
        return [Reply(0, outcome=TransportOutcome.REFUSED)] * 20

    rate = one_rate(sweep(tmp_path, {"a": dead, "b": dead}))
    p50 = finding(rate, "audible_ttfa", "p50")

    assert (0.0, Finding.NOT_SHOWN) == (p50.difference.value, p50.finding)


def test_rare_findings_among_many_metrics_are_corrected(tmp_path):
    """Every adjusted p-value is at least the plain one."""
    folder = sweep(tmp_path, {"a": gamma_engine(salt=1), "b": gamma_engine(salt=2)})
    measured = [d for d in one_rate(folder).differences if d.adjusted_p is not None]

    assert all(d.adjusted_p >= d.difference.p_value for d in measured)
    assert any(d.adjusted_p > d.difference.p_value for d in measured)


def test_two_runs_of_one_engine_are_told_apart_by_their_folder(tmp_path):
    """Before and after."""
    before = sweep(tmp_path, {"tts": gamma_engine(mean_ms=60, salt=1)}, name="before")
    after = sweep(tmp_path, {"tts": gamma_engine(mean_ms=40, salt=2)}, name="after")
    rate = one_rate(before, after)

    assert ("before:tts", "after:tts") == (rate.first, rate.second)
    assert Finding.BETTER is finding(rate, "audible_ttfa", "p50").finding


def test_percentile_of_too_few_requests_has_no_interval_and_no_claim(tmp_path):
    """60 pairs: p95 needs 72, however clear it looks; p50 carries the sentence."""
    folder = sweep(
        tmp_path,
        {"slow": gamma_engine(mean_ms=90, salt=1), "fast": gamma_engine(mean_ms=30, salt=2)},
    )
    rate = one_rate(folder)
    p95 = finding(rate, "audible_ttfa", "p95")

    assert (Finding.TOO_FEW, None) == (p95.finding, p95.difference.lo)
    assert "fast is heard sooner: p50 audible_ttfa" in sentence(rate)
    assert "too few: 60 of 72" in comparison_markdown(compared(folder))


def test_runs_under_other_load_are_refused_unless_insisted(tmp_path):
    """Other phases: the difference is named in the refusal and in the notes."""
    first = sweep(tmp_path, {"a": gamma_engine()}, name="one")
    second = sweep(
        tmp_path, {"b": gamma_engine()}, name="two", scenario={"phases": {"measure_s": 99.0}}
    )
    with pytest.raises(NotComparableError, match=r"phases is .*--force"):
        compared(first, second)

    assert any("phases" in note for note in compared(first, second, is_forced=True).notes)


def whole_and_words(tmp_path, *, wait_ms: float):
    """Whole texts heard 300 ms after they were sent; words over 800 ms, then so long a wait."""
    whole = sweep(tmp_path, {"tts": gamma_engine(mean_ms=300, salt=1)}, name="whole")
    words = sweep(
        tmp_path,
        {"tts": gamma_engine(mean_ms=wait_ms, shift_ms=800, salt=2, last_text_ms=800.0)},
        name="words",
        scenario={"text_pacing": {"mode": "words", "rate_per_s": 100.0}},
    )
    return whole, words


def test_streaming_the_text_saves_wait_after_its_end(tmp_path):
    """50 instead of 300 ms after the last word: 250 ms saved, though speech began 550 ms later."""
    rate = one_rate(*whole_and_words(tmp_path, wait_ms=50.0))
    p50 = finding(rate, "final_text_to_audible", "p50")

    assert Finding.BETTER is p50.finding
    assert -250 == pytest.approx(p50.difference.value, abs=20)
    assert (60, True) == (p50.difference.num_pairs, rate.is_paired)
    assert "words:tts is heard sooner after the end of the text" in sentence(rate)


def test_latency_from_dispatch_is_not_compared_across_text_pacings(tmp_path):
    """It would count the writing of the text on one side only; the notes say what is compared."""
    found = compared(*whole_and_words(tmp_path, wait_ms=50.0))

    assert "audible_ttfa" not in {each.metric for each in found.rates[0].differences}
    assert found.rates[0].decomposition is None
    assert any("end of the text" in note for note in found.notes)


def test_streaming_the_text_that_saves_nothing_is_not_claimed(tmp_path):
    """The same wait on both sides."""
    rate = one_rate(*whole_and_words(tmp_path, wait_ms=300.0))

    assert Finding.NOT_SHOWN is finding(rate, "final_text_to_audible", "p50").finding
    assert "no difference in the wait from the end of the text" in sentence(rate)


def test_two_cadences_of_text_are_other_conditions(tmp_path):
    """Words at 100/s against words at 5/s are two loads, not one question."""
    first, second = (
        sweep(
            tmp_path,
            {"tts": gamma_engine()},
            name=f"words-{rate:g}",
            scenario={"text_pacing": {"mode": "words", "rate_per_s": rate}},
        )
        for rate in (5.0, 100.0)
    )
    with pytest.raises(NotComparableError, match="text_pacing"):
        compared(first, second)


def test_formats_timed_in_different_ways_are_called_out(tmp_path):
    """MP3 counts by frames, PCM by bytes: the note says that they are not on the same footing."""
    pcm = contenders_of([sweep(tmp_path, {"a": gamma_engine(), "b": gamma_engine(salt=2)})])
    points = [
        replace(point, cohort=point.cohort.assign(duration_basis="frame"))
        for point in pcm[1].run.points
    ]
    framed = replace(pcm[1], run=replace(pcm[1].run, points=points))

    assert any("exact and frame" in note for note in compare([pcm[0], framed]).notes)
    assert not compare(pcm).notes


def test_simulated_and_measured_are_not_compared(tmp_path):
    """Never alike."""
    first = sweep(tmp_path, {"a": gamma_engine()}, name="one")
    second = sweep(tmp_path, {"b": gamma_engine()}, name="two", kind=RunKind.SIMULATED)

    with pytest.raises(NotComparableError, match="simulated"):
        compared(first, second)


def test_other_prompts_are_refused_and_when_insisted_not_paired(tmp_path):
    """The same places of the plan said something else."""
    first = sweep(tmp_path, {"a": gamma_engine()}, name="one")
    second = sweep(tmp_path, {"b": gamma_engine()}, name="two", prompts="other")
    with pytest.raises(NotComparableError, match="different prompts"):
        compared(first, second)
    rate = one_rate(first, second, is_forced=True)

    assert not rate.is_paired
    assert rate.decomposition is None


def test_share_of_nothing_in_unpaired_runs_is_not_sure_to_stay_nothing(tmp_path):
    """0 of 60 against 0 of 60 of other prompts: Newcombe's 6 points either way, no evidence."""
    first = sweep(tmp_path, {"a": gamma_engine()}, name="one")
    second = sweep(tmp_path, {"b": gamma_engine()}, name="two", prompts="other")
    for metric in ("failure_rate", "underrun_rate"):
        found = finding(one_rate(first, second, is_forced=True), metric, "share")

        assert (-0.0602, 0.0602) == pytest.approx(
            (found.difference.lo, found.difference.hi), abs=1e-4
        )
        assert (0, 1, Finding.NOT_SHOWN) == (
            found.difference.value, found.difference.p_value, found.finding
        )  # fmt: skip


def test_one_pair_of_requests_is_compared_and_shows_nothing(tmp_path):
    """Its shares have the widest of intervals, its percentiles none."""
    folder = sweep(
        tmp_path,
        {"a": gamma_engine(num_requests=1), "b": gamma_engine(num_requests=1, gap_ms=900.0)},
    )
    found = finding(one_rate(folder), "underrun_rate", "share")

    assert (1, Finding.NOT_SHOWN) == (found.difference.value, found.finding)
    assert "too few: 1 of 6" in comparison_markdown(compared(folder))


def test_runs_of_other_seeds_are_refused_and_when_insisted_not_paired(tmp_path):
    """Each side then has all of its own requests."""
    first = sweep(tmp_path, {"a": gamma_engine(mean_ms=60)}, name="one", seeds=(1, 2))
    second = sweep(tmp_path, {"b": gamma_engine()}, name="two", seeds=(3, 4, 5))
    with pytest.raises(NotComparableError, match="no seed in common at any rate: 1, 2 and 3, 4, 5"):
        compared(first, second)
    rate = one_rate(first, second, is_forced=True)
    p95 = finding(rate, "audible_ttfa", "p95")

    assert not rate.is_paired
    assert (Finding.BETTER, 120, 2) == (
        p95.finding, p95.difference.num_pairs, p95.difference.num_seeds
    )  # fmt: skip
    assert "120 requests, unpaired, 2 seeds" in sentence(rate)


def test_runs_without_a_common_rate_are_refused(tmp_path):
    """2/s and 4/s."""
    first = sweep(tmp_path, {"a": gamma_engine()}, name="one")
    second = sweep(tmp_path, {"b": gamma_engine()}, name="two", rates_rps=(4.0,))

    with pytest.raises(NotComparableError, match=r"2/s and 4/s"):
        compared(first, second)


def test_one_engine_is_no_comparison(tmp_path):
    """It needs two."""
    with pytest.raises(NotComparableError, match="needs two"):
        contenders_of([sweep(tmp_path, {"a": gamma_engine()})])


def test_other_machine_and_versions_are_called_out(tmp_path):
    """They may explain a difference; they do not forbid it."""
    first = sweep(tmp_path, {"a": gamma_engine()}, name="one", machine={"cpu": "A"})
    second = sweep(
        tmp_path, {"b": gamma_engine()}, name="two", machine={"cpu": "B"}, versions={"torch": "3"}
    )
    notes = compared(first, second).notes

    assert any("another machine (cpu: 'A' and 'B')" in note for note in notes)
    assert any("torch None and 3" in note for note in notes)


def test_invalid_point_is_a_caution_in_the_sentence(tmp_path):
    """The client recorded nothing about itself."""
    folder = sweep(tmp_path, {"a": gamma_engine(), "b": gamma_engine()}, selfcheck={})

    assert "Read with care: a at 2/s, seed 1: suspect (self_check_missing)" in sentence(
        one_rate(folder)
    )


def test_every_further_contender_is_held_against_the_first(tmp_path):
    """Three engines at two rates: four comparisons."""
    folder = sweep(
        tmp_path, {name: gamma_engine(num_requests=12) for name in "abc"}, rates_rps=(1.0, 2.0)
    )
    found = compared(folder)

    assert [("a", "b", 1), ("a", "b", 2), ("a", "c", 1), ("a", "c", 2)] == [
        (rate.first, rate.second, rate.rate_rps) for rate in found.rates
    ]
    assert 2 == comparison_markdown(found).count("## ")


def test_sooner_and_stuttering_is_said_in_one_breath(tmp_path):
    """Every reply of the winner runs dry: its second half comes a second after the first."""
    folder = sweep(
        tmp_path,
        {"slow": gamma_engine(mean_ms=90), "fast": gamma_engine(mean_ms=30, gap_ms=1500.0)},
    )
    found = compared(folder)
    [pair] = pairs_of(found)

    both = "but 100 % of its replies stutter (against 0 %)"
    assert f"fast is heard sooner, {both}: p50" in sentence(pair.rates[0])
    assert f"{both}." in summary(pair)


def test_caution_about_several_seeds_is_told_once(tmp_path):
    """The same finding, twelve times over, would bury the sentence."""
    folder = sweep(
        tmp_path, {"a": gamma_engine(), "b": gamma_engine()}, selfcheck={}, seeds=(1, 2, 3)
    )

    assert 2 == len(one_rate(folder).cautions)
    assert one_rate(folder).cautions[0].startswith("a at 2/s, seeds 1, 2, 3: suspect")


def test_summary_is_one_sentence_over_all_rates(tmp_path):
    """Sooner at each of two rates, by about 60 ms."""
    folder = sweep(
        tmp_path,
        {"slow": gamma_engine(mean_ms=90, salt=1), "fast": gamma_engine(mean_ms=30, salt=2)},
        rates_rps=(1.0, 2.0),
    )
    [pair] = pairs_of(compared(folder))

    assert summary(pair).startswith(
        "fast is heard sooner than slow at each of the 2 rates compared (p50 by"
    )


def test_clear_interval_that_fails_the_correction_says_so(tmp_path):
    """Beside an interval that leaves out 0, "not shown" alone would look like a mistake."""
    folder = sweep(tmp_path, {"a": gamma_engine(salt=1), "b": gamma_engine(salt=2)})
    rate = one_rate(folder)
    p50 = finding(rate, "audible_ttfa", "p50")
    chance = replace(
        p50, difference=replace(p50.difference, lo=5.8, hi=math.inf), finding=Finding.NOT_SHOWN
    )
    num = sum(each.adjusted_p is not None for each in rate.differences)

    assert f"not after correction for {num} metrics" == verdict_words(rate, chance)
    assert "95 % interval at least +5.8 ms" == interval_words(chance)


def test_caution_names_the_run_where_both_have_one_engine(tmp_path):
    """Two runs of `tts`: "tts at 2/s" would be either."""
    before, after = (
        sweep(tmp_path, {"tts": gamma_engine()}, name=name, selfcheck={})
        for name in ("before", "after")
    )

    assert ["before:tts at 2/s", "after:tts at 2/s"] == [
        caution.partition(",")[0] for caution in one_rate(before, after).cautions
    ]


def test_difference_without_bound_is_said_in_english(tmp_path):
    """One side never reaches its p95."""

    def failing(rate, seed):
        good = gamma_engine()(rate, seed)
        lost = TransportOutcome.TIMEOUT
        return [Reply(0, outcome=lost) if i % 10 == 0 else r for i, r in enumerate(good)]

    folder = sweep(tmp_path, {"good": gamma_engine(), "failing": failing}, seeds=(1, 2, 3))
    text = comparison_markdown(compared(folder))

    assert "a difference that no number bounds" in text
    assert "without bound" not in text
