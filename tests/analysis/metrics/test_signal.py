"""Signal metrics on clips with one fault each."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from engines.base import SampleFormat
from engines.outcomes import TransportOutcome
from tests.builders.audio import clip, faded, pcm_format, silence, tone
from tests.builders.runs import chunks_of
from tests.builders.views import measure, view

CLEAN = clip(silence(50), faded(tone(400), 20), faded(tone(100), 100)[::-1], silence(30))
FAULTS = ("clipped_share", "num_not_finite", "seam_clicks", "internal_silences", "dropouts",
          "abrupt_end", "dangling_bytes")  # fmt: skip


def of(*pieces, **fields):
    return view([(10 * i, samples) for i, samples in enumerate(pieces)], **fields)


@pytest.mark.parametrize("name", FAULTS)
def test_clean_clip_has_no_fault(name):
    """Two chunks of one smooth clip."""
    assert 0 == measure(name, of(CLEAN[:3000], CLEAN[3000:]))


def test_clipped_share_counts_samples_at_the_rail():
    """A quarter of the samples at full scale."""
    samples = np.concatenate([tone(30), np.ones(240)])

    assert 0.25 == measure("clipped_share", of(samples))


def test_dc_offset_is_the_size_of_the_mean():
    """-0.25 of full scale under a tone of whole periods."""
    assert 0.25 == pytest.approx(measure("dc_offset", of(tone(100) - 0.25)), abs=1e-4)


def test_broken_floats_are_counted():
    """One NaN and one infinity among four samples."""
    payload = struct.pack("<4f", 0.5, float("nan"), float("inf"), 0.25)
    found = view(
        chunks=chunks_of([(10, 16)]), payload=payload, audio_format=pcm_format(SampleFormat.F32LE)
    )

    assert 2 == measure("num_not_finite", found)


def test_seam_that_jumps_is_a_click():
    """The second chunk begins at the wrong phase; the third where it should."""
    sound = tone(300, frequency_hz=200)
    whole = [sound[:2400], sound[2400:4800], sound[4800:]]
    # A quarter period off: from a zero crossing to the crest.
    broken = [sound[:2400], sound[2430:4830], sound[4830:]]

    assert 0 == measure("seam_clicks", of(*whole))
    assert 1 == measure("seam_clicks", of(*broken))


def test_steep_sound_around_a_seam_is_no_click():
    """White noise jumps everywhere."""
    random = np.random.default_rng(1)
    samples = random.normal(0, 0.1, 4800)

    assert 0 == measure("seam_clicks", of(samples[:2400], samples[2400:]))


@pytest.mark.parametrize(("pause_ms", "count"), [(400, 0), (600, 1)])
def test_internal_silence_is_longer_than_half_a_second(pause_ms, count):
    """Between two sounds; silence at the ends does not count."""
    samples = clip(silence(900), tone(200), silence(pause_ms), tone(200), silence(900))

    assert count == measure("internal_silences", of(samples))


@pytest.mark.parametrize(("hole_ms", "count"), [(10, 0), (30, 1)])
def test_hole_with_sound_up_to_its_edges_is_a_dropout(hole_ms, count):
    """30 ms of zeros in the middle of a tone."""
    assert count == measure("dropouts", of(clip(tone(200), silence(hole_ms), tone(200))))


def test_pause_that_fades_is_no_dropout():
    """Sound dies away before the zeros."""
    samples = clip(faded(tone(200), 200)[::-1], silence(60), faded(tone(200), 200))

    assert 0 == measure("dropouts", of(samples))


def test_clip_that_ends_in_full_sound_ends_abruptly():
    """1 against 0 for one that has died away."""
    assert 1 == measure("abrupt_end", of(tone(300)))
    assert 0 == measure("abrupt_end", of(clip(tone(300), silence(20))))


def test_dangling_bytes_are_reported():
    """One stray byte behind the last sample."""
    found = view(chunks=chunks_of([(10, 4801)]), payload=b"\1\2" * 2400 + b"\3")

    assert 1 == measure("dangling_bytes", found)


def test_seconds_per_character_is_duration_over_text():
    """0.6 s for "Hello there." of 12 characters."""
    assert 0.05 == pytest.approx(measure("seconds_per_character", of(tone(600))))
    assert 0.6 == pytest.approx(measure("audio_duration", of(tone(600))))


@pytest.mark.parametrize("name", FAULTS)
def test_clip_that_was_not_recorded_has_no_signal_figures(name):
    """Null: unmeasured is not faultless."""
    assert measure(name, view(chunks=chunks_of([(10, 4800), (20, 4800)]), payload=b"")) is None


@pytest.mark.parametrize("name", FAULTS)
def test_fragment_of_a_failed_reply_has_no_signal_figures(name):
    """Its abrupt end is the failure's, not the voice's."""
    found = of(tone(100), tone(100), transport_outcome=TransportOutcome.TRUNCATED)

    assert measure(name, found) is None
