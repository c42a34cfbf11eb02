"""An ordinary run against the truth: every claim holds, over every transport."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.accuracy import Accuracy
from harness.truth.book import accuracy_scripts
from harness.truth.noise import host_trouble
from harness.truth.trial import Transport, TrialSettings, trial_scenario
from tests.builders.truth import TruthSite


@pytest.fixture
def over(request: pytest.FixtureRequest, site: TruthSite) -> TruthSite:
    """The site for one transport."""
    transport: Transport = request.param
    if transport.is_sealed:
        site = request.getfixturevalue("sealed_site")
    return site.over(transport)


@pytest.mark.slow
@pytest.mark.parametrize("over", list(Transport), indirect=True, ids=lambda t: t.value)
def test_what_is_reported_is_what_happened(over: TruthSite, tmp_path: Path):
    """Ten replies in flight, smooth, late, merged, split, reset and cut off.

    Ratios and intervals, no absolute times: whatever the host does, no stamp that claims to be
    exact lies outside its send, and no underrun is missed or invented.
    """
    judged = over.run(tmp_path)
    accuracy = judged.accuracy
    stamps, playback, identity = accuracy.stamps, accuracy.playback, accuracy.identity

    assert stamps.num_exact == stamps.num_inside > 0
    if host_trouble(judged.point.selfcheck) is None:
        assert stamps.num_exact > 0.5 * stamps.num_chunks
    assert (0, 0, 0) == (
        stamps.num_unaccounted, stamps.num_lost_boundaries, accuracy.timing.num_impossible_sends
    )  # fmt: skip
    assert (0, 0) == (playback.num_missed, playback.num_invented)
    assert playback.num_true > 0
    assert (0, ()) == (identity.num_wrong_marks, identity.wrong_outcomes)
    assert identity.num_unmatched == 0
    assert identity.num_marks > 100
    report_is_as_exact_as_its_stamps(accuracy)


def report_is_as_exact_as_its_stamps(accuracy: Accuracy) -> None:
    """Half of all latencies are wrong by no more than their send took, to 0.1 ms."""
    limit_ms = accuracy.stamps.bracket_us.max / 1000 + 0.1

    for name in ("ttfb", "ttfp", "audible_received", "audible_ttfa", "e2e"):
        assert accuracy.report.error_ms[name].p50 < limit_ms, name
    assert {0.0} == {abs(error) for error in accuracy.report.onset_error_ms.values()}
    assert abs(accuracy.report.rate_error) < 0.05


@pytest.mark.slow
def test_without_kernel_stamps_it_still_works_and_says_what_it_cannot_tell(
    site: TruthSite, tmp_path: Path
):
    """Named in record and summary; no stamp claims to be exact; doubt covers the truth."""
    judged = site.run(tmp_path, is_kernel_stamped=False)
    accuracy = judged.accuracy

    assert "user" == judged.summary["stamp_source"] == judged.point.selfcheck["stamp_source"]
    assert (0, 0) == (accuracy.stamps.num_exact, accuracy.stamps.num_unaccounted)
    assert (0, 0) == (accuracy.playback.num_missed, accuracy.playback.num_invented)
    assert accuracy.playback.num_undecided > 0


def test_load_of_a_trial_keeps_so_many_replies_in_flight(tmp_path: Path):
    """Rate times length of a reply; each script as often as its share."""
    scripts = {name: accuracy_scripts()[name] for name in ("at-once", "reset")}
    settings = TrialSettings(Transport.HTTP, 50, 2.0, reply_s=2.0, shares={"at-once": 3})
    scenario = trial_scenario(settings, scripts, tmp_path, base_url="http://127.0.0.1:1")
    prompts = (tmp_path / "prompts.yaml").read_text()

    assert (25.0,) == scenario.arrivals.rates_rps
    assert 3 == prompts.count('"text": "at-once"')
    assert 1 == prompts.count('"text": "reset"')


@pytest.mark.parametrize(
    ("transport", "has_wav"),
    [(Transport.HTTPS, True), (Transport.SSE, False), (Transport.WS, False)],
)
def test_container_travels_only_where_types_do(tmp_path: Path, transport: Transport, has_wav: bool):
    """Binary messages and events carry bare samples."""
    settings = TrialSettings(transport, 10, 1.0)
    trial_scenario(settings, accuracy_scripts(), tmp_path, base_url="http://127.0.0.1:1")

    assert has_wav == ('"text": "wav"' in (tmp_path / "prompts.yaml").read_text())
