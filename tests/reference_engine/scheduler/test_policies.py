"""The policies as what they are: functions of ready work and time. No runner, no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine.batch import Batch, Stage, Urgency
from reference_engine.config import PolicyName
from reference_engine.scheduler.policies import POLICIES, deadline_aware, fcfs, round_robin
from reference_engine.scheduler.ready import Rest
from tests.builders.engine import MS, add_newcomer, add_stream, profile, ready_work


def test_first_sound_beats_steady_work():
    """A stream with half a second to spare waits for a newcomer."""
    work = ready_work()
    add_stream(work, 1, Stage.CODEC, latest_ms=500)
    add_newcomer(work, 2, Stage.FRAME)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert (Urgency.STARTUP, Stage.FRAME, 2) == (batch.urgency, batch.stage, batch.anchor)


@pytest.mark.parametrize(("slack_ms", "expected"), [(4, Urgency.RESCUE), (6, Urgency.STARTUP)])
def test_a_rescue_beats_first_sound_only_when_its_slack_is_below_the_reserve(slack_ms, expected):
    """A step takes 5 ms: with 4 ms left the stream cannot wait for one, with 6 ms it can."""
    work = ready_work()
    add_stream(work, 1, Stage.CODEC, latest_ms=slack_ms)
    add_newcomer(work, 2, Stage.FRAME)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert expected is batch.urgency


def test_what_is_nearest_to_the_ear_goes_first_among_newcomers():
    """Codec, then prefill, then predictor, then talker."""
    order = []
    work = ready_work(profile(stages="split"))
    for slot, stage in enumerate((Stage.TALKER, Stage.PREDICTOR, Stage.PREFILL, Stage.CODEC), 1):
        add_newcomer(work, slot, stage)
    for _ in range(4):
        batch = deadline_aware(work, 0)
        assert isinstance(batch, Batch)
        order.append(batch.stage)
        work.startup[batch.stage].clear()

    assert [Stage.CODEC, Stage.PREFILL, Stage.PREDICTOR, Stage.TALKER] == order


def test_newcomers_go_by_arrival():
    """The oldest is the anchor, wherever it stands in the set."""
    work = ready_work()
    add_newcomer(work, 1, Stage.FRAME, arrived_ms=30)
    add_newcomer(work, 2, Stage.FRAME, arrived_ms=10)

    batch = deadline_aware(work, 50 * MS)

    assert isinstance(batch, Batch)
    assert [2, 1] == batch.slots


def test_an_anchor_takes_along_the_streams_that_are_pressed_most():
    """Newcomers first, then streams by latest start, as far as they are pressed at all."""
    work = ready_work(profile(fill={"startup_slack_ms": 100.0}))
    add_newcomer(work, 1, Stage.FRAME)
    for slot, latest_ms in ((2, 90), (3, 40), (4, 800)):
        add_stream(work, slot, Stage.FRAME, latest_ms=latest_ms)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert [1, 3, 2] == batch.slots


def test_a_steady_anchor_takes_everybody_along():
    """Nobody waits for first sound, so a fuller step costs nobody anything."""
    work = ready_work()
    for slot in range(1, 40):
        add_stream(work, slot, Stage.FRAME, latest_ms=100 * slot)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert (39, Urgency.STEADY) == (len(batch.slots), batch.urgency)


def test_work_that_nothing_presses_waits():
    """The device rests until the slack of the most pressed stream is down to its limit."""
    work = ready_work(profile(pacing={"start_slack_ms": 150.0}))
    add_stream(work, 1, Stage.FRAME, latest_ms=400)

    assert Rest(250 * MS) == deadline_aware(work, 0)


def test_a_newcomers_codec_call_is_not_widened_for_others():
    """Rows with more frames than the anchor's bucket stay out: padding would cost the newcomer."""
    work = ready_work()
    add_newcomer(work, 1, Stage.CODEC, size=2)
    add_newcomer(work, 2, Stage.CODEC, arrived_ms=1, size=2)
    add_stream(work, 3, Stage.CODEC, latest_ms=20, size=12)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert ([1, 2], [2, 2], 2) == (batch.slots, batch.counts, batch.shape.width)


def test_a_codec_call_is_bounded_by_its_work():
    """48 rows x codec frames: four rows of twelve, however many are ready."""
    work = ready_work(profile(fill={"codec_work": 48}))
    for slot in range(1, 11):
        add_stream(work, slot, Stage.CODEC, latest_ms=slot, size=12)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert [1, 2, 3, 4] == batch.slots


def test_history_that_is_decoded_again_counts_as_work():
    """Four frames after forty: one row fills the call that holds twelve rows of new frames only."""
    work = ready_work(profile(fill={"codec_work": 48}))
    for slot in range(1, 5):
        add_stream(work, slot, Stage.CODEC, latest_ms=slot, size=4)
        work.history[slot] = 40

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert [1] == batch.slots


def test_a_long_queue_is_rescued_although_nobody_in_it_is_pressed_alone():
    """Each has 300 ms, but together they take 600: the codec starts, newcomer or not."""
    work = ready_work(profile(fill={"codec_work": 12, "startup_slack_ms": 100.0}))
    add_newcomer(work, 50, Stage.FRAME)
    work.reserve_ns[Stage.CODEC] = 50 * MS
    for slot in range(1, 13):
        add_stream(work, slot, Stage.CODEC, latest_ms=300, size=12)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert (Urgency.RESCUE, Stage.CODEC) == (batch.urgency, batch.stage)


def test_streams_queued_for_the_codec_count_those_before_them():
    """Twelve rows of one call each: the last is pressed long before its own latest start."""
    work = ready_work(profile(fill={"codec_work": 12}))
    add_newcomer(work, 20, Stage.FRAME)
    for slot in range(1, 13):
        add_stream(work, slot, Stage.CODEC, latest_ms=50, size=12)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert Urgency.RESCUE is batch.urgency


def test_a_cohort_above_the_largest_bucket_is_split_over_turns():
    """Two hundred rows ready, 128 captured: 128 now, 72 next."""
    work = ready_work()
    for slot in range(1, 201):
        add_stream(work, slot, Stage.FRAME, latest_ms=slot)

    first = deadline_aware(work, 0)
    assert isinstance(first, Batch)
    for slot in first.slots:
        del work.playing[Stage.FRAME][slot]
    second = deadline_aware(work, 0)

    assert isinstance(second, Batch)
    assert [128, 72] == [len(first.slots), len(second.slots)]


def test_rescues_never_shut_a_newcomer_out():
    """After `rescues_in_a_row` rescues the newcomer gets one turn, however late the streams are."""
    work = ready_work(profile(fill={"rescues_in_a_row": 3}))
    add_newcomer(work, 1, Stage.FRAME)
    add_stream(work, 2, Stage.CODEC, latest_ms=-500)
    seen = []
    for _ in range(8):
        batch = deadline_aware(work, 0)
        assert isinstance(batch, Batch)
        seen.append(batch.urgency)
        work.rescues = work.rescues + 1 if batch.urgency is Urgency.RESCUE else 0

    assert [Urgency.RESCUE] * 3 + [Urgency.STARTUP] == seen[:4]
    assert 2 == seen.count(Urgency.STARTUP)


@pytest.mark.parametrize("newcomers_stage", [Stage.FRAME, Stage.PREFILL])
def test_a_rescued_stream_rides_although_it_is_beyond_the_horizon(newcomers_stage):
    """Steps of a slow machine: one of 300 ms presses a stream that has 150 ms of slack left."""
    work = ready_work()
    work.reserve_ns[:] = [300 * MS] * len(work.reserve_ns)
    add_stream(work, 1, Stage.FRAME, latest_ms=150)
    add_newcomer(work, 2, newcomers_stage)

    batch = deadline_aware(work, 0)

    assert isinstance(batch, Batch)
    assert (Urgency.RESCUE, 1) == (batch.urgency, batch.slots[0])


def test_round_robin_gives_each_stage_its_turn():
    """Whatever is urgent, the next stage with work goes next."""
    work = ready_work()
    add_stream(work, 1, Stage.CODEC, latest_ms=-50)
    add_newcomer(work, 2, Stage.FRAME)
    stages = []
    for _ in range(4):
        batch = round_robin(work, 0)
        assert isinstance(batch, Batch)
        stages.append(batch.stage)
        work.last_stage = batch.stage

    assert [Stage.FRAME, Stage.CODEC, Stage.FRAME, Stage.CODEC] == stages


def test_round_robin_prefers_rows_that_ran_longest_ago():
    """With more rows than a batch holds, nobody is left out for ever."""
    work = ready_work(profile(buckets={"frame_rows": [1]}))
    for slot in (1, 2, 3):
        add_stream(work, slot, Stage.FRAME, latest_ms=0)
        work.last_turn[slot] = 10 - slot

    batch = round_robin(work, 0)

    assert isinstance(batch, Batch)
    assert [3] == batch.slots


def test_first_come_is_first_served_at_whatever_stage():
    """The oldest request's stage runs, and others at that stage come along by arrival."""
    work = ready_work()
    add_newcomer(work, 1, Stage.FRAME, arrived_ms=5)
    add_newcomer(work, 2, Stage.CODEC, arrived_ms=1)
    add_newcomer(work, 3, Stage.CODEC, arrived_ms=9)

    batch = fcfs(work, 0)

    assert isinstance(batch, Batch)
    assert [2, 3] == batch.slots


@pytest.mark.parametrize("name", list(PolicyName))
def test_no_work_is_rest(name):
    """Every policy rests when nothing is ready."""
    assert Rest(None) == POLICIES[name](ready_work(), 0)


stages_of_fused = st.sampled_from([Stage.PREFILL, Stage.FRAME, Stage.CODEC])


@given(
    name=st.sampled_from(list(PolicyName)),
    slots=st.lists(
        st.tuples(stages_of_fused, st.booleans(), st.integers(-50, 900), st.integers(1, 12)),
        max_size=300,
    ),
)
@settings(max_examples=120, deadline=None)
def test_whatever_is_ready_the_shape_is_captured_and_the_anchor_rides(name, slots):
    """Never an uncaptured shape, never a row twice, never a row of another stage."""
    work = ready_work()
    for slot, (stage, is_newcomer, time_ms, size) in enumerate(slots, 1):
        if is_newcomer:
            add_newcomer(work, slot, stage, arrived_ms=time_ms, size=size)
        else:
            add_stream(work, slot, stage, latest_ms=time_ms, size=size)

    batch = POLICIES[name](work, 0)

    if isinstance(batch, Batch):
        assert batch.shape in work.catalogue
        assert batch.anchor == batch.slots[0]
        assert len(set(batch.slots)) == len(batch.slots) <= batch.shape.rows
        ready = {*work.startup[batch.stage], *work.playing[batch.stage]}
        assert set(batch.slots) <= ready
        assert all(count <= batch.shape.width for count in batch.counts)
    elif name is not PolicyName.DEADLINE_AWARE:
        assert not slots


def test_scheduling_needs_no_torch():
    """Policies are tested, simulated and read without it."""
    script = (
        "import sys, reference_engine.simulate, reference_engine.scheduler.policies\n"
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
