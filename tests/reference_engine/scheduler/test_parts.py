"""Chunking, reserves and the decision trace, each by itself."""

from __future__ import annotations

import pytest

from reference_engine.batch import Batch, Catalogue, Stage
from reference_engine.config import Reserve
from reference_engine.scheduler.chunking import chunk_rule
from reference_engine.scheduler.policies import POLICIES, deadline_aware
from reference_engine.scheduler.ready import Limits
from reference_engine.scheduler.reserves import Reserves
from reference_engine.scheduler.trace import DecisionTrace
from tests.builders.engine import MS, Speech, add_newcomer, bench, profile, ready_work

ADAPTIVE = {"mode": "adaptive", "first": 2, "growth": 2.0, "max_frames": 16, "slack_share": 0.5}


def frames(settings, index, *, before=4, slack_ms=500, frame_ms=5, codec_ms=5):
    rule = chunk_rule(settings.chunks, settings.buckets)
    return rule(index, before, slack_ms * MS, frame_ms * MS, codec_ms * MS)


def test_a_fixed_ramp_goes_on_with_its_last_entry():
    """2, 4, 8, 12, 12, ..."""
    settings = profile(chunks={"mode": "fixed", "ramp": [2, 4, 8, 12]})

    assert [2, 4, 8, 12, 12] == [frames(settings, index) for index in range(5)]


def test_an_adaptive_first_chunk_is_as_short_as_is_audible():
    """Whatever the slack."""
    assert 2 == frames(profile(chunks=ADAPTIVE), 0, slack_ms=5_000)


@pytest.mark.parametrize(
    ("slack_ms", "before", "expected"),
    [(5_000, 4, 8), (5_000, 16, 16), (80, 4, 4), (30, 4, 2), (0, 4, 1), (-100, 4, 1)],
)
def test_an_adaptive_chunk_is_what_growth_limit_and_slack_allow(slack_ms, before, expected):
    """Twice the one before, at most 16, made within half the slack, in whole buckets."""
    assert expected == frames(profile(chunks=ADAPTIVE), 3, before=before, slack_ms=slack_ms)


def test_the_reserve_of_a_stage_is_the_percentile_of_its_last_steps():
    """Slow steps count as soon as they are measured, and are forgotten with the window."""
    reserves = Reserves(Reserve(percentile=95.0, window=8, initial_ms=4.0))
    before = reserves.ns[Stage.FRAME]
    for _ in range(17):
        reserves.measured(Stage.FRAME, 9 * MS)
    slow = reserves.ns[Stage.FRAME]
    for _ in range(24):
        reserves.measured(Stage.FRAME, 2 * MS)

    assert [4 * MS, 9 * MS, 2 * MS] == [before, slow, reserves.ns[Stage.FRAME]]
    assert 4 * MS == reserves.ns[Stage.CODEC]


def trace_for(settings, *, max_decisions=5_000, max_rows=64) -> DecisionTrace:
    return DecisionTrace(
        Catalogue(settings), Limits.of(settings), max_decisions=max_decisions, max_rows=max_rows
    )


@pytest.mark.parametrize("policy", ["deadline_aware", "round_robin", "fcfs"])
def test_every_decision_can_be_replayed_from_the_trace(policy):
    """The policy, asked again with what was written down, says the same."""
    settings = profile(policy=policy)
    trace = trace_for(settings)
    desk = bench(settings, trace=trace)
    for key in range(12):
        desk.say(Speech(key=key, num_codec_frames=20 + key))
        desk.turn(5)
    desk.finish()

    assert len(trace) > 100
    chosen = POLICIES[settings.policy]
    assert all(trace[n].decision == trace.replay(n, chosen) for n in range(len(trace)))
    assert any(isinstance(trace[n].decision, Batch) for n in range(len(trace)))


def test_a_full_trace_overwrites_the_oldest_decisions():
    """It allocates nothing and stops nothing."""
    settings = profile()
    trace = trace_for(settings, max_decisions=4)
    work = ready_work(settings)
    for slot in range(1, 8):
        add_newcomer(work, slot, Stage.FRAME, arrived_ms=slot)
        trace.record(work, slot * MS, deadline_aware(work, slot * MS))

    assert [4 * MS, 5 * MS, 6 * MS, 7 * MS] == [trace[n].now_ns for n in range(4)]


def test_a_decision_with_too_many_rows_is_counted_not_kept():
    """So its absence is known."""
    settings = profile()
    trace = trace_for(settings, max_rows=2)
    work = ready_work(settings)
    for slot in (1, 2, 3):
        add_newcomer(work, slot, Stage.FRAME)
    trace.record(work, 0, deadline_aware(work, 0))

    assert (0, 1) == (len(trace), trace.num_too_large)
