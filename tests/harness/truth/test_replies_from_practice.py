"""Replies whose right figures are easy to get wrong, through a real socket and the whole analysis.

A reported moment has to lie where the server's own log says, give or take 0.2 ms: the tolerance is
between stamps, so it holds on a busy machine too. What the plan says of each reply is pinned by the
arithmetic of `test_expected`.
"""

from __future__ import annotations

import pytest

from analysis.playback import buffer_ms, simulate_playback
from analysis.view import MediaArrival
from harness.truth.expected import Bracket, ExpectedStall
from tests.builders.truth import Heard, TruthSite

pytestmark = pytest.mark.slow
TOLERANCE_MS = 0.2


def is_at(reported_ms: float | None, heard: Heard, truth: Bracket | None) -> bool:
    """Whether a latency lies where the truth and the reply's own stamps allow."""
    assert reported_ms is not None
    lo_ms, hi_ms = heard.since_dispatch_ms(truth)
    doubt_ms = max(heard.view.uncertainty_ns) / 1e6
    return lo_ms - TOLERANCE_MS <= reported_ms <= hi_ms + doubt_ms + TOLERANCE_MS


def lasted(reported_ms: float | None, true: ExpectedStall) -> bool:
    """Whether a stall is as long as the truth allows."""
    assert reported_ms is not None
    assert true.length.hi_ns is not None
    lo_ms, hi_ms = true.length.lo_ns / 1e6, true.length.hi_ns / 1e6
    return lo_ms - TOLERANCE_MS <= reported_ms <= hi_ms + TOLERANCE_MS


@pytest.mark.parametrize(("name", "num_stalls"), [("tone-in-time", 0), ("tone-too-late", 1)])
def test_sound_is_heard_when_the_player_gets_to_it(site: TruthSite, name: str, num_stalls: int):
    """400 ms of zeros at once, then the tone: in time, or after the player has run dry.

    First byte plus leading silence would be the same in both.
    """
    heard = site.say(name)
    metrics, truth = heard.metrics, heard.truth

    assert is_at(metrics["ttfp"], heard, truth.first_sample())
    assert is_at(metrics["audible_ttfa"], heard, truth.onset_played())
    assert is_at(metrics["audible_received"], heard, truth.onset_received())
    assert 400 == metrics["leading_silence"]
    assert num_stalls == metrics["num_underruns"]
    if num_stalls:
        assert lasted(metrics["stall_total"], truth.stalls()[0])


def test_header_alone_is_the_first_byte_and_not_the_first_sample(site: TruthSite):
    """44 bytes at 50 ms, 10 ms of sound every 10 ms from 300 on; no read waits for a full block."""
    heard = site.say("header-first")
    metrics, truth = heard.metrics, heard.truth

    assert is_at(metrics["ttfb"], heard, truth.first_body)
    assert is_at(metrics["ttfp"], heard, truth.first_sample())
    assert metrics["ttfp"] - metrics["ttfb"] > 240
    assert 21 <= metrics["num_chunks"]
    assert 44 == heard.view.record.chunks[0].num_bytes


def test_early_start_and_its_stall_are_both_reported(site: TruthSite):
    """80 ms of sound, 220 ms of nothing; a buffer of 200 ms starts later and has no gap."""
    heard = site.say("hasty-start")
    stall = heard.view.timeline.underruns()[0]
    chunks = zip(heard.view.record.chunks, heard.view.reply.samples_per_chunk, strict=True)
    arrivals = [MediaArrival(chunk.arrival_ns, num) for chunk, num in chunks]
    buffered = simulate_playback(arrivals, 24_000, start=buffer_ms(200))

    assert is_at(heard.metrics["audible_ttfa"], heard, heard.truth.onset_played())
    assert lasted(stall.length_ms, heard.truth.stalls()[0])
    assert () == buffered.underruns()
    assert buffered.start_ns == arrivals[1].arrival_ns


def test_delivery_in_bursts_is_reported_as_later_and_bunched(site: TruthSite):
    """The same audio, every 20 ms or in two bursts: no stall in either, and no better gap fools."""
    steady, bursts = site.say("steady"), site.say("two-bursts")

    for heard in (steady, bursts):
        assert is_at(heard.metrics["audible_ttfa"], heard, heard.truth.onset_played())
    assert bursts.metrics["audible_ttfa"] - steady.metrics["audible_ttfa"] > 150
    assert bursts.metrics["gap_median"] < 1 < steady.metrics["gap_median"]
    assert bursts.metrics["coalesced_share"] > 0.5 > steady.metrics["coalesced_share"]
    assert 0 == bursts.metrics["num_underruns"]
