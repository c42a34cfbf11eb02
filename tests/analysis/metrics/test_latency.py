"""Latency metrics, each against a hand-worked trace."""

from __future__ import annotations

import pytest

from analysis.playback import buffer_ms
from analysis.view import AnalysisSettings
from engines.outcomes import TransportOutcome
from harness.records import INTERRUPTED_KIND, TextEvent
from tests.builders.audio import buzz, clip, noise, pcm16, silence, tone, wav, wav_format
from tests.builders.runs import chunks_of, ms
from tests.builders.views import measure, view


def two_pieces(second_ms: float, **fields):
    """400 ms of zeros at 20 ms, then half a second of tone."""
    return view([(20, silence(400)), (second_ms, tone(500))], **fields)


@pytest.mark.parametrize(
    ("second_ms", "heard_ms", "received_ms"), [(300, 420, 300), (600, 600, 600)]
)
def test_audible_ttfa_is_when_the_onset_plays(second_ms, heard_ms, received_ms):
    """An early tone is heard at 420, after its silence; a late one when it comes, after a stall."""
    of = two_pieces(second_ms)

    assert heard_ms == pytest.approx(measure("audible_ttfa", of), abs=2.0)
    assert received_ms == measure("audible_received", of)
    assert 20 == measure("ttfp", of)


def test_silence_cost_is_what_the_listener_waits_after_the_first_sample():
    """580 ms between the first playable chunk at 20 and the onset at 600."""
    assert 580 == pytest.approx(measure("silence_cost", two_pieces(600)), abs=2.0)


def test_leading_silence_is_media_time():
    """400 ms of zeros, however they were delivered."""
    assert 400 == pytest.approx(measure("leading_silence", two_pieces(600)), abs=2.0)


def test_a_first_sound_bought_with_noise_shows_as_a_gap():
    """200 ms of noise at once, 150 ms of zeros, then a voice: heard at 0, understood from 350."""
    bought = clip(noise(200, level_dbfs=-30.0), silence(150), buzz(400))
    of = view([(20, bought)])

    assert 20 == pytest.approx(measure("audible_ttfa", of), abs=2.0)
    assert 350 == pytest.approx(measure("speech_onset", of), abs=3.0)
    assert 350 == pytest.approx(measure("onset_gap", of), abs=4.0)


def test_a_voice_that_speaks_at_once_has_no_gap():
    """Its first sound is its first speech."""
    of = view([(20, clip(silence(80), buzz(400)))])

    assert 80 == pytest.approx(measure("speech_onset", of), abs=3.0)
    assert 0 == pytest.approx(measure("onset_gap", of), abs=3.0)


def test_a_reply_without_a_voice_has_no_speech_onset():
    """A tone is heard, but nobody speaks: null, not 0."""
    of = two_pieces(300)

    assert [None, None] == [measure(name, of) for name in ("speech_onset", "onset_gap")]


def test_nari_preset_stands_beside_ours():
    """Onset 400 ms on a 10 ms grid of 20 ms windows: 390; body sent 3 ms after dispatch."""
    of = two_pieces(300, sent_ns=ms(3))

    assert 390 == measure("leading_silence_nari_v1", of)
    assert 20 + 390 - 3 == pytest.approx(measure("audible_ttfa_from_send_nari_v1", of))


def test_header_alone_is_first_byte_but_not_first_playable():
    """A 44-byte header at 50 ms, samples from 300 ms on."""
    sound = pcm16(tone(200))
    header = wav(b"", declared=0)
    of = view(
        chunks=chunks_of([(50, 44), (300, 480), (310, len(sound) - 480)]),
        payload=header + sound,
        audio_format=wav_format(),
    )

    assert (50, 300) == (measure("ttfb", of), measure("ttfp", of))


@pytest.mark.parametrize(
    ("suffix", "shift_ms"), [("", 0), ("_from_schedule", 7), ("_from_send", -3)]
)
@pytest.mark.parametrize(
    ("name", "at_ms"),
    [("ttfb", 20), ("ttfp", 20), ("audible_received", 600), ("audible_ttfa", 600), ("e2e", 640)],
)
def test_every_event_counts_from_dispatch_schedule_and_send(name, at_ms, suffix, shift_ms):
    """Planned 7 ms before the dispatch; the body left 3 ms after it."""
    of = two_pieces(
        600,
        scheduled_ms=0,
        dispatched_ns=ms(7),
        sent_ns=ms(10),
        finished_ns=ms(640),
    )
    from_dispatch = at_ms - 7

    assert from_dispatch + shift_ms == pytest.approx(measure(name + suffix, of), abs=0.1)


def test_dispatch_lag_is_the_clients_own_lateness():
    """Planned at 0, dispatched at 7 ms."""
    assert 7 == measure("dispatch_lag", two_pieces(300, dispatched_ns=ms(7)))


def test_connect_time_ends_with_tls():
    """Name at 2, TCP at 5, TLS at 30 ms after the dispatch."""
    of = two_pieces(300, connection_reused=False, dns_ns=ms(2), connected_ns=ms(5), tls_ns=ms(30))

    assert 30 == measure("connect_time", of)


def test_connect_time_without_tls_ends_with_tcp():
    """No TLS stamp."""
    assert 5 == measure(
        "connect_time", two_pieces(300, connection_reused=False, connected_ns=ms(5))
    )


def test_reused_connection_has_no_connect_time():
    """Null, not 0."""
    assert measure("connect_time", two_pieces(300, connection_reused=True)) is None


def test_wait_between_two_attempts_is_no_connect_time():
    """Refused at once, tried again after a second: when that one began is not known."""
    of = two_pieces(3000, connection_reused=False, connected_ns=ms(1005), attempts=2)

    assert measure("connect_time", of) is None


def test_final_text_to_audible_counts_from_the_last_append():
    """Last text at 150 ms, onset plays at 420."""
    of = two_pieces(300, last_text_ns=ms(150), is_incremental=True)

    assert 270 == pytest.approx(measure("final_text_to_audible", of), abs=2.0)


def test_audio_before_text_end_is_a_share_of_the_reply():
    """400 of 900 ms had arrived when the last text was sent."""
    of = two_pieces(
        300, last_text_ns=ms(150), text_events=[TextEvent(0, 0, ms(150), None)], is_incremental=True
    )

    assert 4 / 9 == pytest.approx(measure("audio_before_text_end", of))


def test_buffered_start_moves_the_audible_moment():
    """With 500 ms of buffer the player starts at 300 and plays the onset 400 ms later."""
    of = two_pieces(300, settings=AnalysisSettings(start=buffer_ms(500)))

    assert 700 == pytest.approx(measure("audible_ttfa", of), abs=2.0)


def test_silent_reply_has_no_audible_moment():
    """First playable, never audible."""
    of = view([(20, silence(800))])

    assert "silent" == of.outcome
    assert (20, None) == (measure("ttfp", of), measure("audible_ttfa", of))


def test_request_that_was_never_sent_has_no_latency():
    """Null everywhere."""
    of = view(
        transport_outcome=TransportOutcome.NOT_SENT,
        dispatched_ns=None,
        sent_ns=None,
        finished_ns=None,
        first_byte_ns=None,
    )

    assert [None] * 4 == [measure(n, of) for n in ("dispatch_lag", "ttfb", "audible_ttfa", "e2e")]


CUT_OFF = {
    "cancelled": {"cancel_ns": ms(350), "finished_ns": ms(700)},
    "interrupted": {"error_kind": INTERRUPTED_KIND, "finished_ns": ms(350)},
}


@pytest.mark.parametrize("how", CUT_OFF)
def test_listener_who_was_gone_before_the_onset_played_never_heard_it(how):
    """The onset arrived at 300 and would have played at 420; cut off at 350."""
    of = two_pieces(300, transport_outcome=TransportOutcome.CANCELLED, **CUT_OFF[how])

    assert 300 == measure("audible_received", of)
    assert measure("audible_ttfa", of) is None


def test_what_came_after_the_cancel_had_not_happened():
    """The server sent its first byte only when the listener had gone, and went on."""
    of = view(
        [(500, tone(100)), (900, tone(100))],
        transport_outcome=TransportOutcome.CANCELLED,
        cancel_ns=ms(350),
    )

    names = ("ttfb", "ttfp", "audible_received", "audible_ttfa", "ttfb_from_send")
    assert [None] * 5 == [measure(name, of) for name in names]


def test_reply_recorded_without_audio_keeps_its_first_playable():
    """Samples can be counted from bytes; the sound cannot be known."""
    sound = pcm16(clip(silence(100), tone(200)))
    of = view(chunks=chunks_of([(20, 1), (30, len(sound) - 1)]), payload=b"")

    assert "ok" == of.outcome
    assert (30, None) == (measure("ttfp", of), measure("audible_ttfa", of))


def test_known_onset_of_a_simulated_run_needs_no_audio():
    """Sample 9600 of 24 kHz: 400 ms into the reply."""
    chunks = chunks_of([(20, 19_200), (300, 24_000)])
    of = view(chunks=chunks, payload=b"", known_onset_sample=9600)

    assert 420 == measure("audible_ttfa", of)
