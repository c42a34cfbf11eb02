"""Faults hit one request: it ends with a reason, the others end exactly, the engine goes on."""

from __future__ import annotations

import pytest

from reference_engine.batch import Batch, Stage
from reference_engine.clock import MonotonicClock
from reference_engine.delivery import InlineDelivery, Router, ThreadDelivery
from reference_engine.engine import Engine
from reference_engine.errors import EngineClosedError
from reference_engine.messages import EndReason
from reference_engine.sequence import Sequence
from tests.builders.engine import (
    NOTHING_HELD,
    Bench,
    Listener,
    ScriptedRunner,
    Speech,
    Waiter,
    bench,
    job,
    profile,
    solo_audio,
)

KEEP = {"leading_silence": "keep"}


def say_with_neighbours(desk: Bench, sick: Speech) -> tuple[Listener, dict[Speech, Listener]]:
    """The sick request between two healthy ones; everything is run to its end."""
    healthy = [Speech(key=100, num_codec_frames=33), Speech(key=101, num_codec_frames=18)]
    first = desk.say(healthy[0])
    middle = desk.say(sick)
    last = desk.say(healthy[1])
    desk.finish()
    return middle, {healthy[0]: first, healthy[1]: last}


@pytest.mark.parametrize("at", [0, 1, 2, 9])
def test_a_step_that_refuses_a_row_fails_that_row_alone(at):
    """It names the row; the step is run again for the others."""
    desk = bench(profile(**KEEP))
    sick = Speech(key=1, num_codec_frames=30, raises_at=at)

    ended, healthy = say_with_neighbours(desk, sick)

    assert ended.end is not None
    assert (EndReason.FAILED, "the step refused this row") == (ended.end.reason, ended.end.text)
    assert solo_audio(sick).startswith(ended.audio)
    assert all(solo_audio(speech) == each.audio for speech, each in healthy.items())
    assert NOTHING_HELD == desk.held()
    assert desk.engine.meters.num_step_faults >= 1


@pytest.mark.parametrize("at", [0, 1, 5, 29])
@pytest.mark.parametrize("stages", ["fused", "split"])
def test_a_row_that_is_not_finite_fails_alone(at, stages):
    """Nothing of it or after it is sent, however early, and the neighbours are whole."""
    desk = bench(profile(stages=stages, **KEEP))
    sick = Speech(key=1, num_codec_frames=30, bad_at=at)

    ended, healthy = say_with_neighbours(desk, sick)

    assert ended.end is not None
    assert ended.end.reason is EndReason.FAILED
    assert solo_audio(sick, num_frames=at).startswith(ended.audio)
    assert all(solo_audio(speech) == each.audio for speech, each in healthy.items())
    assert NOTHING_HELD == desk.held()


def test_a_codec_step_that_refuses_a_row_fails_that_row_alone():
    """The others' chunks come in the next turn."""
    desk = bench(profile(**KEEP))
    sick = Speech(key=1, num_codec_frames=30, codec_raises_at=4)

    ended, healthy = say_with_neighbours(desk, sick)

    assert ended.end is not None
    assert "the codec refused this row" == ended.end.text
    assert all(solo_audio(speech) == each.audio for speech, each in healthy.items())
    assert NOTHING_HELD == desk.held()


def test_a_crash_that_names_nobody_ends_the_rows_of_its_step_and_no_others():
    """Their state cannot be vouched for; whoever was not in the step goes on."""
    desk = bench(profile(**KEEP))
    crashing = desk.say(Speech(key=1, num_codec_frames=30, crashes_at=4))
    desk.turn(2)
    waiting = desk.say(Speech(key=2, num_codec_frames=9), is_text_complete=False, num_text_tokens=0)
    desk.finish_until(lambda: crashing.end is not None)
    desk.append(Speech(key=2, num_codec_frames=9), 1, is_end=True)
    desk.finish()

    assert crashing.end is not None
    assert (EndReason.FAILED, "RuntimeError: device fault") == (
        crashing.end.reason,
        crashing.end.text,
    )
    assert solo_audio(Speech(key=2, num_codec_frames=9)) == waiting.audio
    assert NOTHING_HELD == desk.held()


def test_a_delivery_that_dies_with_the_ending_of_a_queued_request_ends_it_again():
    """It never had a slot, so none is given back; its listener is told once."""
    lost: list[Sequence] = []

    class Dying(InlineDelivery):
        def end(self, ending):
            if not lost:
                lost.append(ending.sequence)
                return
            super().end(ending)

        def recover(self):
            return [lost[0]] if len(lost) == 1 and not lost.append(lost[0]) else None

    desk = bench(profile(slots=1, **KEEP), make_delivery=Dying)
    speech = Speech(key=1, num_codec_frames=9)
    first, queued = desk.say(speech), desk.say(Speech(key=2, num_codec_frames=9))
    desk.turn()
    desk.engine.cancel("2")

    desk.finish()

    assert solo_audio(speech) == first.audio
    assert queued.end is not None
    assert EndReason.FAILED is queued.end.reason


def test_a_request_that_cannot_be_loaded_fails_alone():
    """The slot it was to have goes to the next."""
    desk = bench(profile(slots=1, **KEEP))
    ended, healthy = say_with_neighbours(
        desk, Speech(key=1, num_codec_frames=9, is_unloadable=True)
    )

    assert ended.end is not None
    assert "admission: no room for the prompt" == ended.end.text
    assert all(solo_audio(speech) == each.audio for speech, each in healthy.items())


def test_a_slow_reader_is_cancelled_alone():
    """More left unread than allowed: it ends as a slow reader, its neighbour is whole."""
    desk = bench(profile(max_unread_bytes=100_000, **KEEP))
    slow, quick = Speech(key=1, num_codec_frames=60), Speech(key=2, num_codec_frames=60)
    slow_listener, quick_listener = desk.say(slow), desk.say(quick)
    desk.turn(10)
    slow_listener.unread = 100_001

    desk.finish()

    assert slow_listener.end is not None
    assert slow_listener.end.reason is EndReason.SLOW_READER
    assert solo_audio(slow).startswith(slow_listener.audio)
    assert solo_audio(quick) == quick_listener.audio
    assert NOTHING_HELD == desk.held()


def test_a_listener_that_raises_loses_its_own_request_alone():
    """Its slot is free again although nobody could be told."""
    desk = bench(profile(**KEEP))
    gone = desk.say(Speech(key=1, num_codec_frames=60))
    speech = Speech(key=2, num_codec_frames=60)
    listener = desk.say(speech)
    desk.turn(6)
    gone.is_broken = True

    desk.finish()

    assert solo_audio(speech) == listener.audio
    assert NOTHING_HELD == desk.held()
    assert 1 == desk.engine.meters.ends[EndReason.FAILED]


# -- threads --------------------------------------------------------------------------------------


class NoTime(ScriptedRunner):
    """A scripted runner on the real clock: its steps take no time."""

    def wait(self) -> None:
        batch = self._batch
        assert batch is not None
        self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        if batch.stage is Stage.CODEC:
            self._decode(batch)
        else:
            for slot in batch.slots:
                self._advance(slot, batch.stage)


@pytest.fixture
def running():
    """An engine in its own threads."""
    chosen = profile(slots=4, pacing={"max_lead_s": 60.0, "start_slack_ms": 60_000.0}, **KEEP)
    runner = NoTime(chosen, None)
    deliveries: list[ThreadDelivery] = []

    def make(router: Router) -> ThreadDelivery:
        deliveries.append(ThreadDelivery(router))
        return deliveries[0]

    engine = Engine(chosen, runner, MonotonicClock(), make_delivery=make)
    engine.start()
    yield engine, runner, deliveries
    engine.close()


def submit(engine: Engine, speech: Speech) -> Waiter:
    listener = Waiter()
    engine.submit(job(speech), listener)
    return listener


def test_threads_deliver_what_the_model_says(running):
    """Submitted from this thread, made in the engine's, delivered in a third: every sample."""
    engine, _, _ = running
    speeches = [Speech(key=key, num_codec_frames=10 + key) for key in range(8)]
    listeners = [submit(engine, speech) for speech in speeches]

    ends = [listener.wait_for_end() for listener in listeners]

    assert [EndReason.COMPLETE] * 8 == [end.reason for end in ends]
    assert [solo_audio(speech) for speech in speeches] == [each.audio for each in listeners]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_delivery_thread_costs_what_it_held_and_is_replaced(running):
    """The request whose chunk was in hand fails; the engine says so; the next one is whole."""
    engine, _, _ = running
    victim = Waiter()

    def die() -> None:
        raise SystemExit

    victim.on_audio = die
    engine.submit(job(Speech(key=1, num_codec_frames=40)), victim)
    assert EndReason.FAILED is victim.wait_for_end().reason

    speech = Speech(key=2, num_codec_frames=20)
    listener = submit(engine, speech)

    assert EndReason.COMPLETE is listener.wait_for_end().reason
    assert solo_audio(speech) == listener.audio
    assert 1 == engine.meters.num_delivery_deaths


def test_a_turn_that_raises_ends_what_was_in_progress_and_the_loop_goes_on(running, caplog):
    """A bug of ours in the loop itself: said in the log and the meters, and survived."""
    engine, _, _ = running
    original = engine.scheduler.choose

    def broken(now_ns: int):
        engine.scheduler.choose = original
        raise ZeroDivisionError("a bug")

    engine.scheduler.choose = broken
    first = submit(engine, Speech(key=1, num_codec_frames=20))
    assert EndReason.FAILED is first.wait_for_end().reason

    speech = Speech(key=2, num_codec_frames=20)
    listener = submit(engine, speech)
    listener.wait_for_end()

    assert solo_audio(speech) == listener.audio
    assert 1 == engine.meters.num_loop_faults
    assert engine.is_alive


def test_a_device_that_is_lost_ends_everybody_and_the_engine(running, caplog):
    """When not even a slot can be given back: all are told, and the loop is not alive."""
    engine, runner, _ = running

    def lost(*_: object) -> None:
        raise RuntimeError("device lost")

    listener = Waiter()
    listener.on_audio = lambda: setattr(runner, "launch", lost) or setattr(runner, "release", lost)
    engine.submit(job(Speech(key=1, num_codec_frames=390)), listener)

    assert EndReason.FAILED is listener.wait_for_end().reason
    engine._thread.join(20)
    assert not engine.is_alive


def test_closing_ends_everybody_and_refuses_newcomers(running):
    """What was in progress ends as `shutdown`; nobody waits for ever."""
    engine, runner, _ = running
    listeners = [submit(engine, Speech(key=key, num_codec_frames=100_000)) for key in range(6)]

    engine.close()

    reasons = {listener.wait_for_end().reason for listener in listeners}
    assert reasons <= {EndReason.SHUTDOWN, EndReason.LENGTH}
    assert 0 == runner.num_held
    with pytest.raises(EngineClosedError):
        submit(engine, Speech(key=9, num_codec_frames=2))


def test_cancel_from_another_thread_ends_the_request(running):
    """Any time, also after the end of the text."""
    engine, _, _ = running
    listener = Waiter()
    listener.on_audio = lambda: engine.cancel("1")
    engine.submit(job(Speech(key=1, num_codec_frames=390)), listener)

    assert EndReason.CANCELLED is listener.wait_for_end().reason
