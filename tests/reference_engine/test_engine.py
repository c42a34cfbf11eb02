"""The loop with a scripted runner: survivors equal their solo runs, and nothing is left behind."""

from __future__ import annotations

import random

import pytest

from reference_engine.batch import Stage
from reference_engine.errors import RefusedError, UnsayableError
from reference_engine.messages import EndReason
from tests.builders.engine import NOTHING_HELD, Speech, bench, profile, solo_audio


def test_one_request_says_exactly_what_its_model_says():
    """Alone, untrimmed: every codec frame once, in order, then a plain success."""
    desk = bench(profile(leading_silence="keep"))
    speech = Speech(key=1, num_codec_frames=40)
    listener = desk.say(speech)

    desk.finish()

    assert solo_audio(speech) == listener.audio
    assert listener.end is not None
    assert listener.end.reason is EndReason.COMPLETE
    assert NOTHING_HELD == desk.held()


@pytest.mark.parametrize("length", [2, 3, 6, 7, 14, 15])
def test_the_frame_after_the_end_is_never_heard(length):
    """The end is learnt one step late: whatever chunk it falls into, the extra frame is dropped."""
    desk = bench(profile(leading_silence="keep"))
    speech = Speech(key=1, num_codec_frames=length)
    listener = desk.say(speech)

    desk.finish()

    assert solo_audio(speech) == listener.audio


@pytest.mark.parametrize(
    "name", ["ladder/0-naive", "ladder/3-split-stages", "ladder/7-fused-frame"]
)
def test_every_rung_of_the_ladder_says_the_same(name):
    """Speed differs between rungs; samples do not, but for the silence some of them trim."""
    settings = profile(name)
    desk = bench(settings)
    speeches = [Speech(key=key, num_codec_frames=5 + 3 * key) for key in range(1, 6)]
    listeners = [desk.say(speech) for speech in speeches]

    desk.finish()

    assert [solo_audio(speech) for speech in speeches] == [each.audio for each in listeners]
    assert NOTHING_HELD == desk.held()


def test_a_voice_that_has_fallen_silent_is_stopped_by_the_guard():
    """Longer than any pause: it has lost its text, and ends as `length` with what it said."""
    desk = bench(profile(leading_silence="keep", guards={"max_silence_s": 1.0}))
    speech = Speech(key=1, num_codec_frames=10_000, silent_from=20)
    other = Speech(key=2, num_codec_frames=60)
    lost, neighbour = desk.say(speech), desk.say(other)

    desk.finish()

    assert lost.end is not None
    assert (EndReason.LENGTH, "silent for more than 1 s") == (lost.end.reason, lost.end.text)
    assert 20 + 12 < lost.end.stats.num_codec_frames <= 20 + 13 + 12  # found at a chunk's end
    assert solo_audio(other) == neighbour.audio
    assert NOTHING_HELD == desk.held()


def test_a_pause_is_not_a_voice_that_fell_silent():
    """Shorter than the guard, or asked for by ignoring the end of speech."""
    desk = bench(profile(leading_silence="keep", guards={"max_silence_s": 1.0}))
    pause = desk.say(Speech(key=1, num_codec_frames=30, num_silent_frames=12))
    asked = desk.say(
        Speech(key=2, num_codec_frames=10_000, silent_from=5), ignore_eos=True, max_new_tokens=61
    )

    desk.finish()

    assert pause.end is not None
    assert asked.end is not None
    assert (EndReason.COMPLETE, 60) == (pause.end.reason, asked.end.stats.num_codec_frames)


def test_a_request_may_bring_its_own_chunk_ramp():
    """Its chunks are as asked, and the samples are the same."""
    desk = bench(profile(leading_silence="keep"))
    speech = Speech(key=1, num_codec_frames=12)
    listener = desk.say(speech, chunk_ramp=(1, 4))

    desk.finish()

    assert solo_audio(speech) == listener.audio
    assert listener.end is not None
    assert [1, 4, 4, 3] == [chunk.num_codec_frames for chunk in listener.end.stats.chunks]


def test_a_chunk_larger_than_any_captured_shape_is_refused_at_once():
    """Such a chunk could never be decoded in one call."""
    desk = bench()

    with pytest.raises(UnsayableError, match="a chunk of 26 codec frames"):
        desk.say(Speech(key=1, num_codec_frames=12), chunk_ramp=(2, 26))
    assert NOTHING_HELD == desk.held()


def test_a_request_may_keep_its_leading_silence():
    """The profile trims; this request asked for everything."""
    desk = bench(profile(leading_silence="trim"))
    speech = Speech(key=1, num_codec_frames=12, num_silent_frames=2)
    listener = desk.say(speech, keeps_silence=True)

    desk.finish()

    assert solo_audio(speech) == listener.audio


def test_the_limit_of_codec_frames_is_an_ending_of_its_own():
    """max_new_tokens N gives N - 1 codec frames, reported as `length`."""
    desk = bench(profile(leading_silence="keep"))
    speech = Speech(key=1, num_codec_frames=100)
    listener = desk.say(speech, max_new_tokens=21)

    desk.finish()

    assert solo_audio(speech, num_frames=20) == listener.audio
    assert listener.end is not None
    assert listener.end.reason is EndReason.LENGTH


def test_a_model_that_never_ends_is_stopped_by_the_guard():
    """The text's length bounds the speech: 2 codec frames a character and 50 more."""
    desk = bench(profile(guards={"min_frames": 50, "frames_per_character": 2.0}))
    listener = desk.say(Speech(key=1, num_codec_frames=10_000), num_characters=10)

    desk.finish()

    assert listener.end is not None
    assert (EndReason.LENGTH, 70) == (listener.end.reason, listener.end.stats.num_codec_frames)


def test_the_host_reads_no_flags_while_nobody_can_end():
    """With the end of speech ignored there is nothing to read."""
    desk = bench()
    desk.say(Speech(key=1, num_codec_frames=1_000), ignore_eos=True, max_new_tokens=60)

    desk.finish()

    assert desk.runner.num_flag_reads == 0


def test_no_flags_are_read_before_the_third_token():
    """The model cannot end before its third token: two frame steps need no flags."""
    desk = bench()
    desk.say(Speech(key=1, num_codec_frames=50))

    desk.turn(3)

    assert [Stage.FRAME, Stage.FRAME, Stage.CODEC] == [b.stage for b in desk.runner.batches]
    assert desk.runner.num_flag_reads == 0


def test_the_trimmed_stream_is_the_untrimmed_one_less_the_stated_prefix():
    """Two silent codec frames: both are cut, and the stats say how much."""
    desk = bench(profile(leading_silence="trim"))
    speech = Speech(key=1, num_codec_frames=30, num_silent_frames=2)
    listener = desk.say(speech)

    desk.finish()

    assert listener.end is not None
    trimmed = listener.end.stats.trimmed_samples
    assert 2 * 1920 == trimmed
    assert solo_audio(speech)[2 * trimmed :] == listener.audio


def test_a_silent_first_chunk_leaves_the_request_a_newcomer():
    """All of the first chunk was silence: the next is as short, not the next of the ramp."""
    desk = bench(profile(leading_silence="trim", chunks={"mode": "fixed", "ramp": [2, 8]}))
    desk.say(Speech(key=1, num_codec_frames=30, num_silent_frames=2))

    desk.turn(6)

    counts = [batch.counts for batch in desk.runner.batches if batch.stage is Stage.CODEC]
    assert [[2], [2]] == counts


def test_speech_waits_for_its_text():
    """A starved request makes no codec frame; it goes on when the next token is there."""
    desk = bench(profile(leading_silence="keep"))
    speech = Speech(key=1, num_codec_frames=12)
    listener = desk.say(speech, is_text_complete=False, num_text_tokens=3)
    desk.turn(40)
    made_while_starved = desk.runner.made[1]
    desk.append(speech, 9, is_end=True)

    desk.finish()

    assert made_while_starved == 3
    assert solo_audio(speech) == listener.audio


def test_text_sent_before_admission_is_not_lost():
    """Appends to a queued request are kept until it has a slot."""
    desk = bench(profile(slots=1, leading_silence="keep"))
    first, second = Speech(key=1, num_codec_frames=30), Speech(key=2, num_codec_frames=10)
    desk.say(first)
    listener = desk.say(second, is_text_complete=False, num_text_tokens=1)
    desk.turn(2)
    desk.append(second, 4)
    desk.append(second, 5, is_end=True)

    desk.finish()

    assert solo_audio(second) == listener.audio


def test_the_end_of_the_text_never_raises_a_limit_that_was_reached():
    """The last codec frame allowed is made and waits for the codec when the text ends."""
    desk = bench(profile(leading_silence="keep", chunks={"mode": "fixed", "ramp": [4]}))
    speech = Speech(key=1, num_codec_frames=50)
    listener = desk.say(speech, is_text_complete=False, num_text_tokens=20, max_new_tokens=5)
    desk.turn(4)
    desk.append(speech, 1, is_end=True)

    desk.finish()

    assert solo_audio(speech, num_frames=4) == listener.audio


def test_a_cancelled_request_frees_its_slot_within_one_step():
    """No step runs for it after the turn that learns of it; the third takes its place."""
    desk = bench(profile(slots=2))
    long = [desk.say(Speech(key=key, num_codec_frames=300)) for key in (1, 2)]
    third = Speech(key=3, num_codec_frames=20)
    desk.turn(8)
    listener = desk.say(third)
    desk.engine.cancel("1")
    desk.turn()

    assert desk.runner.speech[1] == third
    assert long[0].end is not None
    assert long[0].end.reason is EndReason.CANCELLED
    desk.engine.cancel("2")
    desk.finish()
    assert listener.end is not None
    assert NOTHING_HELD == desk.held()


@pytest.mark.parametrize("turns_before", [0, 1, 2, 3, 6, 30])
def test_hang_ups_leave_nothing_behind(turns_before):
    """Fifty rounds of two hang-ups and a third request: before the first chunk, queued, later."""
    desk = bench(profile(slots=2))
    for turn in range(50):
        keys = [turn * 3 + offset for offset in range(3)]
        for key in keys[:2]:
            desk.say(Speech(key=key, num_codec_frames=300))
        desk.turn(turns_before)
        for key in keys[:2]:
            desk.engine.cancel(str(key))
        listener = desk.say(Speech(key=keys[2], num_codec_frames=6))
        desk.turn()
        assert desk.engine.admission.num_active == 1
        desk.finish()
        assert listener.end is not None
        assert listener.end.reason is EndReason.COMPLETE

    assert NOTHING_HELD == desk.held()


def test_a_queued_request_can_hang_up():
    """It never gets a slot, and its listener hears so."""
    desk = bench(profile(slots=1))
    desk.say(Speech(key=1, num_codec_frames=30))
    queued = desk.say(Speech(key=2, num_codec_frames=30))
    desk.turn(3)

    desk.engine.cancel("2")
    desk.turn()

    assert queued.end is not None
    assert (EndReason.CANCELLED, None) == (queued.end.reason, queued.end.stats.admitted_ns)


def test_newcomers_beyond_the_queue_are_refused_with_a_time_to_retry():
    """Slots and queue full: refused at once, and told when to come again."""
    desk = bench(profile(slots=1, max_waiting=1))
    for key in (1, 2):
        desk.say(Speech(key=key, num_codec_frames=30))

    with pytest.raises(RefusedError) as refusal:
        desk.say(Speech(key=3, num_codec_frames=30))

    assert refusal.value.retry_after_s > 0
    desk.finish()
    assert NOTHING_HELD == desk.held()


def test_two_requests_too_large_for_the_cache_run_one_after_the_other():
    """Room for one and a half: the second waits until the first is over; both are whole."""
    desk = bench(profile(slots=4, kv_budget_positions=150, leading_silence="keep"))
    speeches = [Speech(key=key, num_codec_frames=80) for key in (1, 2)]
    listeners = [desk.say(speech, max_new_tokens=91) for speech in speeches]
    desk.turn(20)
    held_meanwhile = desk.engine.admission.num_active

    desk.finish()

    assert held_meanwhile == 1
    assert [solo_audio(speech) for speech in speeches] == [each.audio for each in listeners]


def test_a_request_that_can_never_fit_is_refused_at_once_and_the_others_finish():
    """Its worst case exceeds the whole cache; twenty short ones behind it are served."""
    desk = bench(profile(slots=4, kv_budget_positions=150))

    with pytest.raises(UnsayableError, match="may need 210 positions, and a slot has 150"):
        desk.say(Speech(key=99, num_codec_frames=150), max_new_tokens=201)

    short = [desk.say(Speech(key=key, num_codec_frames=8), max_new_tokens=20) for key in range(20)]
    desk.finish()
    assert [EndReason.COMPLETE] * 20 == [each.end.reason for each in short if each.end]
    assert NOTHING_HELD == desk.held()


def test_a_prompt_that_no_captured_prefill_covers_is_refused():
    """Coverage is checked at admission, never found out in the middle of a step."""
    desk = bench()

    with pytest.raises(UnsayableError, match="largest captured prefill"):
        desk.say(Speech(key=1, num_codec_frames=8), num_prefill_positions=999)


def test_nine_requests_on_eight_captured_rows_are_split_and_counted():
    """Eight and one, turn by turn, never nine; and the meters say that cohorts were split."""
    desk = bench(profile(slots=9, buckets={"frame_rows": [1, 2, 4, 8]}, leading_silence="keep"))
    speeches = [Speech(key=key, num_codec_frames=20) for key in range(9)]
    listeners = [desk.say(speech) for speech in speeches]
    desk.turn(2)

    rows = [len(batch.slots) for batch in desk.runner.batches]
    desk.finish()

    assert [8, 8] == rows
    assert desk.engine.meters.num_split > 0
    assert [solo_audio(speech) for speech in speeches] == [each.audio for each in listeners]


def _random_life(seed: int, num_turns: int, **settings: object) -> None:
    """Arrivals, cancels, ends and incremental text at random; survivors equal their solo runs."""
    rng = random.Random(seed)
    desk = bench(profile(slots=6, max_waiting=30, **settings))
    skip = 1 if desk.engine.profile.leading_silence == "trim" else 0
    live: dict[int, tuple[Speech, object]] = {}
    open_text: dict[int, int] = {}
    cancelled: set[int] = set()
    for turn in range(num_turns):
        if rng.random() < 0.06 and desk.engine.num_in_system < 30:
            is_whole = rng.random() < 0.6
            # The model cannot end before its text: 13 tokens where they come one by one.
            length = rng.choice((2, 3, 9, 30, 60) if is_whole else (14, 20, 60))
            speech = Speech(key=turn, num_codec_frames=length, num_silent_frames=1)
            needs_prefill = rng.random() < 0.3
            live[turn] = speech, desk.say(
                speech,
                is_text_complete=is_whole,
                num_text_tokens=1,
                num_prefill_positions=9 if needs_prefill else 0,
            )  # fmt: skip
            if not is_whole:
                open_text[turn] = 1
        for key in list(open_text):
            if rng.random() < 0.3:
                open_text[key] += 1
                is_end = open_text[key] > 12
                desk.append(live[key][0], 1, is_end=is_end)
                if is_end:
                    del open_text[key]
        if live and rng.random() < 0.01:
            key = rng.choice(list(live))
            cancelled.add(key)
            open_text.pop(key, None)
            desk.engine.cancel(str(key))
        desk.turn()
    for key in list(open_text):
        desk.append(live[key][0], 1, is_end=True)
    desk.finish()
    for key, (speech, listener) in live.items():
        whole = solo_audio(speech, skip=skip)
        if key in cancelled and listener.end.reason is EndReason.CANCELLED:
            assert whole.startswith(listener.audio)
        else:
            assert whole == listener.audio
    assert NOTHING_HELD == desk.held()


@pytest.mark.parametrize("policy", ["deadline_aware", "round_robin", "fcfs"])
@pytest.mark.parametrize("stages", ["fused", "split"])
def test_random_lives_of_a_thousand_turns_equal_their_solo_runs(policy, stages):
    """Whatever was shared, cancelled or starved around it, a survivor sounds as it does alone."""
    for seed in range(2):
        _random_life(seed, 1_000, policy=policy, stages=stages)


def test_random_lives_with_adaptive_chunks_equal_their_solo_runs():
    """The same where the chunk depends on slack and measured times."""
    _random_life(7, 1_000, chunks={
        "mode": "adaptive", "first": 2, "growth": 2.0, "max_frames": 25, "slack_share": 0.5,
    })  # fmt: skip


def test_random_lives_with_blocking_reads_equal_their_solo_runs():
    """The same where the host reads each end at once."""
    _random_life(11, 1_000, eos_read="blocking")
